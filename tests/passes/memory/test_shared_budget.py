"""The error over the budget: the sum, the buffers at the peak, and changes that fit when they are made."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang
import tilelang.language as T
from tilelang.errors import Location, TileValueError
from tilelang.passes.memory.shared_budget import Budget, Need, check_budget

ALL = 10  # a life that never ends


def need(name, shape, versions=1, first=0, last=ALL, gaps=0, element=2):
    size = element * versions
    for extent in shape:
        size *= extent
    return Need(name, shape, element, versions, size + gaps, 16, first, last, Location("k.py", 3, 5))


def refuse(needs, limit, static=0):
    meet = [{j for j, b in enumerate(needs) if j != i and a.first <= b.last and b.first <= a.last} for i, a in enumerate(needs)]
    budget = Budget(limit, static, "sm_90", meet, None)
    with pytest.raises(TileValueError) as error:
        check_budget(needs, budget.total(needs), budget)
    return error.value


def test_within_the_budget_nothing_happens():
    one = need("a", (8, 8))
    check_budget([one], 128, Budget(128, 0, "sm_90", [set()], None))


def test_fewer_stages_are_proposed_first():
    error = refuse([need("a", (128, 64), 4), need("b", (64, 128), 4), need("c", (128, 128))], 100_000)
    assert "163840 bytes (a 65536 + b 65536 + c 32768)" in error.message
    assert "63840 bytes too many" in error.message
    assert error.remedy.startswith("use num_stages=2 (98304 bytes); or use smaller tiles, for example ")
    assert [label for _, label in error.notes] == ["b: 65536 bytes, 4 versions of 64 x 128", "c: 32768 bytes, 128 x 128"]


def test_only_what_is_alive_at_the_peak_is_named():
    error = refuse([need("early", (64, 64), last=3), need("one", (64, 64), first=4), need("two", (64, 64), first=5)], 10_000)
    assert "(one 8192 + two 8192)" in error.message
    assert "early" not in error.message


def test_static_arrays_count():
    error = refuse([need("a", (64, 64))], 9000, static=1024)
    assert "9216 bytes (a 8192 + static arrays 1024), and may use 9000" in error.message
    assert "a of (32, 64) instead of (64, 64) (5120 bytes)" in error.remedy


def test_gaps_of_padded_rows_follow_the_rows():
    padded = need("a", (64, 64), gaps=64 * 16)
    assert padded.halved(0).bytes == padded.bytes // 2
    assert padded.halved(1).bytes == 64 * 32 * 2 + 64 * 16


def test_nothing_that_may_shrink():
    fixed = Need("bars", (100,), 8, 1, 800, 8, 0, ALL, None, fixed=True)
    assert "do not hold even its fixed parts" in refuse([fixed], 700).remedy


@given(st.lists(st.tuples(st.sampled_from((8, 16, 48, 64, 128)), st.sampled_from((16, 32, 100, 256)), st.integers(1, 4),
                          st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4), st.integers(200, 4000))  # fmt: skip
def test_a_proposed_change_fits_when_it_is_made(drawn, limit):
    needs = [need(f"t{k}", (m, n), v, min(a, b), max(a, b)) for k, (m, n, v, a, b) in enumerate(drawn)]
    meet = [{j for j, b in enumerate(needs) if j != i and a.first <= b.last and b.first <= a.last} for i, a in enumerate(needs)]
    budget = Budget(limit, 0, "sm_90", meet, None)
    if budget.total(needs) <= limit:
        return
    remedy = refuse(needs, limit).remedy
    for text in re.findall(r"num_stages=(\d+)", remedy):
        assert budget.total([n.with_versions(min(n.versions, int(text))) for n in needs]) <= limit
    changed = dict(re.findall(r"(t\d) of (\([\d, ]+\))", remedy))
    smaller = [need(n.name, eval(changed.get(n.name, str(n.shape))), n.versions, n.first, n.last) for n in needs]
    assert budget.total(smaller) <= limit


def test_the_error_of_a_program_and_its_cure():
    def make(rows):
        @T.prim_func
        def main(X: T.Tensor((1024, 128), "float32"), Y: T.Tensor((1024, 128), "float32")):
            with T.Kernel(1, threads=128):
                a = T.alloc_shared((rows, 128), "float32")
                b = T.alloc_shared((64, 128), "float32")
                T.copy(X[0:rows, 0:128], a)
                T.copy(X[0:64, 0:128], b)
                for i, j in T.Parallel(64, 128):
                    Y[i, j] = a[i + 1, j] + b[63 - i, j]

        return main

    with pytest.raises(TileValueError, match=r"327680 bytes \(a 294912 \+ b 32768\), and may use 232448 on sm_90") as error:
        tilelang.compile(make(576), target="simt")
    assert error.value.at is not None and "a = T.alloc_shared" in str(error.value)
    proposed = re.search(r"a of \((\d+), 128\) instead of \(576, 128\) \(180224 bytes\)", error.value.remedy)
    assert proposed is not None
    memory = tilelang.compile(make(int(proposed[1])), target="simt").memory.kernels[0]
    assert memory.shared == 180224

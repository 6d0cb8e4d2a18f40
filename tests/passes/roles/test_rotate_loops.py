"""Rotated loops: which ones are, how their statements stand, and that they compute what the serial program does."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call, For
from tilelang.passes.roles import specialize_warps as passes
from tilelang.passes.roles.rotate_loops import KEY_OFF
from tilelang.passes.roles.specialize_warps import SUBJECT, specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")
ROTATED = "the first products of the next iteration run beside the last ones of this"
KEPT = "the loop keeps its order: "
B = 64  # rows of a block of keys


def attention(rows=64, most=5, heads=1, dim=64, stages=2, threads=128, causal=False, guard=False):
    """softmax(Q K^T) V over the first `n` blocks of keys, n read from the call; O = 0 and l = 0 where there are none."""

    @T.prim_func
    def main(
        Q: T.Tensor((heads, rows, dim), "float16"),
        K: T.Tensor((heads, most * B, dim), "float16"),
        V: T.Tensor((heads, most * B, dim), "float16"),
        n: T.int32,
        O: T.Tensor((heads, rows, dim), "float32"),
        L: T.Tensor((heads, rows), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as h:
            q = T.alloc_shared((rows, dim), "float16")
            k = T.alloc_shared((B, dim), "float16")
            v = T.alloc_shared((B, dim), "float16")
            s = T.alloc_fragment((rows, B), "float32")
            p = T.alloc_fragment((rows, B), "float16")
            o = T.alloc_fragment((rows, dim), "float32")
            m = T.alloc_fragment((rows,), "float32")
            old = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            more = T.alloc_fragment((rows,), "float32")
            T.copy(Q[h, 0, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(m, -1e30)
            for i in T.Pipelined(n, num_stages=stages):
                if not guard or i != 1:
                    T.copy(K[h, i * B, 0], k)
                    if causal:
                        for y, x in T.Parallel(rows, B):
                            s[y, x] = T.if_then_else(4 * y >= i * B + x, 0, -1e30)
                    else:
                        T.clear(s)
                    T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(m, old)
                    T.reduce_max(s, m, dim=1, clear=False)
                    for y, x in T.Parallel(rows, B):
                        s[y, x] = T.exp2(s[y, x] - m[y])
                    T.reduce_sum(s, more, dim=1)
                    for y in T.Parallel(rows):
                        total[y] = total[y] * T.exp2(old[y] - m[y]) + more[y]
                    T.copy(s, p)
                    for y, x in T.Parallel(rows, dim):
                        o[y, x] *= T.exp2(old[y] - m[y])
                    T.copy(V[h, i * B, 0], v)
                    T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, O[h, 0, 0])
            T.copy(total, L[h, 0])

    return main


def notes(program, config=None):
    ctx = context(HOPPER, config or {})
    specialize_warps(program, ctx)
    return [n.text for n in ctx.notes if n.subject == SUBJECT]


def data(rows, most, heads, dim, seed):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((heads, r, dim)).astype("float16") for r in (rows, most * B, most * B))
    return q, k, v


def expected(q, k, v, n, causal=False):
    """In float64: the sums over exp2 relative to the largest score, as the program leaves them."""
    score = np.einsum("hyd,hxd->hyx", q.astype("f8"), k[:, : n * B].astype("f8"))
    if causal:
        score = np.where(4 * np.arange(q.shape[1])[:, None] >= np.arange(n * B), score, -1e30)
    weight = np.exp2(score - score.max(axis=2, keepdims=True, initial=-1e30))
    return weight @ v[:, : n * B].astype("f8"), weight.sum(axis=2)


def run(program, q, k, v, n, seed=0, config=None):
    o = np.full(q.shape, np.nan, "float32")
    total = np.full(q.shape[:2], np.nan, "float32")
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed, **(config or {})})(q, k, v, n, o, total)
    return o, total


def check(program, n, causal=False, seed=0, rows=64, most=5, heads=1, dim=64, config=None):
    q, k, v = data(rows, most, heads, dim, seed)
    o, total = run(program, q, k, v, n, seed, config)
    want, sums = expected(q, k, v, n, causal)
    np.testing.assert_allclose(total, sums, rtol=2e-3)
    np.testing.assert_allclose(o, want, rtol=5e-3, atol=5e-3 * max(1.0, float(np.abs(want).max(initial=0))))


# ---------------------------------------------------------------- which, and how
def test_rotated():
    assert ROTATED in notes(attention())


def test_order_of_the_products():
    """One pair before and behind the loop; in the loop both are issued before either is waited for, and nothing is in flight around it."""
    final = lower_to(attention(), HOPPER, {}, "relax_waits")
    found = []
    walk(final.body, {For: lambda f: found.append("loop") if str(f.loop_var.name) == "i" else None, Call: lambda c: found.append(_word(c))})
    words = [w for w in found if w]
    begin = words.index("loop")
    assert words[begin:][:7] == ["loop", "s", "commit", "o", "commit", "wait 1", "wait 0"]
    assert words[:begin] == ["s", "commit", "wait 0"]


def _word(call):
    name = op_name(call)
    if name == "tl.wgmma":
        return str(call.args[0].source.name)
    if name == "tl.wgmma_wait":
        return f"wait {int(call.args[0])}"
    return "commit" if name == "tl.wgmma_commit" else ""


def test_switched_off():
    assert KEPT + f"{KEY_OFF} is set" in notes(attention(), {KEY_OFF: True})


def test_a_condition_around_the_body():
    assert KEPT + "a condition is around its body" in notes(attention(guard=True))


def test_too_many_registers():
    found = [n for n in notes(attention(rows=64, dim=256, threads=128)) if n.startswith(KEPT)]
    assert found == []
    found = [n for n in notes(attention(rows=128, dim=256, threads=128)) if n.startswith(KEPT)]
    assert found == [KEPT + "its fragments would take 376 of 255 registers"]


def chain(kind):
    """Two products a step, P = S + 1 between. kind: what is different."""

    @T.prim_func
    def main(Q: T.Tensor((64, 64), "float16"), K: T.Tensor((4 * B, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((B, 64), "float16")
            v = T.alloc_shared((B, 64), "float16")
            shared = T.alloc_shared((64, B), "float16")
            s = T.alloc_fragment((64, B), "float32")
            p = T.alloc_fragment((64, B), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            o2 = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            T.clear(o2)
            T.clear(s)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(K[i * B, 0], k)
                if kind != "carried":
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for y, x in T.Parallel(64, B):
                    p[y, x] = s[y, x] + 1
                if kind == "one tile":
                    T.gemm(p, k, o)
                elif kind == "through memory":
                    T.copy(p, shared)
                    T.copy(K[i * B, 0], v)
                    T.gemm(shared, v, o)
                elif kind == "two accumulators":
                    T.copy(K[i * B, 0], v)
                    T.gemm(p, v, o)
                    T.gemm(p, k, o2)
                elif kind == "fed back":
                    T.copy(K[i * B, 0], v)
                    T.gemm(p, v, o)
                    T.copy(o, q)
                else:
                    T.copy(K[i * B, 0], v)
                    T.gemm(p, v, o)
            if kind == "two accumulators":
                for y, x in T.Parallel(64, 64):
                    o[y, x] += 2 * o2[y, x]
            T.copy(o, O)

    return main


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("fed back", "its first products and its last ones both touch q"),
    ],
)
def test_what_cannot_move_or_would_not_gain_stays(kind, why):
    assert KEPT + why in notes(chain(kind))


# ---------------------------------------------------------------- what they compute
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["one tile", "two accumulators", "carried", "through memory"])
def test_kinds_of_chains(kind, seed):
    """Small whole numbers: every sum is exact."""
    assert ROTATED in notes(chain(kind))
    rng = np.random.default_rng(seed)
    q, k = (rng.integers(-1, 2, shape).astype("float16") for shape in ((64, 64), (4 * B, 64)))
    got = np.full((64, 64), np.nan, "float32")
    tilelang.compile(chain(kind), target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(q, k, got)
    scores = [q.astype("f8") @ block.astype("f8").T for block in np.split(k, 4)]
    if kind == "carried":
        scores = list(np.cumsum(scores, axis=0))
    want = sum((s + 1) @ block.astype("f8") for s, block in zip(scores, np.split(k, 4), strict=True))
    np.testing.assert_array_equal(got, (3 if kind == "two accumulators" else 1) * want)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_trip_counts(n):
    check(attention(), n, seed=n)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_masked(seed):
    check(attention(causal=True), 4, causal=True, seed=seed)


@pytest.mark.parametrize("stages", [3, 4])
def test_more_slots(stages):
    check(attention(stages=stages), 5, seed=stages)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_one_block_visits_many_tiles(monkeypatch, n):
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 2)
    program = attention(rows=128, heads=5, threads=256)
    assert ROTATED in notes(program)
    check(program, n, seed=n, rows=128, heads=5)


def test_the_same_bits_as_in_order():
    q, k, v = data(64, 5, 1, 64, 7)
    rotated, kept = (run(attention(), q, k, v, 5, config=config) for config in ({}, {KEY_OFF: True}))
    np.testing.assert_array_equal(rotated[0], kept[0])
    np.testing.assert_array_equal(rotated[1], kept[1])

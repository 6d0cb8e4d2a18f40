"""Calls with effects happen as often, in the order and under the conditions that Python gives them, whatever surrounds them."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.ir.effects import effects_in, has_effect
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Bind, BufferStore, Evaluate, IfThenElse
from tilelang.passes.program.name_effects import name_effects

from ..programs import CPU


def count(buffer):
    return T.atomic_add(buffer, 1, return_prev=True)


@T.prim_func
def folded(C: T.Tensor((12,), "int32"), R: T.Tensor((12,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        if tx == 0:
            R[0] = count(C[0]) * 0
            R[1] = count(C[1]) & 0
            R[2] = count(C[2]) % 1
            R[3] = count(C[3]) ** 0
            R[4] = T.Select(C[11] == 5, 7, count(C[4]) - C[4])
            unused = count(C[5])  # noqa: F841
            count(C[6]) * 0
            R[7] = T.clamp(count(C[7]), 0, 0)
            if count(C[8]) == 0 and False:
                R[8] = 1
            T.evaluate(count(C[9]) * 0)


@T.prim_func
def conditional(C: T.Tensor((12,), "int32"), R: T.Tensor((12,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        if tx < 12:
            if tx < 4 and count(C[0]) >= 0:
                R[tx] += 1
            if tx < 4 or count(C[1]) >= 0:
                R[tx] += 2
            R[tx] += (count(C[2]) if tx < 3 else 0) * 0
            R[tx] += T.if_then_else(tx < 2, 0, count(C[3])) * 0
            if tx < 5 and (tx < 2 or count(C[4]) >= 0) and count(C[5]) >= 0:
                R[tx] += 4


@T.prim_func
def ordered(C: T.Tensor((12,), "int32"), R: T.Tensor((12,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        if tx == 0:
            R[0] = C[0] + T.atomic_add(C[0], 5, return_prev=True) + C[0]  # 0 + 0 + 5
            R[7 + count(C[1])] += count(C[1])  # the index once
            while count(C[2]) < 5:
                if C[2] == 2:
                    continue
                R[3] += 1
            for _ in T.serial(count(C[3]) + 2):
                R[4] += 1
            if count(C[4]) == 7:
                R[5] = 5
            elif count(C[4]) == 1:
                R[5] = 6
            value = T.cast(count(C[5]) + 3, "float32") % 2.0
            R[6] = T.cast(value, "int32")


def run(program, target):
    counts, results = np.zeros(12, np.int32), np.zeros(12, np.int32)
    tilelang.compile(program, target=target)(counts, results)
    return counts.tolist(), results.tolist()


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_an_effect_is_not_folded_away(target):
    counts, results = run(folded, target)
    assert counts == [1] * 10 + [0, 0]
    assert results == [0, 0, 0, 1, -1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_an_effect_under_a_condition_happens_only_there(target):
    counts, results = run(conditional, target)
    assert counts[:6] == [4, 8, 3, 10, 3, 5]
    assert results == [7, 7, 7, 7, 6, 2, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_effects_keep_their_order(target):
    counts, results = run(ordered, target)
    assert counts[:6] == [5, 2, 6, 1, 2, 1]
    assert results[:8] == [5, 0, 0, 4, 2, 6, 1, 1]


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_an_atomic_as_an_index_is_evaluated_once(target):
    n = 300

    @T.prim_func
    def compact(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32"), size: T.Tensor((1,), "int32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as block:
            for i in T.Parallel(64):
                if block * 64 + i < n and A[block * 64 + i] > 0:
                    B[count(size[0])] = A[block * 64 + i]

    a = np.random.default_rng(0).integers(-5, 6, n).astype(np.int32)
    b, size = np.full(n, -1, np.int32), np.zeros(1, np.int32)
    tilelang.compile(compact, target=target)(a, b, size)
    assert size[0] == (a > 0).sum()
    assert np.array_equal(np.sort(b[: size[0]]), np.sort(a[a > 0])) and np.all(b[size[0] :] == -1)


@pytest.mark.parametrize("program", [folded, conditional, ordered])
def test_an_effect_is_a_whole_statement(program):
    found = []

    def see(stmt):
        expressions = [stmt.condition] if isinstance(stmt, IfThenElse) else [stmt.value, *getattr(stmt, "indices", ())]
        for expr in expressions:
            calls = effects_in(expr)
            whole = isinstance(stmt, (Bind, Evaluate)) and hasattr(expr, "op") and has_effect(expr)
            found.extend(calls[: len(calls) - 1] if whole else calls)

    walk(name_effects(program, CPU).body, {(Bind, Evaluate, BufferStore, IfThenElse): see})
    assert found == []


@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_a_vote_as_the_condition_of_a_loop(target):
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            value = T.alloc_var("int32", X[tx])
            while T.syncthreads_or(value > 0) != 0:
                value -= 1
            Y[tx] = value

    x, y = np.random.default_rng(0).integers(0, 9, 64).astype(np.int32), np.zeros(64, np.int32)
    tilelang.compile(main, target=target)(x, y)
    assert np.array_equal(y, x - x.max())

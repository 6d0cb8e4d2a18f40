"""Loops over registers under a condition that few values decide."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.evaluate import evaluate
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import For, ForKind, IfThenElse, Stmt, Var, const, decl_buffer, load, store, tirx
from tilelang.passes.partition.idle_loops import skipped
from tilelang.target.target import parse_target


def buffers():
    return decl_buffer((64,), "float32", "acc", "local"), decl_buffer((2,), "float32", "scale", "local")


def loop(condition_of, body_of, count=64) -> For:
    r = Var("r", "int32")
    return For(r, 0, count, ForKind.UNROLLED, IfThenElse(condition_of(r), body_of(r), None))


def scaled(acc, scale):
    return lambda r: store(acc, load(acc, [r]) * load(scale, [r % 2]), [r])


def test_the_different_conditions_come_first():
    acc, scale = buffers()
    node = loop(lambda r: tirx.NE(load(scale, [r % 2]), const(1.0, "float32")), scaled(acc, scale))
    found = skipped(node)
    assert isinstance(found, IfThenElse) and found.then_case.same_as(node)
    assert str(found.condition).replace("T.float32(1.0)", "1") == "scale[0] != 1 or scale[1] != 1"


@pytest.mark.parametrize(("why", "condition", "count"), [
    ("each iteration has its own", lambda acc, scale, r: load(acc, [r]) > const(0.0, "float32"), 64),
    ("an iteration changes it", lambda acc, scale, r: load(acc, [r % 2]) > const(0.0, "float32"), 64),
    ("few iterations", lambda acc, scale, r: load(scale, [r % 2]) > const(0.0, "float32"), 6),
])  # fmt: skip
def test_loops_that_stay(why, condition, count):
    acc, scale = buffers()
    node: Stmt = loop(lambda r: condition(acc, scale, r), scaled(acc, scale), count)
    assert skipped(node).same_as(node), why


def test_an_else_stays():
    acc, scale = buffers()
    r = Var("r", "int32")
    branch = IfThenElse(load(scale, [r % 2]) > const(0.0, "float32"), scaled(acc, scale)(r), store(acc, const(0.0, "float32"), [r]))
    node = For(r, 0, 64, ForKind.UNROLLED, branch)
    assert skipped(node).same_as(node)


def compared(known, kept=True):
    """x[r] stays where column 4 r + t is before n; -1 elsewhere. known: are t and n positions?"""
    x = decl_buffer((32,), "float32", "x", "local")
    r, t, n = (Var(name, "int32") for name in "rtn")
    inside = r * 4 + t < n
    same, other = load(x, [r]), const(-1.0, "float32")
    value = tirx.if_then_else(inside, same, other) if kept else tirx.if_then_else(inside, other, same)
    node = For(r, 0, 32, ForKind.UNROLLED, store(x, value, [r]))
    return node, skipped(node, (t, n) if known else ()), {t: 3, n: 50}


def test_the_weakest_of_comparisons_that_differ_by_constants():
    """Elements that stay are no work: the last column decides whether there is any."""
    node, found, values = compared(True)
    assert isinstance(found, IfThenElse) and found.then_case.same_as(node)
    for n in (0, 3, 100, 126, 127, 128, 200):
        some = any(4 * r + 3 >= n for r in range(32))
        assert bool(evaluate(found.condition, {**dict(zip(values, (3, n), strict=True))})) == some


def test_a_loop_that_does_not_begin_at_zero():
    acc, scale = buffers()
    r = Var("r", "int32")
    changed = IfThenElse(tirx.NE(load(scale, [r // 32]), const(1.0, "float32")), store(acc, const(0.0, "float32"), [r]), None)
    found = skipped(For(r, 32, 32, ForKind.UNROLLED, changed))
    assert isinstance(found, IfThenElse) and "scale[1]" in str(found.condition) and "scale[0]" not in str(found.condition)


def test_nothing_is_concluded_from_values_that_may_wrap_around():
    node, found, _ = compared(False)
    assert found.same_as(node)


def test_an_element_that_is_written_where_the_condition_holds():
    """`x = if_then_else(c, v, x)` writes where c holds: not a form that is looked for."""
    node, found, _ = compared(True, kept=False)
    assert found.same_as(node)


def rescaled():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((64, 32), "float16"), S: T.Tensor((64,), "float32"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            scale = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(S, scale)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                if scale[i] != 1.0:
                    c[i, j] *= scale[i]
            T.copy(c, C)

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rows_of_an_accumulator(arch):
    """The rows that are scaled are those of the condition, whether a thread has some of them or none."""
    target = f"simt -arch={arch}"
    loops: list[Stmt] = []

    def see(node: IfThenElse) -> None:
        if isinstance(node.condition, tirx.Or) and isinstance(node.then_case, For):
            loops.append(node)

    walk(lower_to(rescaled(), parse_target(target), {}, "partition_loops").body, {IfThenElse: see})
    assert loops
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 64, 32)).astype(np.float16)
    for scale in (np.ones(64), np.where(np.arange(64) % 16 == 3, 2.0, 1.0), np.full(64, 0.5)):
        got = np.zeros((64, 64), np.float32)
        tilelang.compile(rescaled(), target=target)(a, b, scale.astype(np.float32), got)
        assert np.allclose(got, a.astype(np.float64) @ b.astype(np.float64).T * scale[:, None], rtol=1e-3, atol=1e-3)

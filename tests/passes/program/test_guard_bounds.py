"""Accesses outside a buffer: the load gives the safe value, the store does not happen, inside ones stay untouched."""

import warnings

import numpy as np
import pytest

from tilelang.errors import Location, OutOfBoundsWarning
from tilelang.ir.context import PassContext
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import (
    AllocBuffer,
    Bind,
    Call,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Var,
    const,
    decl_buffer,
    load,
    make_span,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.ir.verify import LOOPS, verify
from tilelang.passes.program.guard_bounds import guard_bounds
from tilelang.target.target import Target

from ..programs import CPU, CUDA, kernel, run


def count(func, kind):
    found = []
    walk(func.body, {kind: found.append})
    return len(found)


def guards(func):
    calls = []
    walk(func.body, {Call: lambda c: calls.append(c) if c.op.name == "prim.if_then_else" else None})
    return len(calls) + count(func, IfThenElse)


def shifted(offset, n=16, extent=16):
    A, C = decl_buffer((n,), "float32", "A"), decl_buffer((n,), "float32", "C")

    def body(blocks, threads):
        i = Var("i", "int32")
        return [For(i, 0, extent, ForKind.SERIAL, store(C, load(A, [i + offset]) + FloatImm("float32", 1), [i]))]

    return kernel([A, C], body)


def test_inside_is_untouched():
    func = shifted(0)
    assert guard_bounds(func, CPU).body.same_as(func.body) or guards(guard_bounds(func, CPU)) == 0


@pytest.mark.parametrize("offset", [-3, 5, 100])
def test_load_outside_is_zero(offset):
    a = np.arange(16, dtype=np.float32)
    _, c = run(guard_bounds(shifted(offset), CPU), a, np.full(16, 7, np.float32))
    index = np.arange(16) + offset
    ok = (index >= 0) & (index < 16)
    np.testing.assert_array_equal(c, np.where(ok, a[np.clip(index, 0, 15)], 0) + 1)


def test_one_sided_condition_only():
    out = guard_bounds(shifted(5), CPU)
    assert "i + 5 < 16" in out.script() and ">= 0" not in out.script()


def test_store_outside_is_dropped_and_condition_leaves_the_inner_loop():
    C = decl_buffer((10, 4), "float32", "C")

    def body(blocks, threads):
        i, j = Var("i", "int32"), Var("j", "int32")
        inner = For(j, 0, 4, ForKind.VECTORIZED, store(C, FloatImm("float32", 2), [blocks[0] * 8 + i, j]))
        return [For(i, 0, 8, ForKind.SERIAL, inner)]

    out = guard_bounds(kernel([C], body, blocks=(2,)), CPU)
    kinds = []
    walk(out.body, {For: lambda n: kinds.append(n.loop_var.name), IfThenElse: lambda n: kinds.append("if")})
    assert kinds == ["i", "if", "j"]
    (c,) = run(out, np.zeros((10, 4), np.float32))
    np.testing.assert_array_equal(c, np.full((10, 4), 2))


def test_condition_around_is_used():
    n = Var("n", "int32")
    A, C = decl_buffer((n,), "float32", "A"), decl_buffer((n,), "float32", "C")

    def body(blocks, threads):
        i = Var("i", "int32")
        index = blocks[0] * 8 + i
        return [For(i, 0, 8, ForKind.SERIAL, IfThenElse(index < n, store(C, load(A, [index]), [index]), None))]

    out = guard_bounds(kernel([A, C], body, blocks=((n + 7) // 8,)), CPU)
    assert guards(out) == 1


def test_else_branch_and_if_then_else_give_facts():
    A, C = decl_buffer((16,), "float32", "A"), decl_buffer((20,), "float32", "C")

    def body(blocks, threads):
        i = Var("i", "int32")
        zero = FloatImm("float32", 0)
        return [For(i, 0, 20, ForKind.SERIAL, seq([
            IfThenElse(i >= 16, store(C, zero, [i]), store(C, load(A, [i]), [i])),
            store(C, tirx.if_then_else(i < 16, load(A, [i]), zero), [i]),
        ]))]  # fmt: skip

    assert guards(guard_bounds(kernel([A, C], body), CPU)) == 2


def test_nan_condition_proves_nothing():
    A, C = decl_buffer((4,), "float32", "A"), decl_buffer((1,), "float32", "C")

    def body(blocks, threads):
        x = load(A, [0])
        return [IfThenElse(tirx.Not(tirx.EQ(x, x)), store(C, load(A, [blocks[0] + 100]), [0]), None)]

    func = kernel([A, C], body, blocks=(2,))
    _, c = run(guard_bounds(func, CPU), np.full(4, np.nan, np.float32), np.ones(1, np.float32))
    assert c[0] == 0


def gather(dtype="int32", scale=1, offset=0):
    I, A, C = decl_buffer((8,), dtype, "I"), decl_buffer((64,), "float32", "A"), decl_buffer((8,), "float32", "C")

    def body(blocks, threads):
        i = Var("i", "int32")
        index = load(I, [i]) * const(scale, dtype) + const(offset, dtype)
        return [For(i, 0, 8, ForKind.SERIAL, seq([store(C, load(A, [index]), [i]), store(A, FloatImm("float32", -1), [index])]))]

    return kernel([I, A, C], body)


@pytest.mark.parametrize(
    ("dtype", "scale", "offset"), [("int32", 1, 0), ("int32", 64, 3), ("int32", 1 << 20, 1), ("int64", 1, 0), ("int8", 1, 0)]
)
def test_indices_from_memory(dtype, scale, offset):
    info = np.iinfo(dtype)
    indices = np.array([0, 1, 63, 64, -1, info.min, info.max, info.max // 2 + 1], dtype)
    a = np.arange(64, dtype=np.float32)
    _, after, c = run(guard_bounds(gather(dtype, scale, offset), CPU), indices, a, np.full(8, 5, np.float32))
    want, want_a = [], a.copy()
    for index in indices:
        at = int(index) * scale + offset
        want.append(want_a[at] if 0 <= at < 64 else 0)
        if 0 <= at < 64:
            want_a[at] = -1
    np.testing.assert_array_equal(c, np.array(want, np.float32))
    np.testing.assert_array_equal(after, want_a)


def test_memory_changed_after_the_test_is_not_trusted():
    """if s[0] < 4: s[0] = 100; A[s[0]] = 1"""
    A, S = decl_buffer((4,), "float32", "A"), decl_buffer((1,), "int32", "S", "local")

    def body(blocks, threads):
        at = load(S, [0])
        inside = tirx.And(at >= 0, at < 4)
        return [AllocBuffer(S), store(S, const(1, "int32"), [0]),
                IfThenElse(inside, seq([store(S, const(100, "int32"), [0]), store(A, FloatImm("float32", 1), [at])]), None)]  # fmt: skip

    (a,) = run(guard_bounds(kernel([A], body), CPU), np.zeros(4, np.float32))
    np.testing.assert_array_equal(a, 0)


def test_bound_value_and_mask_are_known():
    A, I = decl_buffer((16,), "float32", "A"), decl_buffer((4,), "int32", "I")

    def body(blocks, threads):
        x = Var("x", "int32")
        return [Bind(x, load(I, [0]) % 16), store(A, FloatImm("float32", 1), [x]), store(A, FloatImm("float32", 1), [load(I, [1]) & 15])]

    assert guards(guard_bounds(kernel([A, I], body), CPU)) == 0


def test_unsigned_wrap_is_not_trusted():
    U, A = decl_buffer((1,), "uint32", "U"), decl_buffer((8,), "float32", "A")

    def body(blocks, threads):
        index = tirx.Cast("int32", load(U, [0]))
        return [store(A, FloatImm("float32", 1), [tirx.Min(index, const(7, "int32"))])]

    _, a = run(guard_bounds(kernel([U, A], body), CPU), np.array([0x80000000], np.uint32), np.zeros(8, np.float32))
    np.testing.assert_array_equal(a, 0)


def test_safe_value_and_padding():
    A, C, S = decl_buffer((4,), "float32", "A"), decl_buffer((8,), "float32", "C"), decl_buffer((8,), "float32", "S", "shared")

    def body(blocks, threads):
        i, j = Var("i", "int32"), Var("j", "int32")
        return [AllocBuffer(S), For(i, 0, 8, ForKind.SERIAL, store(S, load(A, [i]) + FloatImm("float32", 1), [i])),
                For(j, 0, 8, ForKind.SERIAL, store(C, load(S, [j]), [j]))]  # fmt: skip

    a = np.arange(4, dtype=np.float32)
    _, c = run(guard_bounds(kernel([A, C], body, safe_value={A: FloatImm("float32", 9)}), CPU), a, np.zeros(8, np.float32))
    np.testing.assert_array_equal(c, [1, 2, 3, 4, 10, 10, 10, 10])
    _, c = run(guard_bounds(kernel([A, C], body, padding={S: FloatImm("float32", 9)}), CPU), a, np.zeros(8, np.float32))
    np.testing.assert_array_equal(c, [1, 2, 3, 4, 9, 9, 9, 9])


def test_constant_index_outside_warns_at_the_line():
    A = decl_buffer((4,), "float32", "A")
    span = make_span(Location("user.py", 12, 5))

    def body(blocks, threads):
        return [store(A, FloatImm("float32", 1), [IntImm("int32", 4)], span)]

    with pytest.warns(OutOfBoundsWarning, match=r"always outside A.*\n.*user.py:12:5"):
        out = guard_bounds(kernel([A], body), CPU)
    (a,) = run(out, np.zeros(4, np.float32))
    np.testing.assert_array_equal(a, 0)


def test_gpu_guards_global_memory_only_and_the_switch_turns_it_off():
    S = decl_buffer((4,), "float32", "S", "local")
    A = decl_buffer((4,), "float32", "A")

    def body(blocks, threads):
        i = Var("i", "int32")
        return [AllocBuffer(S), For(i, 0, 8, ForKind.SERIAL, seq([store(S, FloatImm("float32", 1), [i]), store(A, load(S, [0]), [i])]))]

    off = {"tl.disable_safe_memory_legalize": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert guards(guard_bounds(kernel([A], body), CPU)) == 2
        assert guards(guard_bounds(kernel([A], body), CUDA)) == 1
        assert guards(guard_bounds(kernel([A], body), PassContext(Target("cpu"), off))) == 1
        assert guards(guard_bounds(kernel([A], body), PassContext(Target("cuda"), off))) == 0


def ragged_nest():
    C = decl_buffer((10, 4, 3), "float32", "C")

    def body(blocks, threads):
        i, j, k = (Var(n, "int32") for n in "ijk")
        inner = store(C, FloatImm("float32", 2), [blocks[0] * 8 + i, j, k])
        inner = For(j, 0, 4, ForKind.PARALLEL, For(k, 0, 3, ForKind.PARALLEL, inner))
        return [For(i, 0, 8, ForKind.PARALLEL, inner, annotations={"tl.parallel": 3})]

    return kernel([C], body, blocks=(2,))


def test_a_split_nest_announces_its_parts_and_a_gpu_keeps_it_whole():
    for target, announced in ((CPU, [1, 2, None]), (CUDA, [3, None, None])):
        out = guard_bounds(ragged_nest(), target)
        verify(out, LOOPS, "guard_bounds")
        found = []
        walk(out.body, {For: lambda n: found.append(dict(n.annotations or {}).get("tl.parallel"))})  # noqa: B023
        assert [None if a is None else int(a) for a in found] == announced
    (c,) = run(guard_bounds(ragged_nest(), CPU), np.zeros((10, 4, 3), np.float32))
    np.testing.assert_array_equal(c, np.full((10, 4, 3), 2))

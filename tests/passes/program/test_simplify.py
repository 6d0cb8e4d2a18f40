"""Index arithmetic becomes simpler; floats, wrapping integers and data stay exactly as written."""

import pytest

from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import (
    Bind,
    BufferStore,
    Evaluate,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Var,
    const,
    decl_buffer,
    load,
    seq,
    store,
    tirx,
)
from tilelang.passes.program.guard_bounds import guard_bounds
from tilelang.passes.program.simplify import simplify

from ..programs import CPU, kernel


def value_after(expr, dtype="float32"):
    C = decl_buffer((16,), dtype, "C")
    out = simplify(kernel([C], lambda b, t: [store(C, expr, [b[0]])], blocks=(16,)), CPU)
    found = []
    walk(out.body, {BufferStore: found.append})
    return found[0].value


A = decl_buffer((16,), "float32", "A")
x = load(A, [0])


def f32(v):
    return FloatImm("float32", v)


@pytest.mark.parametrize("expr", [
    tirx.Mul(x, f32(0)), tirx.Add(x, f32(0)), tirx.Sub(x, x), tirx.Sub(tirx.Add(x, f32(3)), f32(3)), tirx.Max(x, x), tirx.Div(f32(0), x),
    tirx.Cast("float32", tirx.EQ(x, x)), tirx.Cast("float32", tirx.Not(tirx.LT(x, f32(1)))),
    tirx.Select(tirx.NE(x, x), f32(1), f32(2)), tirx.if_then_else(tirx.EQ(x, x), f32(1), f32(2)),
])  # fmt: skip
def test_floats_are_untouched(expr):
    assert str(value_after(expr)) == str(expr)


def test_wrapping_data_is_untouched():
    u = load(decl_buffer((4,), "uint32", "U"), [0])
    expr = tirx.FloorDiv(tirx.Mul(u, const(16, "uint32")), const(16, "uint32"))
    assert str(value_after(expr, "uint32")) == str(expr)


def test_indices_bounds_and_conditions():
    C = decl_buffer((64,), "float32", "C")
    i = Var("i", "int32")

    def body(b, t):
        inner = IfThenElse(i < 8, store(C, f32(1), [(b[0] * 8 + i) // 8 * 8 + (i + 0) % 8]), store(C, f32(2), [0]))
        return [For(i, 0, (b[0] * 8 + 64) // 8 - b[0], ForKind.SERIAL, inner), Evaluate(IntImm("int32", 0))]

    text = simplify(kernel([C], body, blocks=(8,)), CPU).script()
    assert "C[bx * 8 + i]" in text and "if " not in text and "range(8)" in text


def test_no_ops_disappear():
    C = decl_buffer((4,), "float32", "C")
    i, j = Var("i", "int32"), Var("j", "int32")

    def body(b, t):
        return [For(i, 0, 4, ForKind.SERIAL, Evaluate(IntImm("int32", 0))), For(j, 0, 0, ForKind.SERIAL, store(C, f32(1), [j])),
                store(C, f32(3), [0]), IfThenElse(IntImm("bool", 0), store(C, f32(4), [0]), None)]  # fmt: skip

    found = []
    walk(simplify(kernel([C], body), CPU).body, {(For, BufferStore, Evaluate, IfThenElse): found.append})
    assert [type(n) for n in found] == [BufferStore]


def test_memory_is_not_a_constant():
    """if s[0] < 4: s[0] = 9; if s[0] < 4: C[0] = 1 — the second test stays."""
    C, S = decl_buffer((4,), "float32", "C"), decl_buffer((1,), "int32", "S", "local")
    low = load(S, [0]) < 4
    inner = seq([store(S, const(9, "int32"), [0]), IfThenElse(low, store(C, f32(1), [0]), None)])
    out = simplify(kernel([C, S], lambda b, t: [IfThenElse(low, inner, None)]), CPU)
    found = []
    walk(out.body, {IfThenElse: found.append})
    assert len(found) == 2


def test_bound_names_are_known():
    C = decl_buffer((64,), "float32", "C")
    v = Var("v", "int32")
    func = kernel([C], lambda b, t: [Bind(v, b[0] * 4), IfThenElse(v < 64, store(C, f32(1), [v]), None)], blocks=(16,))
    text = simplify(func, CPU).script()
    assert "if " not in text


def test_chains_of_names_stay_cheap():
    C = decl_buffer((64,), "int32", "C")

    def body(b, t):
        names = [b[0]]
        stmts = []
        for k in range(60):
            names.append(Var(f"v{k}", "int32"))
            stmts.append(Bind(names[-1], tirx.BitwiseXor(names[-2] * 31, tirx.RShift(names[-2], const(3, "int32")))))
        return [*stmts, store(C, names[-1], [names[-1] % 64])]

    func = kernel([C], body, blocks=(4,))
    assert simplify(guard_bounds(func, CPU), CPU) is not None

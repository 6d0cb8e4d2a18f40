"""lower_tile_ops: the shape of its output, the choice between lowerings, hoisted any_of / all_of."""

import numpy as np
import tvm

from tests.tileop.harness import Program
from tilelang.errors import Location
from tilelang.ir.builder import Builder
from tilelang.ir.dialect import op_name, tile_call
from tilelang.ir.kernel import match_kernel
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    BufferStore,
    Call,
    Evaluate,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
    load,
    location_of,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.tileop.base import Lowering
from tilelang.tileop.copy import copy
from tilelang.tileop.fill import clear, fill
from tilelang.tileop.gemm import gemm
from tilelang.tileop.logical import all_of, any_of
from tilelang.tileop.reduce import reduce_sum


def kernel_body(func):
    return match_kernel(func.body).body


def statements(func):
    body = kernel_body(func)
    return list(body.seq) if isinstance(body, SeqStmt) else [body]


def calls(func):
    found = []
    walk(func.body, {Call: lambda c: found.append(op_name(c))})
    return found


def test_copy_becomes_this_nest():
    p = Program()
    a = p.param((8, 4), "float16", "A")
    with p.writing():
        s = p.alloc((8, 4), "float32", "s")
        copy(a, s)
    func, _ = p.lowered()
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    inner = For(j, 0, 4, ForKind.PARALLEL, store(s, tirx.Cast("float32", load(a, [i, j])), [i, j]))
    nest = For(i, 0, 8, ForKind.PARALLEL, inner, annotations={"tl.parallel": IntImm("int32", 2)})
    expected = seq([AllocBuffer(s), AttrStmt(IntImm("int32", 0), "tl.collective", IntImm("int32", 1), nest)])
    tvm.ir.assert_structural_equal(PrimFunc([a], kernel_body(func)), PrimFunc([a], expected))


def test_reduce_becomes_this_nest():
    p = Program()
    with p.writing():
        x, y = p.alloc((8, 4), "float32", "x"), p.alloc((8,), "float32", "y")
        reduce_sum(x, y, dim=1)
    func, _ = p.lowered()
    i, r = tirx.Var("i", "int32"), tirx.Var("r", "int32")
    acc = decl_buffer((1,), "float32", "acc", "local.var")
    step = For(r, 0, 4, ForKind.SERIAL, store(acc, load(acc, [0]) + load(x, [i, r]), [0]))
    body = seq([AllocBuffer(acc), store(acc, tirx.FloatImm("float32", 0), [0]), step, store(y, load(acc, [0]), [i])])
    nest = For(i, 0, 8, ForKind.PARALLEL, body, annotations={"tl.parallel": IntImm("int32", 1)})
    expected = seq([AllocBuffer(x), AllocBuffer(y), AttrStmt(IntImm("int32", 0), "tl.collective", IntImm("int32", 1), nest)])
    tvm.ir.assert_structural_equal(PrimFunc([], kernel_body(func)), PrimFunc([], expected))


def test_per_thread_memory_gets_serial_loops_without_the_attribute():
    p = Program()
    with p.writing():
        t = p.alloc((8,), "float32", "t", "local")
        clear(t)
    loop = statements(p.lowered()[0])[-1]
    assert isinstance(loop, For) and loop.kind == ForKind.SERIAL and not loop.annotations


def test_temporaries_of_a_thread_are_declared_where_they_belong():
    p = Program()
    with p.writing():
        t = p.alloc((8,), "float32", "t", "local")
        copy(region(t, [0], [4]), region(t, [1], [4]))
        with p.builder.loop(["i"], [0], [4], ForKind.PARALLEL, "parallel", {"tl.parallel": 1}):
            u = p.alloc((8,), "float32", "u", "local")
            copy(region(u, [0], [4]), region(u, [1], [4]))
    top = statements(p.lowered()[0])
    assert [s.buffer.name for s in top if isinstance(s, AllocBuffer)] == ["t_copy", "t"]
    parallel = top[-1]
    assert [s.buffer.name for s in parallel.body.seq if isinstance(s, AllocBuffer)] == ["u_copy", "u"]


def test_spans_are_those_of_the_users_statement():
    p = Program()
    with p.writing():
        a, c = p.alloc((8, 8), "float32", "a"), p.alloc((8, 8), "float32", "c")
        p.builder.location = Location("user.py", 7, 5)
        gemm(a, a, c)
    func, ctx = p.lowered()
    lines = set()
    walk(statements(func)[-1], {(For, BufferStore, AttrStmt): lambda s: lines.add(location_of(s).line)})
    assert lines == {7}
    assert ctx.notes[0].at.line == 7


def test_backend_lowering_is_chosen_and_refusals_are_notes():
    def lower(call, ctx):
        return Evaluate(IntImm("int32", 42))

    wide = Lowering("wide copy", "tl.tileop.copy", lambda call, ctx: "rows are too short", lower)
    fast = Lowering("fast copy", "tl.tileop.copy", lambda call, ctx: None, lower)
    p = Program()
    with p.writing():
        a, b = p.alloc((8,), "float32", "a"), p.alloc((8,), "float32", "b")
        copy(a, b)
        clear(a)
    func, ctx = p.lowered([wide, fast])
    assert [(n.subject, n.text) for n in ctx.notes] == [
        ("copy", "wide copy declined: rows are too short"), ("copy", "fast copy"), ("fill", "portable loops"),
    ]  # fmt: skip
    assert int(statements(func)[-2].body.value) == 42


def test_nothing_of_the_tile_level_remains():
    p = Program()
    with p.writing():
        a, c = p.alloc((8, 8), "float32", "a"), p.alloc((8, 8), "float32", "c")
        clear(c)
        gemm(a, a, c, clear_accum=any_of(a))
        with p.builder.when(all_of(c)):
            copy(a, c)
    func, _ = p.lowered()
    assert not [name for name in calls(func) if name.startswith("tl.tileop.") or name in ("tl.any_of", "tl.all_of")]
    walk(func.body, {Evaluate: lambda s: tile_call(s) is None or (_ for _ in ()).throw(AssertionError(s))})


def test_condition_of_a_while_loop_is_computed_again():
    p = Program()
    x = p.param((6,), "int32", "X")
    with p.writing():
        b = p.builder
        s, n = p.alloc((6,), "int32", "s"), p.alloc((1,), "int32", "n", "local.var")
        copy(x, s)
        with b.repeat(any_of(s)):
            b.store(n, load(n, [0]) + 1, [0])
            with b.when(load(n, [0]) > 6):
                b.evaluate(tirx.break_loop())
            b.store(s, tirx.IntImm("int32", 0), [load(n, [0]) - 1])
            with b.when(load(n, [0]).equal(2)):
                b.evaluate(tirx.continue_loop())
            b.store(s, load(s, [5]), [5])
        b.store(x, load(n, [0]), [0])
    for values, rounds in (([0] * 6, 0), ([1, 0, 0, 0, 0, 0], 1), ([1, 1, 0, 0, 0, 0], 2), ([1, 1, 0, 0, 0, 3], 6)):
        array = np.array(values, np.int32)
        p.run(array)
        assert array[0] == rounds


def test_while_recomputes_at_every_way_to_the_condition():
    p = Program()
    with p.writing():
        s = p.alloc((6,), "int32", "s")
        with p.builder.repeat(any_of(s)):
            with p.builder.loop(["k"], [0], [3]):
                p.builder.evaluate(tirx.continue_loop())  # belongs to the inner loop
            p.builder.evaluate(tirx.continue_loop())
    func, _ = p.lowered()
    loop = statements(func)[-1]
    assert isinstance(loop, While)
    body = list(loop.body.seq)
    assert isinstance(body[0], For) and isinstance(body[0].body, Evaluate)
    assert [type(s) for s in body[1:]] == [AttrStmt, Evaluate, AttrStmt]
    assert tvm.tirx.analysis.verify_well_formed(func, assert_mode=False)


def test_symbolic_temporaries_stand_at_their_use():
    p = Program()
    n = p.scalar("n")
    a = p.param((n,), "int32", "A")
    with p.writing():
        m = tirx.Var("m", "int32")
        p.builder.emit(tirx.Bind(m, n - 1))
        copy(region(a, [0], [m]), region(a, [1], [m]))
    x = np.arange(7, dtype=np.int32)
    p.run(7, x)
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5]


def test_value_of_fill_is_read_once():
    p = Program()
    a = p.param((5,), "int32", "A")
    with p.writing():
        fill(a, load(a, [0]) + 1)
    x = np.array([3, 0, 0, 0, 0], np.int32)
    p.run(x)
    assert x.tolist() == [4] * 5


def test_tile_operator_inside_parallel_belongs_to_the_iteration():
    p = Program()
    a, b = p.param((4, 6), "int32", "A"), p.param((4,), "int32", "B")
    with p.writing():
        builder: Builder = p.builder
        with builder.loop(["i"], [0], [4], ForKind.PARALLEL, "parallel", {"tl.parallel": 1}) as (i,):
            t, s = p.alloc((6,), "int32", "t", "local"), p.alloc((1,), "int32", "s", "local.var")
            copy(load(a, [i, 0]), t)
            reduce_sum(t, s)
            builder.store(b, load(s, [0]), [i])
    x, y = np.arange(24, dtype=np.int32).reshape(4, 6), np.zeros(4, np.int32)
    p.run(x, y)
    assert y.tolist() == x.sum(1).tolist()

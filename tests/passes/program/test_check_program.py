"""Errors of the user's program, at the user's line."""

import pytest

from tilelang.errors import Location, TileIndexError, TileNameError, TileNotSupportedError, TileSyntaxError, TileValueError
from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import (
    AllocBuffer,
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
    make_span,
    region,
    store,
    tirx,
)  # fmt: skip
from tilelang.passes.program.check_program import check_program, deeper_than

from ..programs import CPU, CUDA, kernel


def span(line):
    return make_span(Location("user.py", line, 1))


def check(stmts, target=CPU):
    func = kernel([], lambda blocks, threads: stmts)
    assert check_program(func, target) is func


A = decl_buffer((4, 4), "float32", "A")
ONE = FloatImm("float32", 1)


def test_gpu_only_things_name_the_statement_the_target_and_the_remedy():
    bar = decl_buffer((1,), "uint64", "bar", "shared.barrier")
    alloc = AllocBuffer(bar, None, span(7))
    wait = Evaluate(make_call("tl.mbarrier_wait", [region(bar, [0], [1]), const(0, "int32")]), span(8))
    with pytest.raises(TileNotSupportedError, match=r'bar = T.alloc_barrier(.|\n)*user.py:7(.|\n)*target="cuda"'):
        check([alloc, wait])
    with pytest.raises(TileNotSupportedError, match=r"mbarrier_wait_parity(.|\n)*user.py:8"):
        check([wait])
    with pytest.raises(TileNotSupportedError, match=r"T.tcgen05_gemm exists on GPUs only, and the target is cpu"):
        check([Evaluate(make_call("tl.gpu_only", [], what="T.tcgen05_gemm"), span(9))])
    check([alloc, wait], CUDA)


def test_memory_of_the_block_inside_parallel():
    i = Var("i", "int32")
    inside = AllocBuffer(decl_buffer((4,), "float32", "S", "shared"), None, span(3))
    with pytest.raises(TileValueError, match=r"S \(shared\) is allocated inside T.Parallel(.|\n)*user.py:3"):
        check([For(i, 0, 4, ForKind.PARALLEL, inside)])
    check([For(i, 0, 4, ForKind.PARALLEL, AllocBuffer(decl_buffer((4,), "float32", "L", "local")))])


def test_break_and_continue_need_an_ordered_loop():
    i = Var("i", "int32")
    leave = IfThenElse(i < 2, Evaluate(tirx.break_loop(), span(5)), None)
    with pytest.raises(TileSyntaxError, match=r"break outside a loop(.|\n)*user.py:5"):
        check([leave])
    with pytest.raises(TileSyntaxError, match=r"break in a T.Parallel"):
        check([For(i, 0, 4, ForKind.PARALLEL, leave)])
    check([For(i, 0, 4, ForKind.SERIAL, leave)])


def test_external_functions_must_exist():
    call = lambda name: Evaluate(tirx.call_extern("float32", name, ONE), span(4))  # noqa: E731
    with pytest.raises(TileNameError, match=r"'no_such_function_'(.|\n)*user.py:4"):
        check([call("no_such_function_")])
    check([call("sqrtf")])
    check([call("no_such_function_")], CUDA)


def test_division_by_constant_zero():
    i = Var("i", "int32")
    with pytest.raises(TileValueError, match=r"division by zero(.|\n)*user.py:6"):
        check([For(i, 0, 4, ForKind.SERIAL, store(A, ONE, [tirx.FloorMod(i, IntImm("int32", 0)), 0], span(6)))])


@pytest.mark.parametrize("depth", [999, 1001, 20000])
def test_depth(depth):
    expr = load(A, [0, 0])
    for _ in range(depth):
        expr = tirx.Add(expr, ONE)
    assert deeper_than(expr, 1000) == (depth + 2 > 1000)


def test_unary_operators_are_no_obstacle():
    i = Var("i", "int32")
    check([For(i, 0, 4, ForKind.SERIAL, store(A, ONE, [tirx.BitwiseNot(i), 0])), IfThenElse(tirx.Not(i < 2), store(A, ONE, [i, 0]), None)])


def test_shared_parts_are_counted_once():
    expr = load(A, [0, 0])
    for _ in range(200):
        expr = tirx.Add(expr, expr)
    assert not deeper_than(expr, 1000)


def test_rank_error_class_is_an_index_error():
    assert issubclass(TileIndexError, IndexError)

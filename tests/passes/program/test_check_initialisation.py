"""Reads of memory that nothing writes: a warning with both lines, an error when strict."""

import warnings

import pytest

from tilelang.errors import Location, TileValueError, UninitializedReadWarning
from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import AllocBuffer, DeclBuffer, Evaluate, FloatImm, decl_buffer, load, make_span, region, store
from tilelang.knobs import knobs
from tilelang.passes.program.check_initialisation import check_initialisation

from ..programs import CPU, kernel

C = decl_buffer((8,), "float32", "C")
ONE = FloatImm("float32", 1)


def span(line):
    return make_span(Location("user.py", line, 1))


def scratch(scope):
    return decl_buffer((8,), "float32", "S", scope)


def check(stmts):
    return check_initialisation(kernel([C], lambda blocks, threads: stmts), CPU)


@pytest.mark.parametrize("scope", ["shared.dyn", "local.fragment", "local", "global"])
def test_read_without_write(scope):
    S = scratch(scope)
    program = [AllocBuffer(S, None, span(3)), store(C, load(S, [0]), [0], span(5))]
    with pytest.warns(UninitializedReadWarning, match=r"S is read here(.|\n)*user.py:5(.|\n)*user.py:3"):
        check(program)
    with knobs.scoped(strict=True), pytest.raises(TileValueError, match=r"user.py:5(.|\n)*user.py:3(.|\n)*T.clear\(S\)"):
        check(program)


def test_read_by_a_tile_operator_and_through_a_view():
    S = scratch("shared")
    V = decl_buffer((2, 4), "float32", "V", "shared")
    copy = Evaluate(make_call("tl.tileop.copy", [region(V, [0, 0], [2, 4]), region(C, [0], [8])]), span(6))
    with pytest.warns(UninitializedReadWarning, match=r"V \(a view of S\)(.|\n)*user.py:6"):
        check([AllocBuffer(S, None, span(3)), DeclBuffer(V, data=S.data), copy])


def test_written_memory_variables_and_parameters_are_fine():
    S, x, V = scratch("shared"), decl_buffer((1,), "float32", "x", "local.var"), decl_buffer((8,), "float32", "V", "shared")
    fill = Evaluate(make_call("tl.tileop.fill", [region(V, [0], [8]), ONE]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check([AllocBuffer(S), AllocBuffer(x), DeclBuffer(V, data=S.data), store(C, load(S, [0]), [0]), fill, store(C, load(C, [1]), [2])])
        check([AllocBuffer(x), store(C, load(x, [0]), [0])])

"""Broken programs are recognised as our own mistakes, with stage, level and statement."""

import pytest

from tests.passes.programs import kernel
from tilelang.errors import InternalError
from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import AllocBuffer, Evaluate, FloatImm, For, ForKind, Var, decl_buffer, region, store, tirx
from tilelang.ir.verify import LOOPS, TILE, verify

A = decl_buffer((4,), "float32", "A")
ONE = FloatImm("float32", 1)


def check(stmts, level=LOOPS):
    verify(kernel([A], lambda blocks, threads: stmts), level, "some_stage")


def test_good_program_passes():
    i = Var("i", "int32")
    fill = Evaluate(make_call("tl.tileop.fill", [region(A, [0], [4]), ONE]))
    check([For(i, 0, 4, ForKind.PARALLEL, store(A, ONE, [i]), annotations={"tl.parallel": 1})])
    check([fill], TILE)


def test_laws():
    i = Var("i", "int32")
    fill = Evaluate(make_call("tl.tileop.fill", [region(A, [0], [4]), ONE]))
    broken = {
        "tile operator tl.tileop.fill is left": [fill],
        "unknown scope 'shade'": [AllocBuffer(decl_buffer((4,), "float32", "S", "shade"))],
        "announces 2 loops": [For(i, 0, 4, ForKind.PARALLEL, store(A, ONE, [i]), annotations={"tl.parallel": 2})],
        "names no memory": [Evaluate(make_call("tl.mbarrier_wait", [ONE, ONE]))],
        "break and continue are calls": [For(i, 0, 4, ForKind.SERIAL, tirx.Break())],
        "outside its scope": [store(A, ONE, [Var("nowhere", "int32")])],
    }
    for message, stmts in broken.items():
        with pytest.raises(InternalError, match=rf"after some_stage \(LOOPS\): .*{message}"):
            check(stmts)


def test_unknown_level():
    with pytest.raises(InternalError, match="no level named 'X'"):
        check([], "X")

"""Clears that products take over, and those that stay."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.compiler.compile import context
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.passes.pipeline.fold_clears import fold_clears
from tilelang.target.target import parse_target


def program(between):
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            d = T.alloc_fragment((16, 16), "float32")
            T.clear(c)
            T.copy(A, a)
            if between == "touched":
                for y, x in T.Parallel(16, 16):
                    c[y, x] += 1.0
            if between == "read":
                T.copy(c, d)
            if between == "in a loop":
                for _ in T.serial(2):
                    T.gemm(a, a, c)
            else:
                T.gemm(a, a, c, clear_accum=between == "clears already")
            T.copy(c, C)

    return main


def folded(func):
    fills, clears = [], []

    def visit(call: Call) -> None:
        if op_name(call) == "tl.tileop.fill":
            fills.append(call)
        if op_name(call) == "tl.tileop.gemm":
            clears.append(int(call.args[3]))

    walk(fold_clears(func, context(parse_target("simt"), {})).body, {Call: visit})
    return len(fills), clears


def test_a_clear_right_before():
    assert folded(program("")) == (0, [1])


@pytest.mark.parametrize("between", ["touched", "read", "in a loop"])
def test_what_stays(between):
    assert folded(program(between)) == (1, [0])


def test_a_product_that_clears_itself_keeps_the_fill():
    assert folded(program("clears already")) == (1, [1])

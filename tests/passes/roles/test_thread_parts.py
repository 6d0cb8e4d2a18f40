"""Conditions that choose groups of 128 threads become parts of the block."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.errors import TileValueError
from tilelang.ir.dialect import ATTR_WS
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import AttrStmt, IfThenElse
from tilelang.target.target import parse_target


def parts(program, target="simt -arch=sm_90a"):
    """(groups of each part, conditions left) after the stage."""
    body = lower_to(program, parse_target(target), {}, "thread_parts").body
    groups, conditions = [], []

    def note(node):
        if node.attr_key == ATTR_WS:
            groups.append([int(g) for g in node.node])

    walk(body, {AttrStmt: note, IfThenElse: conditions.append})
    return groups, len(conditions)


def program(threads, kind):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            group = tx // 128
            a = T.alloc_fragment((64,), "float32")
            b = T.alloc_fragment((64,), "float32")
            if kind == "two":
                if tx < 128:
                    T.copy(A, a)
                    T.copy(a, B)
                else:
                    T.fill(b, 1)
            elif kind == "three":
                if group == 0:
                    T.fill(a, 1)
                elif tx >= 128 and tx < 256:
                    T.copy(A, b)
                    T.copy(b, B)
                else:
                    T.fill(a, 2)
            elif kind == "a warp":
                if tx < 32:
                    T.fill(a, 1)
            elif kind == "a value":
                if tx < n:
                    T.fill(a, 1)
            elif tx < 128:
                B[tx % 64] = 3

    return main


@pytest.mark.parametrize(
    ("threads", "kind", "found"),
    [
        (256, "two", ([[0], [1]], 0)),
        (384, "two", ([[0], [1, 2]], 0)),
        (300, "three", ([[0], [1, 2], [1], [2]], 0)),
        (256, "a warp", ([], 1)),
        (256, "a value", ([], 1)),
        (256, "no collective", ([], 1)),
        (128, "two", ([], 1)),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "simt -arch=sm_90a"])
def test_which_conditions_are_parts(threads, kind, found, target):
    assert parts(program(threads, kind), target) == found


@pytest.mark.parametrize("kind", ["two", "three"])
@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_values(target, kind):
    a, b = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tilelang.compile(program(384, kind), target=target)(a, b, 5)
    assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["a warp", "a value"])
@pytest.mark.parametrize("target", ["cpu", "simt"])
def test_other_conditions_are_errors_as_before(target, kind):
    with pytest.raises(TileValueError, match="not all threads of the block arrive"):
        tilelang.compile(program(256, kind), target=target)

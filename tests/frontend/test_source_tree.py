"""Tracing reads the syntax tree of the user's file and leaves it as it is: functions of one file share it."""

from __future__ import annotations

import ast
import contextlib

import tilelang.language as T
from tilelang.frontend.source import find_source


def body(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
    factors = [f"{k}" for k in (1, 2) if (last := k)]
    scale = lambda x, by=2 * 1: x * by  # noqa: E731

    def shifted(x, n=1):
        return x + n

    with T.Kernel(1), contextlib.nullcontext():
        for i in T.Parallel(16):
            (x, *_), y = (A[i], 0), {"k": -A[i]}["k"]
            B[i] = scale(x) + shifted(y, n=last) if len(factors) > 1 else 0.0


def test_the_tree_of_the_file_stays():
    before = ast.dump(find_source(body).node, include_attributes=True)
    first = T.prim_func(body)
    assert ast.dump(find_source(body).node, include_attributes=True) == before
    again = T.prim_func(body)
    assert first.script() == again.script()

"""Assertions of a running program: the call raises AssertionError with the message and the user's line."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def program(form):
    @T.prim_func
    def kernel(X: T.Tensor((8,), "int32"), Y: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=32) as bx:
            if form == "statement":
                assert X[bx] >= 0, "X must not be negative"
            else:
                T.device_assert(X[bx] >= 0, "X must not be negative")
            Y[bx] = X[bx] + 1

    return kernel


@pytest.mark.parametrize("form", ["statement", "function"])
def test_a_failing_assertion_stops_the_call_and_only_that_call(form):
    kernel = tilelang.compile(program(form), target="cpu")
    x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    kernel(x, y)
    assert y.tolist() == list(range(1, 9))
    x[5] = -1
    with pytest.raises(AssertionError, match=r"X must not be negative[\s\S]*test_assertions\.py"):
        kernel(x, y)
    x[5] = 5
    kernel(x, y)
    assert y[5] == 6

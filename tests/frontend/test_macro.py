"""Macros: arguments, references, values, hygiene, nesting, kernels inside macros, functions inside kernels."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import TileIndexError, TileSyntaxError, TileTypeError
from tilelang.ir.kernel import match_kernel
from tilelang.ir.tvm_api import ffi

from .test_scalar_rule import In, N, Out, data, execute

SCALE = 2.0


def run(function):
    out = np.zeros(N, np.float32)
    execute(function, data("float32"), out)
    return out.tolist()


@T.macro
def scaled(x, factor=SCALE, *, shift=0.0):
    return x * factor + shift


@T.macro
def bump(total: T.Ref, amount):
    total = total + amount


@T.macro()
def pair(x, y):
    return x + y, x - y


def test_values_defaults_and_keywords():
    def f(X: In, Y: Out):
        Y[0] = scaled(X[0])
        Y[1] = scaled(X[0], 3.0, shift=1.0)
        s, d = pair(X[0], X[2])
        Y[2] = s
        Y[3] = d

    assert run(f)[:4] == [6.0, 10.0, 7.0, -1.0]


def test_reference_to_a_variable_and_to_an_element():
    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            total = T.alloc_var("float32", 1.0)
            k = T.alloc_var("int32", 3)
            bump(total, X[0])
            bump(total, total)
            Y[0] = total
            bump(Y[k], 5.0)
            k = 4
            bump(Y[k], 6.0)

    assert run(f)[:5] == [8.0, 0.0, 0.0, 5.0, 6.0]


def test_arguments_are_values():
    @T.macro
    def twice(v):
        v = v * 2
        return v + v

    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            x = T.alloc_var("float32", 3.0)
            Y[0] = twice(x)
            Y[1] = x

    assert run(f)[:2] == [12.0, 3.0]


def test_reference_needs_a_place():
    def f(X: In, Y: Out):
        bump(1.0, 2.0)

    with pytest.raises(TileTypeError, match="by reference"):
        T.prim_func(f)


def test_hygiene():
    @T.macro(hygienic=False)
    def loose():
        return SCALE * factor  # noqa: F821  # pyright: ignore

    @T.macro
    def tight():
        return SCALE

    def f(X: In, Y: Out):
        SCALE = 5.0
        factor = 2.0  # noqa: F841
        Y[0] = loose()
        Y[1] = tight()
        Y[2] = SCALE

    assert run(f)[:3] == [10.0, 2.0, 5.0]


def test_macros_in_loops_and_scalar_rule_inside():
    @T.macro
    def total_of(X, n):
        s = 0
        for i in range(n):
            if X[i] < 0:
                continue
            s += X[i]
        return s

    def f(X: In, Y: Out):
        for k in range(3):
            Y[k] = total_of(X, k + 1)

    assert run(f)[:3] == [3.0, 3.0, 7.0]


def test_static_return_in_a_branch():
    @T.macro
    def choose(x, flag):
        if flag:
            return x
        return x * 10

    def f(X: In, Y: Out):
        Y[0] = choose(X[0], True)
        Y[1] = choose(X[0], False)

    assert run(f)[:2] == [3.0, 30.0]


def test_return_under_a_condition():
    @T.macro
    def bad(x):
        if x > 0:
            return x
        return -x

    with pytest.raises(TileSyntaxError, match="run-time control flow"):

        @T.prim_func
        def f(X: In, Y: Out):
            Y[0] = bad(X[0])


def test_several_kernels_in_macros():
    @T.macro
    def launch(X, Y, first):
        with T.Kernel(2, threads=32) as bx:
            Y[first + bx] = X[bx]

    @T.prim_func
    def f(X: In, Y: Out):
        launch(X, Y, 0)
        launch(Y, X, 2)

    regions = [match_kernel(s) for s in f.body.seq]
    assert all(r is not None and r.num_threads == 32 for r in regions) and len(regions) == 2


def test_inner_functions_see_the_kernel():
    def f(X: In, Y: Out):
        base = X[0] + 1

        def inner(x, extra=2.0):
            return base * x + extra

        @T.macro
        def inner_macro(k):
            Y[k] = inner(X[k])

        for k in range(3):
            inner_macro(k)
        Y[3] = inner(1.0, extra=0.5)

    assert run(f)[:4] == [14.0, -2.0, 18.0, 4.5]


def test_lambdas_and_comprehensions_see_the_kernel():
    def f(X: In, Y: Out):
        c = X[2]
        g = lambda x: x + c  # noqa: E731
        values = [g(X[k]) for k in range(3) if k != 1]
        for k in (0, 1):
            Y[k] = values[k]
        Y[2] = sum(x * c for x in values)
        Y[3] = max(X[0], X[1], 2) + min(X[0], X[1]) + abs(X[1]) + float(len(X))

    assert run(f)[:4] == [7.0, 8.0, 60.0, 15.0]


def test_errors_name_the_call():
    @T.macro
    def broken(X):
        X[0, 0] = 1.0

    def f(X: In, Y: Out):
        broken(Y)

    with pytest.raises(TileIndexError) as info:
        T.prim_func(f)
    text = str(info.value)
    assert "X[0, 0] = 1.0" in text and "broken(Y)" in text and "in the call of broken" in text


def test_wrong_arguments():
    def f(X: In, Y: Out):
        Y[0] = scaled()

    with pytest.raises(TileTypeError, match="call of scaled"):
        T.prim_func(f)


def test_same_program_when_traced_twice():
    def f(X: In, Y: Out):
        for k in range(3):
            Y[k] = scaled(X[k])

    assert ffi.structural_equal(T.prim_func(f), T.prim_func(f))


class Emitter:
    """Macros made and called by methods of a Python class, as code generators do."""

    rows = 3

    @T.macro
    def method(self, X, k):
        X[k] = self.rows

    def fill(self, X, value):
        @T.macro
        def body(X):
            for k in range(self.rows):
                X[k] = value + k

        return body(X)


def test_macros_of_classes():
    emitter = Emitter()

    def f(X: In, Y: Out):
        emitter.fill(Y, X[0])
        emitter.method(Y, 4)

    assert run(f)[:5] == [3.0, 4.0, 5.0, 0.0, 3.0]

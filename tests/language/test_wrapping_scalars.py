"""Scalar parameters and what a program reads may have any value of their type: what is computed from them wraps around as NumPy's
int32 does, on every backend."""

import functools
import itertools

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tests.backend.cuda import on_host

LOW, HIGH = -(1 << 31), (1 << 31) - 1
SLOTS = 32
VALUES = (LOW, LOW + 1, HIGH, HIGH - 1, -1, 0, 1, 2, 1 << 30, -(1 << 30), 46341, 65536)


@T.macro
def conditions(d, e, C):
    if T.get_thread_binding() == 0:
        for i in T.serial(SLOTS):
            C[i] = 0
        if e == d * 2 * d:
            C[0] = 1
        if (d * 2) // 2 == d:
            C[1] = 1
        if d + 1 > d:
            C[2] = 1
        if d - 1 < d:
            C[3] = 1
        if -d == d:
            C[4] = 1
        if d * d >= 0:
            C[5] = 1
        if T.max(d, 0) * 2 >= 0:
            C[6] = 1
        if d // e * e + d % e == d:
            C[7] = 1
        if d * 2 == e * 2:  # noqa: SIM102
            if d != e:
                C[8] = 1
        twice = d * 2
        if twice // 2 == d:
            C[9] = 1
        if d <= e:  # noqa: SIM102
            if d + 1 <= e + 1:
                C[10] = 1
        if T.float32((d * 2) // 2) == T.float32(d):
            C[11] = 1
        if T.int64(d * 2) != T.int64(d) * 2:
            C[12] = 1


def expected_conditions(d, e):
    one, two, zero = np.int32(1), np.int32(2), np.int32(0)
    held = [e == d * two * d, d * two // two == d, d + one > d, d - one < d, -d == d, d * d >= 0, np.maximum(d, zero) * two >= 0,
            d // e * e + d % e == d, d * two == e * two and d != e, d * two // two == d, d <= e and d + one <= e + one,
            np.float32(d * two // two) == np.float32(d), np.int64(d * two) != 2 * np.int64(d)]  # fmt: skip
    return [*map(int, held), *[0] * (SLOTS - len(held))]


@T.macro
def values(d, e, C):
    if T.get_thread_binding() == 0:
        C[0] = (d * 2) // 2
        C[1] = (d * 4) // 4
        C[2] = T.max(d, 0) * 2 // 3
        C[3] = (d * 2) % 2
        C[4] = (d * 3) // 3
        C[5] = (d * e) // e
        C[6] = (d * e) % e
        C[7] = T.min(d + 1, e + 1) - 1
        C[8] = T.truncdiv(d * 2, 2)
        C[9] = T.truncmod(d * 2, 3)
        C[10] = T.max(d, 0) * 2 % 3
        twice = d + d
        C[11] = twice // 2
        C[12] = d // e
        C[13] = d % e
        C[14] = T.truncdiv(d, e)
        C[15] = T.truncmod(d, e)
        C[16] = (d - e) // 5
        C[17] = (T.max(d, 1) + T.max(e, 1)) // 2
        for i in T.serial(18, SLOTS):
            C[i] = 0


def truncated(a, b):
    return np.int64(0 if b == 0 else abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)).astype(np.int32)


def expected_values(d, e):
    i = np.int32
    most, larger = np.maximum(d, i(0)) * i(2), np.maximum(d, i(1)) + np.maximum(e, i(1))
    found = [d * i(2) // i(2), d * i(4) // i(4), most // i(3), d * i(2) % i(2), d * i(3) // i(3), d * e // e, d * e % e,
             np.minimum(d + i(1), e + i(1)) - i(1), truncated(d * i(2), 2), np.fmod(d * i(2), i(3)), most % i(3), (d + d) // i(2),
             d // e, d % e, truncated(d, e), np.fmod(d, e), (d - e) // i(5), larger // i(2)]  # fmt: skip
    return [*found, *[0] * (SLOTS - len(found))]


def program(body, known):
    """The body with d and e as parameters, as names of elements of a tensor, or as variables."""
    if known == "parameters":

        @T.prim_func
        def main(d: T.int32, e: T.int32, C: T.Tensor((SLOTS,), "int32")):
            with T.Kernel(1, threads=32):
                body(d, e, C)

        return main
    if known == "elements":

        @T.prim_func
        def main(X: T.Tensor((2,), "int32"), C: T.Tensor((SLOTS,), "int32")):
            with T.Kernel(1, threads=32):
                body(X[0], X[1], C)

        return main

    @T.prim_func
    def main(X: T.Tensor((2,), "int32"), C: T.Tensor((SLOTS,), "int32")):
        with T.Kernel(1, threads=32):
            d, e = X[0], X[1]
            body(d, e, C)

    return main


@pytest.mark.parametrize("body, expected", [(conditions, expected_conditions), (values, expected_values)], ids=["conditions", "values"])
@pytest.mark.parametrize("known", ["parameters", "elements", "names"])
@pytest.mark.parametrize("target", ["cpu", "simt", "the text on the processor"])
def test_every_value_of_the_type(target, known, body, expected):
    if target in ("cpu", "simt"):
        kernel = tilelang.compile(program(body, known), target=target)
    elif on_host.COMPILER is None:
        pytest.skip("needs a C++ compiler")
    else:
        kernel = functools.partial(on_host.run, program(body, known))
    for d, e in itertools.product(VALUES, VALUES):
        got = on_host.aligned(np.full(SLOTS, -7, np.int32))
        kernel(*((d, e) if known == "parameters" else (np.array([d, e], np.int32),)), got)
        with np.errstate(all="ignore"):
            want = expected(np.array(d, np.int32), np.array(e, np.int32))
        wrong = [k for k in range(SLOTS) if got[k] != want[k]]
        assert not wrong, f"d = {d}, e = {e}: C[{wrong[0]}] is {got[wrong[0]]}, expected {want[wrong[0]]}"

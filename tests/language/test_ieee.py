"""Directed rounding against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileNotSupportedError, TileValueError
from tilelang.ir.tvm_api import Var

N = 512


def program(function, mode, operands):
    if operands == 1:

        @T.prim_func
        def one(X: T.Tensor((N,), "float32"), R: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(N):
                    R[i] = function(X[i], mode)

        return one
    if operands == 2:

        @T.prim_func
        def two(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), R: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(N):
                    R[i] = function(X[i], Y[i], mode)

        return two

    @T.prim_func
    def three(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), Z: T.Tensor((N,), "float32"), R: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                R[i] = function(X[i], Y[i], Z[i], mode)

    return three


def sign_of_error(exact, rounded):
    """Sign of exact - rounded, rounded a finite float32."""
    return (exact > Fraction(float(rounded))) - (exact < Fraction(float(rounded)))


def directed(near, exact, mode):
    """The float32 that `mode` gives, from any float32 next to the exact value."""
    value = np.float32(near)
    while sign_of_error(exact, value) < 0:
        value = np.nextafter(value, np.float32(-np.inf))
    while sign_of_error(exact, np.nextafter(value, np.float32(np.inf))) >= 0:
        value = np.nextafter(value, np.float32(np.inf))
    if Fraction(float(value)) == exact or mode == "rd" or (mode == "rz" and exact > 0):
        return value
    above = np.nextafter(value, np.float32(np.inf))
    if mode == "rn":
        low, high = exact - Fraction(float(value)), Fraction(float(above)) - exact
        even = value if int(np.float32(value).view(np.int32)) % 2 == 0 else above
        return value if low < high else above if high < low else even
    return above


EXACT = {
    "ieee_add": (2, lambda x, y: x + y), "ieee_sub": (2, lambda x, y: x - y), "ieee_mul": (2, lambda x, y: x * y),
    "ieee_fdiv": (2, lambda x, y: x / y), "ieee_frcp": (1, lambda x: 1 / x), "ieee_fmaf": (3, lambda x, y, z: x * y + z),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["rn", "rz", "ru", "rd"])
@pytest.mark.parametrize("name", list(EXACT))
def test_rounding(name, mode):
    count, exact = EXACT[name]
    rng = np.random.default_rng(len(name))
    inputs = [(rng.standard_normal(N) * 2.0 ** rng.integers(-40, 40, N)).astype(np.float32) for _ in range(count)]
    result = np.zeros(N, np.float32)
    tilelang.compile(program(getattr(T, name), mode, count), target="cpu")(*inputs, result)
    for k in range(N):
        value = exact(*(Fraction(float(a[k])) for a in inputs))
        assert result[k] == directed(np.float32(float(value)), value, mode), [float(a[k]) for a in inputs]


@pytest.mark.parametrize("mode", ["rz", "ru", "rd"])
def test_square_root(mode):
    x = np.abs(np.random.default_rng(5).standard_normal(N)).astype(np.float32) + np.float32(0.01)
    result = np.zeros(N, np.float32)
    tilelang.compile(program(T.ieee_fsqrt, mode, 1), target="cpu")(x, result)
    for value, root in zip(x, result, strict=True):
        exact, got = Fraction(float(value)), Fraction(float(root))
        beyond = Fraction(float(np.nextafter(root, np.float32(np.inf if mode != "ru" else -np.inf))))
        assert (got**2 >= exact > beyond**2) if mode == "ru" else (got**2 <= exact < beyond**2)


def test_modes_are_checked():
    x = Var("x", "float32")
    with pytest.raises(TileValueError, match="nearest"):
        T.ieee_add(x, x, "nearest")
    with pytest.raises(TileNotSupportedError, match="float16"):
        T.ieee_mul(Var("h", "float16"), Var("h", "float16"), "rz")

"""Integer and conversion rules at the edges where the machine would trap or give anything."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.ir.tvm_api import Cast, tirx

from .support import elementwise

EDGES = {
    "int32": np.array([-(1 << 31), -(1 << 31) + 1, -7, -1, 0, 1, 2, 7, 31, 32, (1 << 31) - 1], np.int64),
    "int64": np.array([-(1 << 63), -7, -1, 0, 1, 3, 63, 64, (1 << 63) - 1], np.int64),
    "int8": np.array([-128, -7, -1, 0, 1, 3, 7, 8, 127], np.int64),
    "uint32": np.array([0, 1, 2, 7, 31, 32, (1 << 32) - 1], np.int64),
}


def pairs(dtype):
    a, b = np.meshgrid(EDGES[dtype], EDGES[dtype])
    return a.ravel().astype(dtype), b.ravel().astype(dtype)


def wrapped(values, dtype):
    bits = np.dtype(dtype).itemsize * 8
    return np.array([(v & ((1 << bits) - 1)) for v in values], np.uint64).astype(f"uint{bits}").view(dtype)


@pytest.mark.parametrize("dtype", EDGES)
def test_integer_division_never_traps(dtype):
    a, b = pairs(dtype)
    ints = list(zip(a.tolist(), b.tolist(), strict=True))
    trunc = [0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in ints]
    cases = {
        tirx.FloorDiv: [0 if y == 0 else x // y for x, y in ints],
        tirx.FloorMod: [0 if y == 0 else x % y for x, y in ints],
        tirx.Div: trunc,
        tirx.Mod: [0 if y == 0 else x - q * y for (x, y), q in zip(ints, trunc, strict=True)],
    }
    for make, want in cases.items():
        assert np.array_equal(elementwise(make, [a, b], dtype), wrapped(want, dtype)), make


@pytest.mark.parametrize("dtype", EDGES)
def test_shifts_by_any_amount(dtype):
    a, b = pairs(dtype)
    bits = np.dtype(dtype).itemsize * 8
    ints = list(zip(a.tolist(), b.tolist(), strict=True))
    left = [x << y if 0 <= y < bits else 0 for x, y in ints]
    right = [x >> y if 0 <= y < bits else (-1 if x < 0 else 0) for x, y in ints]
    assert np.array_equal(elementwise(tirx.shift_left, [a, b], dtype), wrapped(left, dtype))
    assert np.array_equal(elementwise(tirx.shift_right, [a, b], dtype), wrapped(right, dtype))


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_float_to_integer_truncates_and_saturates(source, dtype):
    large = [] if source == "float16" else [3e9, -3e9, 1e30, -1e30]
    x = np.array([0.0, 1.9, -1.9, 100.5, -100.5, 6e4, np.inf, -np.inf, np.nan, *large], source)
    got = elementwise(lambda v: Cast(dtype, v), [x], dtype)
    info = np.iinfo(dtype)
    want = [0 if np.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x.tolist()]
    assert np.array_equal(got, np.array(want, dtype))


def test_float64_to_float16_rounds_once():
    exact = np.arange(1.0, 1.01, 2.0**-12)
    x = np.concatenate([exact, exact + 2.0**-40, exact - 2.0**-40, -exact - 2.0**-40])
    got = elementwise(lambda v: Cast("float16", v), [x], "float16")
    assert np.array_equal(got, x.astype(np.float16))


def test_float16_arithmetic_rounds_after_each_operation():
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(5000).astype(np.float16) for _ in range(3))
    got = elementwise(lambda x, y, z: x * y + z - x, [a, b, c], "float16")
    assert np.array_equal(got, a * b + c - a)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_leading_zeros_of_a_zero_that_the_compiler_knows(dtype):
    """LLVM's instruction gives anything for 0, and a known 0 is where it does."""

    @T.prim_func
    def main(A: T.Tensor((4,), dtype), O: T.Tensor((2, 4), "int32")):
        with T.Kernel(1, threads=1):
            zero = T.alloc_var(dtype, 0)
            for i in T.serial(4):
                O[0, i] = T.clz(zero)
                O[1, i] = T.clz(A[i])

    bits = np.dtype(dtype).itemsize * 8
    found = np.zeros((2, 4), np.int32)
    tilelang.compile(main, target="cpu")(np.array([0, 1, 2, 127], dtype), found)
    assert found.tolist() == [[bits] * 4, [bits, bits - 1, bits - 2, bits - 7]]

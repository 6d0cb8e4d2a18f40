"""Conversions of small floats against ml_dtypes, bit for bit."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cpu import small_floats as small

from .support import elementwise

NAMES = [*small.FORMATS, small.EXPONENT_ONLY]


def bits_of(name: str) -> int:
    return small.FORMATS[name].bits if name in small.FORMATS else 8


def patterns(name: str) -> np.ndarray:
    return np.arange(1 << bits_of(name), dtype=np.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_every_pattern(name):
    bits = patterns(name)
    got = elementwise(lambda b: small.decode(b, name), [bits], "float32")
    want = bits.view(getattr(ml_dtypes, name)).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want)) or np.isnan(want).any()


def inputs(name: str) -> np.ndarray:
    """Every value of the type, every tie between two, the floats next to those, and numbers of all sizes."""
    values = patterns(name).view(getattr(ml_dtypes, name)).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    marks = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (rng.standard_normal(20000) * np.exp2(rng.integers(-20, 20, 20000))).astype(np.float32)
    up, down = np.nextafter(marks, np.float32(np.inf)), np.nextafter(marks, np.float32(-np.inf))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45], np.float32)
    return np.concatenate([marks, -marks, up, down, bits, near, special])


@pytest.mark.parametrize("name", NAMES)
def test_encoding_rounds_and_overflows_like_ml_dtypes(name):
    x = inputs(name)
    got = elementwise(lambda v: small.encode(v, name), [x], "uint8")
    with np.errstate(all="ignore"):
        want = x.astype(getattr(ml_dtypes, name)).view(np.uint8)
    wrong = np.flatnonzero(got != want)
    assert not len(wrong), [(float(x[k]), int(got[k]), int(want[k])) for k in wrong[:5]]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats_become_bfloat16(name):
    @T.prim_func
    def main(A: T.Tensor((256,), name), B: T.Tensor((256,), "bfloat16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                B[i] = A[i]

    a, b = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)), np.zeros(256, ml_dtypes.bfloat16)
    tilelang.compile(main, target="cpu")(a, b)
    np.testing.assert_array_equal(b.astype(np.float32), a.astype(np.float32))

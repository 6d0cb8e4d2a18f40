"""Our float32 functions against float64 references: error in units of the last place, special values, signs of zero."""

import math

import numpy as np
import pytest

from tilelang.ir.tvm_api import tirx

from .support import elementwise

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 88.5, -88.0, -100.0, 127.5, -149.0, 0.5], np.float32)
CASES = {  # name: (reference in float64, low, high, ulp)
    "exp": (np.exp, -103.0, 88.7, 1.5),
    "exp2": (np.exp2, -149.0, 127.9, 1.5),
    "exp10": (lambda x: 10.0**x, -44.0, 38.5, 4.0),
    "log": (np.log, 1e-38, 1e3, 1.5),
    "log2": (np.log2, 1e-3, 1e3, 2.0),
    "log10": (np.log10, 1e-3, 1e3, 2.5),
    "tanh": (np.tanh, -10.0, 10.0, 2.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0, 3.0),
    "erf": (np.vectorize(math.erf), -5.0, 5.0, 3.0),
    "sin": (np.sin, -1e4, 1e4, 2.0),
    "cos": (np.cos, -1e4, 1e4, 2.0),
    "tan": (np.tan, -1e3, 1e3, 4.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 2.0),
    "atan": (np.arctan, -10.0, 10.0, 1.0),
    "sinh": (np.sinh, -80.0, 80.0, 1.0),
    "log1p": (np.log1p, -0.99, 1e6, 1.0),
    "sqrt": (np.sqrt, 0.0, 1e30, 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_float32_functions(name):
    reference, low, high, limit = CASES[name]
    x = np.concatenate([np.random.default_rng(3).uniform(low, high, 20000).astype(np.float32), SPECIAL])
    got = elementwise(getattr(tirx, name), [x], "float32")
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        want = exact.astype(np.float32)
        ulp = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(want)).astype(np.float64)
    finite = np.isfinite(want)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)])
    worst = np.flatnonzero(finite)[np.argmax(ulp[finite])]
    assert ulp[worst] <= limit, (x[worst], got[worst], want[worst], ulp[worst])
    zero = finite & (want == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "exp", "log", "tanh"])
def test_float32_functions_on_all_bit_patterns(name):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.integers(0, 2**32, 60000, dtype=np.uint32).view(np.float32), np.arange(-20000, 20000, dtype=np.float32) / 2])
    got = elementwise(getattr(tirx, name), [x], "float32")
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
        want = exact.astype(np.float32)
        ulp = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(want)).astype(np.float64)
    finite = np.isfinite(want)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got[np.isinf(want)], want[np.isinf(want)])
    assert ulp[finite].max() <= 4.0


def test_sigmoid_of_float64_keeps_its_small_values():
    x = np.array([-745.0, -712.2, -40.0, 0.0, 40.0, np.inf, -np.inf, np.nan])
    with np.errstate(all="ignore"):
        want = np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))
    assert np.allclose(elementwise(tirx.sigmoid, [x], "float64"), want, rtol=1e-15, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "erf", "sqrt", "floor"])
def test_float64_functions(name):
    x = np.random.default_rng(4).uniform(0.1, 5.0, 1000)
    reference = np.vectorize(math.erf) if name == "erf" else getattr(np, name)
    assert np.allclose(elementwise(getattr(tirx, name), [x], "float64"), reference(x), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["exp", "tanh", "log2", "rsqrt"])
def test_float16_functions_round_once(name):
    x = np.random.default_rng(5).uniform(0.1, 5.0, 1000).astype(np.float16)
    reference = (lambda v: 1 / np.sqrt(v)) if name == "rsqrt" else getattr(np, name)
    want = reference(x.astype(np.float64)).astype(np.float16)
    got = elementwise(getattr(tirx, name), [x], "float16")
    assert np.max(np.abs(got.view(np.int16).astype(int) - want.view(np.int16).astype(int))) <= 1
    assert np.mean(got == want) > 0.99

"""Device headers compiled for the host: small floats bit for bit as ml_dtypes has them, divisions, shifts and casts as the language."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from tilelang.backend.cuda.cpp_types import is_small_float
from tilelang.backend.cuda.toolchain import HEADERS
from tilelang.ir.dtype_table import FLOATS

from . import on_host

pytestmark = pytest.mark.skipif(on_host.COMPILER is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def library():
    """Functions over arrays, around the headers."""
    functions = []
    for name in FLOATS:
        if is_small_float(name):
            functions.append(
                f"void encode_{name}(const double* x, unsigned char* y, int n)"
                f" {{ for (int k = 0; k < n; ++k) y[k] = {name}_t(x[k]).bits; }}\n"
                f"void decode_{name}(const unsigned char* x, float* y, int n)"
                f" {{ for (int k = 0; k < n; ++k) y[k] = (float){name}_t::from_bits(x[k]); }}"
            )
    for kind, c in (("int8", "int8_t"), ("int32", "int32_t"), ("int64", "int64_t"), ("uint32", "uint32_t")):
        for op in ("floor_div", "floor_mod", "trunc_div", "trunc_mod", "shift_left", "shift_right", "wrapping_mul"):
            functions.append(
                f"void {op}_{kind}(const {c}* a, const {c}* b, {c}* y, int n)"
                f" {{ for (int k = 0; k < n; ++k) y[k] = tl::{op}<{c}>(a[k], b[k]); }}"
            )
    for kind in ("int32", "uint32", "int64", "uint64"):
        loop = f"for (int k = 0; k < n; ++k) y[k] = tl::to_{kind}(x[k]);"
        functions.append(f"void to_{kind}(const double* x, {kind}_t* y, int n) {{ {loop} }}")
    return on_host.library('#include <tilelang/math.cuh>\nextern "C" {\n' + "\n".join(functions) + "\n}\n")


def call(function, out_dtype, *arrays):
    arrays = [np.ascontiguousarray(a) for a in arrays]
    out = np.empty(arrays[0].shape, out_dtype)
    function(*[a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, out)], ctypes.c_int(out.size))
    return out


SMALL = [name for name in FLOATS if is_small_float(name)]


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_of_a_small_float_decodes(library, name):
    bits = np.arange(1 << (8 if name.startswith("float8") else int(name[5]))).astype(np.uint8)
    expected = bits.view(FLOATS[name]).astype(np.float32)
    np.testing.assert_array_equal(call(getattr(library, f"decode_{name}"), np.float32, bits), expected)


def interesting(name):
    """Values around everything that rounds: all values of the type, their midpoints, neighbours, and random ones."""
    rng = np.random.default_rng(0)
    own = np.arange(1 << (8 if name.startswith("float8") else int(name[5]))).astype(np.uint8).view(FLOATS[name]).astype(np.float64)
    own = np.unique(own[np.isfinite(own)])
    middle = (own[1:] + own[:-1]) / 2
    near = np.concatenate([own, middle])
    scale = np.exp2(rng.uniform(-20, 20, 4000)) * rng.choice([-1, 1], 4000)
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, 1e300, -1e300, 1e-300]
    return np.concatenate([near, near * (1 + 1e-7), near * (1 - 1e-7), near * (1 + 1e-12), near * (1 - 1e-12), scale, special])


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_round_once_to_nearest_even(library, name):
    values = interesting(name)
    got = call(getattr(library, f"encode_{name}"), np.uint8, values)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32).astype(FLOATS[name]).view(np.uint8)
        exact = values.astype(FLOATS[name]).view(np.uint8)
    # ml_dtypes converts float64 through float32 for some types: either rounding is one of a correct conversion.
    wrong = (got != expected) & (got != exact)
    assert not wrong.any(), [(values[k], got[k], expected[k]) for k in np.flatnonzero(wrong)[:5]]


PAIRS = {
    "floor_div": lambda a, b: np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))),
    "floor_mod": lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))),
    "wrapping_mul": np.multiply,
}


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("op", PAIRS)
def test_integer_operations(library, op, kind):
    rng = np.random.default_rng(1)
    facts = np.iinfo(kind)
    edges = np.array([facts.min, facts.min + 1, 0, 1, 2, 3, 7, facts.max], dtype=kind)
    if facts.min < 0:
        edges = np.concatenate([edges, np.array([-1, -2, -3, -7], dtype=kind)])
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    a = np.concatenate([a, rng.integers(facts.min, facts.max, 2000, dtype=kind)])
    b = np.concatenate([b, rng.integers(-50 if facts.min < 0 else 0, 50, 2000).astype(kind)])
    with np.errstate(all="ignore"):
        expected = PAIRS[op](a, b).astype(kind)
    np.testing.assert_array_equal(call(getattr(library, f"{op}_{kind}"), kind, a, b), expected)


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint32"])
def test_shifts_by_any_amount(library, kind):
    bits = np.iinfo(kind).bits
    a = np.array([1, 5, 77, np.iinfo(kind).max, np.iinfo(kind).min], dtype=kind).repeat(6)
    b = np.tile(np.array([0, 1, bits - 1, bits, bits + 1, 100], dtype=kind), 5)
    left, right = (call(getattr(library, f"shift_{d}_{kind}"), kind, a, b) for d in ("left", "right"))
    for x, y, l, r in zip(a.tolist(), b.tolist(), left.tolist(), right.tolist(), strict=True):
        wrapped = (x << y) & ((1 << bits) - 1) if y < bits else 0
        assert l == (wrapped - (1 << bits) if kind.startswith("int") and wrapped >> (bits - 1) else wrapped)
        assert r == x >> y


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
def test_floats_become_integers_by_truncation_and_saturation(library, kind):
    facts = np.iinfo(kind)
    values = np.array([0.9, -0.9, 1.5, -1.5, 1e6, -1e6, 1e30, -1e30, np.inf, -np.inf, np.nan, 2.0**31, 2.0**32, 2.0**63])
    expected = [0 if np.isnan(v) else min(max(int(np.clip(v, -1e25, 1e25)), facts.min), facts.max) for v in values]
    assert call(getattr(library, f"to_{kind}"), kind, values).tolist() == expected


def test_headers_are_part_of_the_package():
    assert {p.name for p in HEADERS.glob("*.cuh")} >= {"types.cuh", "math.cuh", "atomics.cuh", "warp.cuh", "async.cuh"}
    assert ml_dtypes is not None

"""Element types: spellings, facts, equality, casts; values against NumPy and ml_dtypes."""

import pickle

import ml_dtypes
import numpy as np
import pytest

from tilelang.errors import TileNotSupportedError, TileTypeError
from tilelang.ir.dtype_table import ALIASES, FLOATS, INTEGERS, SCALARS, info
from tilelang.ir.dtypes import canonical, dtype
from tilelang.ir.tvm_api import Var, tvm

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("float", "float32"), ("double", "float64"), ("half", "float16"), ("int", "int32"), ("uint", "uint32"), ("short", "int16"),
        ("long", "int64"), ("e4m3_float8", "float8_e4m3fn"), ("e5m2_float8", "float8_e5m2"), (bool, "bool"), (int, "int32"),
        (float, "float32"), (np.float16, "float16"), (np.dtype("uint8"), "uint8"), (np.bool_, "bool"), (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"), (ml_dtypes.int4, "int4"), (torch.bfloat16, "bfloat16"), (torch.long, "int64"),
        (torch.float8_e4m3fn, "float8_e4m3fn"), (torch.bool, "bool"), (tvm.DataType("int32x4"), "int32x4"), ("float16x1", "float16"),
        (" float32 ", "float32"),
    ],
)  # fmt: skip
def test_spellings(spelling, name):
    assert str(canonical(spelling)) == name
    assert canonical(spelling) is canonical(name)


@pytest.mark.parametrize(
    "bad", ["flaot16", "float99", "", "int32x", "x4", "int3", "handlex4", None, 3, 2.5, [], object(), np.complex64, torch.complex64, list]
)
def test_unknown_types_are_errors(bad):
    with pytest.raises(TileTypeError):
        canonical(bad)


def test_misspelt_name_suggests_the_nearest():
    with pytest.raises(TileTypeError) as caught:
        canonical("flaot16")
    assert "flaot16" in str(caught.value)
    assert "float16" in caught.value.remedy


def test_equality_and_hash():
    half = canonical("float16")
    for other in ("float16", "half", torch.float16, np.float16, np.dtype("float16")):
        assert half == other
        assert (half != other) is False
    assert torch.float16 == half
    for other in ("float32", torch.bfloat16, np.float32, None, 16, "flaot16", object()):
        assert half != other
    assert hash(half) == hash("float16")
    assert {half: 1}["float16"] == 1
    assert canonical("bool") == "bool" == canonical(torch.bool)
    assert pickle.loads(pickle.dumps(half)) is half


@pytest.mark.parametrize("name", FLOATS)
def test_ranges_of_floats(name):
    facts, limits = info(name), ml_dtypes.finfo(FLOATS[name])
    assert (facts.low, facts.high) == (float(limits.min), float(limits.max))
    # A type has an infinity exactly if NumPy's conversion of one gives one.
    with np.errstate(all="ignore"):
        assert facts.has_infinity == bool(np.isinf(np.float32(np.inf).astype(FLOATS[name]).astype(np.float32)))


@pytest.mark.parametrize("name", INTEGERS)
def test_ranges_of_integers(name):
    facts = info(name)
    limits = ml_dtypes.iinfo(canonical(name).as_numpy())
    assert (facts.low, facts.high) == (int(limits.min), int(limits.max))


def test_sizes():
    assert (canonical("int4").bits, canonical("int4").bytes) == (4, 1)
    assert (canonical("float32x4").bits, canonical("float32x4").lanes, canonical("float32x4").itemsize) == (32, 4, 16)
    assert canonical("float4_e2m1fnx8").bytes == 4
    assert canonical("bool").itemsize == 1


def test_conversions_to_other_libraries():
    for name in ("float16", "bfloat16", "float8_e5m2", "int8", "uint32", "bool"):
        assert canonical(canonical(name).as_torch()) == name
        assert canonical(canonical(name).as_numpy()) == name
    assert canonical("tfloat32").as_torch() is torch.float32
    with pytest.raises(TileTypeError):
        canonical("float8_e3m4").as_torch()


def test_types_without_storage():
    assert canonical("tfloat32").storage == "float32"
    with pytest.raises(TileNotSupportedError):
        _ = canonical("float4_e2m1_unpacked").storage


def test_call():
    x = Var("x", "float32")
    assert canonical("float16")(x).ty.dtype == "float16"
    assert canonical("int8")(300).value == 44
    fresh = canonical("int32")()
    assert isinstance(fresh, Var) and fresh.ty.dtype == "int32"
    assert canonical("float32")(x, 1.0, 2).ty.dtype == "float32x3"


def test_every_name_is_a_type_of_tvm():
    packs = [
        f"{name}x{lanes}"
        for name in SCALARS
        if name not in ("handle", "tfloat32", "float4_e2m1_unpacked")
        for lanes in (2, 4, 8, 16, 32, 64)
    ]
    for name in [*(n for n in SCALARS if n != "handle"), *packs, *ALIASES]:
        kind = canonical(name)
        assert isinstance(kind, dtype) and isinstance(kind, str)
        if name != "float4_e2m1_unpacked":
            assert str(Var("v", kind.storage).ty.dtype) == kind.storage

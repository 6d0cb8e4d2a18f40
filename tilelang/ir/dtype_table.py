"""Facts about element types: every accepted spelling, bits, lanes, kind, range.

In: anything that names an element type (string, torch, NumPy, ml_dtypes, Python or TVM type). Out: the canonical
name (`resolve`) and its `TypeInfo`. Pure Python, no state; `ir.dtypes` puts the user's class on top of it.
"""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import TileTypeError


@dataclass(frozen=True)
class TypeInfo:
    """kind: bool, int, uint, float, handle. bits: of one lane. low, high: the finite range of one lane."""

    name: str
    kind: str
    bits: int
    lanes: int
    low: float | int
    high: float | int
    has_infinity: bool = False

    @property
    def base(self) -> str:
        """Name of one lane's type."""
        return self.name.rsplit("x", 1)[0] if self.lanes > 1 else self.name

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


FLOATS = {
    "float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16,
    "float8_e3m4": ml_dtypes.float8_e3m4, "float8_e4m3": ml_dtypes.float8_e4m3, "float8_e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "float6_e2m3fn": ml_dtypes.float6_e2m3fn, "float6_e3m2fn": ml_dtypes.float6_e3m2fn, "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
INTEGERS = ("int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64")
# Types the language names, whose storage or arithmetic another type stands for, or which no CPU or Hopper GPU has.
SPECIAL = ("tfloat32", "float4_e2m1_unpacked")
ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32", "short": "int16", "long": "int64",
    "ushort": "uint16", "ulong": "uint64", "char": "int8", "uchar": "uint8", "byte": "uint8", "boolean": "bool", "bool_": "bool",
    "e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2", "e4m3fn_float8": "float8_e4m3fn", "float4": "float4_e2m1fn",
    "tf32": "tfloat32", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
}  # fmt: skip
SCALARS = ("bool", *INTEGERS, *FLOATS, *SPECIAL, "handle")
_PYTHON = {bool: "bool", int: "int32", float: "float32"}
_PACKED = re.compile(r"(.+?)_?x(\d+)")


def numpy_type(base: str) -> Any:
    """NumPy (or ml_dtypes) scalar type of one lane, or None where there is none."""
    if base in FLOATS:
        return FLOATS[base]
    if base in ("int4", "uint4"):
        return getattr(ml_dtypes, base)
    return {"bool": np.bool_, "tfloat32": np.float32}.get(base, getattr(np, base, None))


def _scalar(name: str) -> TypeInfo:
    if name == "bool":
        return TypeInfo(name, "bool", 8, 1, 0, 1)
    if name in INTEGERS:
        bits = int(name.lstrip("uint"))
        if name.startswith("u"):
            return TypeInfo(name, "uint", bits, 1, 0, (1 << bits) - 1)
        return TypeInfo(name, "int", bits, 1, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if name == "handle":
        return TypeInfo(name, "handle", 64, 1, 0, (1 << 64) - 1)
    limits = ml_dtypes.finfo(FLOATS.get(name, np.float32 if name == "tfloat32" else ml_dtypes.float4_e2m1fn))
    bits = {"tfloat32": 32, "float4_e2m1_unpacked": 8}.get(name) or int(re.findall(r"\d+", name)[0])
    infinity = name in ("float16", "float32", "float64", "bfloat16", "tfloat32", "float8_e5m2", "float8_e4m3", "float8_e3m4")
    return TypeInfo(name, "float", bits, 1, float(limits.min), float(limits.max), infinity)


@functools.cache
def info(name: str) -> TypeInfo:
    """Facts of a canonical name such as "float16" or "int32x4"."""
    if "x" in name:
        base, _, lanes = name.rpartition("x")
        if lanes.isdigit():
            one = _scalar(base)
            return TypeInfo(name, one.kind, one.bits, int(lanes), one.low, one.high, one.has_infinity)
    return _scalar(name)


@functools.cache
def resolve_name(text: str) -> str:
    """Canonical name of a spelling; a misspelt one is an error with the nearest names."""
    name = str(text).strip()
    name = ALIASES.get(name, name)
    if name in SCALARS:
        return name
    packed = _PACKED.fullmatch(name)
    if packed is not None:
        base = ALIASES.get(packed[1], packed[1])
        lanes = int(packed[2])
        if base in SCALARS and base not in ("handle", "float4_e2m1_unpacked") and 1 <= lanes <= 1024:
            return base if lanes == 1 else f"{base}x{lanes}"
    near = difflib.get_close_matches(name, [*SCALARS, *ALIASES], n=3, cutoff=0.5)
    raise TileTypeError(
        f"unknown element type {str(text)!r}",
        remedy=f"did you mean {', '.join(map(repr, near))}?" if near else "element types are bool, int4..int64, uint4..uint64, float16, "
        "bfloat16, float32, float64, float8_*, float6_*, float4_e2m1fn",
    )  # fmt: skip


def resolve(value: Any) -> str:
    """Canonical name of anything that names an element type."""
    if isinstance(value, str):  # also TVM's and our own type objects
        return resolve_name(value)
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    module = type(value).__module__.partition(".")[0]
    if module == "torch" and type(value).__name__ == "dtype":
        return resolve_name(str(value).partition(".")[2])
    if isinstance(value, np.dtype) or (isinstance(value, type) and (issubclass(value, np.generic) or value.__module__ == "ml_dtypes")):
        return resolve_name(np.dtype(value).name)
    if module in ("tvm", "tvm_ffi") and hasattr(value, "dtype"):  # a TVM primitive type
        return resolve_name(str(value.dtype))
    raise TileTypeError(
        f"{value!r} ({type(value).__name__}) is no element type",
        remedy='use a name such as "float16", an object such as T.float16, or a torch, NumPy or Python type',
    )

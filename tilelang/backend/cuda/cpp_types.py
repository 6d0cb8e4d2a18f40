"""How element types and constants are spelt in CUDA C++.

In: canonical element types of `ir/dtype_table.py`. Out: type names of `header/types.cuh`, literals that have every digit.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from ...errors import TileNotSupportedError
from ...ir.dtype_table import info, numpy_type

_PLAIN = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "int4": "int8_t", "uint4": "uint8_t", "float16": "half_t", "bfloat16": "bfloat16_t",
    "float32": "float", "float64": "double", "tfloat32": "float", "handle": "void*", "void": "void",
}  # fmt: skip
HALF = ("float16", "bfloat16")
WHOLE_WARP = "0xffffffffu"
_SUFFIX = {"int32": "", "uint32": "u", "int64": "ll", "uint64": "ull"}


@functools.cache
def split(dtype: str) -> tuple[str, int]:
    """Element type and number of lanes: "float32x4" -> ("float32", 4)."""
    if dtype in _PLAIN:
        return dtype, 1
    facts = info(dtype)
    return facts.base, facts.lanes


@functools.cache
def is_small_float(dtype: str) -> bool:
    """A float of 8 bits or less, which only stores."""
    return dtype.startswith(("float8_", "float6_", "float4_"))


@functools.cache
def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "tfloat"))


@functools.cache
def c_type(dtype: str) -> str:
    """The C++ type of a value, e.g. "half_t", "tl::pack<float, 4>"."""
    base, lanes = split(dtype)
    if lanes > 1:
        return f"tl::pack<{c_type(base)}, {lanes}>"
    if is_small_float(base):
        return f"{base}_t"
    if base not in _PLAIN:
        raise TileNotSupportedError(f"element type {dtype} on a CUDA device")
    return _PLAIN[base]


@functools.cache
def bytes_of(dtype: str) -> int:
    """Bytes of one element in memory; types of less than 8 bits take a byte."""
    base, lanes = split(dtype)
    return max(1, info(base).bits // 8) * lanes


def literal(value: Any, dtype: str) -> str:
    """A constant of a scalar type."""
    if dtype == "bool":
        return "true" if value else "false"
    if is_float(dtype):
        return _float(float(value), dtype)
    value = int(value)
    if dtype in _SUFFIX:
        if dtype == "int32" and value == -(1 << 31):
            return "(-2147483647 - 1)"
        if dtype == "int64" and value == -(1 << 63):
            return "(-9223372036854775807ll - 1)"
        if dtype == "uint32" and value == 0xFFFFFFFF:
            return WHOLE_WARP
        return f"{value}{_SUFFIX[dtype]}"
    if dtype == "handle":
        return f"(void*){value}ull"
    return f"({c_type(dtype)}){value}"


def _float(value: float, dtype: str) -> str:
    if dtype in ("float32", "tfloat32"):
        return _wide_float(value, "f32", "f")
    if dtype == "float64":
        return _wide_float(value, "f64", "")
    kind = numpy_type(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        element = np.float64(value).astype(np.float16) if dtype == "float16" else np.float32(value).astype(kind)
    bits = int.from_bytes(element.tobytes(), "little")
    return f"{c_type(dtype)}::from_bits(0x{bits:x} /* {value!r} */)"


def _wide_float(value: float, name: str, suffix: str) -> str:
    if math.isnan(value):
        return f"tl::nan_{name}()"
    if suffix and math.isfinite(value):
        with np.errstate(over="ignore"):
            value = value if math.isfinite(np.float32(value)) else math.copysign(math.inf, value)
    if math.isinf(value):
        return f"-tl::inf_{name}()" if value < 0 else f"tl::inf_{name}()"
    text = repr(value)
    if suffix:  # the shortest text that gives the same float32
        short = repr(float(str(np.float32(value))))
        if struct.pack("<f", float(short)) == struct.pack("<f", value):
            text = short
    return text + suffix

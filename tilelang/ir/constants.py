"""Constants: Python numbers in a type of the language, with all their digits.

In: a Python number and a canonical type name. Out: a TVM constant with the value that a cast gives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError
from .dtype_table import TypeInfo, info, numpy_type
from .tvm_api import Cast, Expr, FloatImm, IntImm, Span, const, tirx

_FLOAT32_MAX = 3.4028235677973366e38  # everything below rounds to a finite float32


def literal_type(value: bool | int | float) -> str:
    """The type of a Python number that stands alone."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return "int32"
        if -(1 << 63) <= value < 1 << 63:
            return "int64"
        if 0 <= value < 1 << 64:
            return "uint64"
        raise TileValueError(f"integer {value} does not fit in 64 bits")
    return "float64" if math.isfinite(value) and abs(value) >= _FLOAT32_MAX else "float32"


def representable(value: Any, name: str) -> bool:
    """Can the type hold this Python number? Floats may round, but not leave the range; integers must be exact."""
    facts = info(name)
    if facts.kind == "bool":
        return value in (0, 1)
    if facts.kind == "float":
        if isinstance(value, float) and not math.isfinite(value):
            return facts.has_infinity or (math.isnan(value) and facts.name != "float6_e2m3fn")
        return _rounded(value, facts) is not None
    if isinstance(value, float) and not value.is_integer():
        return False
    return facts.low <= value <= facts.high


def _rounded(value: float, facts: TypeInfo) -> float | None:
    """The nearest value of a float type, None if finite input leaves its range."""
    if facts.bits >= 32:
        limit = _FLOAT32_MAX if facts.bits == 32 else math.inf
        return float(value) if not math.isfinite(value) or abs(value) < limit else None
    with np.errstate(over="ignore"):
        out = float(np.float64(value).astype(numpy_type(facts.base)))
    return out if math.isfinite(out) or not math.isfinite(value) else None


def constant(value: bool | int | float, name: str, span: Span | None = None) -> Expr:
    """A Python number in exactly this type, as a cast would give it: integers wrap, floats round, bool is `!= 0`.

    Raises `TileValueError` for what a cast leaves undefined: NaN, infinity or out-of-range floats as integers.
    """
    facts = info(name)
    if facts.lanes > 1:
        return tirx.Broadcast(constant(value, facts.base, span), facts.lanes)
    if facts.kind == "bool":
        return IntImm("bool", int(bool(value)), span)
    if facts.is_integer:
        if isinstance(value, float):
            if not math.isfinite(value) or not facts.low <= math.trunc(value) <= facts.high:
                raise TileValueError(f"{value!r} has no value in {name} (range {facts.low} to {facts.high})")
            value = math.trunc(value)
        return const(value, name)
    if facts.kind == "handle":
        if value != 0:
            raise TileTypeError(f"{value!r} is no pointer; only 0 is a constant one")
        return tirx.reinterpret("handle", const(0, "uint64"))
    rounded = _rounded(float(value), facts)
    if rounded is None:  # a cast of a too large number: infinity where the type has one, else what the conversion gives
        if not facts.has_infinity:
            return Cast(name, constant(value, "float32" if abs(value) < _FLOAT32_MAX else "float64"), span)
        rounded = math.copysign(math.inf, value)
    return FloatImm(name, rounded, span)

"""Casts, constants of types, and vector values.

In: Python numbers, expressions, element types in any spelling. Out: expressions of exactly the wanted type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TileNotSupportedError, TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.dtype_table import info
from ..ir.dtypes import canonical
from ..ir.tvm_api import Expr, IntImm, tirx

_ROUNDING = {"rn": "nearbyint", "rz": "trunc", "ru": "ceil", "rd": "floor"}


def cast(value: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> Expr:
    """`value` converted to `dtype` (value first). Floats to integers lose their fraction; to bool it is `!= 0`.

    round: "" for the default, or "rn", "rz", "ru", "rd" (a float to an integer), "rs" (stochastic; needs rbits, GPUs
    only). sat: conversions to float8 and smaller stop at the largest finite value. Raises `TileValueError` for an
    unknown mode.
    """
    target = canonical(dtype)
    if round not in ("", "rs", *_ROUNDING):
        raise TileValueError(f"T.cast: rounding mode {round!r} is unknown; there are {', '.join(_ROUNDING)}, rs")
    if round == "rs" and rbits is None:
        raise TileValueError("T.cast: stochastic rounding (round='rs') needs rbits")
    found = ex.as_expr(value)
    if info(ex.type_of(found)).kind == "float" and round not in ("", "rn" if target.info.kind == "float" else "rz"):
        if not target.info.is_integer or round == "rs":
            raise TileNotSupportedError(f"T.cast to {target} with round={round!r} exists on GPUs only")
        found = getattr(tirx, _ROUNDING[round])(found)
    return ex.convert(found if isinstance(value, Expr) or round else value, target)


def Cast(dtype: Any, value: Any) -> Expr:
    """`value` converted to `dtype` (type first); see `cast`."""
    return cast(value, dtype)


def _is_type(value: Any) -> bool:
    """Does this name an element type (rather than a value)?"""
    return isinstance(value, (str, type)) or type(value).__name__ == "dtype"


def reinterpret(value: Any, dtype: Any) -> Expr:
    """The bits of `value` as another type of the same size. The old order `(dtype, value)` is accepted."""
    if _is_type(value) and not _is_type(dtype):
        value, dtype = dtype, value
    found, target = ex.as_expr(value), canonical(dtype)
    source = info(ex.type_of(found))
    if source.bits * source.lanes != target.bits * target.lanes:
        raise TileTypeError(
            f"T.reinterpret: {source.name} has {source.bits * source.lanes} bits, {target} has {target.bits * target.lanes}",
            remedy="T.cast converts the value",
        )
    return found if source.name == target.storage else tirx.reinterpret(target.storage, found)


def infinity(dtype: Any) -> Expr:
    """Positive infinity of a float type; `-T.infinity(dtype)` is the negative one."""
    target = canonical(dtype)
    if not target.info.has_infinity:
        raise TileValueError(f"T.infinity: {target} has no infinity", remedy=f"T.max_value({str(target)!r}) is {target.info.high}")
    return ex.constant(float("inf"), target.storage)


def max_value(dtype: Any) -> Expr:
    """The largest finite value of a type."""
    target = canonical(dtype)
    return ex.constant(target.info.high, target.storage)


def min_value(dtype: Any) -> Expr:
    """The least finite value of a type."""
    target = canonical(dtype)
    return ex.constant(target.info.low, target.storage)


# ---------------------------------------------------------------- vectors
def _pair(name: str, *values: Any) -> list[Expr]:
    found = [ex.as_expr(v) for v in values]
    for value in found:
        if ex.type_of(value) not in ("float32x2", "float16x2", "bfloat16x2"):
            raise TileTypeError(f"T.{name} needs float32x2, float16x2 or bfloat16x2, got {ex.type_of(value)}")
    return found


def add2(a: Any, b: Any) -> Expr:
    """Elementwise a + b of two packed pairs."""
    return ex.binary("+", *_pair("add2", a, b))


def sub2(a: Any, b: Any) -> Expr:
    """Elementwise a - b of two packed pairs."""
    return ex.binary("-", *_pair("sub2", a, b))


def mul2(a: Any, b: Any) -> Expr:
    """Elementwise a * b of two packed pairs."""
    return ex.binary("*", *_pair("mul2", a, b))


def fma2(a: Any, b: Any, c: Any) -> Expr:
    """Elementwise a * b + c of packed pairs."""
    left, right, addend = _pair("fma2", a, b, c)
    return ex.binary("+", ex.binary("*", left, right), addend)


def max2(a: Any, b: Any) -> Expr:
    """Elementwise maximum of two packed pairs."""
    return ex.binary("max", *_pair("max2", a, b))


def min2(a: Any, b: Any) -> Expr:
    """Elementwise minimum of two packed pairs."""
    return ex.binary("min", *_pair("min2", a, b))


def abs2(a: Any) -> Expr:
    """Elementwise absolute value of a packed pair."""
    (value,) = _pair("abs2", a)
    return ex.binary("max", value, ex.unary("-", value))


def extract_lane(vec: Any, index: int) -> Expr:
    """Lane `index` (a constant) of a vector value."""
    value = ex.as_expr(vec)
    lanes = info(ex.type_of(value)).lanes
    position = int(index) if isinstance(index, (int, IntImm)) else -1
    if not 0 <= position < lanes:
        raise TileValueError(f"T.extract_lane: lane {index} of a value with {lanes} lanes; the lane is a constant from 0 to {lanes - 1}")
    return value if lanes == 1 else tirx.Shuffle([value], [position])


def Shuffle(vectors: Sequence[Any], indices: Sequence[int]) -> Expr:
    """The lanes `indices` (constants) of the concatenated vectors, as one vector."""
    found = [ex.as_expr(v) for v in vectors]
    if not found or len({info(ex.type_of(v)).base for v in found}) != 1:
        raise TileTypeError("T.Shuffle needs one or more vectors of one element type")
    total = sum(info(ex.type_of(v)).lanes for v in found)
    places = [int(i) for i in indices]
    if not places or not all(0 <= i < total for i in places):
        raise TileValueError(f"T.Shuffle: indices {places} of {total} lanes")
    return tirx.Shuffle(found, places)


def Ramp(base: Any, stride: Any, lanes: int) -> Expr:
    """The vector base, base + stride, ... of `lanes` integers."""
    left, right, kind = ex.operands(ex.as_expr(base), stride)
    if not info(kind).is_integer or info(kind).lanes != 1:
        raise TileTypeError(f"T.Ramp of {kind}; scalar integers are needed")
    return tirx.Ramp(left, right, _lanes("T.Ramp", lanes))


def Broadcast(value: Any, lanes: int) -> Expr:
    """A vector whose `lanes` lanes all are `value`."""
    found = ex.as_expr(value)
    if info(ex.type_of(found)).lanes != 1:
        raise TileTypeError(f"T.Broadcast of a vector ({ex.type_of(found)})")
    return tirx.Broadcast(found, _lanes("T.Broadcast", lanes))


def _lanes(what: str, lanes: Any) -> int:
    count = int(lanes) if isinstance(lanes, (int, IntImm)) else 0
    if not 2 <= count <= 1024:
        raise TileValueError(f"{what}: {lanes} lanes; 2 to 1024 are possible")
    return count

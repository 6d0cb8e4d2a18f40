"""Arithmetic with a chosen IEEE rounding: `T.ieee_add` and its kin.

In: float values and a mode: "rn" nearest even, "rz" to zero, "ru" up, "rd" down. Out: the correctly rounded result.
The directed modes exist for float32: the nearest result is corrected by the sign of its exact error, found in float64.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileNotSupportedError, TileValueError
from ..ir import expr as ex
from ..ir.dtype_table import info
from ..ir.tvm_api import Expr, tirx

MODES = ("rn", "rz", "ru", "rd")


def _operands(what: str, mode: str, *values: Any) -> tuple[list[Expr], str]:
    """The operands in their common float type."""
    if mode not in MODES:
        raise TileValueError(f"T.{what}: rounding mode {mode!r}; possible are {', '.join(MODES)}")
    found = [ex.as_expr(v) for v in values]
    kind = str(ex.type_of(found[0]))
    for value in found[1:]:
        kind = ex.join(kind, ex.type_of(value))
    kind = kind if info(kind).kind == "float" else "float32"
    if mode != "rn" and kind != "float32":
        raise TileNotSupportedError(f"T.{what} of {kind} with rounding mode {mode!r} exists on GPUs only", remedy="use float32, or 'rn'")
    return [ex.convert(v, kind) for v in found], kind


def _wide(value: Expr) -> Expr:
    return ex.convert(value, "float64")


def _directed(near: Expr, error: Expr, mode: str) -> Expr:
    """`near` moved to its neighbour where the mode demands it; `error` has the sign of exact - near (NaN: leave it)."""
    if mode == "rn":
        return near
    zero, nothing = ex.constant(0.0, "float64"), ex.constant(0.0, "float32")
    above = tirx.nextafter(near, ex.constant(float("inf"), "float32"))
    below = tirx.nextafter(near, ex.constant(float("-inf"), "float32"))
    if mode == "ru":
        return tirx.Select(error > zero, above, near)
    if mode == "rd":
        return tirx.Select(error < zero, below, near)
    inward = tirx.Select(tirx.And(near < nothing, error > zero), above, near)
    return tirx.Select(tirx.And(near > nothing, error < zero), below, inward)


def _two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b in float64 and the exact error of that sum."""
    total = tirx.Add(a, b)
    part = tirx.Sub(total, a)
    return total, tirx.Add(tirx.Sub(a, tirx.Sub(total, part)), tirx.Sub(b, part))


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> Expr:
    """x + y, correctly rounded."""
    (a, b), _ = _operands("ieee_add", rounding_mode, x, y)
    near = tirx.Add(a, b)
    if rounding_mode == "rn":
        return near
    total, rest = _two_sum(_wide(a), _wide(b))
    return _directed(near, tirx.Add(tirx.Sub(total, _wide(near)), rest), rounding_mode)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> Expr:
    """x - y, correctly rounded."""
    return ieee_add(x, ex.unary("-", ex.as_expr(y)), rounding_mode)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> Expr:
    """x * y, correctly rounded."""
    (a, b), _ = _operands("ieee_mul", rounding_mode, x, y)
    near = tirx.Mul(a, b)
    if rounding_mode == "rn":
        return near
    return _directed(near, tirx.Sub(tirx.Mul(_wide(a), _wide(b)), _wide(near)), rounding_mode)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> Expr:
    """x * y + z with a single rounding; float32."""
    (a, b, c), kind = _operands("ieee_fmaf", rounding_mode, x, y, z)
    if kind != "float32":
        raise TileNotSupportedError(f"T.ieee_fmaf of {kind}", remedy="cast to float32")
    total, rest = _two_sum(tirx.Mul(_wide(a), _wide(b)), _wide(c))
    # Rounding to odd in float64 first makes the second rounding exact.
    toward = tirx.Select(rest > ex.constant(0.0, "float64"), ex.constant(float("inf"), "float64"), ex.constant(float("-inf"), "float64"))
    even = tirx.EQ(tirx.bitwise_and(tirx.reinterpret("int64", total), ex.constant(1, "int64")), ex.constant(0, "int64"))
    inexact = tirx.And(tirx.NE(rest, ex.constant(0.0, "float64")), tirx.isfinite(rest))
    odd = tirx.Select(tirx.And(inexact, even), tirx.nextafter(total, toward), total)
    near = ex.convert(odd, "float32")
    return _directed(near, tirx.Add(tirx.Sub(total, _wide(near)), rest), rounding_mode)


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> Expr:
    """x / y, correctly rounded."""
    (a, b), _ = _operands("ieee_fdiv", rounding_mode, x, y)
    near = tirx.Div(a, b)
    if rounding_mode == "rn":
        return near
    rest = tirx.Sub(_wide(a), tirx.Mul(_wide(near), _wide(b)))
    signed = tirx.Select(b < ex.constant(0.0, "float32"), ex.unary("-", rest), rest)
    return _directed(near, signed, rounding_mode)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> Expr:
    """1 / x, correctly rounded."""
    (value,), kind = _operands("ieee_frcp", rounding_mode, x)
    return ieee_fdiv(ex.constant(1.0, kind), value, rounding_mode)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> Expr:
    """The square root, correctly rounded."""
    (value,), _ = _operands("ieee_fsqrt", rounding_mode, x)
    near = tirx.sqrt(value)
    if rounding_mode == "rn":
        return near
    return _directed(near, tirx.Sub(_wide(value), tirx.Mul(_wide(near), _wide(near))), rounding_mode)


def ieee_frsqrt(x: Any) -> Expr:
    """1 / sqrt(x), rounded to nearest."""
    (value,), kind = _operands("ieee_frsqrt", "rn", x)
    return ex.convert(tirx.Div(ex.constant(1.0, "float64"), tirx.sqrt(_wide(value))), kind)

"""Scalar and vector mathematics: elementwise functions, choices, conditions.

In: Python numbers and expressions of any element type; a variable counts as its value. Out: expressions in the type that
the promotion rules give (`ir/expr.py`); from Python numbers alone, a Python number. Elementwise functions keep the type of a
float operand and take integers as float32. Half types may be computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.dtype_table import info
from ..ir.tvm_api import Expr, tirx

_HOST: dict[str, Callable[[float], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": math.erf,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "nearbyint": np.rint,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, ex.Number)


def _float_operand(value: Any, what: str) -> Expr:
    """An operand of an elementwise function: floats as they are, integers and bool as float32."""
    found = ex.as_expr(value)
    facts = info(ex.type_of(found))
    if facts.kind == "handle":
        raise TileTypeError(f"{what} of an address")
    if facts.kind == "float":
        return found
    return ex.convert(found, "float32" if facts.lanes == 1 else f"float32x{facts.lanes}")


def _elementwise(name: str, x: Any) -> Any:
    if _is_number(x):
        with np.errstate(all="ignore"):
            return float(_HOST[name](float(x)))
    return getattr(tirx, name)(_float_operand(x, f"T.{name}"))


# ---------------------------------------------------------------- functions of one operand
def exp(x: Any) -> Any:
    """e to the power x."""
    return _elementwise("exp", x)


def exp2(x: Any) -> Any:
    """2 to the power x."""
    return _elementwise("exp2", x)


def exp10(x: Any) -> Any:
    """10 to the power x."""
    return _elementwise("exp10", x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return _elementwise("log", x)


def log2(x: Any) -> Any:
    """Logarithm to base 2."""
    return _elementwise("log2", x)


def log10(x: Any) -> Any:
    """Logarithm to base 10."""
    return _elementwise("log10", x)


def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return _elementwise("log1p", x)


def sqrt(x: Any) -> Any:
    """Square root."""
    return _elementwise("sqrt", x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _elementwise("rsqrt", x)


def sin(x: Any) -> Any:
    """Sine of x in radians."""
    return _elementwise("sin", x)


def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    return _elementwise("cos", x)


def tan(x: Any) -> Any:
    """Tangent of x in radians."""
    return _elementwise("tan", x)


def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
    return _elementwise("sinh", x)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    return _elementwise("cosh", x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _elementwise("tanh", x)


def asin(x: Any) -> Any:
    """Inverse sine."""
    return _elementwise("asin", x)


def acos(x: Any) -> Any:
    """Inverse cosine."""
    return _elementwise("acos", x)


def atan(x: Any) -> Any:
    """Inverse tangent."""
    return _elementwise("atan", x)


def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
    return _elementwise("asinh", x)


def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    return _elementwise("acosh", x)


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return _elementwise("atanh", x)


def erf(x: Any) -> Any:
    """Error function."""
    return _elementwise("erf", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _elementwise("sigmoid", x)


def floor(x: Any) -> Any:
    """Largest integral value not above x."""
    return _elementwise("floor", x)


def ceil(x: Any) -> Any:
    """Smallest integral value not below x."""
    return _elementwise("ceil", x)


def trunc(x: Any) -> Any:
    """x without its fraction."""
    return _elementwise("trunc", x)


def nearbyint(x: Any) -> Any:
    """Nearest integral value, ties to even."""
    return _elementwise("nearbyint", x)


def round(x: Any, rounding_mode: str = "rn") -> Any:
    """x as an integral value of its type. rounding_mode: "rn" nearest, ties to even; "rz" to zero; "ru" up; "rd" down."""
    modes = {"rn": "nearbyint", "rz": "trunc", "ru": "ceil", "rd": "floor"}
    if rounding_mode not in modes:
        raise TileValueError(f"T.round: rounding mode {rounding_mode!r} is unknown; there are {', '.join(modes)}")
    return _elementwise(modes[rounding_mode], x)


def abs(x: Any) -> Any:
    """Absolute value, in x's type; the least signed integer stays itself."""
    if _is_number(x):
        return -x if x < 0 or (x == 0 and math.copysign(1.0, x) < 0) else +x
    value = ex.as_expr(x)
    kind = info(ex.type_of(value)).kind
    if kind == "bool":
        value = ex.unary("+", value)
    return value if kind in ("uint", "bool") else tirx.abs(value)


def _classify(name: str, x: Any) -> Any:
    if _is_number(x):
        return bool(getattr(np, name)(float(x)))
    value = ex.as_expr(x)
    if info(ex.type_of(value)).kind != "float":
        return ex.constant(name == "isfinite", "bool")
    return getattr(tirx, name)(value)


def isnan(x: Any) -> Any:
    """Is x NaN? (bool)"""
    return _classify("isnan", x)


def isinf(x: Any) -> Any:
    """Is x infinite? (bool)"""
    return _classify("isinf", x)


def isfinite(x: Any) -> Any:
    """Is x neither infinite nor NaN? (bool)"""
    return _classify("isfinite", x)


def _float_only(name: str, x: Any) -> Any:
    if not _is_number(x) and info(ex.type_of(ex.as_expr(x))).kind != "float":
        raise TileTypeError(f"T.__{name} needs a float, got {ex.type_of(ex.as_expr(x))}", remedy=f"use T.{name}, or cast first")
    return _elementwise(name, x)


def __exp(x: Any) -> Any:
    """`exp`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("exp", x)


def __exp10(x: Any) -> Any:
    """`exp10`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("exp10", x)


def __log(x: Any) -> Any:
    """`log`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("log", x)


def __log2(x: Any) -> Any:
    """`log2`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("log2", x)


def __log10(x: Any) -> Any:
    """`log10`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("log10", x)


def __sin(x: Any) -> Any:
    """`sin`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("sin", x)


def __cos(x: Any) -> Any:
    """`cos`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("cos", x)


def __tan(x: Any) -> Any:
    """`tan`, possibly approximate; floats only (`TileTypeError`)."""
    return _float_only("tan", x)


def fast_rcp(x: Any) -> Any:
    """1 / x, possibly approximate."""
    return 1.0 / x if _is_number(x) else ex.binary("/", ex.convert(1, ex.type_of(value := _float_operand(x, "T.fast_rcp"))), value)


# ---------------------------------------------------------------- functions of two operands
def _float_pair(name: str, x: Any, y: Any) -> tuple[Expr, Expr, str]:
    left, right, kind = ex.operands(x, y)
    if info(kind).kind != "float":
        kind = "float32" if info(kind).lanes == 1 else f"float32x{info(kind).lanes}"
        left, right = ex.convert(left, kind), ex.convert(right, kind)
    return left, right, kind


def _binary_function(name: str, host: Callable[[float, float], Any], x: Any, y: Any) -> Any:
    if _is_number(x) and _is_number(y):
        with np.errstate(all="ignore"):
            return float(host(float(x), float(y)))
    left, right, _ = _float_pair(name, x, y)
    return getattr(tirx, name)(left, right)


def atan2(y: Any, x: Any) -> Any:
    """Angle of the point (x, y) in radians, from -pi to pi."""
    return _binary_function("atan2", np.arctan2, y, x)


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow in between."""
    return _binary_function("hypot", np.hypot, x, y)


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    return _binary_function("copysign", np.copysign, x, y)


def nextafter(x: Any, y: Any) -> Any:
    """The next value of the type after x in the direction of y; float32 and float64."""
    if not (_is_number(x) and _is_number(y)) and _float_pair("nextafter", x, y)[2] not in ("float32", "float64"):
        raise TileTypeError(f"T.nextafter on {_float_pair('nextafter', x, y)[2]}; it exists for float32 and float64")
    return _binary_function("nextafter", np.nextafter, x, y)


def fmod(x: Any, y: Any) -> Any:
    """Remainder of x / y with the sign of x (C's fmod; `%` has the sign of y)."""
    if _is_number(x) and _is_number(y):
        with np.errstate(all="ignore"):
            return float(np.fmod(float(x), float(y)))
    left, right, kind = _float_pair("fmod", x, y)
    return ex.math_call("fmod", kind, left, right)


def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2**exponent; the exponent is an integer."""
    if _is_number(x) and _is_number(exponent):
        return math.ldexp(x, int(exponent))
    value, power_of_two = _float_operand(x, "T.ldexp"), ex.convert(exponent, "int32")
    kind = ex.type_of(value)
    if kind in ("float32", "float64"):
        return tirx.ldexp(value, power_of_two)
    return ex.convert(tirx.ldexp(ex.convert(value, "float32"), power_of_two), kind)


def pow(x: Any, y: Any) -> Any:
    """x to the power y; see `**`. Integers to a constant non-negative power stay integers."""
    return ex.power(x, y)


def power(x: Any, y: Any) -> Any:
    """The same as `pow`."""
    return ex.power(x, y)


def max(a: Any, b: Any) -> Any:
    """The larger of two values, in their common type."""
    return ex.binary("max", a, b)


def min(a: Any, b: Any) -> Any:
    """The smaller of two values, in their common type."""
    return ex.binary("min", a, b)


def clamp(x: Any, low: Any, high: Any) -> Any:
    """min(max(x, low), high)."""
    return min(max(x, low), high)


# ---------------------------------------------------------------- choices and conditions
def if_then_else(cond: Any, true_value: Any, false_value: Any) -> Any:
    """true_value where cond holds, else false_value. Only the chosen side is evaluated: it may guard an access."""
    return ex.if_then_else(cond, true_value, false_value)


def Select(condition: Any, true_value: Any, false_value: Any) -> Any:
    """true_value where the condition holds, else false_value; both sides may be evaluated."""
    return ex.select(condition, true_value, false_value)


def all(*conditions: Any) -> Any:
    """Do all the conditions hold? (For the elements of a tile: `T.all_of`.)"""
    result: Any = True
    for condition in conditions:
        result = ex.binary("and", result, condition) if result is not True else ex.truth(condition)
    return result


def any(*conditions: Any) -> Any:
    """Does one of the conditions hold? (For the elements of a tile: `T.any_of`.)"""
    result: Any = False
    for condition in conditions:
        result = ex.binary("or", result, condition) if result is not False else ex.truth(condition)
    return result


def likely(condition: Any) -> Any:
    """The condition, expected to hold; only a hint."""
    return condition if ex.is_static(condition) else tirx.likely(ex.truth(condition))

"""Scalar semantics on arrays: the functions that generated code calls for casts, divisions, choices and mathematics.

In: NumPy arrays over lanes, NumPy scalars or Python numbers (values equal in all lanes), masks. Out: values of the IR's type.
A mask is None (every lane takes part), False (none does) or a bool array. Integers wrap, casts of floats to integers
truncate (32 bits and more saturate, NaN is 0), half types round after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.dtype_table import info, numpy_type

Mask = Any  # None, False or a bool array


# ---------------------------------------------------------------- masks
def both(mask: Mask, condition: Any) -> Mask:
    """Lanes of `mask` in which the condition holds."""
    if mask is False:
        return False
    if isinstance(condition, (bool, np.bool_)):
        return mask if condition else False
    found = condition if mask is None else mask & condition
    count = np.count_nonzero(found)
    if count == 0:
        return False
    return None if count == found.size else found


def minus(mask: Mask, gone: Mask) -> Mask:
    """Lanes of `mask` that are not in `gone`."""
    if mask is False or gone is None:
        return False
    return mask if gone is False else both(mask, ~gone)


def inv(condition: Any) -> Any:
    return not condition if isinstance(condition, (bool, np.bool_)) else ~condition


def spread(value: Any, mask: np.ndarray) -> np.ndarray:
    """The elements of a value in the lanes of a mask, as a flat array; both broadcast to their common shape."""
    if not isinstance(value, np.ndarray):
        return np.asarray(value)
    return value[mask] if value.shape == mask.shape else np.broadcast_to(value, mask.shape)[mask]


# ---------------------------------------------------------------- integers
def wrap(value: int, bits: int, signed: bool) -> int:
    """A Python int reduced into an integer type."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def floordiv(a: Any, b: Any) -> Any:
    """Floor of a / b; 0 where b is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    return a // b


def floormod(a: Any, b: Any) -> Any:
    """a - b * floor(a / b); 0 where b is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    return a % b


def truncdiv(a: Any, b: Any) -> Any:
    """a / b rounded to zero; 0 where b is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return 0 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    quotient = a // b
    return quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0)) & (b != 0)).astype(np.asarray(quotient).dtype)


def truncmod(a: Any, b: Any) -> Any:
    """The remainder with a's sign; 0 where b is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a - truncdiv(a, b) * b if b else 0
    return np.where(np.asarray(b) == 0, np.zeros_like(a), a - truncdiv(a, b) * b)


def shift_left(a: Any, b: Any, bits: int, signed: bool) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return wrap(a << b, bits, signed) if 0 <= b < bits else 0
    return np.left_shift(a, b)


def shift_right(a: Any, b: Any, bits: int) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)
    return np.right_shift(a, b)


def popcount(value: Any) -> Any:
    """Bits set, int32."""
    unsigned = np.asarray(value).view(f"u{np.asarray(value).dtype.itemsize}")
    return np.bitwise_count(unsigned).astype(np.int32)


def clz(value: Any) -> Any:
    """Zero bits above the highest set bit, int32."""
    array = np.asarray(value)
    bits = array.dtype.itemsize * 8
    rest = array.view(f"u{array.dtype.itemsize}").astype(np.uint64)
    count = np.full(array.shape, bits, np.int32)
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(step)
        move = high != 0
        count = np.where(move, count - step, count)
        rest = np.where(move, high, rest)
    return (count - rest.astype(np.int32)).astype(np.int32)


# ---------------------------------------------------------------- casts
def float_to_int(value: Any, name: str) -> Any:
    """Truncation; narrower than 32 bits keeps the low bits of an int32, wider saturates, NaN is 0."""
    kind = info(name)
    target = name if kind.bits >= 32 else "int32"
    limits = np.iinfo(target)
    wide = np.asarray(value).astype(np.float64)
    top, bottom = wide >= float(limits.max) + (0.0 if limits.bits < 53 else 1.0), wide <= float(limits.min)
    plain = np.where(np.isnan(wide) | top | bottom, 0.0, wide)
    whole = np.trunc(plain).astype(target)
    whole = np.where(top, limits.max, np.where(bottom, limits.min, whole)).astype(target)
    return whole.astype(numpy_type(name))


def double_to_half(value: Any, kind: Any) -> Any:
    """float64 to bfloat16 and smaller with one rounding: through a float32 rounded to odd."""
    wide = np.asarray(value, np.float64)
    near = wide.astype(np.float32)
    inexact = (near.astype(np.float64) != wide) & ~np.isnan(wide) & np.isfinite(near)
    bits = near.view(np.uint32)
    outward = np.abs(near.astype(np.float64)) > np.abs(wide)
    odd = np.where(outward, bits - np.uint32(1), bits) | np.uint32(1)
    return np.where(inexact, odd, bits).astype(np.uint32).view(np.float32).astype(kind)


def reinterpret(value: Any, kind: Any) -> Any:
    """The same bits as another type of the same size."""
    array = np.asarray(value)
    return array.view(kind) if array.ndim else array.reshape(1).view(kind)[0]


# ---------------------------------------------------------------- choices
def select(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b; both of one type."""
    if isinstance(condition, (bool, np.bool_)):
        return a if condition else b
    return np.where(condition, a, b)


def choose(condition: Any, a: Any, b: Any, kind: Any) -> Any:
    """`select` whose result has the element type `kind` (an operand may be a Python number)."""
    found = select(condition, a, b)
    return found.astype(kind, copy=False) if isinstance(found, np.ndarray) else found


def maximum(a: Any, b: Any) -> Any:
    """The larger; of a number and NaN the number."""
    return np.fmax(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; of a number and NaN the number."""
    return np.fmin(a, b)


# ---------------------------------------------------------------- functions
def _each(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of Python floats over arrays, computed in float64."""
    ufunc = np.frompyfunc(function, 1, 1)

    def apply(x: Any) -> Any:
        return np.asarray(ufunc(np.asarray(x, np.float64))).astype(np.float64)

    return apply


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except (ValueError, OverflowError):
        return math.nan if x < 0 else math.inf


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x.astype(np.float64)), "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "rsqrt": lambda x: np.asarray(1.0, x.dtype) / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": _each(math.erf), "erfc": _each(math.erfc),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x.astype(np.float64))), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + np.asarray(0.5, x.dtype)), x), "nearbyint": np.rint, "fabs": np.abs, "abs": np.abs,
    "cbrt": np.cbrt, "lgamma": _each(_log_gamma), "tgamma": _each(_gamma), "pow": np.power, "fmod": np.fmod, "hypot": np.hypot,
    "atan2": np.arctan2, "copysign": np.copysign, "nextafter": np.nextafter, "ldexp": np.ldexp, "fdim": lambda x, y: np.fmax(x - y, 0),
    "remainder": lambda x, y: x - y * np.rint(x / y),
}  # fmt: skip
_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
_WIDE = ("float32", "float64")
FUNCTIONS = frozenset([*_FUNCTIONS, *_TESTS])


def function(name: str, dtype: str, *args: Any) -> Any:
    """An elementwise function by name. Half types and smaller compute in float32 and round once."""
    arrays = [np.asarray(a) for a in args]
    if name in _TESTS:
        return _TESTS[name](arrays[0].astype(np.float32) if arrays[0].dtype.itemsize < 4 else arrays[0])
    kind = numpy_type(info(dtype).base)
    if info(dtype).kind in ("int", "uint"):
        return _FUNCTIONS[name](*arrays).astype(kind)
    if info(dtype).base not in _WIDE:
        arrays = [a.astype(np.float32) if a.dtype.kind not in "iu" else a for a in arrays]
    return np.asarray(_FUNCTIONS[name](*arrays)).astype(kind)

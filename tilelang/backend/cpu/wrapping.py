"""Integer arithmetic that wraps around, as NumPy's and the hardware's does.

TVM tells LLVM that sums, differences and products of 32 and 64 bits never overflow, so that an overflowing one may become
anything: hash functions and random number generators would break. In: operands of one integer type. Out: the same
operation on wider integers (32 bits), or on halves (64 bits), where nothing overflows; LLVM finds the plain instruction again.
"""

from __future__ import annotations

from typing import Any

from ...ir.tvm_api import Cast, Expr, IntImm, TensorLoad, const, dtype_of, tirx
from .expressions import cast, named

_HALF = 32
_LARGE = 1 << 20


def may_wrap(node: Any, dtype: str) -> bool:
    """Is this sum, difference or product one of data? Signed index arithmetic keeps LLVM's assumption, which vector code needs."""
    if dtype.startswith("uint"):
        return True
    if not dtype.startswith("int"):
        return False
    a, b = _of_data(node.a), _of_data(node.b)
    return a or b if isinstance(node, tirx.Mul) else a and b


def _of_data(value: Any) -> bool:
    """Does an arithmetic expression use memory, or a constant that no index needs?"""
    if isinstance(value, IntImm):
        return abs(int(value)) >= _LARGE
    if isinstance(value, (tirx.Add, tirx.Sub, tirx.Mul)):
        return _of_data(value.a) or _of_data(value.b)
    return isinstance(value, TensorLoad) or (isinstance(value, Cast) and _of_data(value.value))


def wrapping(make: Any, a: Expr, b: Expr) -> Expr:
    """`make(a, b)` modulo 2^bits; make: tirx.Add, Sub or Mul. Types below 32 bits and vectors of 64 bits are left as they are."""
    dtype = dtype_of(a)
    base, _, lanes = dtype.partition("x")
    if base in ("int32", "uint32"):
        wide = ("int64" if base == "int32" or make is tirx.Sub else "uint64") + (f"x{lanes}" if lanes else "")
        return tirx.Cast(dtype, make(tirx.Cast(wide, a), tirx.Cast(wide, b)))
    if dtype not in ("int64", "uint64"):
        return make(a, b)
    if make is tirx.Mul:
        return cast(_named2(a, b, _multiply), dtype)
    carry = 0
    if make is tirx.Sub:
        b, carry = tirx.bitwise_not(b), 1
    return cast(_named2(a, b, lambda x, y: _add(x, y, carry)), dtype)


def _named2(a: Expr, b: Expr, use: Any) -> Expr:
    return named(cast(a, "uint64"), lambda x: named(cast(b, "uint64"), lambda y: use(x, y), "wide"), "wide")


def _low(x: Expr) -> Expr:
    return x & const((1 << _HALF) - 1, "uint64")


def _high(x: Expr) -> Expr:
    return x >> const(_HALF, "uint64")


def _join(high: Expr, low: Expr) -> Expr:
    return (high << const(_HALF, "uint64")) | low


def _add(x: Expr, y: Expr, carry: int) -> Expr:
    low = _low(x) + _low(y) + const(carry, "uint64")
    return named(low, lambda low: _join(_high(x) + _high(y) + _high(low), _low(low)), "low")


def _multiply(x: Expr, y: Expr) -> Expr:
    def combine(low: Expr) -> Expr:
        crossed = _low(_low(x) * _high(y)) + _low(_high(x) * _low(y)) + _high(low)
        return _join(crossed, _low(low))

    return named(_low(x) * _low(y), combine, "low")

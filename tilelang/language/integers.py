"""Integer arithmetic beyond the operators: divisions, bits, fixed point.

In: Python numbers and integer expressions. Out: expressions in the common type; from Python numbers alone, a Python number.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.dtype_table import TypeInfo, info
from ..ir.tvm_api import Expr, IntImm, tirx


def _is_number(value: Any) -> bool:
    return isinstance(value, ex.Number)


def _integer_pair(name: str, a: Any, b: Any) -> tuple[Expr, Expr, str]:
    left, right, kind = ex.operands(a, b)
    if not info(kind).is_integer:
        raise TileTypeError(f"T.{name} on {kind}; integers are needed")
    if isinstance(right, IntImm) and int(right) == 0:
        raise TileValueError(f"T.{name}: division by zero")
    return left, right, kind


def ceildiv(a: Any, b: Any) -> Any:
    """(a + b - 1) // b, on Python ints and expressions."""
    return ex.binary("//", ex.binary("-", ex.binary("+", a, b), 1), b)


def cdiv(a: Any, b: Any) -> Any:
    """The same as `ceildiv`."""
    return ceildiv(a, b)


def align_up(a: Any, b: Any) -> Any:
    """The smallest multiple of b that is not below a."""
    return ex.binary("*", ceildiv(a, b), b)


def floordiv(a: Any, b: Any) -> Any:
    """a // b: the floor of the quotient."""
    return ex.binary("//", a, b)


def floormod(a: Any, b: Any) -> Any:
    """a % b: the remainder with the sign of b."""
    return ex.binary("%", a, b)


def truncdiv(a: Any, b: Any) -> Any:
    """The quotient rounded to zero, as C divides integers."""
    if _is_number(a) and _is_number(b):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    left, right, _ = _integer_pair("truncdiv", a, b)
    return tirx.truncdiv(left, right)


def truncmod(a: Any, b: Any) -> Any:
    """The remainder with the sign of a, as C's `%`."""
    if _is_number(a) and _is_number(b):
        return a - truncdiv(a, b) * b
    left, right, _ = _integer_pair("truncmod", a, b)
    return tirx.truncmod(left, right)


def bitwise_and(a: Any, b: Any) -> Any:
    """a & b."""
    return ex.binary("&", a, b)


def bitwise_or(a: Any, b: Any) -> Any:
    """a | b."""
    return ex.binary("|", a, b)


def bitwise_xor(a: Any, b: Any) -> Any:
    """a ^ b."""
    return ex.binary("^", a, b)


def bitwise_not(a: Any) -> Any:
    """~a."""
    return ex.unary("~", a)


def shift_left(a: Any, b: Any) -> Any:
    """a << b; a constant b lies between 0 and the number of bits - 1."""
    return ex.binary("<<", a, b)


def shift_right(a: Any, b: Any) -> Any:
    """a >> b: arithmetic for signed, logical for unsigned integers."""
    return ex.binary(">>", a, b)


def _bits_operand(name: str, x: Any) -> tuple[Expr, TypeInfo]:
    value = ex.as_expr(x)
    facts = info(ex.type_of(value))
    if not facts.is_integer:
        raise TileTypeError(f"T.{name} on {facts.name}; integers are needed")
    return value, facts


def popcount(x: Any) -> Any:
    """Number of one bits, in x's type."""
    if _is_number(x):
        return bin(int(x) & 0xFFFFFFFF if x < 0 else int(x)).count("1")
    value, _ = _bits_operand("popcount", x)
    return tirx.popcount(value)


def clz(x: Any) -> Any:
    """Number of zero bits above the highest one bit, int32; the width of the type for 0."""
    value, facts = _bits_operand("clz", x)
    if facts.bits >= 32:
        return ex.convert(tirx.clz(value), "int32")
    wide = ex.convert(ex.convert(value, f"uint{facts.bits}"), "uint32")
    return ex.binary("-", ex.convert(tirx.clz(wide), "int32"), 32 - facts.bits)


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> Any:
    """Fixed-point product: round(x * y * 2**(-s)) >> q in 64 bits, rounding halves up, int32."""
    product = ex.binary("*", ex.convert(x, "int64"), ex.convert(y, "int64"))
    amount = ex.convert(ex.binary("+", q, s), "int64")
    half = ex.binary("<<", ex.constant(1, "int64"), ex.binary("-", amount, 1))
    return ex.convert(ex.binary(">>", ex.binary("+", product, half), amount), "int32")

"""TVM's names of operators, for programs that spell them out: `T.Add(a, b)` is `a + b` of the language."""

from __future__ import annotations

from typing import Any

from ..ir.expr import as_expr, binary, unary
from ..ir.tvm_api import dtype_of
from .integers import truncdiv, truncmod


def _holds_float(*values: Any) -> bool:
    return any("float" in dtype_of(as_expr(v)) for v in values)


def Add(a: Any, b: Any) -> Any:
    """a + b."""
    return binary("+", a, b)


def Sub(a: Any, b: Any) -> Any:
    """a - b."""
    return binary("-", a, b)


def Mul(a: Any, b: Any) -> Any:
    """a * b."""
    return binary("*", a, b)


def Div(a: Any, b: Any) -> Any:
    """a / b; of integers rounded toward zero."""
    return binary("/", a, b) if _holds_float(a, b) else truncdiv(a, b)


def Mod(a: Any, b: Any) -> Any:
    """The remainder of `Div` of integers."""
    return truncmod(a, b)


def FloorDiv(a: Any, b: Any) -> Any:
    """a // b."""
    return binary("//", a, b)


def FloorMod(a: Any, b: Any) -> Any:
    """a % b."""
    return binary("%", a, b)


def Min(a: Any, b: Any) -> Any:
    """The smaller of a and b."""
    return binary("min", a, b)


def Max(a: Any, b: Any) -> Any:
    """The larger of a and b."""
    return binary("max", a, b)


def EQ(a: Any, b: Any) -> Any:
    """a == b."""
    return binary("==", a, b)


def NE(a: Any, b: Any) -> Any:
    """a != b."""
    return binary("!=", a, b)


def LT(a: Any, b: Any) -> Any:
    """a < b."""
    return binary("<", a, b)


def LE(a: Any, b: Any) -> Any:
    """a <= b."""
    return binary("<=", a, b)


def GT(a: Any, b: Any) -> Any:
    """a > b."""
    return binary(">", a, b)


def GE(a: Any, b: Any) -> Any:
    """a >= b."""
    return binary(">=", a, b)


def And(a: Any, b: Any) -> Any:
    """a and b."""
    return binary("and", a, b)


def Or(a: Any, b: Any) -> Any:
    """a or b."""
    return binary("or", a, b)


def Not(a: Any) -> Any:
    """not a."""
    return unary("not", a)

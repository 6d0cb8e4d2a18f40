"""bfloat16 as the upper half of a float32: scalars and vectors.

TVM's own pass for this type keeps tiles and variables of it in float32, so that a cast to bfloat16 would not round.
`widen(value)`: bfloat16 -> float32, exact. `narrow_bfloat(value)`: float32 -> bfloat16, nearest even, NaN stays NaN.
"""

from __future__ import annotations

from ...ir.tvm_api import Expr, TensorLoad, const, tirx
from .expressions import named, reinterpret


def _kind(base: str, lanes: int) -> str:
    return base if lanes == 1 else f"{base}x{lanes}"


def _word(value: int, lanes: int) -> Expr:
    scalar = const(value, "uint32")
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def widen(value: Expr, lanes: int = 1) -> Expr:
    """float32 with the value of a bfloat16."""
    word = tirx.Cast(_kind("uint32", lanes), reinterpret(value, _kind("uint16", lanes)))
    return reinterpret(word << _word(16, lanes), _kind("float32", lanes))


def narrow_bfloat(value: Expr, lanes: int = 1) -> Expr:
    """The nearest bfloat16 of a float32."""

    def rounded(word: Expr) -> Expr:
        last = (word >> _word(16, lanes)) & _word(1, lanes)
        up = (word + last + _word(0x7FFF, lanes)) >> _word(16, lanes)
        quiet = (word >> _word(16, lanes)) | _word(0x40, lanes)
        magnitude = word & _word(0x7FFFFFFF, lanes)
        return tirx.Cast(_kind("uint16", lanes), tirx.Select(magnitude > _word(0x7F800000, lanes), quiet, up))

    word = reinterpret(value, _kind("uint32", lanes))
    bits = rounded(word) if lanes > 1 or isinstance(value, TensorLoad) else named(word, rounded, "w")
    return reinterpret(bits, _kind("bfloat16", lanes))


def is_bfloat(dtype: str) -> bool:
    return dtype == "bfloat16" or dtype.startswith("bfloat16x")

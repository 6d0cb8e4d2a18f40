"""Bits of two neighbouring lanes in one word of 32 bits: masks, shifts and unions of both at once.

In: a 16-bit float of a vector loop that is made by its bits, by bitwise operations on whole numbers (weights of 4 bits that are unpacked).
Out: text of a `uint32_t` whose halves are the bits of lane and lane + 1. All is computed modulo 2^16 in each half, where `&`, `|`, `^` and
`<<` of wider numbers give the lower bits of their results from the lower bits of their operands; what is none of these, and a shift of
anything but uint16 to the right, is computed lane by lane and joined.
"""

from __future__ import annotations

from typing import Any

from ...ir.dialect import op_name
from ...ir.rewrite import substitute, uses
from ...ir.tvm_api import Call, Cast, Expr, IntImm, Var, const, dtype_of, tirx
from .cpp_types import HALF
from .expressions import Expressions

_NODES = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^", tirx.LShift: "<<", tirx.RShift: ">>"}
_CALLS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}
_WIDE = ("uint16", "int16", "uint32", "int32", "uint64", "int64")  # of which the lower 16 bits are all that counts
_HALF_BITS, _MASK = 16, 0xFFFF


def made_by_bits(value: Any) -> bool:
    """Is it a 16-bit float whose bits an operation on bits gives?"""
    return (
        isinstance(value, Call)
        and op_name(value).endswith(".reinterpret")
        and dtype_of(value) in HALF
        and dtype_of(value.args[0]) == "uint16"
        and _operation(value.args[0]) is not None
    )


class LanePairs:
    """Prints words for the lanes `lane` and `lane + 1`."""

    def __init__(self, expressions: Expressions, lane: Var) -> None:
        self.e, self.lane = expressions, lane
        self.next = {lane: lane + const(1, dtype_of(lane))}

    def word(self, value: Expr) -> str:
        """The lower 16 bits of an integer in both lanes, as a primary expression."""
        if isinstance(value, IntImm):
            return f"0x{(int(value) & _MASK) * 0x10001:08x}u"
        if not uses(value, self.lane):
            return f"tl::halves({self.e.text(value)}, {self.e.text(value)})"
        if isinstance(value, Cast) and dtype_of(value) in _WIDE and (dtype_of(value.value) in _WIDE or _operation(value.value) is None):
            return self.word(value.value) if dtype_of(value.value) in (*_WIDE, "uint8") else self._joined(value)
        found = _operation(value)
        if found is None or dtype_of(value) not in _WIDE:
            return self._joined(value)
        sign, a, b = found
        if sign in ("<<", ">>"):
            return self._shifted(sign, a, b, value)
        return f"({self.word(a)} {sign} {self.word(b)})"

    def _shifted(self, sign: str, a: Expr, b: Expr, value: Expr) -> str:
        """A shift by a constant: what passes from one half into the other is masked out."""
        if not isinstance(b, IntImm) or not 0 <= int(b) < _HALF_BITS or (sign == ">>" and dtype_of(a) != "uint16"):
            return self._joined(value)
        kept = (_MASK << int(b) if sign == "<<" else _MASK >> int(b)) & _MASK
        return f"(({self.word(a)} {sign} {int(b)}) & 0x{kept * 0x10001:08x}u)"

    def _joined(self, value: Expr) -> str:
        return f"tl::halves({self.e.text(value)}, {self.e.text(substitute(value, self.next))})"


def _operation(value: Any) -> tuple[str, Expr, Expr] | None:
    """(operator, operands) of an operation on bits."""
    if type(value) in _NODES:
        return _NODES[type(value)], value.a, value.b
    if isinstance(value, Call) and (sign := _CALLS.get(op_name(value).rpartition(".")[2])) is not None:
        return sign, value.args[0], value.args[1]
    return None


__all__ = ["LanePairs", "made_by_bits"]

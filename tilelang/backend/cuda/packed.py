"""Arithmetic of 16-bit floats on whole packs: two lanes in one instruction, each rounded as it is alone.

In: the value of a store in a vector loop, in which the loads that are packs have been replaced by elements of these. Out: text of type
`tl::pack`; a part that is neither a pack nor the same in all lanes is computed lane by lane before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.rewrite import uses
from ...ir.tvm_api import Call, Expr, For, ForKind, TensorLoad, Var, decl_buffer, dtype_of, store, tirx
from .cpp_types import HALF, c_type
from .expressions import ADD, MUL, PRIMARY, Text, wrap
from .lane_pairs import LanePairs, made_by_bits
from .memory import Place
from .printer import Printer

_SIGNS = {tirx.Add: ("+", ADD), tirx.Sub: ("-", ADD), tirx.Mul: ("*", MUL)}
_FUNCTIONS = {tirx.Min: "min", tirx.Max: "max"}


def is_packed(value: Any) -> bool:
    """Is it an operation that packs have an instruction for?"""
    return type(value) in (*_SIGNS, *_FUNCTIONS) and dtype_of(value) in HALF


class Packed:
    """Prints values of the lanes 0 to `lanes` of a loop over `lane`. packs: buffers that hold one element for each lane."""

    def __init__(self, printer: Printer, lane: Var, lanes: int, packs: Iterable[Var]) -> None:
        self.p, self.lane, self.lanes, self.packs = printer, lane, lanes, set(packs)

    def others(self, value: Any) -> int:
        """How many parts have to be computed lane by lane?"""
        if not uses(value, self.lane) or self._is_pack(value):
            return 0
        return self.others(value.a) + self.others(value.b) if is_packed(value) else 1

    def print(self, value: Any) -> Text:
        if not uses(value, self.lane):
            return self.p.e.print(value)
        if self._is_pack(value):
            return self.p.e.names.of(value.source), PRIMARY
        if not is_packed(value):
            return self.lane_by_lane(value), PRIMARY
        if type(value) in _FUNCTIONS:
            a, b = (self._whole(v) for v in (value.a, value.b))
            return f"tl::{_FUNCTIONS[type(value)]}({a}, {b})", PRIMARY
        sign, precedence = _SIGNS[type(value)]
        return f"{wrap(self.print(value.a), precedence)} {sign} {wrap(self.print(value.b), precedence + 1)}", precedence

    def _is_pack(self, value: Any) -> bool:
        return isinstance(value, TensorLoad) and value.source in self.packs

    def _whole(self, value: Expr) -> str:
        text = self.print(value)[0]
        return text if uses(value, self.lane) else f"tl::broadcast<{self.lanes}>({text})"

    def lane_by_lane(self, value: Expr) -> str:
        """The name of a pack with the value's lanes, computed one by one."""
        pack = decl_buffer((self.lanes,), dtype_of(value), "part", "local")
        name = self.p.e.names.of(pack)
        self.p.e.places[pack] = Place(name, dtype_of(value), "local")
        self.p.line(f"tl::pack<{c_type(dtype_of(value))}, {self.lanes}> {name};")
        if self.lanes % 2 == 0 and made_by_bits(value):
            self._in_pairs(name, value)
            return name
        self.p.statement(For(self.lane, 0, self.lanes, ForKind.UNROLLED, store(pack, value, [self.lane])))
        return name

    def _in_pairs(self, name: str, value: Call) -> None:
        """The lanes of pack `name` two by two."""
        lane = self.p.e.names.declare(self.lane)
        self.p.line("#pragma unroll")
        self.p.open(f"for (int {lane} = 0; {lane} < {self.lanes}; {lane} += 2)")
        self.p.line(f"tl::set_pair({name}, {lane}, {LanePairs(self.p.e, self.lane).word(value.args[0])});")
        self.p.close()

"""Which boxes bulk stores write, and whether two stores keep apart.

In: a kernel region at THREADS, its stores (statements with `tl.tma_store` calls). Out: `StoreBoxes.apart`: do two stores write different
elements, the second one in the same iteration of the loops around it or in a later one? Proved from indices that are linear in loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import attr, op_name
from ...ir.effects import calls_of
from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute, uses, walk
from ...ir.tvm_api import Bind, Call, Evaluate, Expr, For, IntImm, Stmt, Var, While, ffi, is_expr, linear_coefficients, tirx
from ..analysis.facts import Facts, holds_load

_STORE = "tl.tma_store"


@dataclass(frozen=True)
class _Span:
    """Indices along one dimension: from `low` on, `extent` of them."""

    low: Expr
    extent: int


class StoreBoxes:
    """Boxes of the stores of one kernel. sizes: see `Facts`."""

    def __init__(self, kernel: KernelRegion, sizes: Mapping[Var, tuple[int, int]]) -> None:
        self.facts, self.values, self.loops = Facts(sizes), dict[Var, Expr](), dict[Var, For]()
        for var, extent in (*kernel.blocks, *kernel.threads):
            self.facts.bind_range(var, 0, extent)
        walk(kernel.body, {For: self._loop, Bind: self._bind})
        self.of_boxes = {var for var, loop in self.loops.items() if _is_boxes(loop)}  # loops over the boxes of one store

    def _loop(self, loop: For) -> None:
        self.loops[loop.loop_var] = loop
        self.facts.bind_range(loop.loop_var, loop.min, loop.extent)

    def _bind(self, bind: Bind) -> None:
        if is_expr(bind.value) and not holds_load(bind.value):
            self.values[bind.var] = substitute(bind.value, self.values)

    def apart(self, first: Stmt, second: Stmt, left: Sequence[Stmt]) -> bool:
        """Do the stores write different elements? left: loops that are in a later iteration when the second is executed, the outermost
        last; iterations of the ones before it are any."""
        return all(self._apart(a, b, left) for a in calls_of(first, _STORE) for b in calls_of(second, _STORE)
                   if a.args[1].source.same_as(b.args[1].source))  # fmt: skip

    def _apart(self, first: Call, second: Call, left: Sequence[Stmt]) -> bool:
        if attr(first, "add") and attr(second, "add"):  # each element is added indivisibly: their order shows in rounding only
            return True
        if any(isinstance(loop, While) for loop in left):
            return False
        outer = left[-1] if left else None
        assert outer is None or isinstance(outer, For)
        free = {loop.loop_var for loop in left[:-1] if isinstance(loop, For)}
        inside: set[Var] = set()
        if outer is not None:
            walk(outer.body, {For: lambda f: inside.add(f.loop_var), Bind: lambda b: inside.add(b.var)})
        for a, b in zip(first.args[1].region, second.args[1].region, strict=True):
            one, other = self._span(a, free), self._span(b, free)
            if one is not None and other is not None and self._disjoint(one, other, outer, inside):
                return True
        return False

    def _span(self, part: Any, free: set[Var]) -> _Span | None:
        """The indices over all iterations of the `free` loops and of the store's own."""
        low = substitute(part.min, self.values) if self.values else part.min
        named: list[Var] = []
        walk(low, {Var: lambda v: named.append(v) if v not in named else None})
        hull = [v for v in named if v in free or v in self.of_boxes]
        if not hull:
            return _Span(low, int(part.extent))
        found = linear_coefficients(low, hull)
        if found is None:
            return None
        low, extent = found[1], int(part.extent)
        for coefficient, var in zip(found[0], hull, strict=True):
            loop = self.loops[var]
            if not (isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)):
                return None
            ends = [coefficient * int(loop.min), coefficient * (int(loop.min) + int(loop.extent) - 1)]
            low, extent = low + min(ends), extent + max(ends) - min(ends)
        return _Span(low, extent)

    def _disjoint(self, first: _Span, second: _Span, outer: For | None, inside: set[Var]) -> bool:
        if outer is None or not (uses(first.low, outer.loop_var) or uses(second.low, outer.loop_var)):
            if any(uses(span.low, v) for span in (first, second) for v in inside):
                return False
            return self._below(first, second) or self._below(second, first)
        rests = []
        for span in (first, second):
            found = linear_coefficients(span.low, [outer.loop_var])
            if found is None or any(uses(found[1], v) for v in (outer.loop_var, *inside)):
                return False
            rests.append((found[0][0], found[1]))
        (step, a), (other, b) = rests
        shift = self.facts.simplify(b - a)
        if step != other or not isinstance(shift, IntImm):
            return False
        stride = step * (int(outer.step) if isinstance(outer.step, IntImm) else 1)
        ahead = stride + int(shift)  # from the first to the second, one iteration later; more with each further one
        return (stride > 0 and ahead >= first.extent) or (stride < 0 and -ahead >= second.extent)

    def _below(self, first: _Span, second: _Span) -> bool:
        (base, low), (other, high) = _split(first.low), _split(second.low)
        if ffi.structural_equal(base, other):  # the usual case, and cheap: parts of one tile
            return high - low >= first.extent
        gap = self.facts.simplify(second.low - first.low)
        return self.facts.bounds(gap)[0] >= first.extent


def _split(index: Expr) -> tuple[Expr, int]:
    """`base + number`."""
    number = 0
    while isinstance(index, tirx.Add) and isinstance(index.b, IntImm):
        index, number = index.a, number + int(index.b)
    return index, number


def _is_boxes(loop: For) -> bool:
    """Is nothing but bulk stores in the loop?"""
    body = loop.body
    while isinstance(body, For):
        body = body.body
    return isinstance(body, Evaluate) and op_name(body.value) == _STORE

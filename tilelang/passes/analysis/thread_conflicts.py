"""Do two statements of a thread-level program meet in memory that other threads use?

In: statements without barriers inside. Out: yes or no. Shared and global memory count; memory of a thread does not. Two
accesses do not meet if both read, both are atomic, or if the elements of different threads are provably different: the
index holds every thread index with a factor larger than everything else in it that can differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import Any

from ...ir.access import Access, accesses
from ...ir.dialect import THREAD_SCOPES
from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import Bind, Expr, For, IfThenElse, IntImm, SeqStmt, Stmt, Var, While, is_buffer, linear_coefficients
from .facts import MAX_LEAVES, Facts, holds_load, leaves
from .uniformity import Uniformity

_WIDE = 1 << 40


class Conflicts:
    """Questions about one kernel region; answers are kept by statement. sizes: see `Facts`."""

    def __init__(self, kernel: KernelRegion, uniform: Uniformity, sizes: Mapping[Var, tuple[int, int]]) -> None:
        self.uniform = uniform
        self.axes = [(var, extent) for var, extent in kernel.threads if extent > 1]
        self.facts = Facts(sizes)
        self._known: dict[Stmt, list[Access]] = {}
        self.values: dict[Var, Expr] = {}
        self.sizes: dict[Var, int] = {}
        walk(kernel.body, {For: lambda loop: self.facts.bind_range(loop.loop_var, loop.min, loop.extent), Bind: self._note})

    def _note(self, bind: Bind) -> None:
        if not holds_load(bind.value) and not is_buffer(bind.var):
            self.sizes[bind.var] = leaves(bind.value, self.sizes)
            if self.sizes[bind.var] <= MAX_LEAVES:
                self.values[bind.var] = substitute(bind.value, self.values)

    def between(self, first: Stmt, second: Stmt) -> bool:
        """Must all threads have finished `first` before any starts `second`?"""
        return any(self._meet(a, b, ()) for a in self._visible(first) for b in self._visible(second) if a.root.same_as(b.root))

    def within(self, stmt: Stmt) -> bool:
        """Is there such a pair inside one statement, in different parts of it or in different iterations?"""
        if not isinstance(stmt, SeqStmt | For | While | IfThenElse):
            return False
        loops: list[Var] = []
        walk(stmt, {For: lambda loop: loops.append(loop.loop_var)})
        visible = self._visible(stmt)
        if all(not a.writes for a in visible):
            return False
        for a, b in combinations_with_replacement(visible, 2):
            if a.root.same_as(b.root) and not (a.node.same_as(b.node)) and self._meet(a, b, tuple(loops)):
                return True
        return False

    def _visible(self, stmt: Stmt) -> list[Access]:
        if stmt not in self._known:
            found = accesses(stmt, self.uniform.roots)
            self._known[stmt] = [a for a in found if not is_buffer(a.root) or a.root.scope() not in THREAD_SCOPES]
        return self._known[stmt]

    def _meet(self, a: Access, b: Access, loops: tuple[Var, ...]) -> bool:
        if not (a.writes or b.writes) or (a.atomic and b.atomic):
            return False
        if a.ranges is None or b.ranges is None or not a.buffer.same_as(b.buffer):
            return True
        return not self._separate(a, b, loops)

    # ---------------------------------------------------------------- different threads, different elements
    def _separate(self, a: Access, b: Access, loops: tuple[Var, ...]) -> bool:
        """Is every thread axis told apart by some dimension?"""
        told: set[Var] = set()
        for range_a, range_b in zip(a.ranges or (), b.ranges or (), strict=True):
            told |= self._told_apart(range_a, range_b, loops)
        return all(var in told for var, _ in self.axes)

    def _told_apart(self, range_a: Any, range_b: Any, loops: tuple[Var, ...]) -> set[Var]:
        thread_vars = [var for var, _ in self.axes]
        low_a, low_b = (self._resolved(r.min) for r in (range_a, range_b))
        linear_a, linear_b = (linear_coefficients(low, thread_vars) for low in (low_a, low_b))
        if linear_a is None or linear_b is None or linear_a[0] != linear_b[0]:
            return set()
        if holds_load(linear_a[1]) or holds_load(linear_b[1]) or self.uniform.varies(linear_a[1]) or self.uniform.varies(linear_b[1]):
            return set()
        span = self._span(linear_a[1], linear_b[1], loops) + max(_extent(range_a), _extent(range_b)) - 1
        told: set[Var] = set()
        axes = sorted(((abs(c), var, extent) for c, (var, extent) in zip(linear_a[0], self.axes, strict=True) if c), key=lambda e: e[0])
        for coefficient, var, extent in axes:
            if coefficient <= span:
                return set()
            told.add(var)
            span += coefficient * (extent - 1)
        return told

    def _resolved(self, index: Expr) -> Expr:
        return substitute(index, self.values) if self.values else index

    def _span(self, base_a: Expr, base_b: Expr, loops: tuple[Var, ...]) -> int:
        """Largest distance between the parts of two indices that do not depend on the thread; loop variables of the
        statement itself may have any two values of their range at the same time."""
        again: dict[Var, Expr] = {}
        for var in loops:
            bounds = self.facts.bounds(var)
            other = Var(var.name, var.ty)
            self.facts.bind_range(other, bounds[0], min(bounds[1] - bounds[0] + 1, _WIDE))
            again[var] = other
        low, high = self.facts.bounds(base_a - substitute(base_b, again))
        return max(abs(low), abs(high))


def _extent(r: Any) -> int:
    return int(r.extent) if isinstance(r.extent, IntImm) else _WIDE

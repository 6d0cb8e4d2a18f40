"""Conditions on the thread that choose whole groups of 128 become parts of the block, as `T.ws` makes them.

In: a TILE program with collective statements in `if tx < 128: ... else: ...`. Out: the same with the branches as parts: their collective
statements are those of the threads that arrive. A condition that splits a group, or depends on anything but the thread, stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.context import PassContext
from ...ir.dialect import ATTR_WS, op_name
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import AttrStmt, Bind, Call, For, ForKind, IfThenElse, IntImm, PrimFunc, Stmt, Var, is_expr, seq
from ...layout import LayoutError
from ..analysis.thread_groups import GROUP, groups_of


def thread_parts(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Rewrite every kernel region."""
    return func.with_body(map_kernels(func.body, lambda kernel: _Parts(kernel).run().to_stmt()))


class _Parts:
    """points: for each thread variable, and each name of a function of them, its value in every thread of the block."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.kernel = kernel
        x, y, _ = (extent for _, extent in kernel.threads)
        linear = np.arange(kernel.num_threads)
        places = (linear % x, linear // x % y, linear // (x * y))
        self.points: dict[Var, np.ndarray] = {var: place for (var, _), place in zip(kernel.threads, places, strict=True)}
        self.present = list(range(-(-kernel.num_threads // GROUP)))  # the groups that are here

    def run(self) -> KernelRegion:
        if self.kernel.num_threads <= GROUP:
            return self.kernel
        return self.kernel.with_body(rewrite(self.kernel.body, {Bind: self.bind, IfThenElse: self.branch, AttrStmt: self.attribute}))

    def bind(self, node: Bind, _: Descend) -> Stmt:
        values = self.of_threads(node.value) if is_expr(node.value) else None
        if values is not None:
            self.points[node.var] = values
        return node

    def branch(self, node: IfThenElse, descend: Descend) -> Stmt:
        groups = self.groups(node.condition)
        if groups is None or not _is_collective(node):
            return descend.children(node)
        others = [g for g in self.present if g not in groups]
        found = [self.part(groups, node.then_case, descend, node)]
        if node.else_case is not None:
            found.append(self.part(others, node.else_case, descend, node))
        return seq(found)

    def attribute(self, node: AttrStmt, descend: Descend) -> Stmt:
        if node.attr_key != ATTR_WS:
            return descend.children(node)
        outside, self.present = self.present, [g for g in self.present if g in groups_of(node)]
        result = descend.children(node)
        self.present = outside
        return result

    def part(self, groups: list[int], body: Stmt, descend: Descend, node: IfThenElse) -> Stmt:
        if not groups:
            return seq([])
        outside, self.present = self.present, groups
        result = AttrStmt(groups, ATTR_WS, IntImm("int32", 0), descend(body), node.span)
        self.present = outside
        return result

    def groups(self, condition: Any) -> list[int] | None:
        """Those of the groups here in whose threads the condition holds; None if it is no function of the group."""
        holds = self.of_threads(condition)
        if holds is None:
            return None
        parts = {g: holds[g * GROUP : (g + 1) * GROUP] for g in self.present}
        return [g for g, part in parts.items() if part.all()] if all(part.all() or not part.any() for part in parts.values()) else None

    def of_threads(self, expr: Any) -> np.ndarray | None:
        """The value in every thread; None if it depends on more than the thread, or not on it."""
        found: list[Var] = []
        walk(expr, {Var: found.append})
        if not found or any(v not in self.points for v in found):
            return None
        try:
            return np.broadcast_to(evaluate(expr, self.points), self.kernel.num_threads)
        except LayoutError:
            return None


def _is_collective(node: Stmt) -> bool:
    """Is there a statement in it that is executed by a block or a part of it as a whole?"""
    found: list[Any] = []
    walk(node, {Call: lambda call: found.append(call) if op_name(call).startswith("tl.tileop.") else None,
                For: lambda loop: found.append(loop) if loop.kind == ForKind.PARALLEL else None})  # fmt: skip
    return bool(found)

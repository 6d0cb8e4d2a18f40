"""A loop over a thread's registers under a condition is passed over where the condition holds for none of them.

In: the unrolled loop of one thread, whose whole body is under a condition. Out: the same loop under the disjunction of the values that the
condition has in its iterations, if these are few: elements of a fragment that share a row share a condition on the row. Without it every
iteration would be issued and dropped one by one. The loop itself keeps the condition, so that nothing else changes: a program says
`if rescale[i] != 1: out[i, j] *= rescale[i]`, and a warp whose rows need no rescaling takes one branch.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..ir.access import accesses, writes_of
from ..ir.effects import has_effect
from ..ir.rewrite import Descend, rewrite, substitute, walk
from ..ir.tvm_api import Analyzer, Call, Expr, For, IfThenElse, IntImm, Stmt, TensorLoad, Var, const, ffi, load, tirx

MOST_CONDITIONS = 4  # different ones that are worth to be evaluated first
_ITERATIONS = 4  # at least so many for each of them


def skipped(loop: For) -> Stmt:
    """The loop under its disjunction, or the loop itself where there is nothing to gain."""
    counters: list[tuple[Var, int]] = []
    body: Any = loop
    while isinstance(body, For) and isinstance(body.extent, IntImm) and isinstance(body.min, IntImm):
        counters.append((body.loop_var, int(body.extent)))
        body = body.body
    if not isinstance(body, IfThenElse) or body.else_case is not None or not _pure(body.condition) or _changed(body):
        return loop
    distinct: list[Expr] = []
    count, prover = 0, Analyzer()
    for values in itertools.product(*(range(extent) for _, extent in counters)):
        table = {var: const(value, "int32") for (var, _), value in zip(counters, values, strict=True)}
        found = _folded(substitute(body.condition, table), prover)
        count += 1
        if not any(ffi.structural_equal(found, known) for known in distinct):
            distinct.append(found)
        if len(distinct) > MOST_CONDITIONS:
            return loop
    if count < _ITERATIONS * len(distinct):
        return loop
    some = distinct[0]
    for condition in distinct[1:]:
        some = tirx.Or(some, condition)
    return IfThenElse(some, loop, None, loop.span)


def _pure(condition: Expr) -> bool:
    effects: list[Call] = []
    walk(condition, {Call: lambda c: effects.append(c) if has_effect(c) else None})
    return not effects


def _changed(body: IfThenElse) -> bool:
    """May an iteration change the condition of a later one?"""
    written = {a.root for a in writes_of(body.then_case)}
    return any(a.ranges is None or a.root in written for a in accesses(body.condition))


def _folded(condition: Expr, prover: Any) -> Expr:
    """With constants folded in the indices of its loads."""

    def on_load(node: TensorLoad, descend: Descend) -> Expr:
        return load(node.source, [prover.simplify(descend(i)) for i in node.indices], node.span)

    return rewrite(condition, {TensorLoad: on_load})


__all__ = ["skipped"]

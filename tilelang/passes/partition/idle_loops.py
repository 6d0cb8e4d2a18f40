"""A loop over a thread's registers under a condition is passed over where the condition holds for none of them.

In: the unrolled loop of one thread, whose whole body is under a condition, or keeps an element as it is unless a condition holds
(`x = if_then_else(c, x, v)`). Out: the same loop under the disjunction of the values that the condition has in its iterations, if these are
few: elements of a fragment that share a row share a condition on the row, and of comparisons that differ by constants the weakest
stands for all. Without it every iteration would be issued and dropped one by one. The loop itself stays, so that nothing else changes: a
warp whose rows need no rescaling, or whose scores a mask leaves alone, takes one branch.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any

from ...ir.access import accesses, writes_of
from ...ir.dialect import op_name
from ...ir.effects import has_effect
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    Analyzer,
    Bind,
    BufferStore,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    Var,
    const,
    dtype_of,
    ffi,
    load,
    tirx,
)  # fmt: skip

MOST_CONDITIONS = 4  # different ones that are worth to be evaluated first
_ITERATIONS = 4  # at least so many for each of them, not counting the lanes of vectors
_OPPOSITE = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT, tirx.EQ: tirx.NE, tirx.NE: tirx.EQ}
_UPWARDS, _DOWNWARDS = (tirx.GT, tirx.GE), (tirx.LT, tirx.LE)  # hold for large differences of the sides, and for small ones


def skipped(loop: For, positions: Collection[Var] = ()) -> Stmt:
    """The loop under its disjunction, or the loop itself where there is nothing to gain. positions: variables that arithmetic does not
    leave 32 bits with; of comparisons with others nothing is concluded."""
    counters: list[tuple[Var, range]] = []
    body: Any = loop
    count = 1
    while isinstance(body, For) and isinstance(body.extent, IntImm) and isinstance(body.min, IntImm):
        counters.append((body.loop_var, range(int(body.min), int(body.min) + int(body.extent))))
        count *= 1 if body.kind == ForKind.VECTORIZED else int(body.extent)
        body = body.body
    condition = _condition(body)
    if condition is None:
        return loop
    found = _Disjunction(positions)
    for values in itertools.product(*(turns for _, turns in counters)):
        table = {var: const(value, "int32") for (var, _), value in zip(counters, values, strict=True)}
        for atom in _atoms(substitute(condition, table), True):
            found.add(atom)
        if len(found.atoms) > MOST_CONDITIONS:
            return loop
    if count < _ITERATIONS * len(found.atoms):
        return loop
    some = found.atoms[0]
    for atom in found.atoms[1:]:
        some = tirx.Or(some, atom)
    return IfThenElse(some, loop, None, loop.span)


def _condition(body: Any) -> Expr | None:
    """When an iteration does something, in values of the loop's counters; None if it may always, or if the answer may change."""
    names: dict[Var, Expr] = {}
    if isinstance(body, SeqStmt):
        *binds, body = body.seq
        for bind in binds:
            if not isinstance(bind, Bind):
                return None
            names[bind.var] = substitute(bind.value, names)
    if isinstance(body, IfThenElse) and body.else_case is None:
        condition, effect = body.condition, body.then_case
    elif isinstance(body, BufferStore):
        kept = _kept(body)
        if kept is None:
            return None
        condition, effect = tirx.Not(kept), body
    else:
        return None
    condition = substitute(condition, names)
    written = {a.root for a in writes_of(effect)}
    if any(a.ranges is None or a.root in written for a in accesses(condition)) or not _pure(condition):
        return None
    return condition


def _kept(stmt: BufferStore) -> Expr | None:
    """The condition under which the store leaves its element as it is."""
    value: Any = stmt.value
    if isinstance(value, tirx.Select):
        condition, kept = value.condition, value.true_value
    elif isinstance(value, Call) and op_name(value).endswith(".if_then_else"):
        condition, kept = value.args[0], value.args[1]
    else:
        return None
    same = isinstance(kept, TensorLoad) and kept.source.same_as(stmt.buffer)
    return condition if same and all(ffi.structural_equal(a, b) for a, b in zip(kept.indices, stmt.indices, strict=True)) else None


def _pure(condition: Expr) -> bool:
    effects: list[Call] = []
    walk(condition, {Call: lambda c: effects.append(c) if has_effect(c) else None})
    return not effects


def _atoms(condition: Any, holds: bool) -> Iterator[Expr]:
    """Conditions of which one is true where `condition` is (or, not `holds`, is not): exact for disjunctions; a conjunction is one atom."""
    if isinstance(condition, tirx.Not):
        yield from _atoms(condition.a, not holds)
    elif isinstance(condition, tirx.Or if holds else tirx.And):
        yield from _atoms(condition.a, holds)
        yield from _atoms(condition.b, holds)
    elif not holds and type(condition) in _OPPOSITE and not dtype_of(condition.a).startswith(("float", "bfloat")):
        yield _OPPOSITE[type(condition)](condition.a, condition.b)
    else:
        yield condition if holds else tirx.Not(condition)


class _Disjunction:
    """Different conditions, of comparisons that differ by constants the weakest. differences: of the sides, where these are integers."""

    def __init__(self, positions: Collection[Var]) -> None:
        self.positions = positions
        self.atoms: list[Expr] = []
        self.differences: list[Expr | None] = []
        self.prover = Analyzer()

    def add(self, atom: Expr) -> None:
        atom = self._folded(atom)
        if isinstance(atom, IntImm) and not int(atom):
            return
        difference = self._difference(atom)
        for k, (known, other) in enumerate(zip(self.atoms, self.differences, strict=True)):
            if ffi.structural_equal(atom, known):
                return
            if difference is None or other is None or type(atom) is not type(known):
                continue
            step = self.prover.simplify(difference - other)
            if isinstance(step, IntImm):
                if int(step) > 0 if isinstance(atom, _UPWARDS) else int(step) < 0:
                    self.atoms[k], self.differences[k] = atom, difference
                return
        self.atoms.append(atom)
        self.differences.append(difference)

    def _difference(self, atom: Any) -> Expr | None:
        if not isinstance(atom, (*_UPWARDS, *_DOWNWARDS)) or dtype_of(atom.a) != "int32" or accesses(atom):
            return None
        unknown: list[Any] = []
        walk(atom, {Var: lambda v: unknown.append(v) if v not in self.positions else None, Call: unknown.append})
        if unknown:
            return None
        return self.prover.simplify(atom.a - atom.b)

    def _folded(self, condition: Expr) -> Expr:
        """With constants folded in the indices of its loads."""

        def on_load(node: TensorLoad, descend: Descend) -> Expr:
            return load(node.source, [self.prover.simplify(descend(i)) for i in node.indices], node.span)

        return rewrite(condition, {TensorLoad: on_load})


__all__ = ["skipped"]

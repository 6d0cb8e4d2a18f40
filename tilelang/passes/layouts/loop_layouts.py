"""Which thread executes which iteration of a nest: the layout of a fragment turned into bounds on loop variables.

In: a `Nest` and the `RegisterMap` of a fragment (or of the iteration space itself). Out: a `LoopLayout`: for the element
in each register the iteration that touches it, as expressions; and for every other fragment access of the nest the register
that holds its element, when the executing thread owns it and the register is the same for all threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.evaluate import evaluate
from ...ir.positions import same, simplified, surely
from ...ir.rewrite import substitute
from ...ir.tvm_api import Analyzer, Cast, Expr, For, IntImm, Range, Var, const, dtype_of, linear_coefficients, tirx
from ...layout import LayoutError
from ...layout.algebra import unravel
from ..analysis.facts import holds_load
from ..analysis.nests import FragmentAccess, Nest, mentions
from .register_maps import Digit, RegisterMap, fit_line, marked


@dataclass
class LoopLayout:
    """coords: variables for the coordinates of an element of `registers`; values: each determined loop variable in them;
    conditions: when the element has an iteration; serial: loops that the element does not determine."""

    nest: Nest
    registers: RegisterMap
    coords: list[Var]
    values: dict[Var, Expr] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)
    serial: list[For] = field(default_factory=list)

    # ---- enumeration: arrays over (thread, register)
    def points(self) -> dict[Var, np.ndarray]:
        shape = self.registers.layout.shape
        return dict(zip(self.coords, unravel(np.maximum(self.registers.held, 0), shape), strict=True))

    def active(self) -> tuple[np.ndarray, bool]:
        """Where the constant conditions hold, and whether there are others."""
        mask, others, points = self.registers.held >= 0, False, self.points()
        for condition in self.conditions:
            try:
                mask = mask & evaluate(condition, points)
            except LayoutError:
                others = True
        return mask, others

    def elements(self, access: FragmentAccess, shape: Sequence[int], points: Mapping[Var, np.ndarray]) -> np.ndarray | None:
        """Flat element of another fragment at each point, or None where that is no function of the point."""
        flat: Any = 0
        for index, extent in zip(access.indices, shape, strict=True):
            try:
                at = evaluate(simplified(substitute(index, self.values)), points)
            except LayoutError:
                return None
            at = np.broadcast_to(np.asarray(at, dtype=np.int64), self.registers.held.shape)
            flat = flat * extent + np.where((at >= 0) & (at < extent), at, -(1 << 40))
        return flat


def solve(nest: Nest, access: FragmentAccess, registers: RegisterMap, outer_varying: set[Var]) -> LoopLayout | None:
    """The loop layout in which each iteration runs where the element of `access` is; None if its indices are not linear
    in the loop variables with values that all threads share."""
    coords = [Var(f"c{k}", "int32") for k in range(len(access.indices))]
    found = LoopLayout(nest, registers, coords)
    prover = Analyzer()
    for coordinate, extent in zip(coords, registers.layout.shape, strict=True):
        prover.bind(coordinate, Range.from_min_extent(0, extent))
    for coordinate, index in zip(coords, access.indices, strict=True):
        if not _solve_dim(found, coordinate, index, outer_varying):
            return None
    for loop in nest.loops:
        if loop.loop_var in found.values:
            _bound(found, loop, prover)
        else:
            found.serial.append(loop)
    if any(mentions((f.min, f.extent), nest.vars) for f in found.serial):
        return None
    found.conditions = [c for c in found.conditions if not surely(c, prover)]
    return found


def determined(nest: Nest, access: FragmentAccess, registers: RegisterMap) -> set[Var]:
    """The loop variables that the element of `access` determines: iterations that differ in one of them name different elements. An index
    that is no function of the loops alone determines none."""
    found = LoopLayout(nest, registers, [])
    for index in access.indices:
        before = dict(found.values)
        if not _solve_dim(found, Var("c", "int32"), index, set()):
            found.values = before
    return set(found.values)


def _solve_dim(found: LoopLayout, coordinate: Var, index: Expr, varying: set[Var]) -> bool:
    nest = found.nest
    linear = linear_coefficients(index, nest.vars)
    if linear is None:
        return False
    rest = linear[1]
    if holds_load(rest) or mentions(rest, nest.inner | varying | set(nest.vars)):
        return False
    used = [(loop, c) for loop, c in zip(nest.loops, linear[0], strict=True) if c]
    delta: Expr = coordinate
    if not (isinstance(rest, IntImm) and int(rest) == 0):
        delta = _as(coordinate, dtype_of(rest)) - rest
    for loop, factor in used:
        if loop.loop_var in found.values:
            delta = delta - _as(found.values[loop.loop_var], dtype_of(delta)) * factor
    unknown = sorted(((loop, c) for loop, c in used if loop.loop_var not in found.values), key=lambda e: -e[1])
    if not unknown:
        found.conditions.append(tirx.EQ(delta, const(0, dtype_of(delta))))
        return True
    return _digits(found, delta, unknown)


def _digits(found: LoopLayout, delta: Expr, unknown: list[tuple[For, int]]) -> bool:
    """Loop variables from `delta = sum of variable * factor`, factors falling: the factors must be those of a mixed radix."""
    if len(unknown) == 1 and unknown[0][1] == -1:
        delta, unknown = const(0, dtype_of(delta)) - delta, [(unknown[0][0], 1)]
    if unknown[-1][1] < 1:
        return False
    smallest = unknown[-1][1]
    if smallest > 1:
        found.conditions.append(tirx.EQ(delta % smallest, const(0, dtype_of(delta))))
    for k, (loop, factor) in enumerate(unknown):
        value = delta // factor if factor > 1 else delta
        if k:
            extent = loop.extent
            zero_based = isinstance(loop.min, IntImm) and int(loop.min) == 0
            if not (isinstance(extent, IntImm) and zero_based and unknown[k - 1][1] == factor * int(extent)):
                return False
            value = value % int(extent)
        found.values[loop.loop_var] = _as(value, dtype_of(loop.loop_var))
    return True


def _bound(found: LoopLayout, loop: For, prover: Any) -> None:
    value = found.values[loop.loop_var]
    low, high = loop.min, loop.min + loop.extent
    found.conditions.append(tirx.GE(value, _as(low, dtype_of(value))))
    found.conditions.append(tirx.LT(value, _as(simplified(high, prover), dtype_of(value))))


def _as(value: Expr, dtype: str) -> Expr:
    if dtype_of(value) == dtype:
        return value
    return const(int(value), dtype) if isinstance(value, IntImm) else Cast(dtype, value)


# ---------------------------------------------------------------- ownership
def owned_register(layout: LoopLayout, access: FragmentAccess, target: RegisterMap) -> tuple[int, tuple[Digit, ...]] | None:
    """(register at register 0 of the loop layout, digits of the loop's register) that holds the element of `access` in
    the thread that executes the iteration; None if the thread does not own it, if the register differs between threads, or
    if a write would leave other copies of the element behind."""
    if layout.registers is target and _is_own(layout, access):
        return 0, (Digit(1, None, 1),)
    active, dynamic = layout.active()
    elements = layout.elements(access, target.layout.shape, layout.points())
    if elements is None or (elements[active] < 0).any() or len(target.held) != len(layout.registers.held):
        return None
    threads = np.broadcast_to(np.arange(len(elements))[:, None], elements.shape)
    place = target.register_of(threads, np.where(active, elements, 0))
    if (place[active] < 0).any():
        return None
    line = np.where(active, place, -1).max(axis=0)
    if (active & (place != line)).any():
        return None
    if access.writes and not _covers(layout, access, target, elements, active, dynamic):
        return None
    return _line(line)


def _is_own(layout: LoopLayout, access: FragmentAccess) -> bool:
    """Is it the element by which the iteration was found?"""
    return all(same(substitute(i, layout.values), c) for i, c in zip(access.indices, layout.coords, strict=True))


def _covers(layout: LoopLayout, access: FragmentAccess, target: RegisterMap, elements: Any, active: Any, dynamic: bool) -> bool:
    """Does every owner of a written element write it, whichever conditions hold?"""
    written = marked(elements[active], math.prod(target.layout.shape))
    # An iteration names one element: as many elements as iterations unless two iterations name the same.
    iterations = marked(layout.registers.held[active], math.prod(layout.registers.layout.shape))
    several = written.sum() != iterations.sum() or bool(layout.serial)
    if several and (dynamic or access.conditional):
        return False
    pairs = np.sort(np.nonzero(active)[0] * (1 << 32) + elements[active])
    done = int((pairs[1:] != pairs[:-1]).sum()) + min(len(pairs), 1)
    return done == target.copies_of(written)


def _line(line: np.ndarray) -> tuple[int, tuple[Digit, ...]] | None:
    """A formula of the loop's register for a table with holes (-1)."""
    known = np.nonzero(line >= 0)[0]
    if not len(known):
        return 0, ()
    if len(set(line[known].tolist())) == 1:
        return int(line[known[0]]), ()
    for candidate in (line, line[known[0] : known[-1] + 1]):
        start = int(known[0]) if candidate is not line else 0
        if candidate[0] < 0:
            continue
        holes = np.nonzero(candidate < 0)[0]
        digits = fit_line(candidate[: holes[0]] if len(holes) else candidate)
        base = int(candidate[0])
        if start and any(d.divisor != 1 or d.modulus is not None for d in digits):
            continue
        if start:
            base -= sum(d.stride * start for d in digits)
        value = base + sum((d(np.arange(len(line))) for d in digits), np.zeros(len(line), dtype=np.int64))
        if (value[known] == line[known]).all():
            return base, digits
    return None

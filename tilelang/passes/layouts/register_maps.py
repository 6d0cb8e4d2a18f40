"""Formulas for what the registers of a fragment hold: from its enumerated layout back to expressions of thread and register.

In: a `Fragment` and the number of threads it lives on. Out: a `RegisterMap`, or None when the layout has no formula (such
a layout cannot be walked register by register). Every formula has been compared with the enumerated layout.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.tvm_api import Expr, const, tirx
from ...layout.algebra import unravel
from ...layout.fragment import Fragment

_known: dict[Any, RegisterMap | None] = {}  # by (shape, shape and digest of what is held)
_MAX_KNOWN = 64


@dataclass(frozen=True)
class Digit:
    """`x // divisor % modulus * stride` (no modulus: the digit has no upper end)."""

    divisor: int
    modulus: int | None
    stride: int

    def __call__(self, x: Any) -> Any:
        return _digit(x, self.divisor, self.modulus) * self.stride if self.stride != 1 else _digit(x, self.divisor, self.modulus)


def _digit(x: Any, divisor: int, modulus: int | None) -> Any:
    if divisor != 1:
        x = x // divisor
    return x if modulus is None else x % modulus


@dataclass(frozen=True)
class Formula:
    """base + digits of the thread + digits of the register."""

    base: int
    thread: tuple[Digit, ...]
    register: tuple[Digit, ...]

    def __call__(self, thread: Any, register: Any) -> Any:
        """The value at integers, arrays or expressions."""
        total: Any = None
        for digit, x in [*((d, thread) for d in self.thread), *((d, register) for d in self.register)]:
            total = digit(x) if total is None else total + digit(x)
        if total is None:
            return const(self.base, "int32") if isinstance(thread, Expr) else self.base + 0 * thread + 0 * register
        return total + self.base if self.base else total


def fit_line(line: np.ndarray) -> tuple[Digit, ...]:
    """Digits whose sum is `line[x] - line[0]`, as far as one formula of digits can follow the line."""
    digits, divisor = [], 1
    while len(line) > 1:
        stride = int(line[1] - line[0])
        breaks = np.nonzero(line != line[0] + stride * np.arange(len(line)))[0]
        extent = int(breaks[0]) if len(breaks) else len(line)
        if stride:
            digits.append(Digit(divisor, extent if len(breaks) else None, stride))
        line = line[::extent]
        divisor *= extent
    return tuple(digits)


def fit(values: np.ndarray, active: np.ndarray) -> Formula | None:
    """The formula of a table (threads, registers), which must hold where `active`; elsewhere it may give anything."""
    if not active[0, 0]:
        return None
    for line, other in itertools.product(_lines(values, active), _lines(values.T, active.T)):
        found = Formula(int(values[0, 0]), fit_line(line), fit_line(other))
        grid = found(*_grid(values.shape))
        if np.array_equal(np.broadcast_to(grid, values.shape)[active], values[active]):
            return found
    return None


def _lines(values: np.ndarray, active: np.ndarray) -> list[np.ndarray]:
    """Columns that may show how the values go on: the longest without a hole, and the fullest with its holes filled by what
    stands before them."""
    prefixes = np.where(active.all(axis=0), len(active), active.argmin(axis=0))
    longest = int(prefixes.argmax())
    whole = values[: prefixes[longest], longest]
    fullest = int(np.where(active[0], active.sum(axis=0), -1).argmax())
    places = np.nonzero(active[:, fullest])[0]
    if len(places) == prefixes[longest]:
        return [whole]
    filled = values[np.maximum.accumulate(np.where(active[:, fullest], np.arange(len(active)), 0)), fullest]
    return [whole, filled[: places[-1] + 1]]


def _grid(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    thread, register = np.indices(shape)
    return thread, register


@dataclass(frozen=True)
class Test:
    """low <= thread // divisor % modulus < high."""

    divisor: int
    modulus: int | None
    low: int
    high: int

    def __call__(self, thread: Any) -> Any:
        """As a condition on an expression, or an array of bools."""
        value = _digit(thread, self.divisor, self.modulus)
        if not isinstance(thread, Expr):
            return (value >= self.low) & (value < self.high)
        if self.high == self.low + 1:
            return tirx.EQ(value, const(self.low, "int32"))
        below = tirx.LT(value, const(self.high, "int32"))
        return tirx.And(tirx.GE(value, const(self.low, "int32")), below) if self.low else below


def tests_for(mask: np.ndarray) -> tuple[Test, ...] | None:
    """Tests of the thread that together are true exactly where `mask` is; None if there are no such."""
    line, divisor, found = mask, 1, []
    while not line.all():
        ones = np.nonzero(line)[0]
        if not len(ones):
            return None
        low = int(ones[0])
        zeros = np.nonzero(~line[low:])[0]
        high = low + int(zeros[0]) if len(zeros) else len(line)
        again = np.nonzero(line[high:])[0]
        if not len(again):
            found.append(Test(divisor, None, low, high))
            break
        period = high + int(again[0]) - low
        found.append(Test(divisor, period, low, high))
        line, divisor = line[low::period], divisor * period
    value = functools.reduce(np.logical_and, (t(np.arange(len(mask))) for t in found), np.ones(len(mask), dtype=bool))
    return tuple(found) if np.array_equal(value, mask) else None


@dataclass(frozen=True)
class RegisterMap:
    """What the registers of `layout` hold on `threads` threads.

    held: flat element of each (thread, register), -1 where none. coordinates: their formulas. bounds: coordinates for
    which a register holds an element only where the formula is inside the tile. threads_used: further tests. first_copy:
    tests of the threads that hold the first copy of their elements.
    """

    layout: Fragment
    held: np.ndarray
    coordinates: tuple[Formula, ...]
    flat: Formula | None
    bounds: tuple[int, ...]
    threads_used: tuple[Test, ...]
    first_copy: tuple[Test, ...]
    replicated: bool

    @property
    def registers(self) -> int:
        return self.held.shape[1]

    def coords(self, thread: Any, register: Any) -> list[Any]:
        """Tile coordinates of what a register holds."""
        if self.flat is not None:
            return list(unravel(self.flat(thread, register), self.layout.shape)) if len(self.layout.shape) > 1 else [
                self.flat(thread, register)
            ]  # fmt: skip
        return [c(thread, register) for c in self.coordinates]

    def holds(self, thread: Expr, register: Expr) -> list[Expr]:
        """Conditions under which the register holds an element."""
        conditions = [t(thread) for t in self.threads_used]
        if self.flat is not None:
            if self.bounds:
                conditions.append(tirx.LT(self.flat(thread, register), const(math.prod(self.layout.shape), "int32")))
            return conditions
        coords = self.coords(thread, register)
        return conditions + [tirx.LT(coords[k], const(self.layout.shape[k], "int32")) for k in self.bounds]

    def is_first(self, thread: Expr) -> list[Expr]:
        """Conditions under which the thread holds the first copy of its elements."""
        return [t(thread) for t in self.first_copy]

    @functools.cached_property
    def same_for_all(self) -> bool:
        """Does every thread hold everything, in the same registers?"""
        return bool((self.held == self.held[:1]).all()) and set(self.held[0].tolist()) >= set(range(math.prod(self.layout.shape)))

    @functools.cached_property
    def _owned(self) -> tuple[np.ndarray, np.ndarray]:
        """(thread * elements of the tile + element, register) of every place, sorted; the last register where a thread holds an element
        twice."""
        threads, registers = np.nonzero(self.held >= 0)
        keys = threads * math.prod(self.layout.shape) + self.held[threads, registers]
        order = np.argsort(keys, kind="stable")
        keys, registers = keys[order], registers[order]
        last = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), bool))
        return keys[last], registers[last]

    def register_of(self, threads: np.ndarray, elements: np.ndarray) -> np.ndarray:
        """The register of each (thread, flat element), -1 where the thread has none."""
        keys, registers = self._owned
        wanted = threads * math.prod(self.layout.shape) + elements
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, registers[at], -1)

    def copies_of(self, elements: np.ndarray) -> int:
        """How many (thread, element) there are of the elements marked in a mask of the tile."""
        return int(elements[self._owned[0] % len(elements)].sum())


def register_map(layout: Fragment, threads: int) -> RegisterMap | None:
    """The formulas of `layout`, which must fit on `threads` threads; None if it has none."""
    small = layout.inverse()
    if len(small) > threads:
        return None
    held = np.full((threads, small.shape[1]), -1, dtype=np.int64)
    held[: len(small)] = small
    # Many fragments of a program have one layout, each made anew: what it holds tells them apart, not who made it.
    key = layout.shape, held.shape, hashlib.blake2b(held.tobytes(), digest_size=16).digest()
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = _formulas(layout, held)
    found = _known[key]
    return None if found is None else replace(found, layout=layout)


def _formulas(layout: Fragment, held: np.ndarray) -> RegisterMap | None:
    """The map of what the threads of `layout` hold, if it has formulas."""
    active = held >= 0
    shape = layout.shape
    coordinates = [fit(c, active) for c in unravel(np.maximum(held, 0), shape)]
    flat: Formula | None = None
    if any(c is None for c in coordinates) or not _inside(held, coordinates, shape, active):
        flat = fit(held, active)
        if flat is None:
            return None
    found = _conditions(held, active, coordinates, flat, shape)
    if found is None:
        return None
    replicated = marked(held[active], math.prod(shape)).sum() != active.sum()
    first = _first_copies(held) if replicated else ()
    if first is None:
        return None
    known = () if flat is not None else tuple(c for c in coordinates if c is not None)
    return RegisterMap(layout, held, known, flat, *found, first, replicated)


def marked(numbers: np.ndarray, count: int) -> np.ndarray:
    """Which of 0 to count - 1 are among the numbers."""
    found = np.zeros(count, bool)
    found[numbers] = True
    return found


def _inside(held: np.ndarray, coordinates: list[Any], shape: Sequence[int], active: np.ndarray) -> bool:
    """Do the coordinates' own bounds (and tests of the thread) say where there is an element?"""
    return _conditions(held, active, coordinates, None, shape) is not None


def _conditions(
    held: np.ndarray, active: np.ndarray, coordinates: list[Any], flat: Formula | None, shape: Sequence[int]
) -> tuple[tuple[int, ...], tuple[Test, ...]] | None:
    """(coordinates to compare with their extents, tests of the thread) that are true exactly where `active`."""
    if active.all():
        return (), ()
    grid = _grid(active.shape)
    if flat is not None:
        outside = [np.broadcast_to(flat(*grid) >= math.prod(shape), active.shape)]
    else:
        outside = [np.broadcast_to(c(*grid) >= e, active.shape) for c, e in zip(coordinates, shape, strict=True)]
    needed = tuple(k for k, o in enumerate(outside) if o.any())
    inside = ~functools.reduce(np.logical_or, outside)
    if np.array_equal(inside, active):
        return needed, ()
    used = np.asarray(active.any(axis=1))
    tests = tests_for(used)
    if tests is None or not np.array_equal(inside & used[:, None], active):
        return None
    return needed, tests


def _first_copies(held: np.ndarray) -> tuple[Test, ...] | None:
    """Tests of the threads that hold first copies: a thread must hold all of its elements first, or none."""
    first: dict[int, int] = {}
    for thread, row in enumerate(held.tolist()):
        for element in row:
            first.setdefault(element, thread)
    mask = np.zeros(len(held), dtype=bool)
    for thread, row in enumerate(held.tolist()):
        elements = {e for e in row if e >= 0}
        mine = sum(first[e] == thread for e in elements)
        if mine not in (0, len(elements)):
            return None
        if len([e for e in row if e >= 0]) != len(elements):
            return None  # one thread holds an element twice
        mask[thread] = mine > 0
    return tests_for(mask)

"""How the threads share a reduction, found by enumerating which thread holds which element.

In: the register map of the source, the reduced dimension. Out: a `ReducePlan`: which registers of a thread belong together, over
which bits of the lane number to exchange, and whether that completes every result. Every claim is checked on the
enumerated layout, for each thread and element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...layout.algebra import unravel
from ...passes.layouts.register_maps import Formula, RegisterMap, Test, fit, tests_for


@dataclass(frozen=True, eq=False)
class Division:
    """held elements as (result, place along the reduced dimension), arrays (threads, registers), -1 for none."""

    result: np.ndarray
    along: np.ndarray
    positions: int
    depth: int


@dataclass(frozen=True, eq=False)
class Scratch:
    """Partial results in shared memory: `positions` results with `ranks` partial results each, at (position, rank) of thread and
    slot, stored by the threads that pass the tests `writers` and, if `bounded`, whose position is below `positions`."""

    positions: int
    ranks: int
    position: Formula
    rank: Formula
    writers: tuple[Test, ...]
    bounded: bool


@dataclass(frozen=True, eq=False)
class ReducePlan:
    """registers: for each slot of a thread, the registers whose elements contribute to the same result. register_formula: of (slot,
    number in the slot), if there is one. lane_bits: masks to exchange over. place: (threads, slots) the result that a slot
    belongs to, -1 for none. complete: after the exchange every slot is a whole result."""

    registers: tuple[tuple[int, ...], ...]
    register_formula: Formula | None
    lane_bits: tuple[int, ...]
    place: np.ndarray
    complete: bool
    idempotent: bool
    division: Division

    @property
    def slots(self) -> int:
        return len(self.registers)

    def slots_for(self, wanted: np.ndarray) -> list[int] | None:
        """For each register of an output held as `wanted` (threads, registers), the slot that has it in every thread."""
        found = []
        for register in range(wanted.shape[1]):
            column = wanted[:, register]
            needed = column >= 0
            fitting = [s for s in range(self.slots) if (self.place[needed, s] == column[needed]).all()]
            if not fitting:
                return None
            found.append(fitting[0])
        return found


def plan_reduction(source: RegisterMap, dim: int, lanes: int, idempotent: bool) -> ReducePlan | None:
    """The plan for reducing dimension `dim`; None if the layout is not regular enough. lanes: how many lanes may exchange.
    idempotent: may an element count twice?"""
    division = _divide(source, dim)
    slots = _slots(division.result)
    place = _places(division.result, slots)
    if not idempotent and _repeats(division, slots):
        return None
    bits = _lane_bits(division, slots, place, lanes)
    groups = np.arange(len(place)) & ~sum(bits)
    complete = _covers(division, slots, place, groups, idempotent)
    formula = None
    if len({len(s) for s in slots}) == 1:
        table = np.array(slots)
        formula = fit(table, np.ones_like(table, dtype=bool))
    return ReducePlan(tuple(map(tuple, slots)), formula, tuple(bits), place, complete, idempotent, division)


def _divide(source: RegisterMap, dim: int) -> Division:
    shape, held = source.layout.shape, source.held
    coords = unravel(np.maximum(held, 0), shape)
    rest = [e for k, e in enumerate(shape) if k != dim]
    flat = np.zeros_like(held)
    for k, extent in enumerate(shape):
        if k != dim:
            flat = flat * extent + coords[k]
    nothing = held < 0
    return Division(np.where(nothing, -1, flat), np.where(nothing, -1, coords[dim]), int(np.prod(rest, dtype=np.int64)), shape[dim])


def _slots(result: np.ndarray) -> list[list[int]]:
    """Registers that agree on their result in every thread in which both hold something."""
    slots: list[list[int]] = []
    known: list[np.ndarray] = []  # the result of each slot in each thread
    for register in range(result.shape[1]):
        column = result[:, register]
        for k, place in enumerate(known):
            both = (place >= 0) & (column >= 0)
            if both.any() and (place[both] == column[both]).all():
                slots[k].append(register)
                known[k] = np.maximum(place, column)
                break
        else:
            slots.append([register])
            known.append(column)
    return slots


def _places(result: np.ndarray, slots: list[list[int]]) -> np.ndarray:
    return np.stack([result[:, registers].max(axis=1) for registers in slots], axis=1)


def _repeats(division: Division, slots: list[list[int]]) -> bool:
    """Does a thread hold an element twice?"""
    code = division.result * division.depth + division.along
    for registers in slots:
        rows = np.sort(np.where(division.result[:, registers] >= 0, code[:, registers], -1 - np.arange(len(registers))), axis=1)
        if (rows[:, 1:] == rows[:, :-1]).any():
            return True
    return False


def _lane_bits(division: Division, slots: list[list[int]], place: np.ndarray, lanes: int) -> list[int]:
    """Bits of the lane number whose flip leads to a thread with other elements of the same results."""
    found: list[int] = []
    threads = np.arange(len(place))
    first = np.stack([division.along[:, registers].max(axis=1) for registers in slots], axis=1)
    for bit in (b for b in (1, 2, 4, 8, 16) if b < lanes):
        partner = threads ^ bit
        if partner.max() >= len(place):
            continue
        both = (place >= 0) & (place[partner] >= 0)
        same = place == place[partner]
        if both.any() and same[both].all() and (first != first[partner])[both].any():
            found.append(bit)
    return found


def _covers(division: Division, slots: list[list[int]], place: np.ndarray, groups: np.ndarray, idempotent: bool) -> bool:
    """Do the threads of each group hold all elements of the results of their slots (each once, unless idempotent)?"""
    for k, registers in enumerate(slots):
        counts = np.zeros((len(place), division.depth), np.int64)
        low, high = np.full(len(place), np.iinfo(np.int64).max), np.full(len(place), -1)
        used = place[:, k] >= 0
        np.minimum.at(low, groups[used], place[used, k])
        np.maximum.at(high, groups[used], place[used, k])
        if (low != high)[groups[used]].any():
            return False
        for register in registers:
            mine = division.along[:, register] >= 0
            np.add.at(counts, (groups[mine], division.along[mine, register]), 1)
        rows = counts[np.unique(groups[used])]
        if not (rows >= 1).all() or (not idempotent and not (rows == 1).all()):
            return False
    return True


def plan_scratch(plan: ReducePlan) -> Scratch | None:
    """One partial result for each group and slot; None if no formulas say which thread stores what where."""
    division, place = plan.division, plan.place
    groups = np.arange(len(place)) & ~sum(plan.lane_bits)
    group_place = np.full(place.shape, -1)
    np.maximum.at(group_place, groups, place)
    if (np.where(place >= 0, group_place[groups], -1) != place).any():
        return None
    chosen = _storing(division, group_place, groups, plan.idempotent)
    if chosen is None:
        return None
    stored = chosen[:, None] & (group_place >= 0)
    rank, ranks = _ranks(group_place, stored, division.positions)
    if rank is None:
        return None
    active = (place >= 0) & chosen[groups][:, None]  # formulas of whole groups: a group's first thread alone has no neighbours
    position, number, writers = fit(place, active), fit(rank[groups], active), tests_for(chosen)
    if position is None or number is None or writers is None:
        return None
    inside = np.broadcast_to(position(*np.indices(stored.shape)) < division.positions, stored.shape) & chosen[:, None]
    if not np.array_equal(inside, stored):
        return None
    bounded = not np.array_equal(stored, np.broadcast_to(chosen[:, None], stored.shape))
    return Scratch(division.positions, ranks, position, number, writers, bounded)


def _storing(division: Division, group_place: np.ndarray, groups: np.ndarray, idempotent: bool) -> np.ndarray | None:
    """The first threads of the groups that store: those that hold something that no earlier group holds. None if an element
    would be left out or, unless idempotent, counted twice."""
    counts = np.zeros((division.positions, division.depth), np.int64)
    chosen = np.zeros(len(groups), bool)
    for thread in np.unique(groups):
        members = groups == thread
        rows, columns = division.result[members].reshape(-1), division.along[members].reshape(-1)
        rows, columns = rows[rows >= 0], columns[rows >= 0]
        if not len(rows) or (counts[rows, columns] > 0).all():
            continue  # nothing, or a copy of what others have stored
        np.add.at(counts, (rows, columns), 1)
        chosen[thread] = True
    complete = (counts >= 1).all() if idempotent else (counts == 1).all()
    return chosen if complete else None


def _ranks(group_place: np.ndarray, stored: np.ndarray, positions: int) -> tuple[np.ndarray | None, int]:
    """The number of each stored partial result among those of its position; None where positions have different many."""
    seen = np.zeros(positions, np.int64)
    rank = np.zeros_like(group_place)
    for thread, slot in np.argwhere(stored):
        where = group_place[thread, slot]
        rank[thread, slot] = seen[where]
        seen[where] += 1
    return (rank, int(seen[0])) if (seen == seen[0]).all() else (None, 0)

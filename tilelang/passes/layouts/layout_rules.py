"""How the layout of one fragment follows from that of another: through a loop that touches both, through a reduction.

In: layouts and accesses. Out: a new `Fragment`, or None when the rule says nothing. Everything is found by enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.evaluate import evaluate
from ...ir.rewrite import substitute
from ...ir.tvm_api import IntImm, TensorRegion, static_shape, tvm
from ...layout import LayoutError
from ...layout.fragment import Fragment
from ...layout.recognise import recognise
from ..analysis.nests import FragmentAccess, Nest
from .loop_layouts import solve
from .register_maps import RegisterMap


def from_tables(shape: Sequence[int], threads: np.ndarray, registers: np.ndarray | None = None) -> Fragment:
    """The fragment with these owners: int64 arrays (elements, copies). Without registers each thread numbers what it holds."""
    shape, copies = tuple(shape), threads.shape[1]
    thread_of, register_of = _lookup(shape, threads), _lookup(shape, registers) if registers is not None else None
    if register_of is None:
        return Fragment(shape, forward_thread_fn=thread_of, replicate=copies)
    return Fragment(shape, lambda *index: (thread_of(*index), register_of(*index)), replicate=copies)


def _lookup(shape: tuple[int, ...], table: np.ndarray) -> Any:
    """A table as a function of coordinates and copy: a formula where there is one."""
    full = table.reshape((*shape, table.shape[1]))
    formula = recognise(full)

    def place(*index):  # type: ignore[no-untyped-def]
        given = index if len(index) > len(shape) else (*index, 0)
        return full[given] if formula is None else formula(*given)

    return place


def owners_table(owners: Sequence[set[int]]) -> np.ndarray:
    """Sets of threads as an array (elements, copies), sorted; shorter sets repeat their last thread."""
    copies = max(len(o) for o in owners)
    rows = [sorted(o) for o in owners]
    return np.array([row + row[-1:] * (copies - len(row)) for row in rows], dtype=np.int64)


# ---------------------------------------------------------------- reductions
def reduced(layout: Fragment, src: TensorRegion, out: TensorRegion, dim: int) -> Fragment | None:
    """The output of a reduction of whole fragments: each row lies on all threads that hold a part of it."""
    shape, target = static_shape(src.source), static_shape(out.source)
    if not (_is_whole(src, shape) and _is_whole(out, target)):
        return None
    rest = [e for k, e in enumerate(shape) if k != dim]
    if [e for e in rest if e != 1] != [e for e in target if e != 1]:
        return None
    rows = np.moveaxis(layout.table[0], dim, -2).reshape(math.prod(rest), -1)
    return from_tables(target, owners_table([set(row) for row in rows.tolist()]))


def _is_whole(block: TensorRegion, shape: Sequence[int]) -> bool:
    return all(
        isinstance(r.min, IntImm) and int(r.min) == 0 and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(block.region, shape, strict=True)
    )


# ---------------------------------------------------------------- loops
def joined(nest: Nest, leader: FragmentAccess, held: RegisterMap, follower: FragmentAccess) -> Fragment | None:
    """The layout of `follower` with which the nest runs on the threads of `leader` without a conversion: an element lies on
    every thread that executes an iteration which names it. None unless that gives each element a place."""
    layout = solve(nest, leader, held, set())
    if layout is None or layout.serial:
        return None
    shape = static_shape(follower.buffer)
    active, dynamic = layout.active()
    elements = layout.elements(follower, shape, layout.points())
    if dynamic or elements is None or (elements[active] < 0).any():
        return None
    threads, registers = np.nonzero(active)
    flat = elements[active]
    if len(np.unique(flat)) != math.prod(shape):
        return None
    pairs = threads.astype(np.int64) * (1 << 32) + flat
    if len(np.unique(pairs)) == len(pairs):
        found = _one_to_one(shape, flat, threads, registers)
        if found is not None:
            return found
    owners: list[set[int]] = [set() for _ in range(math.prod(shape))]
    for thread, element in zip(threads.tolist(), flat.tolist(), strict=True):
        owners[element].add(thread)
    return from_tables(shape, owners_table(owners))


def _one_to_one(shape: Sequence[int], flat: np.ndarray, threads: np.ndarray, registers: np.ndarray) -> Fragment | None:
    """Each register of the leader names another element: the follower takes the same registers."""
    order = np.lexsort((threads, flat))
    copies, rest = divmod(len(flat), math.prod(shape))
    counts = np.bincount(flat, minlength=math.prod(shape))
    if rest or (counts != copies).any():
        return None
    table = [a[order].reshape(-1, copies) for a in (threads, registers - registers.min())]
    return from_tables(shape, *table)


# ---------------------------------------------------------------- annotations
def annotated(facts: Mapping[str, Any], shape: tuple[int, ...]) -> Fragment:
    """The `Fragment` that `T.annotate_layout` left in the facts of an allocation."""
    index_map, copies = facts["layout"], int(facts["replicate"])
    variables, (thread, register) = list(index_map.initial_indices), index_map.final_indices

    def place(*index):  # type: ignore[no-untyped-def]
        given = [*index, 0] if len(index) < len(variables) else list(index)
        values = dict(zip(variables, given, strict=True))
        if any(isinstance(i, tvm.ir.Expr) for i in given):
            return tuple(substitute(e, values) for e in (thread, register))
        return tuple(evaluate(e, values) for e in (thread, register))

    try:
        found = Fragment(shape, place, replicate=copies)
        found.check()
    except LayoutError as err:  # checked when it was annotated
        raise AssertionError(f"annotated layout: {err}") from err
    return found

"""Rings of slots between a producer and consumers, and the statements about them.

In: a pipelined loop and copies of it that move to a producer. Out: buffers with a version of each tile for every slot, two mbarriers a slot
(`full`, `empty`), and the waits, releases and counts of iterations in both roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import ANNOTATION_ALLOC, BARRIER, VAR, make_call
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    Evaluate,
    Expr,
    Span,
    Stmt,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    shape_of,
    store,
    tirx,
)
from ..pipeline.pipeline_copies import LoopCopies, Moved, is_zero, tile_bytes, versions_of

SMALL = 1024  # bytes of a tile that waits for its neighbour rather than have barriers of its own


@dataclass(frozen=True)
class Ring:
    """Tiles that are fetched together. copies: in their order. first, last: the statements of the rest of the body between which they are
    used. versions: by tile. full, empty: barriers, one a slot. ranks: blocks of a cluster that fill and release the slots together."""

    copies: tuple[Moved, ...]
    first: int
    last: int
    versions: dict[Var, Var]
    full: Var
    empty: Var
    ranks: int = 1


@dataclass(frozen=True)
class RingLoop:
    """A pipelined loop whose copies move. counter: a variable of the thread that counts executions of the body, or None where the loop's
    own number does."""

    found: LoopCopies
    slots: int
    rings: tuple[Ring, ...]
    counted: bool


def ring_of(copies: Sequence[Moved], first: int, last: int, slots: int) -> Ring:
    name = "_".join(str(m.tile.name) for m in copies)
    span = copies[0].stmt.span
    full, empty = (decl_buffer((slots,), "uint64", f"{name}_{what}", BARRIER, alignment=8, span=span) for what in ("full", "empty"))
    return Ring(tuple(copies), first, last, {m.tile: versions_of(m.tile, slots) for m in copies}, full, empty)


def rings_of(moved: Sequence[Moved], uses: Mapping[Var, tuple[int, int]], slots: int) -> tuple[Ring, ...]:
    """The rings of a loop. uses: the first and the last statement that uses each tile. Tiles with the same uses share a ring, and a small
    one has no barriers of its own: it is fetched with the tile before it."""
    groups: list[list[Moved]] = []
    for m in moved:
        small = bool(groups) and 0 < tile_bytes(m.tile) <= SMALL
        same = groups[-1] if small else next((g for g in groups if uses[g[0].tile] == uses[m.tile]), None)
        if same is None:
            groups.append([m])
        else:
            same.append(m)
    spans = [[uses[m.tile] for m in group] for group in groups]
    ends = [(min(first for first, _ in span), max(last for _, last in span)) for span in spans]
    return tuple(ring_of(group, first, last, slots) for group, (first, last) in zip(groups, ends, strict=True))


def declare_barriers(buffer: Var, counts: list[int], span: Span | None) -> Stmt:
    return AllocBuffer(buffer, {ANNOTATION_ALLOC: {"arrive_counts": counts}}, span)


def release_slot(ours: RingLoop, ring: Ring, number: Expr, behind: int = 0) -> Stmt:
    """behind: how many of the newest products that read the ring's tiles read later slots than this one."""
    span = ours.found.node.span
    tiles = [region(v, [0] * len(shape_of(v)), [1] * len(shape_of(v))) for v in ring.versions.values()]
    operands = [region(ring.empty, [0], [ours.slots]), number, *tiles]
    return Evaluate(make_call("tl.slot_release", operands, span=span, again=ours.counted, ranks=ring.ranks, behind=behind), span)


def mbarrier(what: str, barriers: Var, slot: Expr, span: Span | None, *values: Expr, **attrs: Any) -> Stmt:
    return Evaluate(make_call(f"tl.mbarrier_{what}", [region(barriers, [slot], [1]), *values], span=span, **attrs), span)


def counter_of(ours: RingLoop, declared: list[Stmt]) -> Var | None:
    """A variable that counts the bodies executed so far, where the loop's own number does not."""
    if not ours.counted:
        return None
    span = ours.found.node.span
    counter = decl_buffer((1,), "int32", f"{ours.found.node.loop_var.name}_count", VAR, span=span)
    declared += [AllocBuffer(counter, None, span), store(counter, const(0, "int32"), [0], span)]
    return counter


def count_one(counter: Var, span: Span | None) -> Stmt:
    return store(counter, load(counter, [0]) + const(1, "int32"), [0], span)


def number_of(ours: RingLoop, var: Var, counter: Var | None) -> Expr:
    """How many bodies were executed before this one: int32."""
    if counter is not None:
        return load(counter, [0])
    low = ours.found.node.min
    number = var if is_zero(low) else var - low
    return number if dtype_of(number) == "int32" else tirx.Cast("int32", number)


def slot_of(number: Expr, slots: int, span: Span | None) -> tuple[Var, Var, list[Stmt]]:
    """The slot and the phase of a body, and the statements that name them."""
    slot, phase, count = Var("slot", "int32"), Var("phase", "int32"), const(slots, "int32")
    turn = tirx.truncmod(tirx.truncdiv(number, count), const(2, "int32"))  # the number is not negative
    return slot, phase, [Bind(slot, tirx.truncmod(number, count), span), Bind(phase, turn, span)]


__all__ = [
    "Ring", "RingLoop", "count_one", "counter_of", "declare_barriers", "mbarrier", "number_of", "release_slot", "ring_of", "rings_of",
    "slot_of",
]  # fmt: skip

"""Clusters: blocks side by side in the grid that fetch a common tile together, each a part of it for all of them (multicast).

In: a kernel region, its pipelined loops whose copies move to a producer, as rings. Out: `cluster_of`: the cluster, asked for by the program
(`cluster_dims`) or chosen where it saves enough; the rings whose tiles it shares. A tile is shared along a dimension of the grid on which
its block of the tensor does not depend. Then its ring works across the blocks:

    producer:  wait(empty[s]) for the consumers of all blocks;  expect the bytes of the whole slot;  own copies; its part of the
               shared ones, to the same place of all blocks, where they count on the barrier at the same place
    consumer:  wait(full[s]);  the statements that use the tiles;  release of s: one lane of each warp for each block

At the end the producer waits until all slots are released once more: no block ends while another one may still signal it. So all
blocks of a cluster have to run the same number of iterations: what is around the loops must not depend on the shared dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import CLUSTER_BARRIER, KERNEL_CLUSTER, op_name
from ...ir.kernel import KernelRegion
from ...ir.rewrite import uses, walk
from ...ir.tvm_api import (
    AttrStmt,
    Bind,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Span,
    Stmt,
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    load,
    location_of,
    seq,
    shape_of,
    tirx,
)  # fmt: skip
from ..pipeline.pipeline_copies import Moved, tile_bytes
from .rings import Ring, RingLoop, mbarrier, slot_of

SUBJECT = "cluster"  # of notes
KEY_OFF = "tl.disable_clusters"
PAIR = 2  # blocks of a cluster that nobody asked for: four of them fit a GPU badly
LEAST_SAVED = 0.25  # part of the bytes that the blocks need not fetch any more


@dataclass(frozen=True)
class Cluster:
    """axis: the dimension of the grid along which `size` blocks are a cluster. varying: names whose values differ between them."""

    axis: int
    size: int
    varying: frozenset[Var]

    @property
    def dims(self) -> list[int]:
        return [self.size if k == self.axis else 1 for k in range(3)]

    def shares(self, copy: Moved) -> bool:
        """Do all blocks of a cluster fetch the same?"""
        return not self.varies(copy.call.args[0])

    def varies(self, value: Any) -> bool:
        return any(uses(value, var) for var in self.varying)

    def rank(self, kernel: KernelRegion) -> Expr:
        """The number of a block of the kernel in its cluster."""
        index = kernel.blocks[self.axis][0]
        rank = tirx.floormod(index, const(self.size, dtype_of(index)))
        return rank if dtype_of(rank) == "int32" else tirx.Cast("int32", rank)


def cluster_of(kernel: KernelRegion, loops: Mapping[For, RingLoop], ctx: PassContext, turns: bool) -> Cluster | None:
    """The cluster whose blocks share tiles; None if there is none. What declines is told. turns: does a block visit several tiles? One that
    nobody asks for pays only then: where all blocks run at once, starting them in pairs costs more than it saves (1024^3 and 2048^3 on
    an H200: 9 and 1 %)."""
    if ctx.flag(KEY_OFF) or (KERNEL_CLUSTER not in kernel.annotations and not turns):
        return None
    at = location_of(next(iter(loops)))
    asked = _asked(kernel)
    if asked is not None and len(asked) != 1:
        ctx.note(at, SUBJECT, "no tile is shared: the blocks of a cluster stand along several dimensions of the grid")
        return None
    found: list[tuple[float, Cluster]] = []
    for axis, size in asked or [(axis, PAIR) for axis in range(min(3, len(kernel.blocks)))]:
        cluster = Cluster(axis, size, _varying(kernel, axis))
        saved = _saved(cluster, loops)
        if saved < LEAST_SAVED and asked is None:
            continue
        reason = _refusal(kernel, cluster, loops, saved, asked is not None)
        if reason is None:
            found.append((saved, cluster))
        elif reason:
            ctx.note(at, SUBJECT, f"no tile is shared: {reason}")
    if not found:
        return None
    _, cluster = max(found, key=lambda f: f[0])
    names = ", ".join(str(m.tile.name) for ours in loops.values() for m in ours.found.moved if cluster.shares(m))
    ctx.note(at, SUBJECT, f"{cluster.size} blocks along dimension {cluster.axis} of the grid fetch {names} together")
    return cluster


def _asked(kernel: KernelRegion) -> list[tuple[int, int]] | None:
    """(dimension, blocks) of the cluster that the program asks for; None if it asks for none."""
    if KERNEL_CLUSTER not in kernel.annotations:
        return None
    return [(axis, int(size)) for axis, size in enumerate(kernel.annotations[KERNEL_CLUSTER]) if int(size) > 1]


def _varying(kernel: KernelRegion, axis: int) -> frozenset[Var]:
    """The index of the block along a dimension, and the names whose values are made of it."""
    found = {kernel.blocks[axis][0]}
    walk(kernel.body, {Bind: lambda bind: found.add(bind.var) if any(uses(bind.value, v) for v in found) else None})
    return frozenset(found)


def _saved(cluster: Cluster, loops: Mapping[For, RingLoop]) -> float:
    """The part of the bytes of an iteration that a block need not fetch."""
    moved = [m for ours in loops.values() for m in ours.found.moved]
    shared = sum(tile_bytes(m.tile) for m in moved if cluster.shares(m))
    return shared * (1 - 1 / cluster.size) / sum(tile_bytes(m.tile) for m in moved)


def _refusal(kernel: KernelRegion, cluster: Cluster, loops: Mapping[For, RingLoop], saved: float, asked: bool) -> str | None:
    """Why the blocks share nothing; None if they do, "" where there is nothing to tell."""
    if not asked and any(_products(loop) != 1 for loop in loops):
        return ""  # the time between two products is for softmax and its like: fetching is not what such a loop waits for
    if saved == 0:
        return f"all copies depend on dimension {cluster.axis} of the grid"
    extent = kernel.blocks[cluster.axis][1]
    if not isinstance(extent, int) or extent % cluster.size:
        return f"extent {extent} of dimension {cluster.axis} of the grid is no constant multiple of {cluster.size}"
    around: list[Any] = []
    _controls(kernel.body, loops, around)
    if any(cluster.varies(value) for value in around):
        return f"the number of iterations may depend on dimension {cluster.axis} of the grid"
    return None


def _products(loop: For) -> int:
    found: list[Call] = []
    walk(loop.body, {Call: lambda call: found.append(call) if op_name(call) == "tl.tileop.gemm" else None})
    return len(found)


def _controls(stmt: Stmt, loops: Mapping[For, RingLoop], found: list[Any]) -> bool:
    """Is one of the loops in the statement? Notes the bounds and conditions around them, their own included."""
    if isinstance(stmt, SeqStmt):
        return sum(_controls(child, loops, found) for child in stmt.seq) > 0
    if isinstance(stmt, IfThenElse):
        inside = sum(_controls(case, loops, found) for case in (stmt.then_case, stmt.else_case) if case is not None) > 0
        found += [stmt.condition] if inside else []
        return inside
    if isinstance(stmt, For):
        ours = loops.get(stmt)
        inside = _controls(stmt.body, loops, found) or ours is not None
        found += [stmt.min, stmt.extent] if inside else []
        found += [ours.found.condition] if ours is not None and ours.found.condition is not None else []
        return inside
    return isinstance(stmt, AttrStmt | While) and _controls(stmt.body, loops, found)


# ---------------------------------------------------------------- rings across the blocks
def across(ours: RingLoop, cluster: Cluster) -> RingLoop:
    """The loop with rings that work across the blocks of the cluster, where they hold shared tiles. Bodies are counted: the producer
    looks at the slots once more behind the loop."""
    rings = tuple(_shared_ring(ring, cluster) for ring in ours.rings)
    return replace(ours, rings=rings, counted=ours.counted or any(ring.ranks > 1 for ring in rings))


def _shared_ring(ring: Ring, cluster: Cluster) -> Ring:
    if not any(cluster.shares(m) for m in ring.copies):
        return ring
    full, empty = (
        decl_buffer(tuple(shape_of(b)), "uint64", str(b.name), CLUSTER_BARRIER, alignment=8, span=b.span) for b in (ring.full, ring.empty)
    )
    return replace(ring, full=full, empty=empty, ranks=cluster.size)


def drained(ours: RingLoop, counter: Var, span: Span | None) -> list[Stmt]:
    """The producer waits until every slot of the rings that other blocks release is free again."""
    found: list[Stmt] = []
    for ring in ours.rings:
        if ring.ranks > 1:
            var = Var("turn", "int32")
            slot, phase, names = slot_of(load(counter, [0]) + var, ours.slots, span)
            wait = mbarrier("wait", ring.empty, slot, span, tirx.BitwiseXor(phase, const(1, "int32")))
            found.append(For(var, const(0, "int32"), const(ours.slots, "int32"), ForKind.SERIAL, seq([*names, wait]), span=span))
    return found


__all__ = ["Cluster", "across", "cluster_of", "drained"]

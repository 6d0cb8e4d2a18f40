"""The memory of a program, buffer by buffer: what was allocated at which line, and how much.

In: a program at TILE level. Out: one `KernelMemory` for each kernel region and one for what stands outside of any, with
an `Allocation` for each buffer. Sizes are exact in bits; those of less than a byte are packed. The numbers are of the
program as written: stages of a backend may add copies for pipelining or let buffers share bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Location
from ..ir.dialect import (
    ANNOTATION_ALLOC,
    ATTR_KERNEL,
    BARRIER,
    BLOCK_SCOPES,
    CLUSTER_BARRIER,
    DESCRIPTORS,
    FRAGMENT,
    SHARED_SCOPES,
    THREAD_SCOPES,
    TMEM,
)
from ..ir.dtypes import dtype
from ..ir.kernel import KernelRegion, match_kernel
from ..ir.rewrite import Descend, rewrite, walk
from ..ir.tvm_api import AllocBuffer, AttrStmt, Evaluate, IntImm, PrimFunc, dtype_of, location_of, shape_of

HOPPER_SHARED_BYTES = 227 * 1024  # what one block may have on an H100 or H200
_SHARED_BUDGET = (*SHARED_SCOPES, BARRIER, CLUSTER_BARRIER)  # scopes that draw from it


@dataclass(frozen=True)
class Allocation:
    """One buffer. at: the user's line. shape: ints, or text for a symbolic extent. bits: of the whole buffer (of one
    thread's copy for per-thread scopes), None if the shape is symbolic. layout: where its elements lie, if annotated."""

    name: str
    at: Location | None
    scope: str
    shape: tuple[int | str, ...]
    dtype: str
    bits: int | None
    layout: str = ""

    @property
    def bytes(self) -> int | None:
        """Bytes, rounded up; None if the shape is symbolic."""
        return None if self.bits is None else (self.bits + 7) // 8

    @property
    def line(self) -> int | None:
        return None if self.at is None else self.at.line

    @property
    def owner(self) -> str:
        """Who has a copy: "block", "thread" or "launch"."""
        if self.scope in (*THREAD_SCOPES, *DESCRIPTORS):
            return "thread"
        return "block" if self.scope in (*BLOCK_SCOPES, BARRIER, CLUSTER_BARRIER, TMEM) else "launch"


@dataclass(frozen=True)
class KernelMemory:
    """The allocations of one launch. blocks: extents of the grid (text where symbolic); threads: of one block."""

    index: int
    at: Location | None
    blocks: tuple[int | str, ...]
    threads: int
    allocations: tuple[Allocation, ...]

    def totals(self) -> dict[str, int]:
        """Bytes by scope, constant sizes only; per-thread scopes count one thread's copy."""
        out: dict[str, int] = {}
        for a in self.allocations:
            out[a.scope] = out.get(a.scope, 0) + (a.bytes or 0)
        return out

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of one block, all shared scopes together."""
        return sum(a.bytes or 0 for a in self.allocations if a.scope in _SHARED_BUDGET)

    @property
    def fits_hopper(self) -> bool:
        """Does one block's shared memory fit the 227 KiB of a Hopper GPU, without any reuse?"""
        return self.shared_bytes <= HOPPER_SHARED_BYTES

    @property
    def fragment_bytes_per_thread(self) -> int:
        """Bytes of fragments for each thread when they spread evenly, without copies."""
        total = sum(a.bytes or 0 for a in self.allocations if a.scope == FRAGMENT)
        return math.ceil(total / max(1, self.threads))


def allocation_table(func: PrimFunc) -> tuple[tuple[KernelMemory, ...], tuple[Allocation, ...]]:
    """(kernels in order, allocations outside of any kernel) of a program whose kernel regions are still there."""
    regions: list[KernelRegion] = []

    def take(node: AttrStmt, descend: Descend) -> Any:
        if node.attr_key != ATTR_KERNEL:
            return descend.children(node)
        region = match_kernel(node)
        assert region is not None
        regions.append(region)
        return Evaluate(IntImm("int32", 0), node.span)

    outside = rewrite(func.body, {AttrStmt: take})
    kernels = [
        KernelMemory(k, location_of(region), _extents(e for _, e in region.blocks), region.num_threads, _allocations(region.body))
        for k, region in enumerate(regions)
    ]
    return tuple(kernels), _allocations(outside)


def _extents(extents: Iterable[Any]) -> tuple[int | str, ...]:
    return tuple(e if isinstance(e, int) else str(e) for e in extents)


def _allocations(body: Any) -> tuple[Allocation, ...]:
    found: list[Allocation] = []

    def visit(stmt: AllocBuffer) -> None:
        buffer = stmt.buffer
        shape, element = shape_of(buffer), dtype(dtype_of(buffer))
        static: Sequence[int] | None = shape if all(isinstance(e, int) for e in shape) else None
        bits = None if static is None else math.prod(static) * element.bits * element.lanes
        annotations = dict(stmt.annotations or {})
        facts = dict(annotations.get(ANNOTATION_ALLOC, {}))
        layout = _layout_text(facts["layout"]) if "layout" in facts else ""
        found.append(Allocation(buffer.name, location_of(stmt), buffer.scope(), _extents(shape), str(element), bits, layout))

    walk(body, {AllocBuffer: visit})
    return tuple(found)


def _layout_text(index_map: Any) -> str:
    arguments, places = (", ".join(str(e) for e in part) for part in (index_map.initial_indices, index_map.final_indices))
    return f"({arguments}) -> ({places})"

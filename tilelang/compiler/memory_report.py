"""From the programs of one compilation to its `MemoryReport`.

In: the program as written, the final program, the context with the plans of `plan_shared`, and what the assembler said. Out: records.
Allocations of the two programs belong together when they have a name and a line in common; what only the final one has is the
compiler's own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..backend.base import KernelResources
from ..backend.gpu.shared_accesses import shared_accesses
from ..errors import Location, TileWarning
from ..ir.access import accesses, view_roots
from ..ir.context import PassContext
from ..ir.dialect import ANNOTATION_ALLOC, ATTR_KERNEL, FACT_VERSIONS, FRAGMENT, SHARED_SCOPES, THREAD_SCOPES
from ..ir.dtypes import dtype
from ..ir.kernel import KernelRegion, match_kernel
from ..ir.rewrite import Descend, rewrite, walk
from ..ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    Var,
    While,
    dtype_of,
    location_of,
    shape_of,
)  # fmt: skip
from ..passes.memory.memory_plan import MemoryPlan, Planned
from ..target.limits import REGISTERS_PER_BLOCK, REGISTERS_PER_THREAD, architecture, shared_bytes
from ..target.target import Target
from .compile import compile_stages, context
from .memory import COMPILER, PROGRAM, Allocation, KernelMemory, Limits, MemoryReport

_Key = tuple[str, Any]  # name and line
_WORD = 32  # bits of a register


def memory_report(
    func: PrimFunc, target: Target, config: Mapping[str, Any] | None = None,
    resources: Callable[[], Sequence[KernelResources]] | None = None,
) -> MemoryReport:  # fmt: skip
    """Run the stages on `func` and report its memory. resources: asked for what the assembler says, if given."""
    ctx = context(target, config)
    final = func
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TileWarning)  # told when it was compiled
        for _, program in compile_stages(func, ctx, {}):
            final = program
    return report_of(func, final, ctx, tuple(resources()) if resources is not None else ())


def report_of(func: PrimFunc, final: PrimFunc, ctx: PassContext, resources: Sequence[KernelResources] = ()) -> MemoryReport:
    """The report of a program `func` that the stages turned into `final`."""
    regions, outside = _regions(func)
    name = str((func.attrs or {}).get("global_symbol", "main"))
    workspaces = tuple(_as_written(outside, {}))
    if not ctx.target.is_gpu:
        kernels = tuple(_kernel(k, region, tuple(_as_written(region.body, _lives(region.body)))) for k, region in enumerate(regions))
        return MemoryReport(name, str(ctx.target), kernels, workspaces)
    finals, _ = _regions(final)
    holders = {p.registers: 128 * len(p.groups) for p in ctx.fragments.values() if p.groups is not None}
    found = []
    for k, (before, after) in enumerate(zip(regions, finals, strict=True)):
        plan = ctx.memory[k]
        limits = Limits(architecture(ctx.target), shared_bytes(ctx.target), REGISTERS_PER_THREAD, REGISTERS_PER_BLOCK)
        rows = _placed(before, after, plan, holders)
        scratch = sum(a.bytes or 0 for a in rows if a.origin == COMPILER and a.offset is not None) + plan.static
        found.append(KernelMemory(
            k, location_of(before), _extents(e for _, e in before.blocks), after.num_threads, rows, before.num_threads,
            dynamic=plan.bytes, static=plan.static, scratch=scratch, limits=limits, accesses=shared_accesses(after),
            resources=resources[k] if k < len(resources) else None,
        ))  # fmt: skip
    return MemoryReport(name, str(ctx.target), tuple(found), workspaces)


def _kernel(index: int, region: KernelRegion, rows: tuple[Allocation, ...]) -> KernelMemory:
    threads = region.num_threads
    return KernelMemory(index, location_of(region), _extents(e for _, e in region.blocks), threads, rows, threads)


def _regions(func: PrimFunc) -> tuple[list[KernelRegion], Any]:
    """(the kernel regions in order, the rest of the body)."""
    regions: list[KernelRegion] = []

    def take(node: AttrStmt, descend: Descend) -> Any:
        if node.attr_key != ATTR_KERNEL:
            return descend.children(node)
        region = match_kernel(node)
        assert region is not None
        regions.append(region)
        return Evaluate(IntImm("int32", 0), node.span)

    return regions, rewrite(func.body, {AttrStmt: take})


# ---------------------------------------------------------------- as written
def _as_written(body: Any, lives: Mapping[Var, tuple[Location, Location]]) -> list[Allocation]:
    found: list[Allocation] = []

    def visit(stmt: AllocBuffer) -> None:
        buffer, facts = stmt.buffer, _facts(stmt)
        shape, element = shape_of(buffer), dtype(dtype_of(buffer))
        static: Sequence[int] | None = shape if all(isinstance(e, int) for e in shape) else None
        bits = None if static is None else math.prod(static) * element.bits * element.lanes
        first, last = lives.get(buffer, (None, None))
        found.append(Allocation(
            str(buffer.name), location_of(stmt), buffer.scope(), PROGRAM, _extents(shape), str(element), bits,
            bytes=None if static is None else math.prod(static) * _stored_bits(buffer) // 8, first=first, last=last,
            layout=_layout_text(facts["layout"]) if "layout" in facts else "",
        ))  # fmt: skip

    walk(body, {AllocBuffer: visit})
    return found


def _lives(body: Any) -> dict[Var, tuple[Location, Location]]:
    """The first and the last line of the text that use each buffer."""
    roots = view_roots(body)
    lives: dict[Var, tuple[Location, Location]] = {}
    where = lambda at: (at.file, at.line, at.column)  # noqa: E731

    def note(node: Any, at: Location | None) -> None:
        if at is None:
            return
        for access in accesses(node, roots):
            first, last = lives.get(access.root, (at, at))
            lives[access.root] = min(first, at, key=where), max(last, at, key=where)

    walk(body, {
        (BufferStore, Evaluate, Bind): lambda s: note(s, location_of(s)), IfThenElse: lambda s: note(s.condition, location_of(s)),
        While: lambda s: note(s.condition, location_of(s)), For: lambda s: note(s.extent, location_of(s)),
    })  # fmt: skip
    return lives


# ---------------------------------------------------------------- as compiled
def _placed(before: KernelRegion, after: KernelRegion, plan: MemoryPlan, holders: Mapping[Var, int]) -> tuple[Allocation, ...]:
    """Allocations of the program with what became of them, then those that only the final program has. holders: threads that have the
    registers of fragments which live on a part of the block."""

    def compiled(written: Allocation, stmt: AllocBuffer) -> Allocation:
        return _compiled(written, stmt, planned, holders.get(stmt.buffer, before.num_threads))

    made: dict[_Key, list[AllocBuffer]] = {}
    walk(after.body, {AllocBuffer: lambda s: made.setdefault(_key(str(s.buffer.name), location_of(s)), []).append(s)})
    planned: dict[_Key, list[Planned]] = {}
    for row in plan.buffers:
        planned.setdefault(_key(row.name, row.at), []).append(row)
    rows = []
    for written in _as_written(before.body, _lives(before.body)):
        key = _key(written.name, written.at)
        stmts = made.get(key, [])
        rows.append(compiled(written, stmts.pop(0)) if stmts else _gone(written))
    lives = _lives(after.body)
    for stmts in made.values():
        for stmt in stmts:
            first, last = lives.get(stmt.buffer, (None, None))
            (own,) = _as_written(stmt, {stmt.buffer: (first, last)} if first is not None and last is not None else {})
            rows.append(compiled(replace(own, origin=COMPILER), stmt))
    return tuple(rows)


def _gone(written: Allocation) -> Allocation:
    """Nothing of it is left in the final program."""
    return replace(written, bytes=0, registers=0 if written.scope in (FRAGMENT, *THREAD_SCOPES) else None)


def _compiled(written: Allocation, stmt: AllocBuffer, planned: Mapping[_Key, list[Planned]], threads: int) -> Allocation:
    """What the program wrote, with place and size of the final buffer. threads: those that have a copy of per-thread memory."""
    buffer, facts = stmt.buffer, _facts(stmt)
    candidates = planned.get(_key(str(buffer.name), location_of(stmt)), [])
    place = candidates.pop(0) if candidates else None
    scope = buffer.scope() if buffer.scope() in SHARED_SCOPES else written.scope  # a fragment may have moved to shared memory
    versions = int(facts.get(FACT_VERSIONS, 1))
    if place is not None:
        held = versions * math.prod(e for e in written.shape if isinstance(e, int)) * _stored_bits(buffer) // 8
        return replace(
            written, scope=scope, bytes=place.bytes, versions=versions, offset=place.offset, alignment=place.alignment,
            reason=place.reason, sharers=place.sharers, padding=place.bytes - held,
            layout=str(facts.get("shared_layout", written.layout)),
        )  # fmt: skip
    if scope not in (FRAGMENT, *THREAD_SCOPES):
        return written
    held = math.prod(shape_of(buffer))
    elements = math.prod(e for e in written.shape if isinstance(e, int))
    registers = math.ceil(held * _stored_bits(buffer) / _WORD)
    copies = max(1, held * threads // elements) if scope == FRAGMENT and elements else 1
    return replace(written, registers=registers, copies=copies)


def _stored_bits(buffer: Var) -> int:
    """Bits that an element takes in memory, on every target: those of less than a byte take one."""
    element = dtype(dtype_of(buffer))
    return max(element.bits, 8) * element.lanes


def _key(name: str, at: Location | None) -> _Key:
    return name, (at.file, at.line, at.column) if at is not None else None


def _facts(stmt: AllocBuffer) -> dict[str, Any]:
    return dict((stmt.annotations or {}).get(ANNOTATION_ALLOC) or {})


def _extents(extents: Iterable[Any]) -> tuple[int | str, ...]:
    return tuple(e if isinstance(e, int) else str(e) for e in extents)


def _layout_text(index_map: Any) -> str:
    arguments, places = (", ".join(str(e) for e in part) for part in (index_map.initial_indices, index_map.final_indices))
    return f"({arguments}) -> ({places})"

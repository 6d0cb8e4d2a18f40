"""One allocation for all shared buffers of a kernel: sizes, alignment, life ranges, best fit, budget.

In: a THREADS program with its barriers. Out: the same with the facts `offset`, `bytes`, `alignment` on the `AllocBuffer` of every
shared buffer, and a `MemoryPlan` for each kernel in `ctx.memory`. Buffers of disjoint lives share bytes; wherever no
barrier stands between the last use of one and the first use of the other, one is inserted, and if none can stand there
the two are kept apart. `check_plan` looks at the result again. Over the budget is a TileValueError with the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import Location, TileValueError
from ...ir.access import accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, BARRIER, CLUSTER_BARRIER, FACT_VERSIONS, SHARED_SCOPES
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import rewrite
from ...ir.tvm_api import AllocBuffer, PrimFunc, Stmt, Var, dtype_of, location_of, shape_of
from ...target.limits import SHARED_ALIGNMENT, architecture, shared_bytes
from ..barriers.barrier_planner import BarrierPlanner
from ..pipeline.tma_boxes import SHARED_BYTES, boxed_tiles
from .allreduce_memory import static_bytes
from .check_plan import check_plan
from .life_ranges import Life, life_ranges, peak
from .memory_plan import MemoryPlan, Planned, extent, pack
from .shared_budget import Budget, Need, check_budget

_BARRIERS = (BARRIER, CLUSTER_BARRIER)
_KEY_REUSE_OFF = "tl.disable_shared_memory_reuse"
_VECTOR, _BARRIER_BYTES = 16, 8  # default alignments
_SMALL, _ALL_SMALL = 128, 4096  # bytes of a buffer that is not worth a barrier (a word for each warp), and of all such together


def plan_shared(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Plan every kernel region of `func`. Raises TileValueError over the target's budget or for a symbolic size."""
    roots = view_roots(func.body)
    count = 0

    def of_kernel(kernel: KernelRegion) -> Stmt:
        nonlocal count
        count += 1
        return _Planner(kernel, roots, ctx, count - 1).run().to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


@dataclass(frozen=True)
class _Request:
    """What one buffer needs."""

    buffer: Var
    bytes: int
    alignment: int
    reason: str
    at: Location | None
    shape: tuple[int, ...]
    layout: str
    versions: int

    def need(self, life: Life | None) -> Need:
        """The same as the budget counts it."""
        element = dtype(dtype_of(self.buffer))
        shape = (self.shape[0] // self.versions, *self.shape[1:]) if self.shape else ()
        first, last = (life.first, life.last) if life is not None else (0, -1)
        size = max(element.bits, 8) * element.lanes // 8
        fixed = self.buffer.scope() in _BARRIERS
        return Need(str(self.buffer.name), shape, size, self.versions, self.bytes, self.alignment, first, last, self.at, fixed)


class _Planner:
    """The plan of one kernel region."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext, index: int) -> None:
        self.kernel, self.roots, self.ctx, self.index = kernel, roots, ctx, index
        self.limit = shared_bytes(ctx.target)
        found = allocations(kernel.body)
        boxed = boxed_tiles(kernel)
        self.requests = [_request(s, v in boxed) for v, s in found.items() if v.scope() in SHARED_SCOPES or v.scope() in _BARRIERS]
        static = static_bytes(kernel)
        self.static = -(-static // SHARED_ALIGNMENT) * SHARED_ALIGNMENT if self.requests else static

    def run(self) -> KernelRegion:
        if not self.requests:
            self.ctx.memory.append(MemoryPlan(self.index, 0, self.static, self.limit, ()))
            return self.kernel
        if self._all_meet():
            apart = [set(range(len(self.requests))) - {k} for k in range(len(self.requests))]
            return self._finish(self.kernel, self._pack(apart, sum(r.bytes for r in self.requests)), apart, {})
        planner = self._planner()
        lives = life_ranges(planner.tree)
        apart = self._apart(lives)
        bound, _ = peak(*self._lived(lives))
        while True:
            offsets = self._pack(apart, bound)
            sharing = self._sharing(offsets)
            if not sharing:
                return self._finish(self.kernel, offsets, apart, lives)
            planner.solve(sharing)
            if not planner.unresolved:
                return self._finish(planner.result(), offsets, apart, lives)
            for first, second in planner.unresolved.values():  # no barrier can stand between these two
                i, j = self._position(first.root), self._position(second.root)
                apart[i].add(j)
                apart[j].add(i)

    def _finish(self, kernel: KernelRegion, offsets: Sequence[int], apart: Sequence[set[int]], lives: Mapping[Var, Life]) -> KernelRegion:
        """The kernel with its buffers in their places, if these fit and pass the check."""
        self._check_budget(offsets, lives, apart)
        self.ctx.memory.append(self._plan(offsets, self._sharing(offsets)))
        kernel = self._annotated(kernel, offsets)
        check_plan(kernel, self.roots)
        return kernel

    def _all_meet(self) -> bool:
        """Do all buffers meet already between the first and the last use of each in the text? Then no two can share bytes, and the
        longer lives that loops give them need not be known."""
        uses: dict[Var, tuple[int, int]] = {}
        for position, access in enumerate(accesses(self.kernel.body, self.roots)):
            uses[access.root] = uses.get(access.root, (position, 0))[0], position
        found = [uses[r.buffer] for r in self.requests if r.buffer in uses and r.buffer.scope() not in _BARRIERS]
        unused = any(r.buffer not in uses for r in self.requests)
        return not unused and max((f for f, _ in found), default=0) < min((last for _, last in found), default=1)

    def _position(self, buffer: Var) -> int:
        return next(k for k, r in enumerate(self.requests) if r.buffer.same_as(buffer))

    def _apart(self, lives: Mapping[Var, Life]) -> list[set[int]]:
        """For each buffer those alive at the same time. A barrier object lives as long as the kernel."""
        apart: list[set[int]] = [set() for _ in self.requests]
        always = self.ctx.flag(_KEY_REUSE_OFF)
        small = self._small()
        for i, a in enumerate(self.requests):
            for j, b in enumerate(self.requests[:i]):
                one, two = lives.get(a.buffer), lives.get(b.buffer)
                barrier = a.buffer.scope() in _BARRIERS or b.buffer.scope() in _BARRIERS
                if always or barrier or {a.buffer, b.buffer} <= small or (one is not None and two is not None and one.meets(two)):
                    apart[i].add(j)
                    apart[j].add(i)
        return apart

    def _small(self) -> set[Var]:
        """Buffers that lie apart where there is room, because reusing the bytes of one for another costs a barrier."""
        small = [r for r in self.requests if r.bytes <= _SMALL]
        room = sum(r.bytes for r in self.requests) + self.static <= self.limit // 2
        return {r.buffer for r in small} if room and sum(r.bytes for r in small) <= _ALL_SMALL else set()

    def _pack(self, apart: list[set[int]], bound: int) -> list[int]:
        return pack([r.bytes for r in self.requests], [r.alignment for r in self.requests], apart, bound)

    def _lived(self, lives: Mapping[Var, Life]) -> tuple[dict[Var, Life], dict[Var, int]]:
        """(lives, sizes) of all buffers, barrier objects alive throughout."""
        end = max((life.last for life in lives.values()), default=0)
        full = {r.buffer: Life(0, end) for r in self.requests if r.buffer.scope() in _BARRIERS}
        used = {r.buffer: lives[r.buffer] for r in self.requests if r.buffer in lives}
        return {**used, **full}, {r.buffer: r.bytes for r in self.requests}

    def _sharing(self, offsets: Sequence[int]) -> dict[Var, set[Var]]:
        """For each buffer those that have bytes in common with it."""
        found: dict[Var, set[Var]] = {}
        for i, a in enumerate(self.requests):
            for j, b in enumerate(self.requests):
                if i != j and offsets[i] < offsets[j] + b.bytes and offsets[j] < offsets[i] + a.bytes:
                    found.setdefault(a.buffer, set()).add(b.buffer)
        return found

    # ---------------------------------------------------------------- results
    def _planner(self) -> BarrierPlanner:
        return BarrierPlanner(self.kernel, self.roots, own=False, reads=True, sizes=self.ctx.sizes)

    def _check_budget(self, offsets: Sequence[int], lives: Mapping[Var, Life], apart: Sequence[set[int]]) -> None:
        total = extent(offsets, [r.bytes for r in self.requests]) + self.static
        if total > self.limit:
            lived, _ = self._lived(lives or life_ranges(self._planner().tree))
            needs = [r.need(lived.get(r.buffer)) for r in self.requests]
            budget = Budget(self.limit, self.static, architecture(self.ctx.target), apart, location_of(self.kernel))
            check_budget(needs, total, budget)

    def _plan(self, offsets: Sequence[int], sharing: Mapping[Var, set[Var]]) -> MemoryPlan:
        rows = []
        for request, offset in zip(self.requests, offsets, strict=True):
            buffer = request.buffer
            rows.append(Planned(
                str(buffer.name), buffer.scope(), dtype_of(buffer), request.shape, request.bytes, offset,
                request.alignment, request.reason, request.at,
                tuple(str(v.name) for v in sorted(sharing.get(buffer, ()), key=lambda v: str(v.name))), request.layout,
            ))  # fmt: skip
        return MemoryPlan(self.index, extent(offsets, [r.bytes for r in self.requests]), self.static, self.limit, tuple(rows))

    def _annotated(self, kernel: KernelRegion, offsets: Sequence[int]) -> KernelRegion:
        table = {r.buffer: (o, r) for r, o in zip(self.requests, offsets, strict=True)}

        def note(stmt: AllocBuffer, _: Any) -> Stmt:
            if stmt.buffer not in table:
                return stmt
            offset, request = table[stmt.buffer]
            annotations = dict(stmt.annotations or {})
            place = {"offset": offset, "bytes": request.bytes, "alignment": request.alignment}
            facts = {**dict(annotations.get(ANNOTATION_ALLOC, {})), **place}
            return AllocBuffer(stmt.buffer, {**annotations, ANNOTATION_ALLOC: facts}, stmt.span)

        return kernel.with_body(rewrite(kernel.body, {AllocBuffer: note}))


def _request(stmt: AllocBuffer, boxed: bool) -> _Request:
    """Bits rounded up to bytes; an element of less than a byte is stored in one by both GPU backends. boxed: do bulk copies move it?"""
    buffer, at = stmt.buffer, location_of(stmt)
    shape = shape_of(buffer)
    if not all(isinstance(e, int) for e in shape):
        raise TileValueError(
            f"{buffer.name} has the symbolic shape {shape}; shared memory of a GPU needs a constant size",
            at=at, remedy="use a compile-time constant tile size",
        )  # fmt: skip
    element = dtype(dtype_of(buffer))
    bits = math.prod(shape) * max(element.bits, 8) * element.lanes
    facts = dict(dict(stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
    alignment, reason = _VECTOR, "vectors of 16 bytes"
    if "alignment" in facts:
        alignment, reason = int(facts["alignment"]), str(facts.get("alignment_reason", "asked for"))
    elif buffer.scope() in _BARRIERS:
        alignment, reason = _BARRIER_BYTES, "an mbarrier is 8 bytes"
    if boxed and alignment < SHARED_BYTES:
        alignment, reason = SHARED_BYTES, f"bulk copies: {SHARED_BYTES} bytes"
    logical = tuple(int(e) for e in facts.get("logical_shape", shape))
    layout, versions = str(facts.get("shared_layout", "row-major")), int(facts.get(FACT_VERSIONS, 1))
    return _Request(buffer, (bits + 7) // 8, alignment, reason, at, logical, layout, versions)

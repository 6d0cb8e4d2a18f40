"""Warp roles: 128 more threads, of which one fetches the tiles of pipelined loops by bulk copies while the user's threads compute.

In: a TILE program for a machine with bulk copies. Out: kernels with pipelined products become two regions: the user's threads (consumers)
run the program without the copies that move; the producer runs the slice of the program that these copies need. Each group of tiles
that are first and last used by the same statements has a ring of n slots with two mbarriers a slot:

    producer:  wait(empty[s], p ^ 1);  expect(full[s], bytes);  copies
    consumer:  wait(full[s], p);  the statements that use the tiles;  release of s: arrive(empty[s]), one lane of each warp

with s = i % n and p = i / n % 2, i counting the executions of the loop's body. What declines is told in a note, and left to
`plan_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...ir.access import accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import (
    ANNOTATION_TILES,
    ATTR_WS,
    BARRIER,
    CLUSTER_BARRIER,
    KERNEL_CLUSTER,
    KERNEL_MIN_BLOCKS,
    REGISTER_BUDGET,
    SHARED_SCOPES,
    make_call,
    op_info,
    op_name,
)  # fmt: skip
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Call,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Span,
    Stmt,
    Var,
    call,
    const,
    location_of,
    region,
    seq,
    tirx,
)  # fmt: skip
from ...target.limits import shared_bytes
from ..analysis.thread_groups import GROUP
from ..pipeline.pipeline_copies import (
    KernelCopies,
    LoopCopies,
    allocate_versions,
    leaves,
    simpler,
    stages_of,
    tile_bytes,
    versioned,
    with_version,
)  # fmt: skip
from ..pipeline.tma_boxes import bytes_of_copy, slot_reason, tma_reason
from .alternate_operands import NotAlternated, alternated, alternating_operands, twin_of
from .clusters import Cluster, across, cluster_of, drained
from .defer_store import KEY_OFF as DEFERRAL_OFF
from .defer_store import Deferral, NotDeferred, deferral_of
from .persistent_grid import PersistentGrid, persistent, without_swizzle
from .producer_slice import NotAhead, OfLoop, Slicer
from .rings import RingLoop, count_one, counter_of, declare_barriers, mbarrier, number_of, release_slot, rings_of, slot_of
from .rotate_loops import KEY_OFF as ROTATION_OFF
from .rotate_loops import NotRotated, Rotation, rotated, rotation_of
from .skew_loops import Skew, skew_of, skewed

SUBJECT = "warp roles"
KEY_OFF = "tl.disable_warp_specialized"
WARP = 32
MULTIPROCESSORS = 132  # of an H100 SXM or H200
MOST_THREADS = 1024
_ALIGNMENT = 1024  # bytes of which a place of a swizzled tile is a multiple
_RESERVE = 2048  # bytes for barriers and what lowerings keep for themselves
_MOST_REGISTERS = 255  # of a thread
_LEAST_SLOTS = 3  # that a second buffer of an operand leaves room for
# Registers of a thread (producer, consumers) by the block's warpgroups: together they are what the launch gives (64 Ki a multiprocessor).
_REGISTERS = {3: (40, 232), 4: (32, 160)}
_MORE_REGISTERS = {3: (24, 240), 4: (32, 160)}  # for a loop whose consumers need all they can get; a producer of few names does with less


def specialize_warps(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Give roles to the warps of every kernel region that can have them."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        loops: list[For] = []
        walk(kernel.body, {For: lambda f: loops.append(f) if stages_of(f) >= 2 else None})
        if not loops or ctx.flag(KEY_OFF):
            return kernel.to_stmt()
        reason = _refusal(kernel)
        try:
            return kernel.to_stmt() if reason == "" else _Specializer(kernel, roots, ctx, reason).run().to_stmt()
        except NotAhead as error:
            ctx.note(location_of(loops[0]), SUBJECT, f"none: {error}")
            return kernel.to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


def _refusal(kernel: KernelRegion) -> str | None:
    """Why the kernel's threads cannot be given roles; None if they can; "" where there is nothing to tell."""
    (_, x), (_, y), (_, z) = kernel.threads
    if y * z != 1 or x % GROUP or x + GROUP > MOST_THREADS:
        return f"{x} x {y} x {z} threads are no whole warpgroups in one dimension, with room for one more"
    products: list[Call] = []
    by_hand: list[str] = []

    def visit(node: Call) -> None:
        entry = op_info(node)
        if op_name(node) == "tl.tileop.gemm":
            products.append(node)
        elif entry is not None and ((entry.collective and not entry.tile) or entry.name.startswith("tl.mbarrier")):
            by_hand.append(entry.name)

    walk(kernel.body, {Call: visit, AttrStmt: lambda a: by_hand.append("T.ws") if a.attr_key == ATTR_WS else None})
    if any(b.scope() in (BARRIER, CLUSTER_BARRIER) for b in allocations(kernel.body)) or by_hand:
        return f"the program synchronises threads itself ({by_hand[0] if by_hand else 'mbarriers'})"
    return None if products else ""


class _Specializer:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, roots: dict[Var, Var], ctx: PassContext, refusal: str | None) -> None:
        self.kernel, self.ctx, self.refusal = kernel, ctx, refusal
        self.copies = KernelCopies(kernel, roots, ctx, lambda c: tma_reason(c, kernel, ctx) or slot_reason(c) or "", quiet=True)
        self.thread, self.consumers = kernel.threads[0]
        self.budget = shared_bytes(ctx.target) - _RESERVE - _tiles(self.copies.allocs)
        self.loops: dict[For, RingLoop] = {}
        self.alternating: dict[For, tuple[Var, ...]] = {}  # operands that loops make in two buffers by turns
        self.cluster: Cluster | None = None
        self.registers = _REGISTERS
        self.outer: list[Stmt] = []  # around the statement that is looked at

    def run(self) -> KernelRegion:
        groups = self.consumers // GROUP
        grid = persistent(self.kernel, MULTIPROCESSORS) if groups > 1 and not self.refusal else None
        self._find(self.kernel.body, grid is not None)
        if not self.loops:
            return self.kernel
        if self.refusal:
            raise NotAhead(self.refusal)
        grid = self._in_clusters(grid)
        span, first = self.kernel.span, location_of(next(iter(self.loops)))
        body = self.kernel.body
        if grid is not None:
            body = grid.loop(body, span)
            self._take(body, False, stages=2, least=1)  # what is fetched once a tile
        rings = [ring for loop in self.loops.values() for ring in loop.rings]
        replaced = {tile: versions for ring in rings for tile, versions in ring.versions.items()}
        self.deferral = self._deferral(body)
        counters, computed = self._consumer(body if self.deferral is None else self.deferral.kept())
        producer = self._producer(body, grid)
        if grid is not None:
            self.ctx.note(first, SUBJECT, f"one block a multiprocessor visits tile after tile ({grid.workers} blocks)")
        declared: list[Stmt] = []

        def hoisted(node: AllocBuffer, _: Descend) -> Stmt:
            if node.buffer not in replaced:
                return node
            declared.append(allocate_versions(node, replaced))
            return seq([])

        consumer = seq([*counters, rewrite(computed, {AllocBuffer: hoisted}), *([] if self.deferral is None else [self.deferral.last()])])
        for ring in rings:
            slots, at = int(ring.full.ty.shape[0]), ring.copies[0].stmt.span
            declared += [
                declare_barriers(ring.full, [1] * slots, at),
                declare_barriers(ring.empty, [self.consumers // WARP * ring.ranks] * slots, at),
            ]
        registers = self.registers.get(groups + 1)
        self.ctx.note(location_of(next(iter(self.loops))), SUBJECT, _roles_text(groups, registers))
        body = seq([
            *declared,
            AttrStmt(list(range(groups)), ATTR_WS, IntImm("int32", 0), seq([*_registers(registers, 1, span), consumer]), span),
            AttrStmt([groups], ATTR_WS, IntImm("int32", 0), seq([*_registers(registers, 0, span), producer]), span),
        ])  # fmt: skip
        x, y, z = self.kernel.threads
        threads = ((x[0], self.consumers + GROUP), y, z)
        annotations = {**self.kernel.annotations, KERNEL_MIN_BLOCKS: 1}
        if self.cluster is not None:
            annotations[KERNEL_CLUSTER] = self.cluster.dims if grid is None else [self.cluster.size, 1, 1]
        if grid is None:
            return KernelRegion(self.kernel.blocks, threads, body, annotations, span)
        return KernelRegion(grid.blocks, threads, body, without_swizzle(annotations), span)

    def _in_clusters(self, grid: PersistentGrid | None) -> PersistentGrid | None:
        """Let the blocks of a cluster share tiles, if they can; a cluster that shares none keeps the grid that the program asks for."""
        self.cluster = cluster_of(self.kernel, self.loops, self.ctx, turns=grid is not None)
        if self.cluster is None:
            return None if KERNEL_CLUSTER in self.kernel.annotations else grid
        self.loops = {node: across(ours, self.cluster) for node, ours in self.loops.items()}
        return None if grid is None else grid.in_clusters(self.cluster.axis, self.cluster.size)

    # ---------------------------------------------------------------- which loops
    def _find(self, stmt: Stmt, repeated: bool) -> None:
        """Note the loops whose copies move. repeated: is the statement executed more than once?"""
        if isinstance(stmt, SeqStmt):
            for child in stmt.seq:
                self._find(child, repeated)
        elif isinstance(stmt, IfThenElse):
            for case in (stmt.then_case, stmt.else_case):
                if case is not None:
                    self._find(case, repeated)
        elif isinstance(stmt, AttrStmt):
            self._find(stmt.body, repeated)
        elif isinstance(stmt, For):
            if stages_of(stmt) >= 2 and not leaves(stmt.body):
                self._take(stmt, repeated, stages_of(stmt), least=2)
            self._find(stmt.body, True)

    def _take(self, node: For, repeated: bool, stages: int, least: int) -> None:
        """Note one loop if it has copies that move. stages: slots, as many as there is room for. least: below so many nothing moves."""
        found = LoopCopies(self.copies, node)
        if not found.moved:
            return
        rest = found.rest()
        touched = [{a.root for a in accesses(stmt, self.copies.roots)} for stmt in rest]
        uses = {m.tile: [k for k, buffers in enumerate(touched) if m.tile in buffers] for m in found.moved}
        if any(not places for places in uses.values()):
            return
        size = sum(tile_bytes(m.tile) for m in found.moved)
        told = self._alternate(found, stages, size)
        slots = min(stages, 1 + self.budget // size)
        if slots < least:
            self.ctx.note(location_of(node), SUBJECT, "none: shared memory has no room for a second slot")
            return
        self.budget -= (slots - 1) * size
        rings = rings_of(found.moved, {tile: (places[0], places[-1]) for tile, places in uses.items()}, slots)
        names = "; ".join(", ".join(str(m.tile.name) for m in ring.copies) for ring in rings)
        fewer = "" if slots == stages else f" (shared memory has no room for {stages})"
        self.ctx.note(location_of(node), SUBJECT, f"a producer fetches {names} into {slots} slots{fewer}")
        if told:
            self.ctx.note(location_of(node), SUBJECT, told)
        self.loops[node] = RingLoop(found, slots, rings, repeated or found.guard is not None)

    # ---------------------------------------------------------------- the consumers
    def _consumer(self, body: Stmt) -> tuple[list[Stmt], Stmt]:
        """Counters of rings, and the program."""
        counters: list[Stmt] = []

        def loop(node: For, descend: Descend) -> Stmt:
            ours = self.loops.get(node)
            if ours is None:
                return rebuild_body(node, descend(node.body))
            if node in self.alternating:
                return self._alternated(replace(ours, counted=True), counters, [descend(s) for s in ours.found.rest()])
            counter = counter_of(ours, counters)
            if self.deferral is not None and ours is self.deferral.ours and counter is not None:
                counters.append(AllocBuffer(self.deferral.packed, None, node.span))
                return self.deferral.peeled(lambda part, after: self._plain(ours, part, counter, descend, after))
            skew = self._skew(ours)
            if skew is not None:
                return skewed(ours, skew, counter, [descend(s) for s in ours.found.rest()], self.kernel)
            rotation = self._rotation(ours)
            if rotation is not None:
                return rotated(ours, rotation, counter, [descend(s) for s in ours.found.rest()], self.kernel)
            return self._plain(ours, node, counter, descend)

        return counters, rewrite(body, {For: loop})

    def _plain(self, ours: RingLoop, node: For, counter: Var | None, descend: Descend, after: Callable[[Expr], Stmt] | None = None) -> Stmt:
        """The loop in its order. node: the loop, or a part of its iterations. after(iteration): what else is done, beside its products."""
        body = self._uses(ours, number_of(ours, ours.found.node.loop_var, counter), descend)
        body = body if after is None else seq([body, after(ours.found.node.loop_var)])
        if counter is not None:
            body = seq([body, count_one(counter, node.span)])
        if ours.found.guard is not None:
            body = IfThenElse(ours.found.condition, body, None, ours.found.guard.span)
        if not node.same_as(ours.found.node):
            body = substitute(body, {ours.found.node.loop_var: node.loop_var})
        kept = {ANNOTATION_TILES: True} if ANNOTATION_TILES in (node.annotations or {}) else None
        return For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, kept, node.step, node.span)

    def _deferral(self, body: Stmt) -> Deferral | None:
        """How results leave while the next tile's products run; what declines is told."""
        if not isinstance(body, For) or body in self.loops or self.ctx.flag(DEFERRAL_OFF):
            return None
        at = location_of(next(iter(self.loops)))
        registers = _REGISTERS.get(self.consumers // GROUP + 1, (0, _MOST_REGISTERS))[1]
        try:
            wanted = self.ctx.config.get(DEFERRAL_OFF) is False
            found = deferral_of(body, self.loops, self.kernel, self.copies.roots, self.consumers, registers, wanted)
            if found.ours.found.node in self.alternating:
                raise NotDeferred("its loop makes an operand beside the products")
        except NotDeferred as error:
            self.ctx.note(at, SUBJECT, f"a result is stored before the next tile begins: {error}")
            return None
        self.ctx.note(at, SUBJECT, f"{found.result.name} is stored while the next tile's products run")
        return found

    def _uses(self, ours: RingLoop, number: Expr, descend: Descend) -> Stmt:
        """The rest of the body, with waits and releases around the statements that use each ring's tiles."""
        span = ours.found.node.span
        slot, phase, names = slot_of(number, ours.slots, span)
        table = {tile: versions for ring in ours.rings for tile, versions in ring.versions.items()}
        stmts: list[Stmt] = [*names]
        for k, stmt in enumerate(ours.found.rest()):
            for ring in ours.rings:
                if ring.first == k:
                    stmts.append(mbarrier("wait", ring.full, slot, span, phase))
            stmts.append(with_version(descend(stmt), table, slot))
            for ring in ours.rings:
                if ring.last == k:
                    stmts.append(release_slot(ours, ring, number))
        return seq(stmts)

    # ---------------------------------------------------------------- operands by turns, rotated loops
    def _alternate(self, found: LoopCopies, stages: int, size: int) -> str:
        """Note the operands that the loop makes beside the product before; what there is to tell. size: bytes of a slot."""
        node = found.node
        registers = _REGISTERS.get(self.consumers // GROUP + 1, (0, _MOST_REGISTERS))[1]
        try:
            operands = alternating_operands(node, found.rest(), self.copies.uses, self.copies.roots, self.consumers, registers)
            if not operands:
                return ""
            names = ", ".join(str(o.name) for o in operands)
            if self.ctx.flag(ROTATION_OFF):
                raise NotAlternated(f"{ROTATION_OFF} is set")
            if found.guard is not None:
                raise NotAlternated("a condition is around its body")
            more = sum(tile_bytes(o) + _ALIGNMENT for o in operands if o.scope() in SHARED_SCOPES)
            if more and 1 + (self.budget - more) // size < min(stages, _LEAST_SLOTS):
                raise NotAlternated(f"shared memory has no room for a second {names}")
        except NotAlternated as error:
            return f"operands are made between the products: {error}"
        self.budget -= more
        self.alternating[node] = operands
        return f"{names} is made beside the product before, in two buffers by turns"

    def _alternated(self, ours: RingLoop, declared: list[Stmt], stmts: list[Stmt]) -> Stmt:
        twins = {operand: twin_of(operand) for operand in self.alternating[ours.found.node]}
        declared += [AllocBuffer(twin, self.copies.allocs[o].annotations, o.span) for o, twin in twins.items()]
        counter = counter_of(ours, declared)
        assert counter is not None
        return alternated(ours, twins, counter, stmts)

    def _skew(self, ours: RingLoop) -> Skew | None:
        """How the loop's two halves are laid beside each other, None if they are not; what declines is told."""
        node = ours.found.node
        registers = _MORE_REGISTERS.get(self.consumers // GROUP + 1, (0, _MOST_REGISTERS))[1]
        try:
            found = skew_of(node, ours.found.rest(), self.copies.roots, self.consumers, registers)
            if found is None or self.ctx.flag(ROTATION_OFF):
                return None
            if ours.found.guard is not None:
                raise NotRotated("a condition is around its body")
        except NotRotated as error:
            self.ctx.note(location_of(node), SUBJECT, f"its halves keep their order: {error}")
            return None
        self.ctx.note(location_of(node), SUBJECT, "its second half runs beside the first half of the next iteration")
        self.registers = _MORE_REGISTERS
        return found

    def _rotation(self, ours: RingLoop) -> Rotation | None:
        """How the loop is rotated, None if not; what declines is told."""
        node = ours.found.node
        registers = _REGISTERS.get(self.consumers // GROUP + 1, (0, _MOST_REGISTERS))[1]
        try:
            found = rotation_of(node, ours.found.rest(), self.copies.roots, self.consumers, registers)
            if found is None:
                return None
            if self.ctx.flag(ROTATION_OFF):
                raise NotRotated(f"{ROTATION_OFF} is set")
            if ours.found.guard is not None:
                raise NotRotated("a condition is around its body")
        except NotRotated as error:
            self.ctx.note(location_of(node), SUBJECT, f"the loop keeps its order: {error}")
            return None
        self.ctx.note(location_of(node), SUBJECT, "the first products of the next iteration run beside the last ones of this")
        return found

    # ---------------------------------------------------------------- the producer
    def _producer(self, program: Stmt, grid: PersistentGrid | None) -> Stmt:
        """What one thread of the new warpgroup executes."""
        counters: list[Stmt] = []
        slicer = Slicer(self.kernel, self.copies.roots)

        self.counted: list[tuple[RingLoop, Var]] = []
        self.rank = None if self.cluster is None else grid.rank if grid is not None else self.cluster.rank(self.kernel)

        def of_loop(node: For, var: Var) -> Stmt | None:
            ours = self.loops.get(node)
            return None if ours is None else self._fetches(ours, var, slicer, counters, of_loop)

        body = slicer.slice(program, of_loop)
        drains = [stmt for ours, counter in self.counted for stmt in drained(ours, counter, self.kernel.span)]
        me = tirx.EQ(self.thread, const(self.consumers, "int32"))
        return IfThenElse(me, seq([*counters, body, *drains]), None, self.kernel.span)

    def _fetches(self, ours: RingLoop, var: Var, slicer: Slicer, counters: list[Stmt], of_loop: OfLoop) -> Stmt:
        """The body of a pipelined loop, as the producer runs it with `var` as its variable: its copies, then those of loops inside."""
        node, span = ours.found.node, ours.found.node.span
        counter = counter_of(ours, counters)
        self.counted += [(ours, counter)] if counter is not None else []
        slot, phase, names = slot_of(slicer.ahead(number_of(ours, var, counter)), ours.slots, span)
        stmts: list[Stmt] = [*names]
        for ring in ours.rings:
            bytes_ = const(sum(bytes_of_copy(m.call) for m in ring.copies), "int32")
            stmts.append(mbarrier("wait", ring.empty, slot, span, tirx.BitwiseXor(phase, const(1, "int32"))))
            stmts.append(mbarrier("expect_tx", ring.full, slot, span, bytes_, arrive=True))
            for m in ring.copies:
                source = simpler(slicer.ahead(substitute(m.call.args[0], {node.loop_var: var})))
                target = versioned(m.call.args[1], ring.versions[m.tile], slot)
                attrs = {**dict(m.call.attrs or {}), "tma": "load"}
                operands = [source, target, region(ring.full, [slot], [1])]
                if self.cluster is not None and ring.ranks > 1 and self.cluster.shares(m):
                    operands.append(self.rank)
                    attrs["ranks"] = self.cluster.size
                stmts.append(Evaluate(call(m.call.op, operands, "void", attrs), m.stmt.span))
        stmts.append(slicer.slice(seq(ours.found.rest()), of_loop))
        if counter is not None:
            stmts.append(count_one(counter, span))
        body = seq(stmts)
        condition = ours.found.condition_at(var)
        return body if condition is None else IfThenElse(slicer.ahead(condition), body, None, span)


# ---------------------------------------------------------------- registers
def _roles_text(groups: int, registers: tuple[int, int] | None) -> str:
    """The warpgroups of a block, for the user."""
    given = "as many registers each" if registers is None else f"{registers[1]} registers a thread, {registers[0]} of the producer"
    return f"{groups} warpgroup{'s' if groups > 1 else ''} compute{'' if groups > 1 else 's'}, one more is the producer; {given}"


def _tiles(buffers: Iterable[Var]) -> int:
    """Bytes of the shared tiles among them, each at a place of its own."""
    return sum(-(-tile_bytes(v) // _ALIGNMENT) * _ALIGNMENT for v in buffers if v.scope() in SHARED_SCOPES)


def _registers(budget: tuple[int, int] | None, role: int, span: Span | None) -> list[Stmt]:
    """The registers of each thread of a role: 0 the producer, 1 the consumers."""
    if budget is None:
        return []
    operands = [const(budget[role], "int32"), const(role, "int32")]
    return [Evaluate(make_call("tl.hint", operands, span=span, what=REGISTER_BUDGET), span)]


__all__ = ["specialize_warps"]

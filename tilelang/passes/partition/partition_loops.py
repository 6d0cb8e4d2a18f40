"""T.Parallel nests become loops of one thread, fragments become registers (LOOPS to THREADS).

In: a LOOPS program and the fragments' plans in the context. Out: level THREADS: what a nest or a collective statement does
once is divided among the threads. A nest runs where the elements of one of its fragments are (`loop_layouts`); fragments
whose elements are elsewhere pass through a shared scratch tile, with a note at the user's line. Inside a `T.ws` region
the threads of its groups share the work; the region itself stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import TileValueError
from ...ir.access import allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import (
    ANNOTATION_ALLOC,
    ATTR_COLLECTIVE,
    ATTR_WS,
    FACT_DEMOTED,
    FACT_REPLICATED,
    FACT_SCRATCH,
    FRAGMENT,
    SHARED_DYN,
    SHARED_SCOPES,
    op_name,
)  # fmt: skip
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    location_of,
    seq,
    static_shape,
    store,
    tirx,
)  # fmt: skip
from ...knobs import knobs
from ..analysis.nests import FragmentAccess, Nest, is_nest, mentions, read_nest
from ..analysis.thread_groups import GROUP, Threads, belongs, groups_of, part, whole_block
from ..analysis.uniformity import BARRIERS, Uniformity, is_warp_call
from ..layouts.coalescing import coalesced
from ..layouts.loop_layouts import LoopLayout, determined, owned_register, solve
from ..layouts.register_maps import register_map
from .check_partition import check_coverage, check_layout
from .fragment_homes import Home, default_plan, in_registers, overwrites
from .nest_code import Homes, from_scratch, guarded, over_block, over_registers, rewritten_body, serial_loops, to_scratch
from .packed_updates import is_update
from .vector_width import is_plain, vector_width

# What one thread executes, whoever wrote it.
_OF_THREADS = ("tl.instr", "tl.cp_async", "tl.mbarrier", "tl.wgmma", "tl.tma_", "tl.bulk_", "tl.fence_proxy_async")


def partition_loops(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Give every kernel region the form of one thread's program. Raises TileValueError for a collective statement that uses
    a value which differs between threads and has not one iteration for each thread."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _Partition(kernel, ctx, roots).run().to_stmt()))


class _Partition:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, ctx: PassContext, roots: dict[Var, Var]) -> None:
        self.kernel, self.ctx, self.roots = kernel, ctx, roots
        self.block = whole_block(kernel)
        self.uniform = Uniformity(kernel, roots)
        self.thread_vars = {var for var, _ in kernel.threads}
        self.positions = _positions(kernel)
        self.homes: dict[Var, Home] = {}
        self.demoted: set[Var] = set()
        self.allocated: set[Var] = set()
        self.scratch: dict[Var, Var] = {}
        self.parted: Stmt | None = None  # the statement around this point at which threads part
        self.lowered = False  # inside the program of a thread that a lowering made

    def run(self) -> KernelRegion:
        before: list[Stmt] = []
        if not isinstance(self.block.index, Var):
            thread = Var("thread", "int32")
            before.append(Bind(thread, self.block.index, self.kernel.span))
            self.block = whole_block(self.kernel, thread)
        for stmt in allocations(self.kernel.body).values():
            self.declare(stmt)
        if isinstance(self.block.index, Var):
            self.positions.add(self.block.index)
        body = self.stmt(self.kernel.body, self.block)
        tiles = [AllocBuffer(tile, {ANNOTATION_ALLOC: {FACT_SCRATCH: True}}, tile.span) for tile in self.scratch.values()]
        return self.kernel.with_body(seq([*before, *tiles, body]))

    def allocation(self, node: AllocBuffer) -> Stmt:
        """The registers of a fragment in its place, unless a lowering has had them allocated already."""
        home = self.homes.get(node.buffer)
        if home is not None:
            return seq([]) if home.registers in self.allocated else self.allocation(AllocBuffer(home.registers, None, node.span))
        if any(h.map.same_for_all and h.registers.same_as(node.buffer) for h in self.homes.values()):
            return AllocBuffer(node.buffer, {ANNOTATION_ALLOC: {FACT_REPLICATED: True}}, node.span)
        return node

    def declare(self, node: AllocBuffer) -> None:
        self.allocated.add(node.buffer)
        facts = dict((node.annotations or {}).get(ANNOTATION_ALLOC) or {})
        if FACT_DEMOTED in facts:
            self.demoted.add(node.buffer)
        if node.buffer.scope() != FRAGMENT:
            return
        plan = self.ctx.fragments.get(node.buffer) or default_plan(node.buffer, self.block.count)
        threads = self.block if plan.groups is None else part(self.block, plan.groups)
        member = () if plan.groups is None else (belongs(self.block, plan.groups),)
        found = register_map(plan.layout, threads.count)
        assert found is not None, f"{node.buffer.name}: a layout without formula was chosen"
        if knobs.verify:
            check_layout(str(node.buffer.name), plan, static_shape(node.buffer), threads.count)
        self.homes[node.buffer] = Home(found, plan.registers, threads, member)

    # ---------------------------------------------------------------- statements
    def stmt(self, node: Stmt, where: Threads) -> Stmt:
        """A statement that every thread of `where` executes."""
        if isinstance(node, SeqStmt):
            return seq([self.stmt(child, where) for child in node.seq])
        if is_nest(node):
            return self.nest(node, where)
        if isinstance(node, AllocBuffer):
            return self.allocation(node)
        if isinstance(node, DeclBuffer):
            return node
        if isinstance(node, AttrStmt):
            return self.attribute(node, where)
        if isinstance(node, For | While | IfThenElse):
            outer = self.parted
            if outer is None and not self.lowered and self.uniform.divergent(node):
                self.parted = node
            result = self.control(node, where)
            self.parted = outer
            return result
        return self.leaf(node, where)

    def control(self, node: For | While | IfThenElse, where: Threads) -> Stmt:
        if isinstance(node, For):
            low, extent = self.scalar(node.min), self.scalar(node.extent)
            return For(node.loop_var, low, extent, node.kind, self.stmt(node.body, where), node.thread_binding, node.annotations,
                       node.step, node.span)  # fmt: skip
        if isinstance(node, While):
            return While(self.scalar(node.condition), self.stmt(node.body, where), node.span)
        otherwise = self.stmt(node.else_case, where) if node.else_case is not None else None
        return IfThenElse(self.scalar(node.condition), self.stmt(node.then_case, where), otherwise, node.span)

    def require_all(self, node: Stmt) -> None:
        """A collective statement must be reached by all threads."""
        if self.parted is not None:
            at = location_of(self.parted)
            raise TileValueError(
                "a collective statement stands where not all threads of the block arrive: the condition around it differs between threads",
                at=location_of(node), notes=[(at, "threads part here")] if at is not None else [],
                remedy="make the condition depend on block indices or shared values only, or move the statement out",
            )  # fmt: skip

    def attribute(self, node: AttrStmt, where: Threads) -> Stmt:
        if node.attr_key == ATTR_WS:
            groups = groups_of(node)
            threads = part(self.block, groups)
            before: list[Stmt] = []
            if not isinstance(threads.index, Var):
                index = Var("thread_of_group", "int32")
                before.append(Bind(index, threads.index, node.span))
                threads = Threads(threads.count, index, threads.groups)
            body = seq([*before, self.stmt(node.body, threads)])
            return rebuild_body(node, body)
        if node.attr_key == ATTR_COLLECTIVE:
            self.require_all(node)
            if not self.of_threads(node.body):
                return self.once(node.body, where)
            self.lowered = True
            result = self.stmt(node.body, where)
            self.lowered = False
            return result
        return rebuild_body(node, self.stmt(node.body, where))

    def of_threads(self, body: Stmt) -> bool:
        """Is this lowered operator the program of a thread already (rather than a statement of the block)?"""
        if mentions(body, self.thread_vars):
            return True
        found: list[Any] = []

        def visit(call: Call) -> None:
            name = op_name(call)
            if name in BARRIERS or is_warp_call(call) or name.startswith(_OF_THREADS):
                found.append(call)

        walk(body, {Call: visit})
        return bool(found)

    def once(self, node: Stmt, where: Threads) -> Stmt:
        """A statement that the block executes once."""
        if isinstance(node, SeqStmt):
            return seq([self.once(child, where) for child in node.seq])
        if isinstance(node, Bind | AllocBuffer | DeclBuffer) or is_nest(node):
            return self.stmt(node, where)
        if isinstance(node, Evaluate) and isinstance(node.value, IntImm):
            return node
        if not _holds_nest(node):
            return self.nest(node, where)
        if isinstance(node, IfThenElse):
            otherwise = self.once(node.else_case, where) if node.else_case is not None else None
            return IfThenElse(self.scalar(node.condition), self.once(node.then_case, where), otherwise, node.span)
        return rebuild_body(node, self.once(node.body, where))

    # ---------------------------------------------------------------- statements of every thread
    def leaf(self, node: Stmt, where: Threads) -> Stmt:
        if isinstance(node, Evaluate) and op_name(node.value) == "tl.print" and self.printed_once(node.value):
            return self.nest(node, where)
        spread = [b for b, home in self.homes.items() if not home.map.same_for_all]
        if isinstance(node, BufferStore | Evaluate) and mentions(node, set(spread)):
            return self.nest(node, where)  # a nest without loops among the statements of a lowering
        result = self.scalar(node)
        if isinstance(node, BufferStore) and node.buffer in self.demoted and not self.lowered:
            return guarded(result, [_is_zero(where)], node.span)
        return result

    def printed_once(self, call: Call) -> bool:
        """A tile is printed by one thread, unless the program has chosen the threads that do."""
        scopes = {a.source.scope() for a in call.args if isinstance(a, TensorRegion)}
        return FRAGMENT in scopes or (self.parted is None and bool(scopes & set(SHARED_SCOPES)))

    def scalar(self, node: Any) -> Any:
        """A statement or expression of a thread, in which a fragment must be one that every thread holds whole."""
        return in_registers(node, self.homes)

    # ---------------------------------------------------------------- nests
    def nest(self, node: Stmt, where: Threads) -> Stmt:
        self.require_all(node)
        nest = read_nest(node, lambda b: b in self.homes, self.roots)
        if nest.outer_locals:
            return self.everywhere(nest, where)
        if self.uniform.mentions(node):
            return self.mapped(nest, where)
        carried = self.carried(nest)
        best: tuple[int, LoopLayout | None, Homes, list[Var]] | None = None
        for layout in self.layouts(nest, where, carried):
            homes, converted = self.places(nest, layout)
            cost = sum(self.homes[b].cost for b in converted) + layout.registers.registers * _iterations(layout.serial)
            if best is None or cost < best[0]:
                best = cost, layout, homes, converted
        spread = self.spread(nest, where, carried)
        if best is None or spread[0] < best[0]:
            best = spread
        _, layout, homes, converted = best
        homes.scratch = {buffer: self.scratch_of(buffer) for buffer in converted}
        if layout is None:
            width = 1 if carried else self.width(nest, where, homes)
            self.check(nest, where, lambda probe: over_block(probe, Homes(), where, carried, width))
            return self.with_conversions(nest, where, converted, over_block(nest, homes, where, carried, width))
        home = next(h for h in self.homes.values() if h.map is layout.registers)
        member = () if home.threads.groups == where.groups else home.member
        threads = where if not member else home.threads
        vectors = not layout.serial and (is_plain(nest) or is_update(nest.body))
        self.check(nest, where, lambda probe: over_registers(replace(layout, nest=probe), Homes(), threads, member, vectors))
        return self.with_conversions(nest, where, converted, over_registers(layout, homes, threads, member, vectors, self.positions))

    def check(self, nest: Nest, where: Threads, divided: Callable[[Nest], Stmt]) -> None:
        """Under `knobs.verify`: is every iteration of the nest executed once?"""
        extents = nest.static_extents
        if not knobs.verify or not extents or 0 in extents:
            return
        counter = decl_buffer(extents, "int32", "counter")
        probe = Nest(nest.loops, store(counter, const(1, "int32"), nest.vars), nest.span)
        first = np.arange(self.block.count)
        taking = first if where.groups is None else first[np.isin(first // GROUP, where.groups)]
        values: dict[Var, Any] = {}
        for var, extent in self.kernel.threads:
            values[var], taking = taking % extent, taking // extent
        check_coverage(divided(probe), counter, self.named(values, where), len(values[self.kernel.threads[0][0]]), self.what(nest))

    def named(self, values: dict[Var, Any], where: Threads) -> dict[Var, Any]:
        """The thread variables and the names that stand for linear indices."""
        (x, ex), (y, ey), (z, _) = self.kernel.threads
        linear = values[x] + ex * (values[y] + ey * values[z])
        named = {**values, **({self.block.index: linear} if isinstance(self.block.index, Var) else {})}
        if where.groups is not None and isinstance(where.index, Var) and not where.index.same_as(self.block.index):
            named[where.index] = np.arange(len(linear))
        return named

    def what(self, nest: Nest) -> str:
        return f"T.Parallel at {location_of(nest.loops[0] if nest.loops else nest.body)}"

    def width(self, nest: Nest, where: Threads, homes: Homes) -> int:
        """Neighbouring iterations for one thread: as many as make a vector, while all threads have work."""
        width, extents = vector_width(nest, set(self.homes) - set(homes.scratch)), nest.static_extents
        while extents is not None and width > 1 and math.prod(extents) < width * where.count:
            width //= 2
        return width

    def layouts(self, nest: Nest, where: Threads, carried: list[For]) -> list[LoopLayout]:
        """The loop layouts that follow a fragment of the nest."""
        found: list[LoopLayout] = []
        for access in nest.fragments:
            home = self.homes[access.buffer]
            once = nest.effects or nest.rereads
            if (home.map.replicated and once) or access.buffer in nest.whole or not self.reaches(home, where):
                continue
            layout = solve(nest, access, home.map, set())
            if layout is None or any(not any(f.same_as(s) for s in layout.serial) for f in carried):
                continue
            found.append(layout)
        return found

    def reaches(self, home: Home, where: Threads) -> bool:
        """Do all threads that hold the fragment execute this statement?"""
        return where.groups is None or where.groups == home.threads.groups

    def places(self, nest: Nest, layout: LoopLayout) -> tuple[Homes, list[Var]]:
        """Registers for the fragments whose elements the executing threads own; scratch tiles for the others."""
        homes, converted = Homes(), []
        for buffer in nest.buffers():
            home = self.homes[buffer]
            mine: list[tuple[Any, Var, Any]] = []
            for access in nest.fragments:
                if access.buffer.same_as(buffer):
                    place = owned_register(layout, access, home.map)
                    if place is None:
                        break
                    mine.append((access.node, home.registers, place))
            else:
                if buffer not in nest.whole:
                    homes.registers += mine
                    continue
            converted.append(buffer)
        return homes, converted

    def spread(self, nest: Nest, where: Threads, carried: Sequence[For]) -> tuple[int, LoopLayout | None, Homes, list[Var]]:
        """Iterations dealt out to the threads: only fragments that every thread holds stay in registers, if they are read at
        constant elements."""
        homes, converted = Homes(), []
        for buffer in nest.buffers():
            home = self.homes[buffer]
            mine = [a for a in nest.fragments if a.buffer.same_as(buffer)]
            everywhere = home.map.same_for_all and home.threads.groups == where.groups and buffer not in nest.whole
            if everywhere and all(map(_constant_read, mine)):
                for access in mine:
                    place = int(home.map.layout.forward([int(i) for i in access.indices], 0)[1])
                    homes.registers.append((access.node, home.registers, (place, ())))
                continue
            converted.append(buffer)
        extents = nest.static_extents
        count = math.prod(extents) if extents is not None else 1
        cost = sum(self.homes[b].cost for b in converted) + -(-count // where.count)
        return cost, None, homes, converted

    def scratch_of(self, buffer: Var) -> Var:
        if buffer not in self.scratch:
            name = f"{buffer.name}_scratch"
            self.scratch[buffer] = decl_buffer(static_shape(buffer), dtype_of(buffer), name, SHARED_DYN, alignment=16, span=buffer.span)
        return self.scratch[buffer]

    def with_conversions(self, nest: Nest, where: Threads, converted: Sequence[Var], body: Stmt) -> Stmt:
        before: list[Stmt] = []
        after: list[Stmt] = []
        for buffer in converted:
            home, tile = self.homes[buffer], self.scratch[buffer]
            if not self.reaches(home, where):
                raise TileValueError(
                    f"{buffer.name} lives on the threads of other groups than those of this statement",
                    at=location_of(nest.loops[0] if nest.loops else nest.body),
                    remedy="pass the values through a shared buffer",
                )
            member = () if home.threads.groups == where.groups else home.member
            threads = where if not member else home.threads
            if not overwrites(nest, buffer, static_shape(buffer)):
                before.append(to_scratch(home.map, home.registers, tile, threads, member, nest.span))
            if buffer in nest.whole or any(a.writes for a in nest.fragments if a.buffer.same_as(buffer)):
                after.append(from_scratch(home.map, home.registers, tile, threads, member, nest.span))
            self.ctx.note(
                location_of(nest.loops[0] if nest.loops else nest.body), "layout",
                f"{buffer.name} passes through shared memory: the loop runs on other threads than those that hold its elements",
            )  # fmt: skip
        return seq([*before, body, *after])

    def carried(self, nest: Nest) -> list[For]:
        """Loops whose iterations contribute to one element of a tile: they stay together in one thread, in order."""
        tiles = self.demoted | set(self.homes)
        if not self.demoted and not nest.fragments:
            return []
        found = read_nest(_as_stmt(nest), lambda b: b in tiles, self.roots)
        result: list[For] = []
        for access in found.fragments:
            if not access.writes or not any(a.reads and a.buffer.same_as(access.buffer) for a in found.fragments):
                continue
            shape = static_shape(access.buffer)
            identity = register_map(coalesced(shape, 128, 1), 1)
            assert identity is not None
            known = determined(found, access, identity)
            result += [f for f in nest.loops if f.loop_var not in known and not any(f.same_as(r) for r in result)]
        return result

    def everywhere(self, nest: Nest, where: Threads) -> Stmt:
        """The body writes memory that each thread has for itself: every thread executes all iterations."""
        converted = nest.buffers()
        homes = Homes(scratch={buffer: self.scratch_of(buffer) for buffer in converted})
        body = serial_loops(nest.loops, rewritten_body(nest, homes, None, [_is_zero(where)]), nest.span)
        return self.with_conversions(nest, where, converted, body)

    def mapped(self, nest: Nest, where: Threads) -> Stmt:
        """The body uses values that differ between threads: iteration number i belongs to thread number i."""
        extents = nest.static_extents
        if not nest.loops or extents is None or math.prod(extents) != where.count:
            raise TileValueError(
                f"a collective statement uses a value that differs between threads, and has not exactly one iteration for each of"
                f" the {where.count} threads",
                at=location_of(nest.loops[0] if nest.loops else nest.body),
                remedy="put the value into a shared buffer or fragment first, or loop over exactly one element per thread",
            )
        _, _, homes, converted = self.spread(nest, where, [])
        homes.scratch = {buffer: self.scratch_of(buffer) for buffer in converted}
        return self.with_conversions(nest, where, converted, over_block(nest, homes, where, []))


def _positions(kernel: KernelRegion) -> set[Var]:
    """Blocks, threads, loops, and names for values that are computed from these alone."""
    found = {var for var, _ in (*kernel.blocks, *kernel.threads)}

    def name(node: Bind) -> None:
        others: list[Any] = []
        walk(node.value, {Var: lambda v: others.append(v) if v not in found else None, (Call, TensorLoad): others.append})
        if not others:
            found.add(node.var)

    walk(kernel.body, {For: lambda loop: found.add(loop.loop_var), Bind: name})
    return found


def _as_stmt(nest: Nest) -> Stmt:
    return nest.loops[0] if nest.loops else nest.body


def _is_zero(where: Threads) -> Expr:
    return tirx.EQ(where.index, const(0, "int32"))


def _constant_read(access: FragmentAccess) -> bool:
    return not access.writes and all(isinstance(i, IntImm) for i in access.indices)


def _iterations(loops: Sequence[For]) -> int:
    """Iterations of serial loops; a guess for symbolic extents."""
    return math.prod(int(f.extent) if isinstance(f.extent, IntImm) else 64 for f in loops)


def _holds_nest(node: Stmt) -> bool:
    found: list[For] = []
    walk(node, {For: lambda f: found.append(f) if is_nest(f) else None})
    return bool(found)

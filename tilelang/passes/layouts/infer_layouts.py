"""Where the elements of every fragment live: one layout (element to thread and register) for each, chosen from its uses.

In: a TILE program. Out: the program, and `ctx.fragments`. In order of strictness: a layout that the user annotated; every
thread holds a fragment of one element; what the lowerings of matrix instructions ask for; the output of a reduction follows
its input, fragments of one loop follow each other; what is left is coalesced, the largest fragment first. A fragment that
no layout of registers can serve becomes a tile in shared memory, with a note: one whose elements are named by single
threads, seen through a view, or shared by different thread groups; and every reducer. Where the loops of a program wish
different layouts for one fragment, `partition_loops` converts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.access import accesses, allocations, view_roots
from ...ir.context import FragmentPlan, PassContext
from ...ir.dialect import (
    ANNOTATION_ALLOC,
    ANNOTATION_PARALLEL,
    ATTR_WS,
    FACT_DEMOTED,
    FRAGMENT,
    GLOBAL,
    LOCAL,
    REDUCER,
    SHARED_DYN,
    op_info,
    op_name,
    tile_call,
)  # fmt: skip
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    IntImm,
    PrimFunc,
    Span,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    decl_buffer,
    dtype_of,
    ffi,
    is_buffer,
    location_of,
    static_shape,
    tvm,
)  # fmt: skip
from ...layout.fragment import Fragment
from ...tileop import TILE_OPS
from ...tileop.base import LowerContext
from ..analysis.nests import Nest, is_nest, read_nest
from ..analysis.thread_groups import Threads, groups_of, part, whole_block
from .coalescing import coalesced, replicated
from .layout_rules import annotated, joined, reduced
from .register_maps import RegisterMap, register_map

MAX_REPLICATED = 16  # elements of a fragment that every thread may hold whole


def infer_layouts(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Choose the layouts of all fragments of `func`."""
    return func.with_body(map_kernels(func.body, lambda kernel: _Inference(kernel, ctx).run().to_stmt()))


_ELEMENTWISE = {o.op: o for o in TILE_OPS if o.op in ("tl.tileop.copy", "tl.tileop.transpose")}


@dataclass(frozen=True)
class _Operator:
    """A tile operator, the thread groups that execute it (None: the block) and its position."""

    call: Call
    groups: tuple[int, ...] | None
    span: Span | None


class _Uses:
    """How a kernel uses its fragments. groups: the thread groups around each use (None: the block). scalar: fragments with
    elements named by single threads, and whether always by constants. exposed: seen through a view or by address.
    operators, nests: in program order."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.groups: dict[Var, set[tuple[int, ...] | None]] = {}
        self.scalar: dict[Var, bool] = {}
        self.exposed: set[Var] = set()
        self.where: tuple[int, ...] | None = None
        self.collective = 0
        self.operators: list[_Operator] = []
        self.nests: list[For] = []
        ffi.structural_visit(kernel.body, [
            (AttrStmt, self.attribute), (For, self.loop), (BufferStore, self.store), (TensorLoad, self.load), (Call, self.call),
            (TensorRegion, self.region), (DeclBuffer, self.view), (Evaluate, self.evaluate), (AllocBuffer, lambda node, visitor: None),
        ])  # fmt: skip

    def attribute(self, node: AttrStmt, visitor: Any) -> None:
        outer = self.where
        if node.attr_key == ATTR_WS:
            self.where = groups_of(node)
        visitor.visit(node.body)
        self.where = outer

    def loop(self, node: For, visitor: Any) -> None:
        visitor.visit(node.min)
        visitor.visit(node.extent)
        if is_nest(node) and not self.collective:
            self.nests.append(node)
        self.collective += is_nest(node)
        visitor.visit(node.body)
        self.collective -= is_nest(node)

    def note(self, buffer: Var, indices: Any = None) -> None:
        self.groups.setdefault(buffer, set()).add(self.where)
        if not self.collective and indices is not None:
            constant = all(isinstance(i, IntImm) for i in indices)
            self.scalar[buffer] = self.scalar.get(buffer, True) and constant

    def store(self, node: BufferStore, visitor: Any) -> None:
        self.note(node.buffer, node.indices)
        visitor.default_visit(node)

    def load(self, node: TensorLoad, visitor: Any) -> None:
        self.note(node.source, node.indices)
        visitor.default_visit(node)

    def region(self, node: TensorRegion, visitor: Any) -> None:
        self.note(node.source)
        visitor.default_visit(node)

    def view(self, node: DeclBuffer, visitor: Any) -> None:
        ffi.structural_walk(node.data, [(Var, lambda v: self.exposed.add(v) if is_buffer(v) else None)])

    def evaluate(self, node: Evaluate, visitor: Any) -> None:
        if tile_call(node) is not None and not self.collective:
            self.operators.append(_Operator(node.value, self.where, node.span))
        visitor.default_visit(node)

    def call(self, node: Call, visitor: Any) -> None:
        entry = op_info(node)
        for arg in node.args:
            if isinstance(arg, Var) and is_buffer(arg) and entry is None:
                self.exposed.add(arg)
            elif isinstance(arg, TensorLoad) and entry is None and not str(getattr(node.op, "name", "")).startswith("prim."):
                self.address(node, arg)
        visitor.default_visit(node)

    def address(self, node: Call, arg: TensorLoad) -> None:
        if getattr(node.op, "name", "") in ("tirx.address_of", "tirx.tvm_access_ptr", "tirx.tvm_thread_allreduce"):
            self.exposed.add(arg.source)


class _Inference:
    """The choices for one kernel region. chosen: layouts with their formulas, in the order in which they were found."""

    def __init__(self, kernel: KernelRegion, ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.block = whole_block(kernel)
        self.roots = view_roots(kernel.body)
        self.uses = _Uses(kernel)
        self.allocations = {b: s for b, s in allocations(kernel.body).items() if b.scope() in (FRAGMENT, REDUCER)}
        self.chosen: dict[Var, RegisterMap] = {}
        self.open: dict[Var, AllocBuffer] = {}
        self.tried: set[tuple[Any, Any]] = set()  # pairs of accesses of which the second did not follow the first

    def run(self) -> KernelRegion:
        demoted: dict[Var, str] = {}
        for buffer, stmt in self.allocations.items():
            reason = self.unfit(buffer)
            if reason is None:
                self.open[buffer] = stmt
                continue
            demoted[buffer] = reason
            if buffer.scope() == FRAGMENT:
                self.ctx.note(location_of(stmt), "layout", f"{buffer.name} lives in shared memory: {reason}")
        self.choose()
        for buffer, found in self.chosen.items():
            stmt, name = self.allocations[buffer], str(buffer.name)
            registers = decl_buffer((found.registers,), dtype_of(buffer), name, LOCAL, alignment=16, span=stmt.span)
            self.ctx.fragments[buffer] = FragmentPlan(found.layout, registers, self.threads_of(buffer).groups)
        return _demote(self.kernel, demoted) if demoted else self.kernel

    def unfit(self, buffer: Var) -> str | None:
        """Why no layout of registers can serve this buffer."""
        if buffer.scope() == REDUCER:
            return "a reducer"
        if buffer in self.uses.exposed:
            return "it is used through a view or by address"
        groups = self.uses.groups.get(buffer, set())
        if len(groups - {None}) > 1:
            return "different groups of threads use it"
        size = math.prod(static_shape(buffer))
        if buffer in self.uses.scalar:
            if None in groups and len(groups) > 1:
                return "a group of threads and the whole block use it"
            if size > MAX_REPLICATED or not (self.uses.scalar[buffer] or size == 1):
                return "single elements of it are named outside of T.Parallel"
        return None

    def threads_of(self, buffer: Var) -> Threads:
        groups = [g for g in self.uses.groups.get(buffer, ()) if g is not None]
        return part(self.block, groups[0]) if groups else self.block

    # ---------------------------------------------------------------- the order of choices
    def choose(self) -> None:
        for buffer, stmt in list(self.open.items()):
            self.from_user(buffer, stmt)
        for buffer in list(self.open):
            shape = static_shape(buffer)
            if buffer in self.uses.scalar or math.prod(shape) == 1:
                self.take(buffer, replicated(shape, self.threads_of(buffer).count))
        for use in self.uses.operators:
            self.from_lowerings(use)
        nests = [n for n in (self.nest_of(stmt) for stmt in self.loops()) if len(n.buffers()) > 1]
        narrowest = self.narrowest()
        while self.open:
            if not (self.follow_reductions() or any(self.follow_loops(n) for n in nests)):
                buffer = max(self.open, key=lambda b: math.prod(static_shape(b)))
                self.take(buffer, coalesced(static_shape(buffer), narrowest[buffer], self.threads_of(buffer).count))

    def narrowest(self) -> dict[Var, int]:
        """For each fragment the bits of the narrowest element among its own and those of the tensors in global memory that one loop or copy
        moves to or from it: a thread's run of elements must be 16 bytes of these, too."""
        found = {b: _bits(b) for b in self.open}
        statements = [Evaluate(use.call) for use in self.uses.operators if op_name(use.call) in _ELEMENTWISE]
        for stmt in (*statements, *self.uses.nests):
            touched = {a.buffer for a in accesses(stmt, self.roots) if is_buffer(a.buffer)}
            narrow = min((_bits(b) for b in touched if b.scope() == GLOBAL), default=0)
            for fragment in touched & set(found) if narrow else ():
                found[fragment] = min(found[fragment], narrow)
        return found

    def take(self, buffer: Var, layout: Fragment | None) -> bool:
        """Choose this layout, if the buffer has none yet and it fits the buffer's threads and has formulas."""
        if layout is None or buffer not in self.open or tuple(layout.shape) != static_shape(buffer):
            return False
        threads = self.threads_of(buffer).count
        found = register_map(layout, threads) if layout.get_thread_size() <= threads else None
        if found is None:
            return False
        self.chosen[buffer] = found
        del self.open[buffer]
        return True

    def from_user(self, buffer: Var, stmt: AllocBuffer) -> None:
        facts = dict((stmt.annotations or {}).get(ANNOTATION_ALLOC) or {})
        if "layout" in facts and not self.take(buffer, annotated(facts, static_shape(buffer))):
            count = self.threads_of(buffer).count
            text = f"the annotated layout of {buffer.name} does not fit {count} threads or has no formula; another one is used"
            self.ctx.note(location_of(stmt), "layout", text)

    def from_lowerings(self, use: _Operator) -> None:
        for lowering in self.ctx.lowerings:
            if lowering.op == op_name(use.call) and lowering.layouts is not None:
                for buffer, layout in lowering.layouts(use.call, self.context(use)).items():
                    if self.threads_of(buffer).groups == use.groups:
                        self.take(buffer, layout)

    def context(self, use: _Operator) -> LowerContext:
        return LowerContext(self.ctx, self.kernel, use.span, False, self.roots, groups=use.groups)

    # ---------------------------------------------------------------- what follows from chosen layouts
    def follow_reductions(self) -> bool:
        progress = False
        for use in self.uses.operators:
            if op_name(use.call) == "tl.tileop.reduce":
                src, out = use.call.args
                same = self.threads_of(src.source).groups == self.threads_of(out.source).groups
                if src.source in self.chosen and out.source in self.open and same:
                    layout = reduced(self.chosen[src.source].layout, src, out, int(use.call.attrs["dim"]))
                    progress |= self.take(out.source, layout)
        return progress

    def loops(self) -> list[For]:
        """The program's own nests, and those of operators that move or combine tiles element by element."""
        found = list(self.uses.nests)
        for use in self.uses.operators:
            sources = {a.source for a in use.call.args if isinstance(a, TensorRegion)}
            if op_name(use.call) in _ELEMENTWISE and len(sources & set(self.allocations)) > 1:
                stmt = _ELEMENTWISE[op_name(use.call)].lower(use.call, self.context(use))
                walk(stmt, {For: lambda f: found.append(f) if is_nest(f) and ANNOTATION_PARALLEL in (f.annotations or {}) else None})
        return found

    def nest_of(self, stmt: For) -> Nest:
        return read_nest(stmt, lambda b: b in self.open or b in self.chosen, self.roots)

    def follow_loops(self, nest: Nest) -> bool:
        """Let the fragments of a nest that have no layout follow one that has: what it writes first, then the largest."""
        leaders = [a for a in nest.fragments if a.buffer in self.chosen]
        followers = [a for a in nest.fragments if a.buffer in self.open]
        if not leaders or not followers:
            return False
        leaders.sort(key=lambda a: (not a.writes, -math.prod(static_shape(a.buffer))))
        for follower in followers:
            for leader in leaders:
                pair = (leader.node, follower.node)
                if pair in self.tried or self.threads_of(leader.buffer).groups != self.threads_of(follower.buffer).groups:
                    continue
                self.tried.add(pair)
                if self.take(follower.buffer, joined(nest, leader, self.chosen[leader.buffer], follower)):
                    return True
        return False


def _bits(buffer: Var) -> int:
    return max(8, tvm.DataType(dtype_of(buffer)).bits)


def _demote(kernel: KernelRegion, demoted: Mapping[Var, str]) -> KernelRegion:
    """The kernel with these fragments, and views of them, in shared memory."""
    table = {b: _shared(b) for b in demoted}
    views: list[DeclBuffer] = []
    ffi.structural_walk(kernel.body, [(DeclBuffer, views.append)])
    for stmt in views:
        if stmt.buffer.scope() in (FRAGMENT, REDUCER):
            table[stmt.buffer] = _shared(stmt.buffer)
    reasons = {table[b]: reason for b, reason in demoted.items()}

    def on_alloc(node: AllocBuffer, descend: Descend) -> Stmt:
        if node.buffer not in reasons:
            return node
        facts = dict((node.annotations or {}).get(ANNOTATION_ALLOC) or {})
        facts.pop("layout", None)
        facts[FACT_DEMOTED] = reasons[node.buffer]
        return AllocBuffer(node.buffer, {**(node.annotations or {}), ANNOTATION_ALLOC: facts}, node.span)

    body = rewrite(substitute(kernel.body, table), {AllocBuffer: on_alloc})
    annotations = {key: _renamed(value, table) for key, value in kernel.annotations.items()}
    return KernelRegion(kernel.blocks, kernel.threads, body, annotations, kernel.span)


def _shared(buffer: Var) -> Var:
    return decl_buffer(static_shape(buffer), dtype_of(buffer), str(buffer.name), SHARED_DYN, alignment=16, span=buffer.span)


def _renamed(value: Any, table: Mapping[Var, Var]) -> Any:
    """An annotation whose keys may be buffers."""
    if not hasattr(value, "items"):
        return value
    return {table.get(k, k) if isinstance(k, Var) else k: v for k, v in value.items()}

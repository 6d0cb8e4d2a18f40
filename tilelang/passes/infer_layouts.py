"""Where the elements of every fragment live: one layout (element to thread and register) for each, chosen from its uses.

In: a TILE program. Out: the program, and `ctx.fragments`. In order of strictness: a layout that the user annotated; what the
lowerings of matrix instructions ask for; every thread holds a fragment of one element; otherwise neighbouring threads hold
neighbouring vectors. A fragment that no layout of registers can serve becomes a tile in shared memory, with a note: one
whose elements are named by single threads, seen through a view, or shared by different thread groups; and every reducer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..ir.access import allocations
from ..ir.context import FragmentPlan, PassContext
from ..ir.dialect import (
    ANNOTATION_ALLOC,
    ATTR_WS,
    FRAGMENT,
    LOCAL,
    REDUCER,
    SHARED_DYN,
    op_info,
)  # fmt: skip
from ..ir.evaluate import evaluate
from ..ir.kernel import KernelRegion, map_kernels
from ..ir.rewrite import Descend, rewrite, substitute
from ..ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    BufferStore,
    Call,
    DeclBuffer,
    For,
    IntImm,
    PrimFunc,
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
from ..layout import LayoutError
from ..layout.fragment import Fragment
from .coalescing import coalesced, replicated
from .nests import is_nest
from .partition_loops import DEMOTED
from .register_maps import register_map
from .thread_groups import Threads, groups_of, part, whole_block

MAX_REPLICATED = 16  # elements of a fragment that every thread may hold whole


def infer_layouts(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Choose the layouts of all fragments of `func`."""
    return func.with_body(map_kernels(func.body, lambda kernel: _Inference(kernel, ctx).run().to_stmt()))


class _Uses:
    """How a kernel uses its fragments. groups: the thread groups around each use (None: the block). scalar: fragments with
    elements named by single threads, and whether always by constants. exposed: seen through a view or by address."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.groups: dict[Var, set[tuple[int, ...] | None]] = {}
        self.scalar: dict[Var, bool] = {}
        self.exposed: set[Var] = set()
        self.where: tuple[int, ...] | None = None
        self.collective = 0
        ffi.structural_visit(kernel.body, [
            (AttrStmt, self.attribute), (For, self.loop), (BufferStore, self.store), (TensorLoad, self.load),
            (TensorRegion, self.region), (DeclBuffer, self.view), (Call, self.call), (AllocBuffer, lambda node, visitor: None),
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
    """The choices for one kernel region."""

    def __init__(self, kernel: KernelRegion, ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.block = whole_block(kernel)
        self.uses = _Uses(kernel)
        self.allocations = {b: s for b, s in allocations(kernel.body).items() if b.scope() in (FRAGMENT, REDUCER)}

    def run(self) -> KernelRegion:
        demoted: dict[Var, str] = {}
        for buffer, stmt in self.allocations.items():
            reason = self.unfit(buffer)
            if reason is not None:
                demoted[buffer] = reason
                if buffer.scope() == FRAGMENT:
                    self.ctx.note(location_of(stmt), "layout", f"{buffer.name} lives in shared memory: {reason}")
                continue
            threads = self.threads_of(buffer)
            layout = self.choose(buffer, stmt, threads)
            name, count = str(buffer.name), layout.get_register_size()
            registers = decl_buffer((count,), dtype_of(buffer), name, LOCAL, alignment=16, span=stmt.span)
            self.ctx.fragments[buffer] = FragmentPlan(layout, registers, threads.groups)
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
        groups = self.uses.groups.get(buffer, set()) - {None}
        return part(self.block, next(iter(groups))) if groups else self.block

    def choose(self, buffer: Var, stmt: AllocBuffer, threads: Threads) -> Fragment:
        shape = static_shape(buffer)
        if buffer in self.uses.scalar or math.prod(shape) == 1:
            return replicated(shape, threads.count)
        facts = dict((stmt.annotations or {}).get(ANNOTATION_ALLOC) or {})
        if "layout" in facts:
            given = annotated(facts, shape)
            if given.get_thread_size() <= threads.count and register_map(given, threads.count) is not None:
                return given
            text = f"the annotated layout of {buffer.name} does not fit {threads.count} threads or has no formula; another one is used"
            self.ctx.note(location_of(stmt), "layout", text)
        return coalesced(shape, tvm.DataType(dtype_of(buffer)).bits, threads.count)


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
        return Fragment(shape, place, replicate=copies)
    except LayoutError as err:  # pragma: no cover - checked when it was annotated
        raise AssertionError(f"annotated layout: {err}") from err


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
        return AllocBuffer(node.buffer, {**(node.annotations or {}), ANNOTATION_ALLOC: {**facts, DEMOTED: reasons[node.buffer]}}, node.span)

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

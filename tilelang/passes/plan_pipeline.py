"""T.Pipelined with n stages: copies into shared memory are issued n - 1 iterations before the iteration that uses them.

In: a TILE program. Out: the same program in which each tile filled by such a copy has n versions (n times as many rows) and

    for d in range(n - 1):  if d < trips: copy of iteration d;  commit
    for k in ...:  wait until the copies of k have landed;  barrier;  if k + n - 1 < trips: copy of iteration k + n - 1;  commit;  the rest
    wait for all

A copy moves only if nothing can tell: its tile is whole, written by it alone, read after it in the same body and nowhere else; its
source, and all that its indices and conditions read, are not written in the loop. Everything else, and every copy that cannot
be asynchronous, stays at its place; a loop without a copy that moves stays serial. Both are told in a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.access import Access, accesses, allocations, view_roots
from ..ir.context import PassContext
from ..ir.dialect import (
    ANNOTATION_ALLOC,
    ANNOTATION_PIPELINE,
    ATTR_WS,
    FACT_SCRATCH,
    SHARED_SCOPES,
    attr,
    make_call,
    op_name,
    tile_call,
)  # fmt: skip
from ..ir.dtypes import dtype
from ..ir.kernel import KernelRegion, map_kernels, rebuild_body
from ..ir.rewrite import Descend, rewrite, substitute, walk
from ..ir.tvm_api import (
    AllocBuffer,
    Analyzer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
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
    call,
    const,
    decl_buffer,
    dtype_of,
    is_buffer,
    is_expr,
    load,
    location_of,
    region,
    seq,
    shape_of,
    store,
    tirx,
)  # fmt: skip
from ..target.limits import shared_bytes
from .async_chunks import chunk_elements
from .facts import holds_load
from .uniformity import LEAVE

_COPY = "tl.tileop.copy"
_SUBJECT = "pipeline"


def plan_pipeline(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Pipeline the loops of every kernel region that say so."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _Pipeliner(kernel, roots, ctx).run().to_stmt()))


@dataclass(frozen=True)
class _Moved:
    """A copy that is issued ahead. call: with names of the body replaced by their values."""

    stmt: Stmt
    call: Call
    tile: Var
    versions: Var


class _Pipeliner:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext) -> None:
        self.kernel, self.roots, self.ctx = kernel, roots, ctx
        self.views = set(roots) | set(roots.values())
        self.allocs = allocations(kernel.body)
        self.uses: dict[Var, list[Access]] = {}
        for access in accesses(kernel.body, roots):
            self.uses.setdefault(access.root, []).append(access)
        self.bytes = sum(_bytes(v) for v in self.allocs if v.scope() in SHARED_SCOPES)
        self.replaced: dict[Var, Var] = {}
        self.in_group: set[Var] = set()  # variables of loops inside T.ws
        walk(kernel.body, {AttrStmt: self._note_group})

    def _note_group(self, node: AttrStmt) -> None:
        if node.attr_key == ATTR_WS:
            walk(node, {For: lambda loop: self.in_group.add(loop.loop_var)})

    def run(self) -> KernelRegion:
        body = rewrite(self.kernel.body, {For: self.loop})
        if not self.replaced:
            return self.kernel.with_body(body)

        def allocate(stmt: AllocBuffer, _: Descend) -> Stmt:
            versions = self.replaced.get(stmt.buffer)
            return stmt if versions is None else AllocBuffer(versions, _without_layout(stmt.annotations), stmt.span)

        return self.kernel.with_body(rewrite(body, {AllocBuffer: allocate}))

    def loop(self, node: For, descend: Descend) -> Stmt:
        node = rebuild_body(node, descend(node.body))
        facts = dict((node.annotations or {}).get(ANNOTATION_PIPELINE, {}))
        stages = int(facts.get("num_stages", 0))
        if stages < 2:
            return node
        at = location_of(node)
        if _manual(self.kernel.body) or _leaves(node.body):
            self.ctx.note(at, _SUBJECT, "serial: the kernel waits for copies itself, or leaves the loop early")
            return node
        return _Loop(self, node).pipelined(stages)


class _Loop:
    """One loop: which copies move, and the code with them moved."""

    def __init__(self, owner: _Pipeliner, node: For) -> None:
        self.owner, self.node = owner, node
        self.condition: Expr | None = None
        body = node.body
        if isinstance(body, IfThenElse) and body.else_case is None:
            self.condition, self.guard, body = body.condition, body, body.then_case
        self.stmts = list(body.seq) if isinstance(body, SeqStmt) else [body]
        self.accesses = [accesses(stmt, owner.roots) for stmt in self.stmts]
        everything = accesses(node.body, owner.roots)
        self.count: dict[Var, int] = {}
        for access in everything:
            self.count[access.root] = self.count.get(access.root, 0) + 1
        self.written = {a.root for a in everything if a.writes}
        self.values: dict[Var, Expr] = {}  # names bound in the body, as values that an earlier iteration can compute
        self.names: set[Var] = set()
        walk(body, {Bind: lambda bind: self.names.add(bind.var), For: lambda loop: self.names.add(loop.loop_var)})

    def pipelined(self, stages: int) -> Stmt:
        ctx, at = self.owner.ctx, location_of(self.node)
        if self.condition is not None and not self._ahead(self.condition):
            ctx.note(at, _SUBJECT, "serial: the condition around the body may change from one iteration to the next")
            return self.node
        found = [m for k, stmt in enumerate(self.stmts) if (m := self._movable(k, stmt)) is not None]
        while stages > 1 and found and self.owner.bytes + (stages - 1) * sum(_bytes(t) for _, _, t in found) > shared_bytes(ctx.target):
            stages -= 1
        if not found or stages < 2:
            reason = "shared memory has no room for a second version" if found else "no copy can be issued ahead"
            ctx.note(at, _SUBJECT, f"serial: {reason}")
            return self.node
        self.owner.bytes += (stages - 1) * sum(_bytes(tile) for _, _, tile in found)
        moved = [_Moved(stmt, moved_call, tile, _versions(tile, stages)) for stmt, moved_call, tile in found]
        self.owner.replaced.update({m.tile: m.versions for m in moved})
        ctx.note(at, _SUBJECT, f"{stages} stages of {', '.join(str(m.tile.name) for m in moved)}")
        return self._code(moved, stages)

    # ---------------------------------------------------------------- what may move
    def _movable(self, position: int, stmt: Stmt) -> tuple[Stmt, Call, Var] | None:
        if isinstance(stmt, Bind):
            if is_expr(stmt.value) and self._ahead(stmt.value):
                self.values[stmt.var] = substitute(stmt.value, self.values)
            return None
        copied = tile_call(stmt)
        if copied is None or op_name(copied) != _COPY or copied.args[1].source.scope() not in SHARED_SCOPES:
            return None
        reason = self._why_not(position, copied)
        if reason:
            self.owner.ctx.note(location_of(stmt), _SUBJECT, f"stays at its place: {reason}")
            return None
        return stmt, substitute(copied, self.values), copied.args[1].source

    def _why_not(self, position: int, copied: Call) -> str:
        source, target = copied.args[0], copied.args[1]
        tile = target.source
        if tile in self.owner.views or tile not in self.owner.allocs:
            return f"{tile.name} has other names"
        if not _whole(target):
            return f"it fills a part of {tile.name}"
        if any(not self._ahead(r.min) for r in source.region):
            return "its source depends on what the loop computes"
        root = self.owner.roots.get(source.source, source.source)
        if root in self.written or any(not is_buffer(v) for v in self.written) or not is_buffer(root):
            return f"{source.source.name} may be written in the loop"
        uses = self.owner.uses[tile]
        if len(uses) != self.count.get(tile, 0):
            return f"{tile.name} is used outside of the loop"
        if any(a.ranges is None for a in uses) or sum(a.writes for a in uses) != 1:
            return f"{tile.name} is written by others as well"
        if any(a.root.same_as(tile) for before in self.accesses[:position] for a in before):
            return f"{tile.name} is read before it is filled"
        if self.condition is not None and any(a.root.same_as(tile) for a in accesses(self.condition, self.owner.roots)):
            return f"{tile.name} is read by the condition around"
        chunk = chunk_elements(copied, self.owner.kernel)
        return chunk if isinstance(chunk, str) else ""

    def _ahead(self, expr: Any) -> bool:
        """Has the expression the same value when an earlier iteration computes it?"""
        if not is_expr(expr):
            return True
        expr = substitute(expr, self.values)
        names: list[Var] = []
        opaque: list[Call] = []
        walk(expr, {Var: names.append, Call: lambda c: opaque.append(c) if not _is_plain(c) else None})
        if opaque or any(v in self.names for v in names):
            return False
        read = accesses(expr, self.owner.roots)
        return not any(a.root in self.written or a.ranges is None for a in read) and (not read or all(is_buffer(v) for v in self.written))

    # ---------------------------------------------------------------- the code
    def _code(self, moved: Sequence[_Moved], stages: int) -> Stmt:
        node, span = self.node, self.node.span
        low, extent, var = node.min, node.extent, node.loop_var
        kind = dtype_of(var)
        number = var if _is_zero(low) else var - low
        prologue: list[Stmt] = []
        for d in range(stages - 1):
            ahead = const(d, kind)
            copies = self._copies(moved, low + ahead if not _is_zero(low) else ahead, ahead, stages)
            prologue += [self._inside(copies, ahead, extent), _commit(span)]
        following = number + const(stages - 1, kind)
        copies = self._copies(moved, var + const(stages - 1, kind), following, stages)
        rest = [stmt for stmt in self.stmts if not any(stmt.same_as(m.stmt) for m in moved)]
        body: Stmt = _with_version(seq(rest), {m.tile: m.versions for m in moved}, tirx.floormod(number, const(stages, kind)))
        if self.condition is not None:
            body = IfThenElse(self.condition, body, None, self.guard.span)
        meet = [] if var in self.owner.in_group else [Evaluate(make_call("tl.sync_threads", [], span=span), span)]
        body = seq([_wait(stages - 2, span), *meet, self._inside(copies, following, extent), _commit(span), body])
        return seq([*prologue, For(var, low, extent, node.kind, body, node.thread_binding, None, node.step, span), _wait(0, span)])

    def _inside(self, copies: Stmt, number: Expr, extent: Expr) -> Stmt:
        if isinstance(number, IntImm) and isinstance(extent, IntImm):
            return copies if int(number) < int(extent) else seq([])
        return IfThenElse(tirx.LT(number, extent), copies, None, self.node.span)

    def _copies(self, moved: Sequence[_Moved], iteration: Expr, number: Expr, stages: int) -> Stmt:
        """The copies of one iteration, into its versions."""
        version = tirx.floormod(number, const(stages, dtype_of(number)))
        if isinstance(number, IntImm):
            version = const(int(number) % stages, dtype_of(number))
        stmts: list[Stmt] = []
        for m in moved:
            source, target = m.call.args[0], m.call.args[1]
            source = _simpler(substitute(source, {self.node.loop_var: iteration}))
            attrs = {**dict(m.call.attrs or {}), "async": 1}
            stmts.append(Evaluate(call(m.call.op, [source, _region(target, m.versions, version)], "void", attrs), m.stmt.span))
        if self.condition is None:
            return seq(stmts)
        condition = substitute(substitute(self.condition, self.values), {self.node.loop_var: iteration})
        return IfThenElse(condition, seq(stmts), None, self.guard.span)


def _simpler(block: TensorRegion) -> TensorRegion:
    """The same block with constants folded in its indices."""
    prover = Analyzer()
    return region(block.source, [m if holds_load(m) else prover.simplify(m) for m in (r.min for r in block.region)],
                  [r.extent for r in block.region])  # fmt: skip


def _commit(span: Any) -> Stmt:
    return Evaluate(make_call("tl.cp_async_commit", [], span=span), span)


def _wait(left: int, span: Any) -> Stmt:
    return Evaluate(make_call("tl.cp_async_wait", [const(left, "int32")], span=span), span)


# ---------------------------------------------------------------- versions of a tile
def _versions(tile: Var, stages: int) -> Var:
    """A buffer with `stages` times as many rows."""
    first, *others = shape_of(tile)
    return decl_buffer((first * stages, *others), dtype_of(tile), str(tile.name), tile.scope(), alignment=64, span=tile.span)


def _row(tile: Var, version: Expr, index: Any) -> Expr:
    step = version * const(int(shape_of(tile)[0]), dtype_of(version))
    if isinstance(version, IntImm):
        step = const(int(version) * int(shape_of(tile)[0]), dtype_of(version))
        if int(step) == 0:
            return index
    if _is_zero(index):
        return step
    if dtype_of(index) != dtype_of(step):
        step = tirx.Cast(dtype_of(index), step)
    return step + index


def _region(block: TensorRegion, versions: Var, version: Expr) -> TensorRegion:
    first, *others = block.region
    return region(versions, [_row(block.source, version, first.min), *(r.min for r in others)], [first.extent, *(r.extent for r in others)])


def _with_version(stmt: Stmt, table: Mapping[Var, Var], version: Expr) -> Stmt:
    """`stmt` with every access to a tile directed to one of its versions."""

    def on_load(node: TensorLoad, descend: Descend) -> Expr:
        if node.source not in table:
            return descend.children(node)
        first, *others = (descend(i) for i in node.indices)
        return load(table[node.source], [_row(node.source, version, first), *others], node.span)

    def on_store(node: BufferStore, descend: Descend) -> Stmt:
        if node.buffer not in table:
            return descend.children(node)
        first, *others = (descend(i) for i in node.indices)
        return store(table[node.buffer], descend(node.value), [_row(node.buffer, version, first), *others], node.span)

    def on_region(node: TensorRegion, descend: Descend) -> Expr:
        return _region(node, table[node.source], version) if node.source in table else descend.children(node)

    return rewrite(stmt, {TensorLoad: on_load, BufferStore: on_store, TensorRegion: on_region})


def _without_layout(annotations: Any) -> dict[str, Any]:
    """A layout of the tile is none of its versions. The user's own barriers know nothing of them: they count as scratch."""
    found = dict(annotations or {})
    facts = {k: v for k, v in dict(found.get(ANNOTATION_ALLOC, {})).items() if k != "layout"}
    return {**found, ANNOTATION_ALLOC: {**facts, FACT_SCRATCH: True}}


# ---------------------------------------------------------------- small questions
def _bytes(buffer: Var) -> int:
    shape = shape_of(buffer)
    if not all(isinstance(e, int) for e in shape):
        return 0
    element = dtype(dtype_of(buffer))
    return math.prod(shape) * max(element.bits, 8) * element.lanes // 8


def _whole(block: TensorRegion) -> bool:
    return all(
        _is_zero(r.min) and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(block.region, shape_of(block.source), strict=True)
    )


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | IntImm) and int(value) == 0


def _is_plain(node: Call) -> bool:
    """A call without effects of its own."""
    name = op_name(node)
    return name in ("prim.if_then_else", "prim.likely") or name.rpartition(".")[2].startswith(("bitwise_", "shift_"))


def _leaves(body: Stmt) -> bool:
    """Does it hold a break or continue, of this loop or of one inside?"""
    found: list[Call] = []
    walk(body, {Call: lambda c: found.append(c) if op_name(c) in LEAVE else None})
    return bool(found)


def _manual(body: Stmt) -> bool:
    """Does the program count groups of asynchronous copies itself?"""
    found: list[Call] = []

    def visit(node: Call) -> None:
        what = str(attr(node, "what", "")) if op_name(node) == "tl.hint" else ""
        if what in ("ptx_commit_group", "ptx_wait_group") or op_name(node) == "tl.cp_async":
            found.append(node)

    walk(body, {Call: visit})
    return bool(found)

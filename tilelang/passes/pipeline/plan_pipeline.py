"""T.Pipelined with n stages: copies into shared memory are issued n - 1 iterations before the iteration that uses them.

In: a TILE program. Out: the same program in which each tile filled by such a copy has n versions (n times as many rows) and

    for d in range(n - 1):  if d < trips: copy of iteration d;  commit
    for k in ...:  wait until the copies of k have landed;  barrier;  if k + n - 1 < trips: copy of iteration k + n - 1;  commit;  the rest
    wait for all

Which copies move is said in `pipeline_copies`. Everything else, and every copy that cannot be asynchronous, stays at its place; a
loop without a copy that moves stays serial. Both are told in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.access import view_roots
from ...ir.context import PassContext
from ...ir.dialect import ATTR_WS, SHARED_SCOPES, attr, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AttrStmt,
    Call,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    Stmt,
    Var,
    call,
    const,
    dtype_of,
    location_of,
    seq,
    tirx,
)  # fmt: skip
from ...target.limits import shared_bytes
from .async_chunks import chunk_elements
from .pipeline_copies import (
    SUBJECT,
    KernelCopies,
    LoopCopies,
    allocate_versions,
    is_zero,
    leaves,
    simpler,
    stages_of,
    tile_bytes,
    versioned,
    versions_of,
    with_version,
)  # fmt: skip


def plan_pipeline(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Pipeline the loops of every kernel region that say so."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _Pipeliner(kernel, roots, ctx).run().to_stmt()))


class _Pipeliner:
    """The rewrite of one kernel region. replaced: versions by tile. in_group: variables of loops inside T.ws."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.copies = KernelCopies(kernel, roots, ctx, self.declines)
        self.bytes = sum(tile_bytes(v) for v in self.copies.allocs if v.scope() in SHARED_SCOPES)
        self.replaced: dict[Var, Var] = {}
        self.in_group: set[Var] = set()
        walk(kernel.body, {AttrStmt: self._note_group})

    def declines(self, copied: Call) -> str:
        chunk = chunk_elements(copied, self.kernel)
        return chunk if isinstance(chunk, str) else ""

    def _note_group(self, node: AttrStmt) -> None:
        if node.attr_key == ATTR_WS:
            walk(node, {For: lambda loop: self.in_group.add(loop.loop_var)})

    def run(self) -> KernelRegion:
        body = rewrite(self.kernel.body, {For: self.loop})
        return self.kernel.with_body(allocate_versions(body, self.replaced))

    def loop(self, node: For, descend: Descend) -> Stmt:
        node = rebuild_body(node, descend(node.body))
        stages = stages_of(node)
        if stages < 2:
            return node
        at = location_of(node)
        if _manual(self.kernel.body) or leaves(node.body):
            self.ctx.note(at, SUBJECT, "serial: the kernel waits for copies itself, or leaves the loop early")
            return node
        found = LoopCopies(self.copies, node)
        size = sum(tile_bytes(m.tile) for m in found.moved)
        while stages > 1 and found.moved and self.bytes + (stages - 1) * size > shared_bytes(self.ctx.target):
            stages -= 1
        if not found.moved or stages < 2:
            reason = "shared memory has no room for a second version" if found.moved else "no copy can be issued ahead"
            self.ctx.note(at, SUBJECT, f"serial: {reason}")
            return node
        self.bytes += (stages - 1) * size
        versions = {m.tile: versions_of(m.tile, stages) for m in found.moved}
        self.replaced.update(versions)
        self.ctx.note(at, SUBJECT, f"{stages} stages of {', '.join(str(m.tile.name) for m in found.moved)}")
        return _Code(found, versions, stages, node.loop_var in self.in_group).stmt()


class _Code:
    """The code of a loop with its copies moved. alone: the loop belongs to a group of threads."""

    def __init__(self, found: LoopCopies, versions: Mapping[Var, Var], stages: int, alone: bool) -> None:
        self.found, self.node, self.versions, self.stages, self.alone = found, found.node, versions, stages, alone

    def stmt(self) -> Stmt:
        node, span, stages = self.node, self.node.span, self.stages
        low, extent, var = node.min, node.extent, node.loop_var
        kind = dtype_of(var)
        number = var if is_zero(low) else var - low
        prologue: list[Stmt] = []
        for d in range(stages - 1):
            ahead = const(d, kind)
            prologue += [self._inside(self._copies(low + ahead if not is_zero(low) else ahead, ahead), ahead, extent), _commit(span)]
        following = number + const(stages - 1, kind)
        copies = self._copies(var + const(stages - 1, kind), following)
        body: Stmt = with_version(seq(self.found.rest()), self.versions, tirx.floormod(number, const(stages, kind)))
        if self.found.guard is not None:
            body = IfThenElse(self.found.condition, body, None, self.found.guard.span)
        meet = [] if self.alone else [Evaluate(make_call("tl.sync_threads", [], span=span), span)]
        body = seq([_wait(stages - 2, span), *meet, self._inside(copies, following, extent), _commit(span), body])
        return seq([*prologue, For(var, low, extent, node.kind, body, node.thread_binding, None, node.step, span), _wait(0, span)])

    def _inside(self, copies: Stmt, number: Expr, extent: Expr) -> Stmt:
        if isinstance(number, IntImm) and isinstance(extent, IntImm):
            return copies if int(number) < int(extent) else seq([])
        return IfThenElse(tirx.LT(number, extent), copies, None, self.node.span)

    def _copies(self, iteration: Expr, number: Expr) -> Stmt:
        """The copies of one iteration, into its versions."""
        version = tirx.floormod(number, const(self.stages, dtype_of(number)))
        if isinstance(number, IntImm):
            version = const(int(number) % self.stages, dtype_of(number))
        stmts: list[Stmt] = []
        for m in self.found.moved:
            source, target = m.call.args[0], m.call.args[1]
            source = simpler(substitute(source, {self.node.loop_var: iteration}))
            attrs = {**dict(m.call.attrs or {}), "async": 1}
            block = versioned(target, self.versions[m.tile], version)
            stmts.append(Evaluate(call(m.call.op, [source, block], "void", attrs), m.stmt.span))
        condition, guard = self.found.condition_at(iteration), self.found.guard
        return seq(stmts) if guard is None else IfThenElse(condition, seq(stmts), None, guard.span)


def _commit(span: Any) -> Stmt:
    return Evaluate(make_call("tl.cp_async_commit", [], span=span), span)


def _wait(left: int, span: Any) -> Stmt:
    return Evaluate(make_call("tl.cp_async_wait", [const(left, "int32")], span=span), span)


def _manual(body: Stmt) -> bool:
    """Does the program count groups of asynchronous copies itself?"""
    found: list[Call] = []

    def visit(node: Call) -> None:
        what = str(attr(node, "what", "")) if op_name(node) == "tl.hint" else ""
        if what in ("ptx_commit_group", "ptx_wait_group") or op_name(node) == "tl.cp_async":
            found.append(node)

    walk(body, {Call: visit})
    return bool(found)

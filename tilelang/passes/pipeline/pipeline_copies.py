"""Which copies of a pipelined loop may be issued ahead of the iteration that uses them, and versions of the tiles they fill.

In: a kernel region and one of its loops. Out: the copies, with names of the body replaced by values that an earlier iteration can
compute. A copy moves only if nothing can tell: its tile is whole, written by it alone, read after it in the same body and nowhere
else; its source, and all that its indices and conditions read, are not written in the loop. Why one stays is told in a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.access import Access, accesses, allocations
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, ANNOTATION_PIPELINE, FACT_SCRATCH, FACT_VERSIONS, SHARED_SCOPES, op_name, tile_call
from ...ir.dtypes import dtype
from ...ir.effects import calls_of
from ...ir.kernel import KernelRegion
from ...ir.positions import simplified
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    BufferStore,
    Call,
    Expr,
    For,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    is_buffer,
    is_expr,
    load,
    location_of,
    region,
    shape_of,
    store,
    tirx,
)  # fmt: skip
from ..analysis.facts import holds_load
from ..analysis.uniformity import LEAVE

SUBJECT = "pipeline"  # of notes
_COPY = "tl.tileop.copy"


@dataclass(frozen=True)
class Moved:
    """A copy that is issued ahead. call: with names of the body replaced by their values. tile: the buffer that it fills."""

    stmt: Stmt
    call: Call
    tile: Var


class KernelCopies:
    """What is known of a kernel. roots: buffers by their views. declines: why a copy is not one of the kind looked for, or "".
    quiet: nothing is told of copies that stay."""

    def __init__(
        self, kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext, declines: Callable[[Call], str], quiet: bool = False
    ) -> None:  # fmt: skip
        self.kernel, self.roots, self.ctx, self.declines, self.quiet = kernel, roots, ctx, declines, quiet
        self.views = set(roots) | set(roots.values())
        self.allocs = allocations(kernel.body)
        self.uses: dict[Var, list[Access]] = {}
        for access in accesses(kernel.body, roots):
            self.uses.setdefault(access.root, []).append(access)


class LoopCopies:
    """One loop: `moved` are its copies that may be issued ahead. condition: of the branch that is the whole body, if there is one;
    guard: that branch. stmts: the body (of the branch) one by one."""

    def __init__(self, owner: KernelCopies, node: For) -> None:
        self.owner, self.node = owner, node
        self.condition: Expr | None = None
        self.guard: IfThenElse | None = None
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
        self.moved: list[Moved] = []
        if self.condition is None or self._ahead(self.condition):
            self.moved = [m for k, stmt in enumerate(self.stmts) if (m := self._movable(k, stmt)) is not None]
        elif not owner.quiet:
            owner.ctx.note(location_of(node), SUBJECT, "serial: the condition around the body may change from one iteration to the next")

    def condition_at(self, iteration: Expr) -> Expr | None:
        """The condition as an earlier iteration computes it for `iteration`."""
        if self.condition is None:
            return None
        return substitute(substitute(self.condition, self.values), {self.node.loop_var: iteration})

    def rest(self) -> list[Stmt]:
        """The body without the copies that move."""
        return [stmt for stmt in self.stmts if not any(stmt.same_as(m.stmt) for m in self.moved)]

    def _movable(self, position: int, stmt: Stmt) -> Moved | None:
        if isinstance(stmt, Bind):
            if is_expr(stmt.value) and self._ahead(stmt.value):
                self.values[stmt.var] = substitute(stmt.value, self.values)
            return None
        copied = tile_call(stmt)
        if copied is None or op_name(copied) != _COPY or copied.args[1].source.scope() not in SHARED_SCOPES:
            return None
        reason = self._why_not(position, copied)
        if reason and not self.owner.quiet:
            self.owner.ctx.note(location_of(stmt), SUBJECT, f"stays at its place: {reason}")
        if reason:
            return None
        return Moved(stmt, substitute(copied, self.values), copied.args[1].source)

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
        return self.owner.declines(substitute(copied, self.values))

    def _ahead(self, expr: Any) -> bool:
        """Has the expression the same value when an earlier iteration computes it?"""
        if not is_expr(expr):
            return True
        expr = substitute(expr, self.values)
        names: list[Var] = []
        opaque: list[Call] = []
        walk(expr, {Var: names.append, Call: lambda c: opaque.append(c) if not is_plain(c) else None})
        if opaque or any(v in self.names for v in names):
            return False
        read = accesses(expr, self.owner.roots)
        return not any(a.root in self.written or a.ranges is None for a in read) and (not read or all(is_buffer(v) for v in self.written))


# ---------------------------------------------------------------- versions of a tile
def stages_of(node: For) -> int:
    """The number of stages that a loop asks for."""
    return int(dict((node.annotations or {}).get(ANNOTATION_PIPELINE, {})).get("num_stages", 0))


def allocate_versions(body: Stmt, replaced: Mapping[Var, Var]) -> Stmt:
    """The body with each tile's allocation replaced by that of its versions."""
    if not replaced:
        return body

    def allocate(stmt: AllocBuffer, _: Descend) -> Stmt:
        versions = replaced.get(stmt.buffer)
        if versions is None:
            return stmt
        count = int(shape_of(versions)[0]) // int(shape_of(stmt.buffer)[0])
        return AllocBuffer(versions, _of_versions(stmt.annotations, count), stmt.span)

    return rewrite(body, {AllocBuffer: allocate})


def simpler(block: TensorRegion) -> TensorRegion:
    """The same block with constants folded in its indices."""
    return region(block.source, [m if holds_load(m) else simplified(m) for m in (r.min for r in block.region)],
                  [r.extent for r in block.region])  # fmt: skip


def versions_of(tile: Var, stages: int) -> Var:
    """A buffer with `stages` times as many rows."""
    first, *others = shape_of(tile)
    return decl_buffer((first * stages, *others), dtype_of(tile), str(tile.name), tile.scope(), alignment=64, span=tile.span)


def _row(tile: Var, version: Expr, index: Any) -> Expr:
    step = version * const(int(shape_of(tile)[0]), dtype_of(version))
    if isinstance(version, IntImm):
        step = const(int(version) * int(shape_of(tile)[0]), dtype_of(version))
        if int(step) == 0:
            return index
    if is_zero(index):
        return step
    if dtype_of(index) != dtype_of(step):
        step = tirx.Cast(dtype_of(index), step)
    return step + index


def versioned(block: TensorRegion, versions: Var, version: Expr) -> TensorRegion:
    first, *others = block.region
    return region(versions, [_row(block.source, version, first.min), *(r.min for r in others)], [first.extent, *(r.extent for r in others)])


def with_version(stmt: Stmt, table: Mapping[Var, Var], version: Expr) -> Stmt:
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
        return versioned(node, table[node.source], version) if node.source in table else descend.children(node)

    return rewrite(stmt, {TensorLoad: on_load, BufferStore: on_store, TensorRegion: on_region})


def _of_versions(annotations: Any, count: int) -> dict[str, Any]:
    """The facts of a tile for its versions (a layout is that of each). The user's own barriers know nothing of them: they count as
    scratch."""
    found = dict(annotations or {})
    facts = dict(found.get(ANNOTATION_ALLOC, {}))
    return {**found, ANNOTATION_ALLOC: {**facts, FACT_SCRATCH: True, FACT_VERSIONS: count}}


# ---------------------------------------------------------------- small questions
def tile_bytes(buffer: Var) -> int:
    shape = shape_of(buffer)
    if not all(isinstance(e, int) for e in shape):
        return 0
    element = dtype(dtype_of(buffer))
    return math.prod(shape) * max(element.bits, 8) * element.lanes // 8


def _whole(block: TensorRegion) -> bool:
    return all(
        is_zero(r.min) and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(block.region, shape_of(block.source), strict=True)
    )


def is_zero(value: Any) -> bool:
    return isinstance(value, int | IntImm) and int(value) == 0


def is_plain(node: Call) -> bool:
    """A call without effects of its own."""
    name = op_name(node)
    return name in ("prim.if_then_else", "prim.likely") or name.rpartition(".")[2].startswith(("bitwise_", "shift_"))


def leaves(body: Stmt) -> bool:
    """Does it hold a break or continue, of this loop or of one inside?"""
    return bool(calls_of(body, *LEAVE))

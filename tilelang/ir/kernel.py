"""One launch as a record: how a kernel region is built into TIR and taken apart again.

Form in TIR, always exactly this:
AttrStmt(node=Map of annotations, "tl.kernel") > thread_extent blockIdx.* (0-3) > thread_extent threadIdx.x, .y, .z > body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import InternalError
from .dialect import ATTR_KERNEL, ATTR_THREAD_EXTENT, THREAD_TAGS
from .tvm_api import AttrStmt, For, IfThenElse, IntImm, IterVar, SeqStmt, Span, Stmt, Var, While, const, seq


@dataclass(frozen=True)
class KernelRegion:
    """blocks: (variable, extent) for x, y, z as given by the user (more than 3 only on the CPU); threads: always
    three (variable, int extent). annotations: prelude, cluster_dims, use_swizzle, safe_value, ..."""

    blocks: tuple[tuple[Var, Any], ...]
    threads: tuple[tuple[Var, int], ...]
    body: Stmt
    annotations: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = None

    @property
    def num_threads(self) -> int:
        x, y, z = (extent for _, extent in self.threads)
        return x * y * z

    def with_body(self, body: Stmt) -> KernelRegion:
        return replace(self, body=body)

    def to_stmt(self) -> Stmt:
        body = self.body
        tags = [f"blockIdx.{'xyz'[k]}" if k < 3 else f"blockIdx.{k}" for k in range(len(self.blocks))] + list(THREAD_TAGS)
        for tag, (var, extent) in reversed(list(zip(tags, (*self.blocks, *self.threads), strict=True))):
            iter_var = IterVar(None, var, IterVar.ThreadIndex, tag)
            value = const(extent, str(var.ty.dtype)) if isinstance(extent, int) else extent
            body = AttrStmt(iter_var, ATTR_THREAD_EXTENT, value, body, self.span)
        return AttrStmt(dict(self.annotations), ATTR_KERNEL, IntImm("int32", 0), body, self.span)


def match_kernel(stmt: Stmt) -> KernelRegion | None:
    """The record of a kernel region, or None if `stmt` is not one."""
    if not (isinstance(stmt, AttrStmt) and stmt.attr_key == ATTR_KERNEL):
        return None
    annotations = dict(stmt.node.items())
    span, blocks, threads, body = stmt.span, [], [], stmt.body
    while isinstance(body, AttrStmt) and body.attr_key == ATTR_THREAD_EXTENT and len(threads) < 3:
        extent = int(body.value) if isinstance(body.value, IntImm) else body.value
        (threads if body.node.thread_tag in THREAD_TAGS else blocks).append((body.node.var, extent))
        body = body.body
    if len(threads) != 3:
        raise InternalError("kernel region without its three thread extents")
    return KernelRegion(tuple(blocks), tuple(threads), body, annotations, span)


def map_kernels(body: Stmt, fn: Any) -> Stmt:
    """Apply `fn(KernelRegion) -> Stmt` to every kernel region of a function body; host statements stay.

    Kernel regions stand at the top level of a function, or under host-side control flow.
    """
    region = match_kernel(body)
    if region is not None:
        return fn(region)
    if isinstance(body, SeqStmt):
        return seq([map_kernels(s, fn) for s in body.seq])
    if isinstance(body, IfThenElse):
        then = map_kernels(body.then_case, fn)  # first, as the program has it
        return IfThenElse(body.condition, then, None if body.else_case is None else map_kernels(body.else_case, fn), body.span)
    from_children = getattr(body, "body", None)
    if from_children is None:
        return body
    return rebuild_body(body, map_kernels(from_children, fn))


def rebuild_body(stmt: Stmt, body: Stmt) -> Stmt:
    """A copy of a one-bodied statement with another body."""
    if isinstance(stmt, AttrStmt):
        return AttrStmt(stmt.node, stmt.attr_key, stmt.value, body, stmt.span)
    if isinstance(stmt, For):
        return For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, stmt.thread_binding, stmt.annotations, stmt.step, stmt.span)
    if isinstance(stmt, While):
        return While(stmt.condition, body, stmt.span)
    raise InternalError(f"no body to replace in {type(stmt).__name__}")

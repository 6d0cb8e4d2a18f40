"""Rewrites of memory and bindings when threads become loops: the thread index in front, what a run needs, what nobody reads.

In: statements of one kernel. Out: the same statements over memory with a leading thread dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dialect import op_name
from ...ir.rewrite import rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    BufferStore,
    Call,
    Expr,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    const,
    dtype_of,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip


def needed(order: Sequence[Var], stmts: Sequence[Stmt], recomputed: dict[Var, Expr]) -> set[Var]:
    """Those bindings of `order` that the statements use, directly or through a recomputed one."""
    known = set(order)
    wanted: set[Var] = set()
    work: list[Any] = list(stmts)
    while work:
        found: list[Var] = []
        walk(work.pop(), {Var: found.append})
        for var in found:
            if var in known and var not in wanted:
                wanted.add(var)
                if var in recomputed:
                    work.append(recomputed[var])
    return wanted


def indexing(table: dict[Var, Var], linear: Expr) -> dict[Any, Any]:
    """Rewrite rules that put the thread index in front of the indices of private memory."""

    def on_load(node: TensorLoad, descend: Any) -> Expr:
        if node.source not in table:
            return descend.children(node)
        return load(table[node.source], [linear, *(descend(i) for i in node.indices)], node.span)

    def on_store(node: BufferStore, descend: Any) -> Stmt:
        if node.buffer not in table:
            return descend.children(node)
        return store(table[node.buffer], descend(node.value), [linear, *(descend(i) for i in node.indices)], node.span)

    def on_region(node: TensorRegion, descend: Any) -> Expr:
        if node.source not in table:
            return descend.children(node)
        mins, extents = [descend(r.min) for r in node.region], [descend(r.extent) for r in node.region]
        return region(table[node.source], [linear, *mins], [const(1, dtype_of(linear)), *extents])

    def on_call(node: Call, descend: Any) -> Expr:
        if op_name(node) == "tirx.buffer_data" and node.args[0] in table:  # the address of this thread's first element
            copy = table[node.args[0]]
            return tirx.address_of(load(copy, [linear, *(const(0, "int32") for _ in copy.ty.shape[1:])]))
        return descend.children(node)

    return {TensorLoad: on_load, BufferStore: on_store, TensorRegion: on_region, Call: on_call}


def without_unread(body: Stmt, arrays: set[Var]) -> Stmt:
    """Drop arrays that were kept for later runs and are never read."""
    read: set[Var] = set()
    walk(body, {TensorLoad: lambda node: read.add(node.source) if node.source in arrays else None})
    unread = arrays - read
    if not unread:
        return body

    def drop(node: Any, descend: Any) -> Stmt:
        return seq([]) if node.buffer in unread else descend.children(node)

    return rewrite(body, {(AllocBuffer, BufferStore): drop})

"""Accumulators of the older form (`T.alloc_reducer(..., replication=)`), which a loop updates by `acc[i] += v`, get an epoch for that loop.

In: a TILE program. Out: the same, where such a loop contributes to a reducer of its own by `tl.reducer_update`, and the total is then
combined with `acc` element by element; `spread_reducers` does the rest. A loop that uses `acc` in any other way stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.access import allocations
from ...ir.dialect import ANNOTATION_ALLOC, ANNOTATION_PARALLEL, ATTR_WS, FRAGMENT, REDUCER, make_call
from ...ir.expr import convert
from ...ir.kernel import KernelRegion
from ...ir.positions import same
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    BufferStore,
    Evaluate,
    Expr,
    For,
    ForKind,
    IntImm,
    Stmt,
    TensorLoad,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    seq,
    static_shape,
    store,
    tirx,
)  # fmt: skip
from ...tileop.loops import tile
from ...tileop.reduce import Combine
from ..analysis.nests import Nest, is_nest, read_nest

_OPERATORS = {"sum": tirx.Add, "max": tirx.Max, "min": tirx.Min}


def with_epochs(kernel: KernelRegion) -> KernelRegion:
    """The kernel with an epoch around every loop that only adds to older accumulators."""
    ops = {b: str(op) for b, s in allocations(kernel.body).items() if b.scope() == FRAGMENT and (op := _op(s)) in _OPERATORS}
    groups: list[Any] = []
    walk(kernel.body, {AttrStmt: lambda node: groups.append(node) if node.attr_key == ATTR_WS else None})
    if not ops or groups:
        return kernel

    def on_loop(node: For, descend: Descend) -> Stmt:
        return descend.children(node) if not is_nest(node) else _epochs(node, ops)

    return kernel.with_body(rewrite(kernel.body, {For: on_loop}))


def _op(stmt: AllocBuffer) -> Any:
    return dict((stmt.annotations or {}).get(ANNOTATION_ALLOC) or {}).get("op")


def _epochs(node: For, ops: Mapping[Var, str]) -> Stmt:
    nest = read_nest(node, lambda b: b in ops, {})
    result: Stmt = node
    for acc in nest.buffers():
        changed = _updates(result, nest, acc, ops[acc])
        if changed is not None:
            result = changed
    return result


def _updates(stmt: Stmt, nest: Nest, acc: Var, op: str) -> Stmt | None:
    """The loop with an epoch for `acc`, or None if it does anything but contribute to elements that its loops share."""
    mine = [a for a in nest.fragments if a.buffer.same_as(acc)]
    stores = [a for a in mine if a.writes]
    contributions = [_contribution(a.node, op) for a in stores]
    if acc in nest.whole or None in contributions or len(mine) != 2 * len(stores) or nest.static_extents is None:
        return None
    if not all(_shared_by_loops(a.node.indices, nest) for a in stores):
        return None
    dtype, shape, span = dtype_of(acc), static_shape(acc), nest.span
    reducer = decl_buffer(shape, dtype, str(acc.name), REDUCER, span=span)
    total = decl_buffer(shape, dtype, f"{acc.name}_more", FRAGMENT, span=span)

    def on_store(node: BufferStore, descend: Descend) -> Stmt:
        if not node.buffer.same_as(acc):
            return descend.children(node)
        target = region(reducer, list(node.indices), [1] * len(shape))
        return Evaluate(make_call("tl.reducer_update", [target, _contribution(node, op)], span=node.span, op=op), node.span)

    identity = convert(Combine(op, dtype).identity(dtype), dtype)
    return seq([
        AllocBuffer(reducer, {ANNOTATION_ALLOC: {"op": op}}, span),
        AllocBuffer(total, {ANNOTATION_ALLOC: {}}, span),
        Evaluate(make_call("tl.tileop.reducer_init", [tile(reducer), identity], span=span, op=op), span),
        rewrite(stmt, {BufferStore: on_store}),
        Evaluate(make_call("tl.tileop.reducer_finalize", [tile(reducer), tile(total)], span=span, op=op), span),
        _combined(acc, total, op, span),
    ])  # fmt: skip


def _contribution(node: Any, op: str) -> Expr | None:
    """v, if the store is acc[i] = acc[i] + v (or the largest, or smallest, of the two)."""
    if not isinstance(node, BufferStore) or not isinstance(node.value, _OPERATORS[op]):
        return None
    for old, new in ((node.value.a, node.value.b), (node.value.b, node.value.a)):
        if isinstance(old, TensorLoad) and old.source.same_as(node.buffer):
            return new if all(same(a, b) for a, b in zip(old.indices, node.indices, strict=True)) else None
    return None


def _shared_by_loops(indices: Sequence[Any], nest: Nest) -> bool:
    """Is every index a loop of its own or a constant, and some loop left?"""
    named = [i for i in indices if any(i.same_as(v) for v in nest.vars)]
    return all(isinstance(i, IntImm) or any(i.same_as(v) for v in nest.vars) for i in indices) and len(named) < len(nest.loops)


def _combined(acc: Var, total: Var, op: str, span: Any) -> Stmt:
    """acc = acc op total, element by element."""
    shape = static_shape(acc)
    variables = [Var(f"i{k}", "int32") for k in range(len(shape))]
    value = _OPERATORS[op](load(acc, variables), load(total, variables))
    body: Stmt = store(acc, value, variables, span)
    for k, (variable, extent) in reversed(list(enumerate(zip(variables, shape, strict=True)))):
        annotations = {ANNOTATION_PARALLEL: IntImm("int32", len(shape))} if k == 0 else None
        body = For(variable, const(0, "int32"), const(extent, "int32"), ForKind.PARALLEL, body, annotations=annotations, span=span)
    return body

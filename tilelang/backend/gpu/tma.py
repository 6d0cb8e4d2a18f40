"""Copies between tensors and shared tiles as bulk tensor copies (TMA), for sm_90 and later.

In: a copy that `tma_reason` accepts. Out: for a load, one `tl.tma_load` for each box, which adds its bytes to the copy's mbarrier: issued
by the one thread that executes the statement (attribute `tma`; the pass that made it announces the bytes), or, for `T.tma_copy`, by
the first thread, which announces them (under a condition on threads: by those that arrive). For a store: what threads wrote is made
visible (`tl.fence_proxy_async`; the barrier that follows is `insert_barriers`'s), then the first thread issues the boxes as one group
and waits until the engine has read them, so that after the next barrier the tile may be written again. An atomic addition of a shared tile
of float32 is such a store that adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir.dialect import attr, make_call
from ...ir.kernel import KernelRegion
from ...ir.tvm_api import Call, Evaluate, Expr, For, ForKind, IfThenElse, Stmt, TensorRegion, Var, const, dtype_of, region, seq, tirx
from ...passes.analysis.thread_groups import GROUP
from ...passes.pipeline.issuing_threads import THREAD
from ...passes.pipeline.tma_boxes import (
    PERIOD_ROWS,
    Boxes,
    added_copy,
    boxes_of,
    bytes_of_copy,
    part_of_boxes,
    reduce_reason,
    row_major,
    sides,
    tma_reason,
)
from ...tileop.base import LowerContext, Lowering, OtherKind
from ...tileop.loops import mins_of, offset
from .warps import threads_of

LOAD = "load"  # of attribute `tma`
_MAX_UNROLLED = 16


def _reason(call: Call, ctx: LowerContext) -> str | None:
    if ctx.kernel is None:
        return "the copy is not in a kernel"
    if any(block.source in ctx.roots for block in call.args[:2]):
        return "an operand is a view"
    return tma_reason(call, ctx.kernel, ctx.passes)


def _accepts_load(call: Call, ctx: LowerContext) -> str | None:
    found = sides(call)
    if found is None or not found[2]:
        return OtherKind("no load of a shared tile")
    if len(call.args) < 3:
        return "a load without a barrier of its own: no pipelined loop, and not T.tma_copy"
    if attr(call, "tma") == LOAD:  # the pass that set it has asked
        return None
    if ctx.per_thread and attr(call, "tma") != THREAD:
        return "the copy belongs to one thread"
    return _reason(call, ctx)


def _accepts_store(call: Call, ctx: LowerContext) -> str | None:
    found = sides(call)
    if found is None or found[2]:
        return OtherKind("no store of a shared tile")
    return "the copy belongs to one thread" if ctx.per_thread else _reason(call, ctx)


def _lower_load(call: Call, ctx: LowerContext) -> Stmt:
    barrier, ranks = call.args[2], int(attr(call, "ranks", 1))
    named = attr(call, "cluster_mask") or ((1 << ranks) - 1 if ranks > 1 else None)
    mask = [const(int(named), "int32")] if named is not None else []
    loads = _each_box(
        call, ctx, lambda tensor, tile, swizzle: make_call("tl.tma_load", [tile, tensor, barrier, *mask], span=ctx.span, swizzle=swizzle)
    )
    if attr(call, "tma") == LOAD:
        return loads
    bytes_ = const(bytes_of_copy(call), "int32")
    issue = seq([_do("tl.mbarrier_expect_tx", [barrier, bytes_], ctx), loads])
    return issue if attr(call, "tma") == THREAD else _first_thread(issue, ctx)


def _lower_store(call: Call, ctx: LowerContext) -> Stmt:
    return _stored(call, ctx)


def _stored(call: Call, ctx: LowerContext, **attrs: Any) -> Stmt:
    """attrs: add: what is stored is added to what is there. Each warpgroup of several stores its own rows: those that it has written can
    leave before the others arrive."""
    threads = threads_of(ctx)
    parts = threads.count // GROUP if threads.groups is not None and threads.count % GROUP == 0 and not attrs else 1
    rows = _rows(call, ctx, parts) if parts > 1 else None
    part = None if rows is None else (*rows, tirx.floordiv(threads.index, const(GROUP, "int32")))
    stores = _each_box(
        call, ctx, lambda tensor, tile, swizzle: make_call("tl.tma_store", [tile, tensor], span=ctx.span, swizzle=swizzle, **attrs), part
    )
    wait = Evaluate(make_call("tl.bulk_wait", [const(0, "int32")], span=ctx.span, read=True), ctx.span)
    issue = seq([stores, _do("tl.bulk_commit", [], ctx), wait])
    fence = _do("tl.fence_proxy_async", [], ctx)
    if part is None:
        return seq([fence, _first_thread(issue, ctx)])
    one = tirx.EQ(tirx.floormod(threads.index, const(GROUP, "int32")), const(0, "int32"))
    return seq([fence, IfThenElse(one, issue, None, ctx.span)])


def _rows(call: Call, ctx: LowerContext, parts: int) -> tuple[Boxes, int, int] | None:
    """The boxes of a store with their rows divided, the dimension of the tensor that rows are, and rows of a part; None if they cannot
    be divided where a swizzle begins anew."""
    found = sides(call)
    assert found is not None
    boxes = boxes_of(call, ctx.passes.shared_layouts.get(found[1].source))
    wide = [k for k, dim in enumerate(boxes.dims) if boxes.tensor[dim] > 1]
    if len(wide) < 2 or boxes.counts[wide[0]] > 1:
        return None
    dim, place = boxes.dims[wide[0]], boxes.places[wide[0]]
    rows, rest = divmod(boxes.tensor[dim], parts)
    if rest or rows % PERIOD_ROWS:
        return None
    tensor, shared = (tuple(rows if d == at else e for d, e in enumerate(box)) for box, at in ((boxes.tensor, dim), (boxes.shared, place)))
    return replace(boxes, tensor=tensor, shared=shared), dim, rows


def _accepts_reduce(call: Call, ctx: LowerContext) -> str | None:
    if ctx.kernel is None or ctx.per_thread:
        return "the tile belongs to one thread"
    if any(block.source in ctx.roots for block in call.args[:2]):
        return "an operand is a view"
    return reduce_reason(call, ctx.kernel, ctx.passes)


def _lower_reduce(call: Call, ctx: LowerContext) -> Stmt:
    return _stored(added_copy(call), ctx, add=True)


def _do(name: str, operands: Sequence[Any], ctx: LowerContext) -> Stmt:
    return Evaluate(make_call(name, operands, span=ctx.span), ctx.span)


def _first_thread(body: Stmt, ctx: LowerContext) -> Stmt:
    return IfThenElse(tirx.EQ(threads_of(ctx).index, const(0, "int32")), body, None, ctx.span)


def _each_box(call: Call, ctx: LowerContext, issue: Any, mine: tuple[Boxes, int, int, Expr] | None = None) -> Stmt:
    """`issue(block of the tensor, block of the tile, swizzle)` for every box, in loops over those dimensions that have several. Of a tile
    that the blocks of a cluster share each issues its part, or the first one everything. mine: the boxes of one part of several, the
    dimension of the tensor along which the parts lie, elements from part to part, the number of the part."""
    assert isinstance(ctx.kernel, KernelRegion)
    found = sides(call)
    assert found is not None
    tensor, tile, _ = found
    layout = ctx.passes.shared_layouts.get(tile.source)
    boxes, ranks = boxes_of(call, layout), int(attr(call, "ranks", 1))
    part = part_of_boxes(boxes, layout or row_major(tile.source), ranks) if ranks > 1 else None
    shift: dict[int, Expr] = {}
    if part is not None:
        boxes, dim, step = part
        shift[dim] = call.args[3] * const(step, "int32")
    elif mine is not None:
        boxes, dim, step, number = mine
        shift[dim] = number * const(step, "int32")
    steps = {d: Var("box", "int32") for d, count in zip(boxes.dims, boxes.counts, strict=True) if count > 1}
    of_tile = {p: steps[d] for d, p in zip(boxes.dims, boxes.places, strict=True) if d in steps}
    of_part = {p: shift[d] for d, p in zip(boxes.dims, boxes.places, strict=True) if d in shift}
    blocks = _block(tensor, boxes.tensor, steps, shift), _block(tile, boxes.shared, of_tile, of_part)
    body: Stmt = Evaluate(issue(*blocks, layout.swizzle if layout is not None else 0), ctx.span)
    unrolled = math.prod(boxes.counts) <= _MAX_UNROLLED
    for d, count in reversed(list(zip(boxes.dims, boxes.counts, strict=True))):
        if d in steps:
            kind = ForKind.UNROLLED if unrolled else ForKind.SERIAL
            body = For(steps[d], const(0, "int32"), const(count, "int32"), kind, body, span=ctx.span)
    if ranks > 1 and part is None:
        return IfThenElse(tirx.EQ(call.args[3], const(0, "int32")), body, None, ctx.span)
    return body


def _block(block: TensorRegion, extents: Sequence[int], steps: dict[int, Var], shift: dict[int, Expr]) -> TensorRegion:
    """The box of a block at these steps, one for each dimension that has several, and moved by `shift`."""
    starts = mins_of(block)
    for k, low in enumerate(starts):
        if k in shift:
            starts[k] = offset(low, _cast(shift[k], low))
        if k in steps:
            starts[k] = offset(starts[k], _scaled(steps[k], extents[k], low))
    return region(block.source, starts, list(extents))


def _cast(index: Expr, low: Any) -> Expr:
    kind = "int32" if isinstance(low, int) else dtype_of(low)
    return index if kind == "int32" else tirx.Cast(kind, index)


def _scaled(step: Var, extent: int, low: Any) -> Expr:
    return _cast(step * const(extent, "int32") if extent > 1 else step, low)


TMA_LOAD = Lowering("tma_load", "tl.tileop.copy", _accepts_load, _lower_load)
TMA_STORE = Lowering("tma_store", "tl.tileop.copy", _accepts_store, _lower_store)
TMA_REDUCE = Lowering("tma_store that adds", "tl.tileop.atomic", _accepts_reduce, _lower_reduce)

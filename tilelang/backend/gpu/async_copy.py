"""T.copy from global to shared memory as asynchronous copies of 4, 8 or 16 bytes: for copies that are issued ahead.

In: a copy call with the attribute `async` (the pipeline commits the group and waits), or `T.async_copy` (committed here, the user
waits). Out: one thread's share of the chunks. A chunk outside of the source is filled with zeros by the instruction.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.dialect import GLOBAL, SHARED_SCOPES, attr, make_call
from ...ir.tvm_api import (
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    TensorRegion,
    Var,
    const,
    dtype_of,
    region,
    seq,
    tirx,
)  # fmt: skip
from ...passes.pipeline.async_chunks import chunk_elements
from ...tileop.base import LowerContext, Lowering, OtherKind
from ...tileop.copy import COPY
from ...tileop.loops import extents_of, mins_of, offset, wide_dims
from .warps import threads_of

_MAX_UNROLLED = 16


def _accepts(copied: Call, ctx: LowerContext) -> str | None:
    source, target = copied.args[:2]
    if source.source.scope() != GLOBAL or target.source.scope() not in SHARED_SCOPES:
        return OtherKind("no copy of a tensor to a shared tile")
    if not (attr(copied, "async") or attr(copied, "prefer_instruction") == "async"):
        return "nothing overlaps with the copy"
    if ctx.per_thread or ctx.kernel is None:
        return "the copy belongs to one thread"
    found = chunk_elements(copied, ctx.kernel, ctx.passes.shared_layouts)
    return found if isinstance(found, str) else None


def _lower(copied: Call, ctx: LowerContext) -> Stmt:
    source, target = copied.args[0], copied.args[1]
    count = chunk_elements(copied, ctx.kernel, ctx.passes.shared_layouts)
    assert isinstance(count, int)
    extents = [extents_of(target)[k] for k in wide_dims(target)]
    extents[-1] //= count
    total, threads = math.prod(extents), threads_of(ctx)
    step = Var("step", "int32")
    rounds = -(-total // threads.count)
    chunk = step * const(threads.count, "int32") + threads.index  # not a name of it, so that the terms of a position fold
    body = _chunk(source, target, _digits(chunk, extents), count, ctx)
    if total % threads.count:
        body = IfThenElse(tirx.LT(chunk, const(total, "int32")), body, None, ctx.span)
    kind = ForKind.UNROLLED if rounds <= _MAX_UNROLLED else ForKind.SERIAL
    loop = For(step, const(0, "int32"), const(rounds, "int32"), kind, body, span=ctx.span)
    stmts: list[Stmt] = [loop]
    if not attr(copied, "async"):
        stmts.append(_commit(ctx))
    return seq(stmts)


def _commit(ctx: LowerContext) -> Stmt:
    return Evaluate(make_call("tl.cp_async_commit", [], span=ctx.span), ctx.span)


def _asked_for(copied: Call, ctx: LowerContext) -> str | None:
    return None if attr(copied, "prefer_instruction") == "async" else OtherKind("the program does not count groups of copies")


def _lower_by_loops(copied: Call, ctx: LowerContext) -> Stmt:
    """`T.async_copy` where no asynchronous copy is possible: the group that the user's wait counts is there, but empty."""
    return seq([COPY.lower(copied, ctx), _commit(ctx)])


def _digits(number: Expr, extents: list[int]) -> list[Expr]:
    """The position of chunk `number` in a block of these extents, row-major."""
    found: list[Expr] = []
    for k, extent in reversed(list(enumerate(extents))):
        found.append(tirx.floormod(number, const(extent, "int32")) if k else number)
        number = tirx.floordiv(number, const(extent, "int32"))
    return found[::-1]


def _chunk(source: TensorRegion, target: TensorRegion, position: list[Expr], count: int, ctx: LowerContext) -> Stmt:
    """One chunk; `guard_bounds` adds the condition under which it is inside of the source."""
    position = [*position[:-1], position[-1] * const(count, "int32")]
    blocks = [_block(block, _start(block, position), count) for block in (target, source)]
    return Evaluate(make_call("tl.cp_async", blocks, span=ctx.span), ctx.span)


def _start(block: TensorRegion, position: list[Expr]) -> list[Any]:
    wide = wide_dims(block)
    index = dict(zip(wide, position, strict=True))
    return [offset(low, _typed(index[k], low)) if k in index else low for k, low in enumerate(mins_of(block))]


def _typed(index: Expr, low: Any) -> Expr:
    kind = dtype_of(low) if not isinstance(low, int) else "int32"
    return index if dtype_of(index) == kind else tirx.Cast(kind, index)


def _block(block: TensorRegion, start: list[Any], count: int) -> TensorRegion:
    return region(block.source, start, [*([1] * (len(start) - 1)), count])


ASYNC_COPY = Lowering("cp_async", "tl.tileop.copy", _accepts, _lower)
COPY_AND_EMPTY_GROUP = Lowering("loops and an empty group", "tl.tileop.copy", _asked_for, _lower_by_loops)

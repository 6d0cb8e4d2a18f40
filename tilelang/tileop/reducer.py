"""Reducers: accumulators that each iteration of T.Parallel contributes to once, whatever thread executes it.

In: an accumulator made by `T.alloc_reducer`. Out: `tl.tileop.reducer_init`, `tl.reducer_update`,
`tl.tileop.reducer_finalize` statements. An accumulator of the older form (`replication=` given) is a fragment that the
program updates by plain stores; finalizing it in place changes nothing where a fragment is one logical tile.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileRuntimeError, TileTypeError, TileValueError
from ..ir.builder import Builder, in_kernel
from ..ir.dialect import ANNOTATION_ALLOC, FRAGMENT, REDUCER, SHARED, SHARED_DYN, make_call
from ..ir.expr import as_expr, convert
from ..ir.tvm_api import AllocBuffer, Call, Stmt, TensorLoad, dtype_of, load, seq, store
from .base import LowerContext, TileOperator
from .fill import fill_block
from .loops import extents_of, mins_of, nest, read, same_block, wide_dims, write
from .operands import Operand, operand, same, shape_text
from .reduce import Combine, combine_for

REDUCER_OPS = ("sum", "max", "min", "bitand", "bitor", "bitxor")


# ---------------------------------------------------------------- the language
def reducer_init(acc: Any, init: Any = None) -> None:
    """Start an epoch: every element of `acc` gets `init`, or the identity of its operation. init counts once."""
    what = "T.reducer_init"
    builder = in_kernel(what)
    found, op = _accumulator(acc, builder, what)
    value = Combine(op, found.dtype).identity(found.dtype) if init is None else convert(as_expr(init), found.dtype)
    builder.evaluate(make_call("tl.tileop.reducer_init", [found.region, value], op=op))


def reducer_update(acc: Any, value: Any) -> None:
    """Contribute `value` to one element, `acc[i]`, inside T.Parallel: each iteration counts once."""
    what = "T.reducer_update"
    builder = in_kernel(what)
    if not isinstance(acc, TensorLoad):
        raise TileTypeError(f"{what}: acc must be an element of a reducer, got {acc!r}", remedy="write T.reducer_update(acc[i], value)")
    found, op = _accumulator(acc, builder, what)
    if builder.enclosing("parallel") is None:
        raise TileRuntimeError(f"{what}: {found} is updated outside T.Parallel", remedy="put the update inside `for i in T.Parallel(n)`")
    builder.evaluate(make_call("tl.reducer_update", [found.region, convert(as_expr(value), found.dtype)], op=op))


def finalize_reducer(acc: Any, dst: Any = None) -> None:
    """End the epoch: write the totals into `dst`, a fragment or shared tile of the same shape.

    Without dst, `acc` must be of the older form (`T.alloc_reducer(..., replication=...)`), and holds the totals itself.
    """
    what = "T.finalize_reducer"
    builder = in_kernel(what)
    found, op = _accumulator(acc, builder, what)
    if dst is None:
        if found.scope == REDUCER:
            raise TileValueError(f"{what}: {found} cannot be finalized in place", remedy="pass a fragment of the same shape as dst")
        builder.evaluate(make_call("tl.tileop.reducer_finalize", [found.region, found.region], op=op))
        return
    target = operand(dst, "dst", what, scopes=(FRAGMENT, SHARED, SHARED_DYN))
    if len(found.extents) != len(target.extents) or not all(map(same, found.extents, target.extents)):
        raise TileValueError(f"{what}: {target} cannot hold {found}", remedy=f"dst must have the shape {shape_text(found.extents)}")
    builder.evaluate(make_call("tl.tileop.reducer_finalize", [found.region, target.region], op=op))


def _accumulator(acc: Any, builder: Builder, what: str) -> tuple[Operand, str]:
    """The operand and its operation, from the facts of its allocation."""
    found = operand(acc, "acc", what, reducer=True)
    for frame in builder.frames:
        for stmt in frame.allocs:
            if isinstance(stmt, AllocBuffer) and stmt.buffer.same_as(found.buffer):
                facts = (stmt.annotations or {}).get(ANNOTATION_ALLOC) or {}
                if "op" in facts:
                    return found, str(facts["op"])
    raise TileValueError(f"{what}: {found} is no reducer", remedy='make one with T.alloc_reducer(shape, dtype, op="sum")')


# ---------------------------------------------------------------- meaning
def lower_init(call: Call, ctx: LowerContext) -> Stmt:
    return fill_block(call.args[0], call.args[1], ctx)


def lower_update(call: Call, ctx: LowerContext) -> Stmt:
    """acc[i] = acc[i] op value: iterations of a lowered T.Parallel that share an element are not reordered into a race."""
    block, value = call.args
    combine = combine_for(str(call.attrs["op"]), dtype_of(block), dtype_of(block))
    total = combine.step(convert(load(block.source, mins_of(block)), combine.dtype), convert(value, combine.dtype))
    return store(block.source, convert(total, dtype_of(block)), mins_of(block), ctx.span)


def lower_finalize(call: Call, ctx: LowerContext) -> Stmt:
    acc, dst = call.args
    if same_block(acc, dst):
        return seq([])
    return nest([extents_of(dst)[k] for k in wide_dims(dst)], lambda v: [write(dst, v, read(acc, v), ctx)], ctx)


INIT = TileOperator("tl.tileop.reducer_init", lower_init)
UPDATE = TileOperator("tl.reducer_update", lower_update)
FINALIZE = TileOperator("tl.tileop.reducer_finalize", lower_finalize)

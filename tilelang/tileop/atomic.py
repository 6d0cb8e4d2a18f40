"""Atomic updates with a whole tile: every element of a global or shared block is updated indivisibly.

`tile_atomic` is what `T.atomic_add/max/min` call when an operand is a tile. Out: a `tl.tileop.atomic` statement.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileNotSupportedError
from ..ir.builder import in_kernel
from ..ir.dialect import GLOBAL, SHARED, SHARED_DYN, make_call
from ..ir.expr import convert
from ..ir.tvm_api import Call, Evaluate, Stmt, TensorRegion, Var, dtype_of, is_buffer, region, seq
from .base import LowerContext, TileOperator
from .copy import fit
from .loops import at, extents_of, may_overlap, nest, read, staged, wide_dims
from .operands import operand


def is_tile_update(dst: Any, value: Any) -> bool:
    """Does an atomic with these operands update a tile (rather than one element)? A variable counts as a value."""
    wide = (is_wide(dst), is_wide(value))
    return any(wide)


def is_wide(value: Any) -> bool:
    """A buffer (but no variable) or a slice: something with extents of its own."""
    if isinstance(value, TensorRegion):
        return True
    return isinstance(value, Var) and is_buffer(value) and value.scope() != "local.var"


def tile_atomic(what: str, kind: str, dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> None:
    """dst = dst `kind` value, element by element, each update atomic.

    what: the name in the language ("T.atomic_add"). kind: add, max, min, or. dst: a global or shared block; value: a
    tile; a corner takes the other's extents by the rules of `T.copy`. Elements outside either buffer: as in `T.copy`.
    Raises TileValueError for shapes or scopes that do not fit, TileNotSupportedError for return_prev.
    """
    builder = in_kernel(what)
    if return_prev:
        raise TileNotSupportedError(f"{what}: return_prev is for single elements", remedy="update element by element inside T.Parallel")
    target = operand(dst, "dst", what, scopes=(GLOBAL, SHARED, SHARED_DYN))
    source, target = fit(operand(value, "value", what), target, what)
    builder.evaluate(make_call("tl.tileop.atomic", [target.region, source.region], kind=kind, memory_order=memory_order))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """One scalar atomic for each element."""
    dst, src = call.args[0], call.args[1]
    before: list[Stmt] = []
    if may_overlap(dst, src, ctx):
        src, fill = staged(src, ctx)
        before.append(fill)
    order = call.attrs["memory_order"] if "memory_order" in call.attrs else None
    element = dtype_of(dst)

    def body(position: list[Var]) -> list[Stmt]:
        place = region(dst.source, at(dst, position), [1] * len(dst.region))
        value = convert(read(src, position), element)
        update = make_call("tl.atomic", [place, value], element, ctx.span, kind=str(call.attrs["kind"]), memory_order=order)
        return [Evaluate(update, ctx.span)]

    return seq([*before, nest([extents_of(dst)[k] for k in wide_dims(dst)], body, ctx)])


ATOMIC = TileOperator("tl.tileop.atomic", lower)

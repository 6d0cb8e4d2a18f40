"""T.fill and T.clear: every element of a block gets one value.

In: a buffer, a slice, or an element; a value. Out: a `tl.tileop.fill` statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.builder import in_kernel
from ..ir.dialect import make_call
from ..ir.expr import as_expr, convert
from ..ir.tvm_api import Bind, Call, Expr, FloatImm, IntImm, Stmt, Var, dtype_of, seq, store
from .base import LowerContext, TileOperator
from .loops import at, extents_of, nest, wide_dims
from .operands import operand, require_inside


def fill(dst: Any, value: Any, *, annotations: Mapping[str, Any] | None = None) -> None:
    """Set every element of `dst` (a buffer, or a slice of one) to `value`, converted to its element type.

    value: a Python number or a scalar expression, evaluated once. annotations: hints, ignored.
    Raises TileIndexError for a slice that provably leaves its buffer.
    """
    _emit(dst, value, "T.fill")


def clear(dst: Any) -> None:
    """Set every element of `dst` (a buffer, or a slice of one) to zero."""
    _emit(dst, 0, "T.clear")


def _emit(dst: Any, value: Any, what: str) -> None:
    builder = in_kernel(what)
    target = operand(dst, "dst", what)
    require_inside(target, what)
    converted = convert(as_expr(value), target.dtype)
    if target.form == "corner":
        builder.store(target.buffer, converted, list(target.mins))
        return
    builder.evaluate(make_call("tl.tileop.fill", [target.region, converted]))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The value is evaluated once, before any element changes: it may read the block that is filled."""
    dst, value = call.args[0], call.args[1]
    return fill_block(dst, value, ctx)


def fill_block(dst: Any, value: Expr, ctx: LowerContext) -> Stmt:
    """Statements that set all elements of the region `dst` to `value` (of its element type)."""
    before: list[Stmt] = []
    if not isinstance(value, IntImm | FloatImm):
        once = Var("value", dtype_of(value))
        before.append(Bind(once, value, ctx.span))
        value = once
    extents = [extents_of(dst)[k] for k in wide_dims(dst)]
    loops = nest(extents, lambda v: [store(dst.source, value, at(dst, v), ctx.span)], ctx)
    return seq([*before, loops])


FILL = TileOperator("tl.tileop.fill", lower)

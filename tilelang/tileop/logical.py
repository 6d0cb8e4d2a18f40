"""T.any_of and T.all_of: is any element, are all elements of a block non-zero?

In: a buffer or a slice of one row. Out: a bool expression, a call of `tl.any_of` / `tl.all_of`, which
`passes/program/lower_tile_ops.py` computes before the statement that uses it.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import make_call, op_name
from ..ir.expr import binary, truth
from ..ir.tvm_api import Call, Expr, Stmt, TensorRegion, Var, const, load, seq, store
from .base import LowerContext
from .loops import Accumulator, at, extents_of, nest, serial, wide_dims
from .operands import is_one, operand, require_inside

LOGICAL_OPS = ("tl.any_of", "tl.all_of")


def any_of(buffer: Any) -> Expr:
    """True if any element of `buffer` is non-zero (False for an empty one).

    buffer: a whole buffer, or a slice whose only extent other than 1 is the last. Raises TileValueError otherwise.
    """
    return _call("T.any_of", "tl.any_of", buffer)


def all_of(buffer: Any) -> Expr:
    """True if all elements of `buffer` are non-zero (True for an empty one). Operand as in `T.any_of`."""
    return _call("T.all_of", "tl.all_of", buffer)


def _call(what: str, op: str, buffer: Any) -> Expr:
    builder = in_kernel(what)
    found = operand(buffer, "buffer", what)
    if found.form == "region" and not all(map(is_one, found.extents[:-1])):
        raise TileValueError(
            f"{what}: {found}: only the last dimension of a slice may have an extent other than 1",
            remedy="pass the whole buffer, or one row of it",
        )
    require_inside(found, what)
    return make_call(op, [found.region], "bool", builder.span())


def lower_logical(call: Call, result: Var, ctx: LowerContext) -> Stmt:
    """Statements that leave the value of the call in `result`, a bool buffer of shape (1,)."""
    block: TensorRegion = call.args[0]
    is_any = op_name(call) == "tl.any_of"
    extents = [extents_of(block)[k] for k in wide_dims(block)]

    def body(_position: list[Var]) -> list[Stmt]:
        acc = Accumulator("bool", ctx)

        def loop(inner: list[Var]) -> Stmt:
            if len(inner) < len(extents):
                return serial(extents[len(inner)], lambda v: [loop([*inner, v])], ctx)
            element = truth(load(block.source, at(block, inner)))
            return acc.set(binary("or" if is_any else "and", acc.value, element))

        return [*acc.declare(const(not is_any, "bool")), loop([]), store(result, acc.value, [0], ctx.span)]

    return seq([nest([], body, ctx, scalar=True)])

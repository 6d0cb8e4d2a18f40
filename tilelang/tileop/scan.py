"""T.cumsum and T.cummax: running totals along one dimension of a tile.

In: a tile, a destination of the same shape (the tile itself when none is given). Out: a `tl.tileop.scan` statement.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import FRAGMENT, LOCAL, SHARED, SHARED_DYN, make_call
from ..ir.expr import convert
from ..ir.tvm_api import Call, Stmt, Var, dtype_of, load, seq, store
from .base import LowerContext, TileOperator
from .loops import Accumulator, extents_of, indices, is_unit, may_overlap, nest, same_block, serial, staged, wide_dims
from .operands import is_one, operand, require_inside, same
from .reduce import combine_for, normalise_dim

_SCOPES = (FRAGMENT, SHARED, SHARED_DYN, LOCAL)


def cumsum(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """dst[..., k, ...] = sum of src[..., 0..k, ...] along `dim`; with `reverse`, of src[..., k.., ...].

    src, dst: fragments or shared tiles of one shape, slices allowed; without dst the scan is in place. Floats narrower
    than 32 bits are summed in float32. Raises TileValueError for a dimension out of range or different shapes.
    """
    _emit("T.cumsum", "sum", src, dst, dim, reverse)


def cummax(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """dst[..., k, ...] = largest of src[..., 0..k, ...] along `dim`; with `reverse`, of src[..., k.., ...].

    Operands as in `T.cumsum`; NaNs are passed over as in `T.reduce_max`.
    """
    _emit("T.cummax", "max", src, dst, dim, reverse)


def _emit(what: str, kind: str, src: Any, dst: Any, dim: Any, reverse: Any) -> None:
    builder = in_kernel(what)
    if not isinstance(reverse, bool | int):
        raise TileTypeError(f"{what}: reverse={reverse!r} must be a Python bool")
    source = operand(src, "src", what, scopes=_SCOPES)
    target = operand(src if dst is None else dst, "dst", what, scopes=_SCOPES)
    require_inside(source, what)
    require_inside(target, what)
    whole = source.form == target.form == "buffer"
    a, b = (o.extents if whole else [e for e in o.extents if not is_one(e)] for o in (source, target))
    if len(a) != len(b) or not all(map(same, a, b)):
        raise TileValueError(f"{what}: {source} and {target} differ in shape", remedy="give dst the shape of src, or leave it out")
    dim = normalise_dim(dim, source, what)
    builder.evaluate(make_call("tl.tileop.scan", [source.region, target.region], kind=kind, dim=dim, reverse=bool(reverse)))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """For each position of the other dimensions: a serial loop that stores the running total of each element."""
    src, dst = call.args[0], call.args[1]
    dim, reverse = int(call.attrs["dim"]), bool(call.attrs["reverse"])
    combine = combine_for(str(call.attrs["kind"]), dtype_of(src), dtype_of(dst))
    before: list[Stmt] = []
    if may_overlap(src, dst, ctx) and not same_block(src, dst):
        src, fill = staged(src, ctx, keep=len(src.region))
        before.append(fill)
    wide, extent = wide_dims(src), extents_of(src)[dim]
    rest = [k for k in wide if k != dim]
    target = dict(zip(wide, wide_dims(dst), strict=True))

    def body(position: list[Var]) -> list[Stmt]:
        acc = Accumulator(combine.dtype, ctx)
        others = dict(zip(rest, position, strict=True))

        def step(r: Any) -> list[Stmt]:
            k = extent - 1 - r if reverse and not isinstance(r, int) else r
            at = {**others, dim: k}
            place = indices(dst, {target[d]: v for d, v in at.items() if d in target})
            total = combine.step(acc.value, combine.value(load(src.source, indices(src, at))))
            return [acc.set(total), store(dst.source, convert(acc.value, dtype_of(dst)), place, ctx.span)]

        loop = step(0) if is_unit(extent) else [serial(extent, step, ctx)]
        return [*acc.declare(combine.identity(dtype_of(src))), *loop]

    return seq([*before, nest([extents_of(src)[k] for k in rest], body, ctx, scalar=True)])


SCAN = TileOperator("tl.tileop.scan", lower)

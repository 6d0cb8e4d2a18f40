"""T.transpose: dst[..., j, i] = src[..., i, j].

In: two tiles. Out: a `tl.tileop.transpose` statement.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import make_call
from ..ir.expr import convert
from ..ir.tvm_api import Call, Stmt, Var, dtype_of, load, seq, store
from .base import LowerContext, TileOperator
from .loops import extents_of, indices, is_unit, may_overlap, nest, staged
from .operands import Operand, operand, require_inside, same, shape_text


def transpose(src: Any, dst: Any) -> None:
    """Swap the last two dimensions: dst[..., j, i] = src[..., i, j], converted to the type of `dst`.

    src: (..., M, N), dst: (..., N, M); buffers or slices of at least two dimensions. Raises TileValueError when the
    shapes do not fit.
    """
    what = "T.transpose"
    builder = in_kernel(what)
    source, target = _matrix(src, "src", what), _matrix(dst, "dst", what)
    wanted = [*source.extents[:-2], source.extents[-1], source.extents[-2]]
    if len(wanted) != len(target.extents) or not all(map(same, wanted, target.extents)):
        raise TileValueError(f"{what}: {source} transposed does not fit {target}", remedy=f"dst must have the shape {shape_text(wanted)}")
    builder.evaluate(make_call("tl.tileop.transpose", [source.region, target.region]))


def _matrix(value: Any, role: str, what: str) -> Operand:
    found = operand(value, role, what)
    if found.form == "corner" or len(found.extents) < 2:
        raise TileValueError(f"{what}: {found} is no matrix", remedy="pass a buffer or a slice of at least two dimensions")
    require_inside(found, what)
    return found


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """Loops over the elements of dst, as if all of src were read first."""
    src, dst = call.args[0], call.args[1]
    rank, before = len(dst.region), list[Stmt]()
    if may_overlap(src, dst, ctx):
        src, fill = staged(src, ctx, keep=rank)
        before.append(fill)
    wide = [k for k, e in enumerate(extents_of(dst)) if not is_unit(e)]
    swapped = [*range(rank - 2), rank - 1, rank - 2]

    def body(position: list[Var]) -> list[Stmt]:
        at = dict(zip(wide, position, strict=True))
        value = load(src.source, indices(src, {swapped[k]: v for k, v in at.items()}))
        return [store(dst.source, convert(value, dtype_of(dst)), indices(dst, at), ctx.span)]

    return seq([*before, nest([extents_of(dst)[k] for k in wide], body, ctx)])


TRANSPOSE = TileOperator("tl.tileop.transpose", lower)

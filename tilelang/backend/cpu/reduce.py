"""T.reduce_* on vector registers: a lowering that agrees with the portable one up to the order of summation.

In: a `tl.tileop.reduce` call. Out: loops. Along the last dimension several vectors of partial results run through the row
and are folded at its end; along another dimension the partial results are a vector of neighbouring columns.
"""

from __future__ import annotations

from typing import Any

from ...ir.dialect import LOCAL
from ...ir.expr import convert
from ...ir.tvm_api import AllocBuffer, Call, Expr, For, ForKind, Stmt, Var, const, decl_buffer, dtype_of, load, seq, store
from ...tileop.base import LowerContext, Lowering
from ...tileop.loops import extents_of, indices, may_overlap, nest, wide_dims
from ...tileop.reduce import combine_for
from .loops import vector, vectors
from .machine import machine

PARTIALS = 4  # independent vectors of partial results: hides the latency of an addition
VECTOR_TYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None, or why the portable loops are used."""
    src, out = call.args[0], call.args[1]
    if ctx.per_thread:
        return "operands of a single thread"
    if not all(isinstance(e, int) for e in extents_of(src)):
        return "symbolic extents"
    if may_overlap(src, out, ctx):
        return "the result overlaps the source"
    combine = _combine(call)
    if combine.dtype not in VECTOR_TYPES:
        return f"no vectors of {combine.dtype}"
    lanes = machine(ctx.passes).lanes(combine.dtype)
    dim, last = int(call.attrs["dim"]), len(src.region) - 1
    width = extents_of(src)[last]
    if width < (2 * lanes if dim == last else lanes):
        return f"rows of {width} elements are shorter than the vectors"
    return None


def _combine(call: Call) -> Any:
    src, out = call.args[0], call.args[1]
    return combine_for(str(call.attrs["kind"]), dtype_of(src), dtype_of(out), bool(call.attrs["nan_propagate"]))


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The statements of one call."""
    src, dim = call.args[0], int(call.attrs["dim"])
    return _rows(call, ctx) if dim == len(src.region) - 1 else _columns(call, ctx)


def _finish(call: Call, combine: Any, total: Expr, place: list[Any]) -> Stmt:
    out = call.args[1]
    if not bool(call.attrs["clear"]):
        total = combine.step(total, convert(load(out.source, place), combine.dtype))
    return store(out.source, convert(total, dtype_of(out)), place)


def _rows(call: Call, ctx: LowerContext) -> Stmt:
    """Along the last dimension."""
    src, out = call.args[0], call.args[1]
    combine, last = _combine(call), len(src.region) - 1
    width = extents_of(src)[last]
    lanes = machine(ctx.passes).lanes(combine.dtype)
    count = next(c for c in (PARTIALS, 2, 1) if c * lanes <= width)
    step = count * lanes
    rest, target = [k for k in wide_dims(src) if k != last], wide_dims(out)
    identity = convert(combine.identity(dtype_of(src)), combine.dtype)

    def body(position: list[Var]) -> list[Stmt]:
        acc = decl_buffer((step,), combine.dtype, "acc", LOCAL)

        def element(j: Any) -> Expr:
            value = load(src.source, indices(src, {**dict(zip(rest, position, strict=True)), last: j}))
            return combine.value(value)

        def update(place: Expr, j: Expr) -> Stmt:
            return store(acc, combine.step(load(acc, [place]), element(j)), [place])

        r, t = Var("r", "int32"), Var("t", "int32")
        stmts: list[Stmt] = [AllocBuffer(acc), vectors(count, lanes, lambda e: store(acc, identity, [e]))]
        main = vectors(count, lanes, lambda e: update(e, r * const(step, "int32") + e))
        stmts.append(For(r, 0, width // step, ForKind.SERIAL, main))
        half = step // 2
        while half:
            stmts.append(_fold(acc, half, combine))
            half //= 2
        if width % step:
            stmts.append(For(t, 0, width % step, ForKind.SERIAL, update(const(0, "int32"), t + const(width - width % step, "int32"))))
        return [*stmts, _finish(call, combine, load(acc, [0]), indices(out, dict(zip(target, position, strict=True))))]

    return nest([extents_of(src)[k] for k in rest], body, ctx, scalar=True)


def _fold(acc: Var, half: int, combine: Any) -> Stmt:
    """acc[0:half] combined with acc[half:2 half]."""
    return vector(half, lambda e: store(acc, combine.step(load(acc, [e]), load(acc, [e + const(half, "int32")])), [e]))


def _columns(call: Call, ctx: LowerContext) -> Stmt:
    """Along another dimension: vectors of neighbours in the last one."""
    src, out = call.args[0], call.args[1]
    combine, dim, last = _combine(call), int(call.attrs["dim"]), len(src.region) - 1
    extents = extents_of(src)
    lanes = machine(ctx.passes).lanes(combine.dtype)
    rest, target = [k for k in wide_dims(src) if k not in (dim, last)], wide_dims(out)
    identity = convert(combine.identity(dtype_of(src)), combine.dtype)

    def block(position: list[Var], start: Expr, width: int) -> Stmt:
        acc = decl_buffer((width,), combine.dtype, "acc", LOCAL)
        outer = dict(zip(rest, position, strict=True))
        order = [k for k in wide_dims(src) if k != dim]

        def place(column: Expr) -> list[Any]:
            values = {**outer, last: column}
            return indices(out, dict(zip(target, [values[k] for k in order], strict=True)))

        r = Var("r", "int32")

        def update(e: Expr) -> Stmt:
            value = load(src.source, indices(src, {**outer, dim: r, last: start + e}))
            return store(acc, combine.step(load(acc, [e]), combine.value(value)), [e])

        return seq([
            AllocBuffer(acc),
            vector(width, lambda e: store(acc, identity, [e])),
            For(r, 0, extents[dim], ForKind.SERIAL, vector(width, update)),
            vector(width, lambda e: _finish(call, combine, load(acc, [e]), place(start + e))),
        ])  # fmt: skip

    def body(position: list[Var]) -> list[Stmt]:
        chunk = Var("chunk", "int32")
        whole, tail = extents[last] // lanes, extents[last] % lanes
        stmts: list[Stmt] = [For(chunk, 0, whole, ForKind.SERIAL, block(position, chunk * const(lanes, "int32"), lanes))]
        if tail:
            stmts.append(block(position, const(whole * lanes, "int32"), tail))
        return stmts

    return nest([extents[k] for k in rest], body, ctx, scalar=True)


REDUCE = Lowering("vector reduction", "tl.tileop.reduce", accepts, lower)

"""T.cumsum and T.cummax by warps: the lanes of a warp take neighbouring elements of a row and exchange their totals.

In: a scan call. Out: the program of a thread. Each row (a position of the other dimensions) belongs to one warp, which passes along it
in chunks: a lane combines its own few elements, lanes combine their totals in five shuffles, and what came before the chunk is carried
along. Rows in fragments pass through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.dialect import FRAGMENT, LOCAL, SHARED_DYN, SHARED_SCOPES, VAR, attr, make_call
from ...ir.expr import convert
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from ...tileop.base import LowerContext, Lowering
from ...tileop.loops import extents_of, indices, may_overlap, nest, read, same_block, wide_dims, write
from ...tileop.reduce import combine_for
from .instr import WARP
from .warps import at, bind_warps, loop, threads_of

_MOST_ELEMENTS = 4  # of one lane in a chunk


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None where warps can share the rows."""
    src, dst = call.args
    if ctx.per_thread or ctx.kernel is None:
        return "an operand belongs to one thread"
    if not all(isinstance(e, int) for e in extents_of(src)):
        return "the tile's size is not constant"
    if not all(block.source.scope() in (FRAGMENT, *SHARED_SCOPES) for block in (src, dst)):
        return "an operand is no tile"
    if may_overlap(src, dst, ctx) and not same_block(src, dst):
        return "the result overwrites another part of the tile"
    threads, dim = threads_of(ctx).count, int(attr(call, "dim"))
    if threads % WARP:
        return f"{threads} threads are no whole warps"
    length, rows = extents_of(src)[dim], math.prod(extents_of(src)) // extents_of(src)[dim]
    if length < WARP:
        return f"{length} elements are too few for the lanes of a warp"
    if dim != len(extents_of(src)) - 1 and rows * 4 >= threads:
        return "neighbouring threads have neighbouring rows"
    return None


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The scan, row by row."""
    return _Emitter(call, ctx).run()


class _Emitter:
    """Builds the statements of one scan."""

    def __init__(self, call: Call, ctx: LowerContext) -> None:
        self.src, self.dst = call.args
        self.dim, self.reverse = int(attr(call, "dim")), bool(attr(call, "reverse"))
        self.ctx, self.span = ctx, ctx.span
        self.combine = combine_for(str(attr(call, "kind")), dtype_of(self.src), dtype_of(self.dst))
        self.identity = self.combine.identity(dtype_of(self.src))
        self.warps = bind_warps(ctx)
        self.length = extents_of(self.src)[self.dim]
        self.elements = max(e for e in (1, 2, _MOST_ELEMENTS) if e * WARP <= self.length)
        self.rest = [k for k in wide_dims(self.src) if k != self.dim]
        self.before: list[Stmt] = []
        self.after: list[Stmt] = []

    def run(self) -> Stmt:
        extents = [extents_of(self.src)[k] for k in self.rest]
        rows, warps = math.prod(extents), self.warps.threads.count // WARP
        source = self.source()
        target = self.target(source)
        turn = Var("turn", "int32")
        row: Expr = turn * const(warps, "int32") + self.warps.warp
        body: Stmt = seq(self.row(source, target, dict(zip(self.rest, _digits(row, extents), strict=True))))
        if rows % warps:
            body = IfThenElse(tirx.LT(row, const(rows, "int32")), body, None, self.span)
        turns = For(turn, const(0, "int32"), const(-(-rows // warps), "int32"), ForKind.SERIAL, body, span=self.span)
        return seq([*self.before, *self.warps.declare, turns, *self.after])

    # ---------------------------------------------------------------- operands
    def source(self) -> TensorRegion:
        """The source in shared memory."""
        if self.src.source.scope() != FRAGMENT:
            return self.src
        copy, wide = self.tile(self.src), wide_dims(self.src)
        extents = [extents_of(self.src)[k] for k in wide]
        self.before.append(nest(extents, lambda v: [write(copy, v, read(self.src, v), self.ctx)], self.ctx))
        return copy

    def target(self, source: TensorRegion) -> TensorRegion:
        """The destination in shared memory, to be copied afterwards if it is not there."""
        if self.dst.source.scope() != FRAGMENT:
            return self.dst
        copy, wide = source if same_block(self.src, self.dst) else self.tile(self.dst), wide_dims(self.dst)
        extents = [extents_of(self.dst)[k] for k in wide]
        self.after.append(nest(extents, lambda v: [write(self.dst, v, read(copy, v), self.ctx)], self.ctx))
        return copy

    def tile(self, block: TensorRegion) -> TensorRegion:
        extents = extents_of(block)
        buffer = decl_buffer(extents, dtype_of(block), f"{block.source.name}_rows", SHARED_DYN, alignment=16, span=self.span)
        self.ctx.temporaries.append(buffer)
        return region(buffer, [0] * len(extents), extents)

    # ---------------------------------------------------------------- one row
    def row(self, source: TensorRegion, target: TensorRegion, others: dict[int, Any]) -> list[Stmt]:
        """others: the position in the other dimensions."""
        dtype, span, chunk = self.combine.dtype, self.span, self.elements * WARP
        carry = decl_buffer((1,), dtype, "carry", VAR, span=span)
        mine = decl_buffer((self.elements,), dtype, "mine", LOCAL, alignment=16, span=span)
        total = decl_buffer((1,), dtype, "total", VAR, span=span)
        step, base = Var("step", "int32"), Var("base", total.ty.dtype)
        first = step * const(chunk, "int32") + self.warps.lane * const(self.elements, "int32")

        def each(body: Callable[[Any], Stmt], kind: int = ForKind.UNROLLED) -> Stmt:
            return loop(self.elements, lambda e: [body(e)], "e", span, kind)

        def chain(e: int) -> Stmt:
            earlier = load(mine, [const(e - 1, "int32")]) if e else self.identity
            return store(mine, self.combine.step(earlier, load(mine, [const(e, "int32")])), [e], span)

        stmts = [
            each(lambda e: store(mine, self.element(source, others, at(first, 1, e)), [e], span), ForKind.VECTORIZED),
            *(chain(e) for e in range(self.elements)),
            store(total, load(mine, [const(self.elements - 1, "int32")]), [0], span),
            *self.over_lanes(total),
            *self.bases(carry, total, base),
            each(lambda e: store(mine, self.combine.step(base, load(mine, [e])), [e], span)),
            each(lambda e: self.result(target, others, at(first, 1, e), load(mine, [e])), ForKind.VECTORIZED),
        ]
        steps = const(-(-self.length // chunk), "int32")
        along = For(step, const(0, "int32"), steps, ForKind.SERIAL, seq(stmts), span=span)
        allocations: list[Stmt] = [AllocBuffer(b, None, span) for b in (carry, mine, total)]
        return [*allocations, store(carry, self.identity, [0], span), along]

    def bases(self, carry: Var, total: Var, base: Var) -> list[Stmt]:
        """base = what came before this lane's elements; the carry takes the chunk along."""
        before, last = Var("before", total.ty.dtype), Var("last", total.ty.dtype)
        known = tirx.Select(tirx.GT(self.warps.lane, const(0, "int32")), before, self.identity)
        return [
            Bind(before, self.shuffle(load(total, [0]), "up", const(1, "int32")), self.span),
            Bind(last, self.shuffle(load(total, [0]), "idx", const(WARP - 1, "int32")), self.span),
            Bind(base, self.combine.step(load(carry, [0]), known), self.span),
            store(carry, self.combine.step(load(carry, [0]), last), [0], self.span),
        ]

    def over_lanes(self, total: Var) -> list[Stmt]:
        """total = the combination of the totals of this lane and those before it."""
        stmts: list[Stmt] = []
        for distance in (1, 2, 4, 8, 16):
            other = Var("other", total.ty.dtype)
            stmts.append(Bind(other, self.shuffle(load(total, [0]), "up", const(distance, "int32")), self.span))
            both = self.combine.step(other, load(total, [0]))
            kept = tirx.Select(tirx.GE(self.warps.lane, const(distance, "int32")), both, load(total, [0]))
            stmts.append(store(total, kept, [0], self.span))
        return stmts

    def shuffle(self, value: Expr, mode: str, lane: Expr) -> Expr:
        operands = [value, lane, const(WARP, "int32"), const(0xFFFFFFFF, "uint32")]
        return make_call("tl.shfl", operands, self.combine.dtype, mode=mode)

    def place(self, number: Expr) -> Expr:
        return const(self.length - 1, "int32") - number if self.reverse else number

    def element(self, source: TensorRegion, others: dict[int, Any], number: Expr) -> Expr:
        """Element `number` of the row in the order of the scan; behind the end what changes nothing."""
        value = self.combine.value(load(source.source, indices(source, {**others, self.dim: self.place(number)})))
        return value if self.divides() else tirx.if_then_else(tirx.LT(number, const(self.length, "int32")), value, self.identity)

    def result(self, target: TensorRegion, others: dict[int, Any], number: Expr, value: Expr) -> Stmt:
        wide = dict(zip(wide_dims(self.src), wide_dims(target), strict=True))
        position = {wide[k]: v for k, v in {**others, self.dim: self.place(number)}.items() if k in wide}
        stmt = store(target.source, convert(value, dtype_of(target)), indices(target, position), self.span)
        return stmt if self.divides() else IfThenElse(tirx.LT(number, const(self.length, "int32")), stmt, None, self.span)

    def divides(self) -> bool:
        return self.length % (self.elements * WARP) == 0


def _digits(number: Expr, extents: list[int]) -> list[Expr]:
    """Position `number` in a row-major block of these extents."""
    found: list[Expr] = []
    for k, extent in reversed(list(enumerate(extents))):
        found.append(tirx.floormod(number, const(extent, "int32")) if k else number)
        number = tirx.floordiv(number, const(extent, "int32"))
    return found[::-1]


SCAN = Lowering("warps along rows", "tl.tileop.scan", accepts, lower)

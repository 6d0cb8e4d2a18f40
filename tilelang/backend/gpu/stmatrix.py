"""A fragment of 16-bit elements to a shared tile by stmatrix, for sm_90 and later: a quarter of the stores, and of their addresses.

In: a copy of a whole fragment (of 16-bit elements, or of float32 that the copy rounds) whose threads hold it as matrix instructions
leave it: each 8 registers of a warp are four matrices of 8 x 8, a lane having two neighbours of row lane / 4. Out: for each of the four one
instruction; lane l names row l % 8 of matrix l / 8. Where the matrices lie is read off the layout by enumeration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...ir.dialect import FRAGMENT, SHARED_SCOPES
from ...ir.dtypes import dtype
from ...ir.expr import convert
from ...ir.tvm_api import AllocBuffer, Bind, Call, Expr, Stmt, Var, const, decl_buffer, dtype_of, load, region, seq, store
from ...layout.fragment import Fragment
from ...target.limits import architecture
from ...tileop.base import LowerContext, Lowering, OtherKind
from ...tileop.loops import extents_of, mins_of, wide_dims
from .gemm import is_whole
from .instr import WARP, store_matrices
from .warps import at, bind_warps, threads_of

COUNT, SIDE, CHUNK = 4, 8, 8  # matrices of an instruction, their rows and columns; elements of a row that one lane names
REGISTERS = 2 * COUNT  # elements of a lane
GROUP_WARPS = 4
_ROUNDED = ("float16", "bfloat16")


@dataclass(frozen=True)
class Matrices:
    """Corner (row, column) of matrix m of instruction g of warp w: warp[0] * (w // 4) + warp[1] * (w % 4) + step[g] + matrix[m], each a
    pair (rows, columns)."""

    warp: tuple[tuple[int, int], tuple[int, int]]
    step: tuple[tuple[int, int], ...]
    matrix: tuple[tuple[int, int], ...]


def matrices_of(layout: Fragment, threads: int) -> Matrices | None:
    """Where the matrices of a two-dimensional fragment lie; None if it has another layout."""
    held = layout.inverse()
    if layout.replicate_size != 1 or held.shape[0] != threads or threads % WARP or held.shape[1] % REGISTERS or (held < 0).any():
        return None
    rows, columns = np.divmod(held, layout.shape[-1])
    shape = threads // WARP, WARP, held.shape[1] // REGISTERS, COUNT, 2  # warp, lane, instruction, matrix, neighbour
    corner = np.stack([rows.reshape(shape), columns.reshape(shape)])
    lane, pair = np.arange(WARP)[:, None, None, None], np.arange(2)
    corner = corner - np.stack(np.broadcast_arrays(lane // 4 + 0 * pair, lane % 4 * 2 + pair))[:, None]
    first = corner[:, :, :1, :, :, :1]
    if (corner != first).any() or (first[1] % CHUNK).any():
        return None
    first = first[:, :, 0, :, :, 0]
    warp, step, matrix = first[:, :, 0, 0], first[:, 0, :, 0], first[:, 0, 0, :]
    base = warp[:, 0]
    inner = warp[:, 1] - base if warp.shape[1] > 1 else 0 * base
    outer = warp[:, GROUP_WARPS] - base if warp.shape[1] > GROUP_WARPS else GROUP_WARPS * inner
    w = np.arange(warp.shape[1])
    fitted = outer[:, None] * (w // GROUP_WARPS) + inner[:, None] * (w % GROUP_WARPS)
    whole = fitted[:, :, None, None] + step[:, None, :, None] + (matrix - base[:, None])[:, None, None, :]
    if (whole != first).any():
        return None
    if (matrix[:, 3] - base != matrix[:, 1] + matrix[:, 2] - 2 * base).any():
        return None
    return Matrices((_pair(outer), _pair(inner)), tuple(map(_pair, step.T)), tuple(map(_pair, (matrix - base[:, None]).T)))


def _pair(values: np.ndarray) -> tuple[int, int]:
    return int(values[0]), int(values[1])


def _accepts(call: Call, ctx: LowerContext) -> str | None:
    source, target = call.args[:2]
    if source.source.scope() != FRAGMENT or target.source.scope() not in SHARED_SCOPES or len(call.args) > 2:
        return OtherKind("no copy of a fragment to shared memory")
    if ctx.per_thread or ctx.kernel is None:
        return "the copy belongs to one thread"
    if int(architecture(ctx.passes.target)[3:5]) < 90:
        return f"{architecture(ctx.passes.target)} has no stmatrix (sm_90 has)"
    kinds, element = (dtype_of(source), dtype_of(target)), dtype(dtype_of(target))
    rounds = kinds[0] == "float32" and kinds[1] in _ROUNDED
    if element.bits != 16 or element.lanes != 1 or not (rounds or kinds[0] == kinds[1]):
        return f"{kinds[0]} to {kinds[1]} is no copy of 16-bit elements"
    plan, layout = ctx.passes.fragments.get(source.source), ctx.passes.shared_layouts.get(target.source)
    if plan is None or plan.groups != ctx.groups or not is_whole(source) or len(source.region) != 2:
        return "no whole fragment of rows and columns"
    rank, extents = len(target.region), extents_of(target)
    if wide_dims(target) != [rank - 2, rank - 1] or extents[-2:] != extents_of(source) or target.source in ctx.roots:
        return "the tile has not the fragment's rows and columns"
    if layout is None or not layout.keeps(CHUNK) or not _multiple(mins_of(target)[-1]):
        return "rows of the tile are no whole chunks of 16 bytes"
    return None if matrices_of(plan.layout, threads_of(ctx).count) is not None else "the fragment is not made of matrices of 8 x 8"


def _multiple(low: Expr | int) -> bool:
    try:
        return int(low) % CHUNK == 0  # pyright: ignore[reportArgumentType]
    except TypeError:
        return False


def _lower(call: Call, ctx: LowerContext) -> Stmt:
    source, target = call.args[:2]
    plan = ctx.passes.fragments[source.source]
    found = matrices_of(plan.layout, threads_of(ctx).count)
    assert found is not None
    warps, span = bind_warps(ctx), ctx.span
    row, column = Var("row", "int32"), Var("column", "int32")
    which = warps.lane // SIDE
    variables = warps.warp // GROUP_WARPS, warps.warp % GROUP_WARPS, which % 2, which // 2
    steps = [[*(w[axis] for w in found.warp), found.matrix[1][axis], found.matrix[2][axis]] for axis in (0, 1)]
    places = [_sum(zip(steps[0], variables, strict=True)) + warps.lane % SIDE, _sum(zip(steps[1], variables, strict=True))]
    stmts: list[Stmt] = [*warps.declare, Bind(row, places[0], span), Bind(column, places[1], span)]
    rounded = None
    if dtype_of(source) != dtype_of(target):
        rounded = decl_buffer((REGISTERS,), dtype_of(target), f"{source.source.name}_rounded", "local", alignment=16, span=span)
        stmts.append(AllocBuffer(rounded, None, span))
    lead, lows = mins_of(target)[:-2], mins_of(target)[-2:]
    for g, step in enumerate(found.step):
        registers = region(plan.registers, [g * REGISTERS], [REGISTERS])
        if rounded is not None:
            for k in range(REGISTERS):
                value = convert(load(plan.registers, [const(g * REGISTERS + k, "int32")], span), dtype_of(target))
                stmts.append(store(rounded, value, [const(k, "int32")], span))
            registers = region(rounded, [0], [REGISTERS])
        corner = [at(lows[0], 1, row, step[0]), at(lows[1], 1, column, step[1])]
        rows = region(target.source, [*lead, *corner], [*([1] * len(lead)), 1, CHUNK])
        stmts.append(store_matrices(COUNT).call([rows, registers], span))
    return seq(stmts)


def _sum(terms: Iterable[tuple[int, Expr]]) -> Expr:
    total: Expr = const(0, "int32")
    for step, variable in terms:
        total = at(total, step, variable) if step else total
    return total


STMATRIX = Lowering("stmatrix", "tl.tileop.copy", _accepts, _lower)

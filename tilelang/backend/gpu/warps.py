"""Warps of a statement, loops of one thread, and how matrix instructions tile a product over the warps.

In: the context of a call. Out: `Warps` (warp and lane as expressions, the condition to take part), `WarpGrid` (rows and columns of
instructions for each warp) and the fragments of accumulators and register operands that follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.kernel import KernelRegion
from ...ir.tvm_api import Bind, Expr, For, ForKind, IfThenElse, Span, Stmt, Var, const, seq, tirx
from ...layout.fragment import Fragment
from ...passes.analysis.thread_groups import Threads, part, whole_block
from ...tileop.base import LowerContext
from .instr import WARP, Instruction

SQUARE, FULL_ROW, FULL_COL = 0, 1, 2  # values of `GemmWarpPolicy`


def threads_of(ctx: LowerContext) -> Threads:
    """The threads that execute the statement."""
    assert isinstance(ctx.kernel, KernelRegion)
    block = whole_block(ctx.kernel)
    return block if ctx.groups is None else part(block, ctx.groups)


@dataclass(frozen=True)
class Warps:
    """declare: the statements that bind thread, warp and lane."""

    threads: Threads
    thread: Var
    warp: Var
    lane: Var
    declare: tuple[Stmt, ...]

    def only(self, count: int, body: Stmt, span: Span | None) -> Stmt:
        """`body` for the first `count` warps."""
        if count * WARP >= self.threads.count:
            return body
        return IfThenElse(tirx.LT(self.warp, const(count, "int32")), body, None, span)


def bind_warps(ctx: LowerContext) -> Warps:
    threads = threads_of(ctx)
    thread, warp, lane = Var("thread", "int32"), Var("warp", "int32"), Var("lane", "int32")
    binds = (Bind(thread, threads.index, ctx.span), Bind(warp, thread // WARP, ctx.span), Bind(lane, thread % WARP, ctx.span))
    return Warps(threads, thread, warp, lane, binds)


# ---------------------------------------------------------------- loops of one thread
def loop(extent: int, body: Callable[[Any], Sequence[Stmt]], name: str, span: Span | None, kind: int = ForKind.UNROLLED) -> Stmt:
    """A loop of constant extent, unrolled by default; without a loop where there is one iteration."""
    if extent == 1:
        return seq(list(body(const(0, "int32"))))
    variable = Var(name, "int32")
    return For(variable, const(0, "int32"), const(extent, "int32"), kind, seq(list(body(variable))), span=span)


def at(base: Any, step: int, index: Any, extra: Any = 0) -> Expr:
    """`base + index * step + extra`, without terms that are zero."""
    terms = [t for t in (base, index * step if step != 1 else index, extra) if not _is_zero(t)]
    total = terms[0] if terms else const(0, "int32")
    for term in terms[1:]:
        total = total + term
    return total if not isinstance(total, int) else const(total, "int32")


def _is_zero(value: Any) -> bool:
    return (isinstance(value, int) and value == 0) or (isinstance(value, tirx.IntImm) and int(value) == 0)


# ---------------------------------------------------------------- products over warps
@dataclass(frozen=True)
class WarpGrid:
    """slices x rows x columns of warps (row-major); each has m_tiles x n_tiles instructions of shape (m, n, k). The last row and column
    of warps may reach beyond the tile. Each slice of warps sums over its own part of K, into partial results of its own."""

    rows: int
    columns: int
    m_tiles: int
    n_tiles: int
    instruction: Instruction
    slices: int = 1

    @property
    def count(self) -> int:
        return self.rows * self.columns * self.slices

    def accumulator(self, shape: Sequence[int]) -> Fragment:
        """The fragment of C: (..., M, N), leading dimensions of extent 1, but the first the number of slices where there are several."""
        m, n, _ = self.instruction.shape
        atom = self.instruction.operands[0].layout
        assert atom is not None
        per_lane = atom.get_register_size()
        assert self.slices == 1 or shape[0] == self.slices

        def place(*index: Any) -> tuple[Any, Any]:
            i, j = index[len(shape) - 2], index[len(shape) - 1]
            lane, register = atom.forward([i % m, j % n])
            warp = i // (m * self.m_tiles) * self.columns + j // (n * self.n_tiles)
            if self.slices > 1:
                warp = index[0] * (self.rows * self.columns) + warp
            tile = i // m % self.m_tiles * self.n_tiles + j // n % self.n_tiles
            return warp * WARP + lane, tile * per_lane + register

        return Fragment(tuple(shape), place)

    def left(self, shape: Sequence[int]) -> Fragment:
        """The fragment of A (..., M, K) as a register operand: every column of warps holds a copy, every slice its part of K."""
        m, _, k = self.instruction.shape
        atom, k_tiles = self.instruction.operands[1].layout, -(-shape[-1] // k // self.slices)
        assert atom is not None and (self.slices == 1 or shape[-1] % (k * self.slices) == 0)
        per_lane, rank = atom.get_register_size(), len(shape)

        def place(*index: Any) -> tuple[Any, Any]:
            i, r = index[rank - 2], index[rank - 1]
            copy = index[rank] if len(index) > rank else 0
            lane, register = atom.forward([i % m, r % k])
            warp = i // (m * self.m_tiles) * self.columns + copy
            if self.slices > 1:
                warp = r // (k * k_tiles) * (self.rows * self.columns) + warp
            return warp * WARP + lane, (i // m % self.m_tiles * k_tiles + r // k % k_tiles) * per_lane + register

        return Fragment(tuple(shape), place, replicate=self.columns)


def warp_grid(rows: int, columns: int, warps: int, policy: int, instruction: Instruction) -> WarpGrid:
    """The grid for a tile of rows x columns on at most `warps` warps: the fewest instructions on the busiest warp, then the
    fewest operands loaded. FULL_ROW and FULL_COL give the warps to rows or columns first."""
    m, n, _ = instruction.shape
    m_all, n_all = -(-rows // m), -(-columns // n)
    best: tuple[Any, WarpGrid] | None = None
    for across in range(1, min(warps, n_all) + 1):
        for down in range(1, min(warps // across, m_all) + 1):
            grid = WarpGrid(down, across, -(-m_all // down), -(-n_all // across), instruction)
            order = {SQUARE: 0, FULL_ROW: -down, FULL_COL: -across}[policy]
            cost = (order, grid.m_tiles * grid.n_tiles, grid.m_tiles * m + grid.n_tiles * n, grid.count)
            if best is None or cost < best[0]:
                best = cost, grid
    assert best is not None
    return best[1]

"""A grid of many blocks as one block a multiprocessor that visits tile after tile.

In: the blocks of a kernel. Out: the blocks of the smaller grid, and for each role of its warps the loop over the tiles, whose body sees the
indices of the old grid. What a role fetches or writes for one tile overlaps with the next. Rounds of tiles are visited in the order of
the old grid, or in the panels that `T.use_swizzle` asks for. Every other round is dealt out backwards: where tiles become lighter with
their number, as those of causal attention do, no block has the heaviest of every round. Where an extent is of 64 bits tiles are counted
in 64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.dialect import ANNOTATION_TILES
from ...ir.kernel import KernelRegion
from ...ir.tvm_api import Bind, Cast, Expr, For, ForKind, Span, Stmt, Var, const, dtype_of, seq, tirx

SWIZZLE = "use_swizzle"  # kernel annotation: [panel, "row" | "column"]


@dataclass(frozen=True)
class PersistentGrid:
    """blocks: of the small grid. total: tiles. workers: blocks at most. old: (variable, extent) of the blocks that the program knows.
    axis, size: blocks of a cluster take `size` tiles side by side along that dimension of the old grid."""

    block: Var
    total: Any
    workers: int
    old: tuple[tuple[Var, Any], ...]
    panel: tuple[int, bool] | None  # width, and whether panels are columns
    axis: int = 0
    size: int = 1

    def in_clusters(self, axis: int, size: int) -> PersistentGrid:
        """The grid for clusters of `size` blocks, which divides the extent of the old dimension."""
        return replace(self, workers=self.workers - self.workers % size, axis=axis, size=size)

    @property
    def rank(self) -> Expr:
        """The number of the block in its cluster."""
        return tirx.floormod(self.block, const(self.size, "int32"))

    @property
    def dtype(self) -> str:
        """Of the numbers of tiles."""
        return "int32" if isinstance(self.total, int) else dtype_of(self.total)

    @property
    def blocks(self) -> tuple[tuple[Var, Any], ...]:
        few = min(self.total, self.workers) if isinstance(self.total, int) else tirx.Min(self.total, self._number(self.workers))
        return ((self.block, few),)

    def loop(self, body: Stmt, span: Span | None) -> For:
        """`body` for every tile of this block."""
        turn, tile = Var("turn", self.dtype), Var("tile", self.dtype)
        places = zip(self.old, self._indices(tile), strict=True)
        binds: list[Stmt] = [Bind(var, _as(value, dtype_of(var)), span) for (var, _), value in places]
        first, total = (self._clusters(n) for n in (_as(self.block, self.dtype), self._number(self.total)))
        all_ = self._number(self.workers // self.size)
        full, rest = tirx.floordiv(total, all_), tirx.floormod(total, all_)
        here = turn * all_ + self._place(turn, first, all_)
        mine = full + tirx.Select(self._place(full, first, all_) < rest, self._number(1), self._number(0))
        inside = seq([Bind(tile, here, span), *binds, body])
        return For(turn, self._number(0), mine, ForKind.SERIAL, inside, None, {ANNOTATION_TILES: True}, None, span)

    def _place(self, turn: Expr, first: Expr, all_: Expr) -> Expr:
        """The place of this block, number `first` of `all_`, in a round."""
        forwards = tirx.EQ(tirx.floormod(turn, self._number(2)), self._number(0))
        return tirx.Select(forwards, first, all_ - self._number(1) - first)

    def _clusters(self, blocks: Expr) -> Expr:
        """How many clusters so many blocks are."""
        return blocks if self.size == 1 else tirx.floordiv(blocks, self._number(self.size))

    def _number(self, value: Any) -> Expr:
        return _as(value, self.dtype)

    def _indices(self, tile: Expr) -> list[Expr]:
        """Indices of the old grid of tile number `tile`."""
        found: list[Expr] = []
        rest: Expr = tile
        extents = [e // self.size if self.size > 1 and k == self.axis else e for k, (_, e) in enumerate(self.old)]
        if self.panel is not None:
            area = self._number(extents[0]) * self._number(extents[1])
            found = self._in_panels(tirx.floormod(rest, area), extents[0], extents[1])
            rest, extents = tirx.floordiv(rest, area), extents[2:]
        for k, extent in enumerate(extents):
            last = k == len(extents) - 1
            found.append(rest if last else tirx.floormod(rest, self._number(extent)))
            rest = rest if last else tirx.floordiv(rest, self._number(extent))
        if self.size > 1:
            found[self.axis] = found[self.axis] * self._number(self.size) + self._number(self.rank)
        return found

    def _in_panels(self, tile: Expr, width: Any, height: Any) -> list[Expr]:
        """(x, y): down the rows of a panel before the next column, every other panel backwards."""
        assert self.panel is not None
        rows_of_panel, by_columns = self.panel
        if self.axis == (0 if by_columns else 1):
            rows_of_panel = max(1, rows_of_panel // self.size)
        if by_columns:
            width, height = height, width
        wide, high, size, two = (self._number(n) for n in (width, height, rows_of_panel, 2))
        area = wide * size
        which, rest = tirx.floordiv(tile, area), tirx.floormod(tile, area)
        rows = tirx.Min(high - which * size, size)
        at = tirx.floordiv(rest, rows)
        backwards = tirx.EQ(tirx.floormod(which, two), self._number(1))
        column, row = tirx.Select(backwards, wide - self._number(1) - at, at), which * size + tirx.floormod(rest, rows)
        return [row, column] if by_columns else [column, row]


def persistent(kernel: KernelRegion, workers: int) -> PersistentGrid | None:
    """The small grid of a kernel with more tiles than workers, or with a number of tiles that only the call knows; else None."""
    extents = [extent for _, extent in kernel.blocks]
    if not extents:
        return None
    total: Any = math.prod(extents) if all(isinstance(e, int) for e in extents) else _product(extents)
    if isinstance(total, int) and not workers < total < 1 << 31:
        return None
    swizzle = kernel.annotations.get(SWIZZLE)
    panel = (int(swizzle[0]), str(swizzle[1]) == "column") if swizzle is not None and len(extents) >= 2 else None
    return PersistentGrid(Var("worker", "int32"), total, workers, kernel.blocks, panel)


def without_swizzle(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in annotations.items() if k != SWIZZLE}


def _product(extents: list[Any]) -> Expr:
    dtype = "int64" if any(not isinstance(e, int) and dtype_of(e) == "int64" for e in extents) else "int32"
    total = _as(extents[0], dtype)
    for extent in extents[1:]:
        total = total * _as(extent, dtype)
    return total


def _as(value: Any, dtype: str) -> Expr:
    if isinstance(value, int):
        return const(value, dtype)
    return value if dtype_of(value) == dtype else Cast(dtype, value)

"""Shared memory over the budget: what is alive at the peak, the sum, and a change that fits.

In: the planned buffers with their lives, the target's limit. Out: nothing, or a TileValueError. Every change that the error proposes has
been packed like the program's own buffers, and its sum is under the limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...errors import Location, TileValueError
from .memory_plan import extent, pack


@dataclass(frozen=True)
class Need:
    """What one buffer needs. shape: of one version of the tile, in elements of `element` bytes; versions: copies that a pipeline keeps.
    bytes: of all versions, with gaps. first, last: its life, positions in program order (both count). fixed: it cannot shrink."""

    name: str
    shape: tuple[int, ...]
    element: int
    versions: int
    bytes: int
    alignment: int
    first: int
    last: int
    at: Location | None
    fixed: bool = False

    def with_versions(self, versions: int) -> Need:
        return replace(self, versions=versions, bytes=self.bytes // self.versions * versions)

    def halved(self, dim: int) -> Need:
        """One extent halved. Gaps follow rows: they stay where rows get shorter, and halve where rows get fewer."""
        shape = tuple(-(-e // 2) if k == dim else e for k, e in enumerate(self.shape))
        gaps = self.bytes - self.versions * math.prod(self.shape) * self.element
        rest = gaps if dim == len(shape) - 1 else -(-gaps // 2)
        return replace(self, shape=shape, bytes=self.versions * math.prod(shape) * self.element + rest)


@dataclass(frozen=True)
class Budget:
    """limit: bytes that a block may have. static: bytes that are taken beside the planned ones. arch: who says so. apart: for each buffer
    those that may not share bytes with it. kernel: the launch's line."""

    limit: int
    static: int
    arch: str
    apart: Sequence[Collection[int]]
    kernel: Location | None

    def total(self, needs: Sequence[Need]) -> int:
        """Bytes of a block with these buffers, packed."""
        sizes = [n.bytes for n in needs]
        return extent(pack(sizes, [n.alignment for n in needs], self.apart), sizes) + self.static


def check_budget(needs: Sequence[Need], total: int, budget: Budget) -> None:
    """Raise TileValueError if `total` bytes, as packed, are over the limit."""
    if total <= budget.limit:
        return
    position, alive = _peak(needs)
    needed = sum(n.bytes for n in alive) + budget.static
    where = next((n.at for n in needs if n.first == position and n.at is not None), budget.kernel)
    chosen = alive if needed > budget.limit else list(needs)  # else only the packing of all of them is too large
    parts = [f"{n.name} {n.bytes}" for n in chosen] + ([f"static arrays {budget.static}"] if budget.static else [])
    sum_text = needed if needed > budget.limit else total
    over = f"{sum_text - budget.limit} bytes too many"
    largest = max(chosen, key=lambda n: n.bytes)
    raise TileValueError(
        f"shared memory: a block needs {sum_text} bytes ({' + '.join(parts)}), and may use {budget.limit} on {budget.arch}: {over}",
        at=largest.at or where,
        notes=[(n.at, f"{n.name}: {_size(n)}") for n in chosen if n.at is not None and n is not largest],
        remedy=_remedy(needs, budget),
    )


def _peak(needs: Sequence[Need]) -> tuple[int, list[Need]]:
    """(position, buffers) where the most bytes are alive."""
    best: tuple[int, int, list[Need]] = (0, 0, [])
    for position in sorted({n.first for n in needs}):
        alive = [n for n in needs if n.first <= position <= n.last]
        size = sum(n.bytes for n in alive)
        if size > best[0]:
            best = size, position, alive
    return best[1], best[2]


def _size(need: Need) -> str:
    shape = " x ".join(map(str, need.shape))
    return f"{need.bytes} bytes" + (f", {need.versions} versions of {shape}" if need.versions > 1 else f", {shape}")


# ---------------------------------------------------------------- changes that fit
def _remedy(needs: Sequence[Need], budget: Budget) -> str:
    found = [text for text in (_fewer_stages(needs, budget), _smaller_tiles(needs, budget)) if text]
    return "; or ".join(found) or f"the {budget.limit} bytes do not hold even its fixed parts: use fewer barriers and arrays"


def _fewer_stages(needs: Sequence[Need], budget: Budget) -> str:
    """The largest number of versions that fits, for all pipelined tiles alike."""
    for versions in range(max(n.versions for n in needs) - 1, 0, -1):
        total = budget.total([n.with_versions(min(versions, n.versions)) for n in needs])
        if total <= budget.limit:
            return f"use num_stages={versions} ({total} bytes)"
    return ""


def _smaller_tiles(needs: Sequence[Need], budget: Budget) -> str:
    """Halve the longest extent of the largest buffer until it fits."""
    found = list(needs)
    while (total := budget.total(found)) > budget.limit:
        open_ = [k for k, n in enumerate(found) if not n.fixed and max(n.shape, default=1) > 1]
        if not open_:
            return ""
        largest = max(open_, key=lambda k: found[k].bytes)
        shape = found[largest].shape
        found[largest] = found[largest].halved(shape.index(max(shape)))
    changes = [f"{b.name} of {b.shape} instead of {a.shape}" for a, b in zip(needs, found, strict=True) if a.shape != b.shape]
    return f"use smaller tiles, for example {' and '.join(changes)} ({total} bytes)"

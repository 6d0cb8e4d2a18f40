"""Counts of memory traffic for each access of the program: bank conflicts of shared memory, sectors of global memory.

In: accesses of all lanes. Out: totals by site. Rounds and conflicts of shared memory follow `layout/banks.py`; a sector is 32 aligned
bytes of global memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...layout.banks import NOBODY, WARP, passes
from .report import Site

SECTOR = 32


@dataclass
class Count:
    """accesses: warps that executed it. rounds, conflicts: of shared memory. sectors: of global memory. bytes: asked for."""

    accesses: int = 0
    rounds: int = 0
    conflicts: int = 0
    sectors: int = 0
    bytes: int = 0


class Counters:
    """Totals by site of all launches so far."""

    def __init__(self) -> None:
        self.by_site: dict[int, tuple[Site, Count]] = {}

    def __getitem__(self, site: Site) -> Count:
        return self.by_site.setdefault(id(site), (site, Count()))[1]

    def rows(self) -> list[tuple[Site, Count]]:
        """(site, totals) in the order of the program's text."""
        return sorted(self.by_site.values(), key=lambda row: (row[0].at.line, row[0].at.column) if row[0].at else (0, 0))

    def banks(self, group: Any, site: Site, index: Any, mask: Any, memory: Any, is_store: bool, width: int = 0) -> None:
        """An access to shared memory: one element of each lane, or `width` bytes that begin with it."""
        size = memory.kind.itemsize
        where = _elements(group, index, mask)
        if not width:
            width, where = _vectors(where, site.vector, size)
        rows = _by_warp(group, where)
        addresses = np.where(rows >= 0, memory.offset + rows * size, NOBODY)
        rounds, needed = passes(addresses, width)
        count = self[site]
        count.accesses += int((needed > 0).sum())
        count.rounds += int(rounds.sum())
        count.conflicts += int((rounds - needed).sum())
        count.bytes += int((rows >= 0).sum()) * width

    def sectors(self, group: Any, site: Site, index: Any, mask: Any, size: int, is_store: bool) -> None:
        """An access to global memory (tensors begin at a sector)."""
        count = self[site]
        for where in _by_warp(group, _elements(group, index, mask)):
            part = where[where >= 0]
            if not part.size:
                continue
            count.accesses += 1
            count.sectors += len(np.unique(part * size // SECTOR))
            count.bytes += part.size * size


def _elements(group: Any, index: Any, mask: Any) -> np.ndarray:
    """Elements that the lanes name, -1 in lanes that take no part: (..., lanes)."""
    where = np.asarray(index, np.int64)
    shape = np.broadcast_shapes(where.shape, (group.n,), *(() if mask is None else (mask.shape,)))
    where = np.broadcast_to(where, shape)
    return where if mask is None else np.where(mask, where, -1)


def _vectors(where: np.ndarray, axis: int, size: int) -> tuple[int, np.ndarray]:
    """(bytes of a lane's access, elements they begin with): the iterations of a vectorised loop, counted along this axis from the
    end, are accesses of up to 16 bytes where they are one aligned run in every lane."""
    if not axis or where.ndim < axis:
        return size, where
    runs = np.moveaxis(where, -axis, 0)
    total = len(runs) * size
    if len(runs) == 1 or (total > 16 and total % 16) or (total <= 16 and total & (total - 1)):
        return size, where
    first, unit = runs[0], min(total, 16)
    steps = np.arange(len(runs)).reshape(-1, *([1] * first.ndim))
    if np.any(np.where(first < 0, runs >= 0, runs != first + steps)) or np.any(np.where(first < 0, 0, first * size % unit)):
        return size, where
    return unit, runs[:: unit // size]


def _by_warp(group: Any, where: np.ndarray) -> np.ndarray:
    """The same as (warps, 32)."""
    return where.reshape(-1, WARP if group.n % WARP == 0 else group.n)

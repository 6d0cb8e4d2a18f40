"""Counts of memory traffic for each access of the program: bank conflicts of shared memory, sectors of global memory.

In: accesses of all lanes. Out: totals by site. A warp's access to shared memory takes as many rounds as the most crowded of
32 banks of 4 bytes has different words (elements of 8 and 16 bytes go by halves and quarters of the warp); the conflicts are the
rounds beyond the ones that are needed anyway. A sector is 32 aligned bytes of global memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .report import Site

WARP, BANKS, WORD, SECTOR = 32, 32, 4, 32


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
        size = width or memory.kind.itemsize
        count = self[site]
        for where in _by_warp(group, index, mask):
            step = max(1, WARP * WORD // max(size, WORD)) if size > WORD else WARP
            for k in range(0, len(where), step):
                part = where[k : k + step]
                part = part[part >= 0]
                if not part.size:
                    continue
                words = np.unique((memory.offset + part * memory.kind.itemsize) // WORD)
                if size > WORD:
                    words = np.unique((words[:, None] + np.arange(size // WORD)).reshape(-1))
                crowd = int(np.bincount(words % BANKS, minlength=1).max())
                count.rounds += crowd
                count.conflicts += crowd - 1
                count.bytes += part.size * size
            count.accesses += 1

    def sectors(self, group: Any, site: Site, index: Any, mask: Any, size: int, is_store: bool) -> None:
        """An access to global memory (tensors begin at a sector)."""
        count = self[site]
        for where in _by_warp(group, index, mask):
            part = where[where >= 0]
            if not part.size:
                continue
            count.accesses += 1
            count.sectors += len(np.unique(part * size // SECTOR))
            count.bytes += part.size * size


def _by_warp(group: Any, index: Any, mask: Any) -> np.ndarray:
    """Elements that each warp names, -1 in lanes that take no part: (warps, 32)."""
    where = np.asarray(index, np.int64)
    shape = np.broadcast_shapes(where.shape, (group.n,), *(() if mask is None else (mask.shape,)))
    where = np.broadcast_to(where, shape)
    if mask is not None:
        where = np.where(mask, where, -1)
    return where.reshape(-1, WARP) if group.n % WARP == 0 else where.reshape(-1, group.n)

"""Launches: blocks of a grid run one batch after the other, warps in an order shuffled by the seed.

In: the generated function of a kernel region, grid and block extents, its shared buffers. Out: memory changed, or `SimtError`.
Blocks of a batch run in lockstep; a kernel whose warps wait for each other by other means than block barriers runs block by
block, each warp a coroutine.
"""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import SimtError, TileAssertionError, TileRuntimeError
from .barriers import Barriers, waiting_text
from .bulk_copies import BulkCopies
from .group import WARP, Group
from .memory import Global, Shared, SharedBlock
from .products import WARPS, Warpgroup
from .report import Site, fail
from .shadow import Clock, Shadow

LANES = 2048  # lanes of a batch: enough to spread NumPy's cost, few enough for the cache


@dataclass(frozen=True)
class SharedSpec:
    """One shared allocation. offset and size in bytes; kind: element type."""

    name: str
    kind: Any
    elements: int
    offset: int
    pieces: int = 0  # smallest element (bytes) of it and its views; 0: its own

    @property
    def bytes(self) -> int:
        return self.elements * np.dtype(self.kind).itemsize

    @property
    def piece(self) -> int:
        return self.pieces or np.dtype(self.kind).itemsize


@dataclass(frozen=True)
class KernelSpec:
    """What a launch needs to know. by_warp: warps are coroutines. whole_grid: all blocks run together. barriers: (name, arrive counts)."""

    threads: tuple[int, int, int]
    shared: tuple[SharedSpec, ...]
    barriers: tuple[tuple[str, tuple[int, ...]], ...]
    by_warp: bool
    whole_grid: bool
    site: Site


class Batch:
    """Blocks that run together: their shared memory, clock and barriers."""

    def __init__(
        self, spec: KernelSpec, kernel: Callable[..., Any], blocks: Sequence[tuple[int, ...]], seed: int, counters: Any
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.spec, self.blocks, self.seed, self.counters = spec, blocks, seed, counters
        self.extents = spec.threads
        self.threads = spec.threads[0] * spec.threads[1] * spec.threads[2]
        self.warps = -(-self.threads // WARP)
        self.lanes_per_block = self.warps * WARP
        self.clock = Clock()
        self.barriers = Barriers(self.warps, self.threads, spec.barriers)
        self.draw = random.Random(seed)
        self.bulk = BulkCopies(self.barriers, self.clock, self.draw)
        self.warpgroups = [Warpgroup() for _ in range(-(-self.warps // WARPS))]
        self.shared = self._shared()

    def block_name(self, number: int) -> str:
        place = self.blocks[number]
        return str(place[0]) if len(place) == 1 else str(place)

    def _shared(self) -> dict[str, Shared]:
        specs = sorted(self.spec.shared, key=lambda s: s.offset)
        size = max((s.offset + s.bytes for s in specs), default=0)
        block = SharedBlock(len(self.blocks), -(-size // 16) * 16, self.clock, self.extents, self.warps if self.spec.by_warp else 1)
        found: dict[str, Shared] = {}
        self.shadows: list[Shadow] = []
        for cluster in _clusters(specs):
            low, high = min(s.offset for s in cluster), max(s.offset + s.bytes for s in cluster)
            piece = min(s.piece for s in cluster)
            shadow, pieces = block.shadow(low, high, piece, [s.name for s in cluster])
            shadow.agents = [bar.name for bar in self.barriers.bars.values()]
            self.shadows.append(shadow)
            for owner, s in enumerate(cluster):
                found[s.name] = Shared(s.name, s.kind, s.elements, block, s.offset, shadow, (low, piece, pieces), owner)
        return found

    def index(self, axis: int, group: Group) -> Any:
        """blockIdx of the lanes along one axis."""
        if isinstance(group.block, int):
            return self.blocks[group.block][axis]
        return np.asarray([b[axis] for b in self.blocks], np.int32)[group.block]

    def run(self) -> None:
        if self.spec.by_warp:
            self._run_warps()
            return
        count = len(self.blocks)
        lane = np.tile(np.arange(self.lanes_per_block, dtype=np.int32), count)
        block = np.repeat(np.arange(count), self.lanes_per_block)
        group = Group(self, lane, block, None)
        for _ in self._start(group):
            raise SimtError("a wait that nothing can end", at=group.where.at if group.where else None)

    def _start(self, group: Group) -> Any:
        indices = [self.index(axis, group) for axis in range(len(self.blocks[0]))]
        return self.kernel(group, self.shared, *indices)

    def _run_warps(self) -> None:
        """Warps take turns, and bulk copies land in between; what goes on is drawn from the seed."""
        lanes = np.arange(WARP, dtype=np.int32)
        groups = [Group(self, lanes + WARP * w, 0, w) for w in range(self.warps)]
        running = {w: self._start(groups[w]) for w in range(self.warps)}
        waits: dict[int, Callable[[], bool]] = {}
        while running:
            ready = [w for w in running if w not in waits or waits[w]()]
            choices = len(ready) + self.bulk.flying
            if not choices:
                self._deadlock([groups[w] for w in running])
            number = self.draw.randrange(choices)
            if number >= len(ready):
                self.bulk.land(number - len(ready))
                continue
            warp = ready[number]
            waits.pop(warp, None)
            groups[warp].moved()
            try:
                waits[warp] = next(running[warp])
            except StopIteration:
                del running[warp]
                groups[warp].products.finish()
        self.bulk.finish()
        for warpgroup in self.warpgroups:
            warpgroup.finish()

    def _deadlock(self, waiting: Sequence[Group]) -> None:
        lines = waiting_text([(int(g.warp[0]), g.where, g.waits_for() if g.waits_for else "") for g in waiting])
        ended = self.warps - len(waiting)
        finished = f", the other {ended} have ended" if ended else ""
        site = lines[0][0] if lines else self.spec.site
        fail(f"deadlock: {len(waiting)} of {self.warps} warps wait for ever{finished}", site, *lines)


def _clusters(specs: Sequence[SharedSpec]) -> list[list[SharedSpec]]:
    """Buffers grouped by the bytes they share."""
    groups: list[list[SharedSpec]] = []
    end = -1
    for s in specs:
        if groups and s.offset < end:
            groups[-1].append(s)
        else:
            groups.append([s])
        end = max(end, s.offset + s.bytes) if s.offset < end else s.offset + s.bytes
    return groups


class Host:
    """Stands for a group where the host touches memory: one lane."""

    n, counters, extents = 1, None, (1, 1, 1)
    lane = np.zeros(1, np.int32)

    def block_name(self, lane: int) -> str:
        return "the host"


class Machine:
    """What the generated host code calls. seed: of all orders that a GPU leaves open."""

    def __init__(self, seed: int = 0, counters: Any = None) -> None:
        self.seed, self.counters = seed, counters
        self.host = Host()

    def workspace(self, name: str, kind: Any, size: int) -> Global:
        """Global memory that lives during the call."""
        return Global(name, np.full(size * np.dtype(kind).itemsize, 0xA5, np.uint8).view(kind))

    def at_address(self, name: str, address: int, kind: Any, size: int) -> Global:
        """A tensor at a raw address."""
        data = (ctypes.c_uint8 * (size * np.dtype(kind).itemsize)).from_address(address)
        return Global(name, np.ctypeslib.as_array(data).view(kind))

    def failed(self, kind: str, message: str) -> None:
        """A host assertion does not hold."""
        error = TileAssertionError if kind == "AssertionError" else TileRuntimeError
        raise error(message)

    def launch(self, spec: KernelSpec, kernel: Callable[..., Any], grid: Sequence[int]) -> None:
        """Run every block of the grid."""
        places = list(itertools.product(*(range(int(e)) for e in reversed(grid)))) if grid else [()]
        blocks = [tuple(reversed(p)) for p in places]
        if not grid:
            blocks = [(0,)]
        lanes = -(-spec.threads[0] * spec.threads[1] * spec.threads[2] // WARP) * WARP
        size = 1 if spec.by_warp else len(blocks) if spec.whole_grid else max(1, LANES // lanes)
        with np.errstate(all="ignore"):
            for start in range(0, len(blocks), size):
                Batch(spec, kernel, blocks[start : start + size], self.seed + start, self.counters).run()

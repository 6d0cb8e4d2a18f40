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

from ...errors import SimtError, TileAssertionError, TileRuntimeError, TileValueError
from .barriers import Barriers
from .bulk_copies import BulkCopies
from .cluster import ClusterBarrier, run_blocks
from .group import WARP, Group
from .memory import Global, Shared, SharedBlock
from .products import WARPS, Warpgroup
from .report import Site
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
    """What a launch needs to know. by_warp: warps are coroutines. whole_grid: all blocks run together. barriers: (name, arrive counts).
    cluster: blocks of a cluster along each dimension of the grid."""

    threads: tuple[int, int, int]
    shared: tuple[SharedSpec, ...]
    barriers: tuple[tuple[str, tuple[int, ...]], ...]
    by_warp: bool
    whole_grid: bool
    site: Site
    cluster: tuple[int, ...] = (1, 1, 1)


class Batch:
    """Blocks that run together: their shared memory, clock and barriers. By warps it is one block, number `rank` of a cluster of `ranks`
    whose first batch is `first` (None: itself)."""

    def __init__(
        self, spec: KernelSpec, kernel: Callable[..., Any], blocks: Sequence[tuple[int, ...]], seed: int, counters: Any,
        rank: int = 0, ranks: int = 1, first: Batch | None = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.spec, self.blocks, self.seed, self.counters = spec, blocks, seed, counters
        self.extents = spec.threads
        self.threads = spec.threads[0] * spec.threads[1] * spec.threads[2]
        self.warps = -(-self.threads // WARP)
        self.lanes_per_block = self.warps * WARP
        self.ranks = ranks
        self.clock, self.draw = (Clock(), random.Random(seed)) if first is None else (first.clock, first.draw)
        self.barriers = Barriers(self.warps, self.threads, spec.barriers, rank, ranks, None if first is None else first.barriers)
        self.bulk = BulkCopies(self.barriers, self.clock, self.draw)
        self.peers: Sequence[Batch] = (self,)  # the blocks of the cluster
        self.warpgroups = [Warpgroup() for _ in range(-(-self.warps // WARPS))]
        self.shared = self._shared()

    def block_name(self, number: int) -> str:
        place = self.blocks[number]
        return str(place[0]) if len(place) == 1 else str(place)

    def _shared(self) -> dict[str, Shared]:
        specs = sorted(self.spec.shared, key=lambda s: s.offset)
        size = max((s.offset + s.bytes for s in specs), default=0)
        warps = self.warps * self.ranks if self.spec.by_warp else 1
        block = SharedBlock(len(self.blocks), -(-size // 16) * 16, self.clock, self.extents, warps)
        found: dict[str, Shared] = {}
        self.shadows: list[Shadow] = []
        for cluster in _clusters(specs):
            low, high = min(s.offset for s in cluster), max(s.offset + s.bytes for s in cluster)
            piece = min(s.piece for s in cluster)
            shadow, pieces = block.shadow(low, high, piece, [s.name for s in cluster])
            shadow.agents = [bar.name for bar in self.barriers.bars.values()] * self.ranks
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
            self.meet((self,))
            run_blocks(self.peers)
            return
        count = len(self.blocks)
        lane = np.tile(np.arange(self.lanes_per_block, dtype=np.int32), count)
        block = np.repeat(np.arange(count), self.lanes_per_block)
        group = Group(self, lane, block, None)
        for _ in self.start(group):
            raise SimtError("a wait that nothing can end", at=group.where.at if group.where else None)

    def start(self, group: Group) -> Any:
        """The coroutine of a group."""
        indices = [self.index(axis, group) for axis in range(len(self.blocks[0]))]
        return self.kernel(group, self.shared, *indices)

    # ---------------------------------------------------------------- by warps
    def meet(self, peers: Sequence[Batch]) -> None:
        """These are the blocks of the cluster."""
        self.peers = peers
        self.cluster = peers[0].cluster if peers[0] is not self else ClusterBarrier([p.barriers for p in peers])

    def like(self, memory: Shared) -> Shared:
        """This block's memory at the place of another block's."""
        key = memory.offset, memory.owner, memory.shape
        mine = next(s for s in self.shared.values() if (s.offset, s.owner, s.shape) == key)
        return mine.as_type(memory.name, memory.kind, memory.size)

    def groups(self) -> list[Group]:
        """The warps."""
        lanes = np.arange(WARP, dtype=np.int32)
        return [Group(self, lanes + WARP * w, 0, self.barriers.own[w]) for w in range(self.warps)]

    def end(self) -> None:
        """All warps of the block have ended."""
        self.barriers.end()
        for warpgroup in self.warpgroups:
            warpgroup.finish()


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
        if rest := [(e, c) for e, c in zip(grid, spec.cluster, strict=False) if int(e) % c]:
            raise TileValueError(f"a grid extent of {rest[0][0]} is no multiple of the {rest[0][1]} blocks of a cluster", at=spec.site.at)
        with np.errstate(all="ignore"):
            if spec.by_warp and spec.cluster != (1, 1, 1):
                self._launch_clusters(spec, kernel, [int(e) for e in grid])
                return
            for start in range(0, len(blocks), size):
                Batch(spec, kernel, blocks[start : start + size], self.seed + start, self.counters).run()

    def _launch_clusters(self, spec: KernelSpec, kernel: Callable[..., Any], grid: Sequence[int]) -> None:
        """The blocks of a cluster run together; x is the fastest dimension of its ranks."""
        cluster = spec.cluster[: len(grid)]
        ranks = [p[::-1] for p in itertools.product(*(range(c) for c in reversed(cluster)))]
        corners = itertools.product(*(range(0, e, c) for e, c in zip(reversed(grid), reversed(cluster), strict=True)))
        for number, corner in enumerate(c[::-1] for c in corners):
            batches: list[Batch] = []
            for rank, place in enumerate(ranks):
                block = tuple(a + b for a, b in zip(corner, place, strict=True))
                first = batches[0] if batches else None
                batches.append(Batch(spec, kernel, [block], self.seed + number, self.counters, rank, len(ranks), first))
            for batch in batches:
                batch.meet(batches)
            run_blocks(batches)

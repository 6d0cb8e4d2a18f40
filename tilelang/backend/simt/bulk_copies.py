"""The bulk-copy engine of a block (TMA): loads that land in any order and signal mbarriers, stores in groups of a thread.

In: boxes of tensors and dense blocks of shared memory, issued by single threads. Out: memory changed at times drawn from the seed, or a
`SimtError`: a copy the hardware cannot do, bytes in use by somebody else, memory that has not been made visible, bytes of a barrier that
do not add up, a copy still under way when the block ends.

Loads write shared memory through the asynchronous proxy: what they bring is visible to those who have waited for the phase of the
mbarrier. Stores read shared memory until the issuing thread has waited for their group. Limits are those of the PTX ISA
("cp.async.bulk.tensor", "Tensor copies").
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..gpu.wgmma import swizzled_address
from .barriers import Barriers, MBarrier
from .memory import Global, Shared
from .report import Site, fail
from .shadow import AsyncRead, Clock, WarpTaking

MOST_EXTENT, MOST_RANK = 256, 5  # of a box
CHUNK = 16  # bytes: strides of a tensor and the innermost extent of a box are multiples
ALIGNMENT = 128  # bytes, of the block in shared memory


@dataclass(frozen=True)
class Box:
    """A box of a tensor: first coordinates of all lanes (or one number), extents; the tensor's shape and strides in elements."""

    memory: Global
    corner: Sequence[Any]
    extents: tuple[int, ...]
    shape: Sequence[int]
    strides: Sequence[int]

    def places(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        """(offsets in the tensor, which elements are inside) for the lane at this position of its group."""
        start = self.start(column)
        index = [i + s for i, s in zip(np.indices(self.extents).reshape(len(start), -1), start, strict=True)]
        inside = np.logical_and.reduce([(i >= 0) & (i < e) for i, e in zip(index, self.shape, strict=True)])
        return np.sum([i * s for i, s in zip(index, self.strides, strict=True)], axis=0), inside

    def start(self, column: int) -> list[int]:
        """The first coordinates of one lane."""
        return [int(c[column]) if isinstance(c, np.ndarray) else int(c) for c in self.corner]

    def check_start(self, column: int, stored: bool, site: Site) -> None:
        """Raise if a box may not begin there (CUDA programming guide, tensor copies)."""
        start = self.start(column)
        if stored and min(start) < 0:
            fail(f"{site.what} of {self.memory.name}: a box at {start}; only loads may begin before the tensor", site)
        if start[-1] * self.memory.kind.itemsize % CHUNK:
            fail(f"{site.what} of {self.memory.name}: a box at {start}, which is inside of {CHUNK} bytes of a row", site)

    def check(self, swizzle: int, site: Site) -> None:
        """Raise if the hardware has no copy of this form."""
        size = self.memory.kind.itemsize
        inner = self.extents[-1] * size
        reason = ""
        if len(self.extents) > MOST_RANK or max(self.extents) > MOST_EXTENT:
            reason = f"a box {list(self.extents)}; it has at most {MOST_RANK} dimensions of at most {MOST_EXTENT} elements"
        elif inner % CHUNK or (swizzle and inner > swizzle):
            limit = f", at most {swizzle}" if swizzle else ""
            reason = f"rows of {inner} bytes; they are multiples of {CHUNK}{limit}"
        elif self.strides[-1] != 1 or any(s * size % CHUNK for s, e in zip(self.strides[:-1], self.shape[:-1], strict=True) if e > 1):
            reason = f"a tensor with strides {list(self.strides)}; all but the last, which is 1, are multiples of {CHUNK} bytes"
        elif self.shape[-1] * size % CHUNK:
            reason = f"rows that end after {self.shape[-1] * size} bytes; the hardware keeps their end in pieces of {CHUNK} bytes only"
        if reason:
            fail(f"{site.what} of {self.memory.name}: {reason}", site)


@dataclass(eq=False)
class _Load:
    """values(): read from the tensor when it lands."""

    target: Shared
    index: np.ndarray
    piece: np.ndarray
    box: Box
    column: int
    bar: MBarrier
    site: Site


@dataclass(eq=False)
class _Store:
    """group: its number among the groups of its thread, None while it is open. read: None once shared memory has been read. lazy: it
    writes the tensor only when its thread waits for that, or when the block ends, after any other that is so. add: to what is there."""

    values: np.ndarray
    box: Box
    column: int
    lane: int
    read: AsyncRead | None
    source: Shared
    site: Site
    lazy: bool
    add: bool = False
    group: int | None = None
    landed: bool = False


class BulkCopies:
    """The engine of one block. random: draws when copies land."""

    def __init__(self, barriers: Barriers, clock: Clock, draw: random.Random) -> None:
        self.barriers, self.clock, self.random = barriers, clock, draw
        self.loads: list[_Load] = []
        self.stores: list[_Store] = []
        self.committed: dict[int, int] = {}  # groups closed so far, by thread
        self.landed: dict[int, tuple[int, _Load]] = {}  # when a load landed last, and which, by barrier

    # ---------------------------------------------------------------- issue
    def load(
        self, group: Any, target: Shared, start: Any, box: Box, bar: tuple[str, Any], swizzle: int, mask: Any, site: Site, to: Any = None,
    ) -> None:  # fmt: skip
        """Every lane of the mask issues a copy from its box to the block that begins at element `start`. to: a mask of ranks: to that
        place of each of these blocks of the cluster, where it signals the barrier at the place of `bar`."""
        name, number = bar
        for column in group.columns(mask):
            order = group.alone(column)
            box.check_start(column, False, site)
            which = int(number[column]) if isinstance(number, np.ndarray) else int(number)
            for peer in [group.batch] if to is None else self._named(group, to, column, f"a bulk load to {target.name}", site):
                memory = target if peer is group.batch else peer.like(target)
                index, piece = self._block(memory, start, box, swizzle, column, order, site)
                if peer is not group.batch:
                    peer.barriers.reached(group.one_warp, f"a bulk load to {target.name}", site)
                memory.shadow.check_proxy(piece, site, self.barriers.fenced[group.one_warp])
                memory.shadow.begin_async(piece, order, site, memory.owner, lambda: np.zeros(1, bool))
                signalled = peer.barriers.mbarrier(name, which, site)
                peer.bulk.loads.append(_Load(memory, index, piece, box, column, signalled, site))

    @staticmethod
    def _named(group: Any, to: Any, column: int, what: str, site: Site) -> list[Any]:
        """The blocks of the cluster that a mask names."""
        mask = int(to[column]) if isinstance(to, np.ndarray) else int(to)
        if mask <= 0:
            fail(f"{what} of no block: its mask is {mask}", site, remedy="set a bit for each block that gets the copy")
        return [group.peer(rank, what, site) for rank in range(mask.bit_length()) if mask >> rank & 1]

    def store(self, group: Any, source: Shared, start: Any, box: Box, swizzle: int, mask: Any, site: Site, add: bool = False) -> None:
        """Every lane of the mask issues a copy from the block that begins at element `start` to its box. add: to what is there."""
        for column in group.columns(mask):
            order = group.alone(column)
            box.check_start(column, True, site)
            index, piece = self._block(source, start, box, swizzle, column, order, site)
            read = source.shadow.begin_read(piece, order, site, source.owner, self.barriers.fenced[group.one_warp])
            lazy = self.random.random() < 0.5
            self.stores.append(_Store(source.data[0, index], box, column, int(order.lane), read, source, site, lazy, add))

    def _block(self, memory: Shared, start: Any, box: Box, swizzle: int, column: int, order: WarpTaking, site: Site) -> Any:
        """(elements, shadow pieces) of the block in shared memory."""
        box.check(swizzle, site)
        size = memory.kind.itemsize
        first = int(start[column]) if isinstance(start, np.ndarray) else int(start)
        address = memory.offset + first * size
        if address % ALIGNMENT:
            fail(f"{site.what} at {memory.name}[{first}], byte {address} of shared memory, no multiple of {ALIGNMENT}", site)
        count = int(np.prod(box.extents))
        return memory.at_bytes(swizzled_address(address + size * np.arange(count), swizzle), site)

    # ---------------------------------------------------------------- groups of stores
    def commit(self, group: Any, mask: Any) -> None:
        """Close the groups of these lanes."""
        for column in group.columns(mask):
            lane = int(group.who[column])
            number = self.committed.get(lane, 0)
            for store in self.stores:
                if store.lane == lane and store.group is None:
                    store.group = number
            self.committed[lane] = number + 1

    def wait(self, group: Any, open_groups: int, read: bool, mask: Any, site: Site) -> None:
        """All but the last groups of these lanes have read shared memory, and without `read` have written the tensor."""
        for column in group.columns(mask):
            lane = int(group.who[column])
            limit = self.committed.get(lane, 0) - open_groups
            for store in [s for s in self.stores if s.lane == lane and s.group is not None and s.group < limit]:
                self._finish(store, group.alone(column), read, site)

    def _finish(self, store: _Store, order: Any, read: bool, site: Site) -> None:
        if store.read is not None:
            store.source.shadow.end_read(store.read, order, site)
            store.read = None
        if not read:
            self._write(store)
        if not read:
            self.stores.remove(store)

    def _write(self, store: _Store) -> None:
        if not store.landed:
            places, inside = store.box.places(store.column)
            if store.add:
                store.box.memory.flat[places[inside]] += store.values[inside]
            else:
                store.box.memory.flat[places[inside]] = store.values[inside]
            store.landed = True

    # ---------------------------------------------------------------- landing
    @property
    def flying(self) -> int:
        """Copies that may land now."""
        return len(self.loads) + len(self._eager())

    def _eager(self) -> list[_Store]:
        return [s for s in self.stores if not s.landed and not s.lazy]

    def land(self, number: int) -> None:
        """One of them lands."""
        if number >= len(self.loads):
            self._write(self._eager()[number - len(self.loads)])
            return
        load = self.loads.pop(number)
        places, inside = load.box.places(load.column)
        values = np.zeros(len(places), load.target.kind)
        values[inside] = load.box.memory.flat[places[inside]].view(load.target.kind)
        load.target.data[0, load.index] = values
        load.target.shadow.land_async(load.piece, load.bar.agent, load.site)
        self.landed[load.bar.agent] = self.clock.now, load
        load.bar.bytes -= values.nbytes
        load.bar.advance(self.clock.tick(load.site))

    def finish(self) -> None:
        """The block ends."""
        unseen = [load for agent, (time, load) in self.landed.items() if self.barriers.seen[:, agent].max() <= time]
        for load in [*self.loads, *unseen]:
            fail(f"the block ends and nobody has waited for a copy into {load.target.name}", load.site, remedy=f"wait for {load.bar.name}")
        self.random.shuffle(self.stores)
        for store in self.stores:
            if store.read is not None:
                fail(f"the block ends while a bulk store is reading {store.source.name}", store.site,
                     remedy="close its group (T.tma_store_arrive) and wait for it (T.tma_store_wait)")  # fmt: skip
            self._write(store)
        self.barriers.unbalanced()

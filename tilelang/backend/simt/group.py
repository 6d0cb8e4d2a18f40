"""Lanes that run together, and what they do besides arithmetic: barriers, atomics, asynchronous copies, printing.

A group is a batch of whole blocks (when block and warp barriers are the only synchronisation) or one warp. Generated code
is a generator over a group: it yields a predicate when it has to wait. In: masks and operands of all lanes. Out: values.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import TileAssertionError
from . import warp as warps
from .barriers import Ballot, own_lanes
from .bulk_copies import BulkCopies
from .memory import Global, Registers, Scattered, Shared
from .products import GuardedRegisters, Products
from .random_numbers import Generator
from .report import Site, fail, first, thread_name
from .shadow import ATOMIC, Taking, WarpTaking
from .values import both

WARP = 32
MOST_MASKS = 64  # masks whose lanes are remembered
Wait = Callable[[], bool]


class Group:
    """n lanes. lane: linear thread index in the block; who: the same counted through the cluster; warp: number of the one warp in the
    cluster, or None; column: position in the group; block: number in the batch (an int, or one for each lane); mask: None, or the lanes
    that are threads (a block whose size is no multiple of 32 has idle ones)."""

    def __init__(self, batch: Any, lane: np.ndarray, block: Any, warp: int | None) -> None:
        self.n = len(lane)
        self.batch, self.extents, self.clock = batch, batch.extents, batch.clock
        self.lane, self.column, self.block, self.one_warp = lane, np.arange(self.n), block, warp
        self.warp = lane >> 5
        self.who = lane if warp is None else lane + WARP * (warp - warp % batch.warps)  # counted through the cluster
        x, y, _ = self.extents
        self.tx, self.ty, self.tz = lane % x, lane // x % y, lane // (x * y)
        real = lane < batch.threads
        self.mask = None if real.all() else real
        self.counters = batch.counters
        self.since = np.zeros(self.n, np.int32)
        self.warp_since = np.zeros(self.n, np.int32)
        self.random = random.Random(batch.seed * 7919 + (warp or 0))
        self.copies: list[Any] = []
        self.committed = np.zeros(self.n, np.int32)
        self.where: Site | None = None
        self.generator = Generator(self.n)
        self.guarded: list[GuardedRegisters] = []  # registers that products use
        if warp is not None:
            self.bulk: BulkCopies = batch.bulk
            self.products = Products(self, batch.warpgroups[warp % batch.warps // 4], batch.barriers.fenced[warp])
        self.waits_for: Callable[[], str] | None = None  # why the last wait is not over
        self._all: Taking | None = None
        self._masks: dict[int, tuple[Any, Taking]] = {}

    # ---------------------------------------------------------------- who and when
    def taking(self, mask: Any) -> Taking:
        """The lanes of `mask` and what is ordered before them; a mask with leading axes gives all lanes."""
        if mask is None or mask.ndim > 1:
            if self._all is None:
                self._all = self._taking(None)
            return self._all
        kept = self._masks.get(id(mask))
        if kept is None or kept[0] is not mask:
            if len(self._masks) > MOST_MASKS:
                self._masks.clear()
            kept = self._masks[id(mask)] = (mask, self._taking(np.flatnonzero(mask)))
        return kept[1]

    def _taking(self, columns: Any) -> Taking:
        def pick(value: Any) -> Any:
            return value if columns is None or not isinstance(value, np.ndarray) else value[columns]

        if self.one_warp is not None:
            seen = self.batch.barriers.seen[self.one_warp].copy()
            return WarpTaking(columns, pick(self.who), self.one_warp, self.block, int(seen.min()), seen)
        return Taking(columns, *(pick(v) for v in (self.lane, self.warp, self.block, self.since, self.warp_since)))

    def columns(self, mask: Any) -> list[int]:
        """Positions of the lanes of a mask that are threads."""
        return [] if mask is False else np.flatnonzero(self._active(self.mask if mask is None else mask)).tolist()

    def alone(self, column: int) -> WarpTaking:
        """One lane of a warp, and what is ordered before it."""
        taking = self.taking(None)
        assert isinstance(taking, WarpTaking)
        return WarpTaking(None, self.who[column], taking.warp, self.block, taking.since, taking.warp_since)

    def moved(self) -> None:
        """A barrier has changed what is ordered."""
        self._all = None
        self._masks.clear()

    def block_name(self, lane: int) -> str:
        """The first block of the batch, as the user counts."""
        return self.batch.block_name(0)

    def global_thread(self, place: Sequence[Any], grid: Sequence[int]) -> Any:
        """Linear index of the thread in the grid."""
        index: Any = 0
        for axis in reversed(range(len(place))):
            index = index * int(grid[axis]) + place[axis]
        for extent, at in zip(reversed(self.extents), (self.tz, self.ty, self.tx), strict=True):
            index = index * extent + at
        return index

    def in_groups(self, numbers: Sequence[int]) -> Any:
        """Lanes of these groups of 128 threads."""
        return np.isin(self.lane >> 7, numbers)

    def lanes(self, value: Any, kind: Any = None) -> np.ndarray:
        """A value in every lane."""
        array = np.asarray(value, kind)
        return array if array.shape[-1:] == (self.n,) else np.broadcast_to(array, (*array.shape[:-1], self.n))

    def registers(self, name: str, kind: Any, size: int, site: Site, recast: bool = False, guarded: bool = False) -> Registers:
        """Fresh per-thread memory of `size` elements. recast: views of it have elements of another size; guarded: products use it."""
        if guarded:
            self.guarded.append(GuardedRegisters(name, kind, size, self.n, site))
            return self.guarded[-1]
        return Registers(name, kind, size, self.n, site, recast)

    def scattered(self, name: str, addresses: Any, kind: Any, size: int, mask: Any, site: Site) -> Scattered:
        return Scattered(name, self.lanes(addresses), kind, size, mask, site)

    # ---------------------------------------------------------------- barriers
    def sync(self, mask: Any, site: Site, ident: int = 0, count: int | None = None) -> Wait | None:
        """Block barrier, or barrier `ident` for `count` threads."""
        if mask is False:
            return None
        if self.one_warp is not None:
            self.whole_warp(mask, site)
            self.where, self.waits_for = site, None
            self.moved()
            return self.batch.barriers.arrive_block(self.one_warp, int(np.ravel(ident)[0]), count, site, self.clock.tick(site))
        active = self._active(mask).reshape(-1, self.n if isinstance(self.block, int) else self.batch.lanes_per_block)
        arrived = active.sum(1)
        wanted = self.batch.threads if count is None else count
        bad = (arrived != 0) & (arrived != wanted)
        if bad.any():
            block = int(np.flatnonzero(bad)[0])
            missing = np.flatnonzero(~active[block, : self.batch.threads])
            lane = int(missing[0]) if len(missing) else 0
            fail(
                f"a barrier that not all threads of the block reach: {int(arrived[block])} of {wanted} are here, "
                f"{thread_name(lane, self.extents)} is not", site, remedy="move the barrier out of the condition",
            )  # fmt: skip
        now = self.clock.tick(site)
        if mask is None:
            self.since, self.warp_since = np.full(self.n, now, np.int32), np.full(self.n, now, np.int32)
        else:
            self.since, self.warp_since = np.where(mask, now, self.since), np.where(mask, now, self.warp_since)
        for shadow in self.batch.shadows:
            shadow.ordered(mask)
        self.moved()
        return None

    def sync_warp(self, mask: Any, site: Site, members: Any = None) -> None:
        if mask is False:
            return
        now = self.clock.tick(site)
        if self.one_warp is not None:
            self.batch.barriers.seen[self.one_warp, own_lanes(self.one_warp)][slice(None) if mask is None else mask] = now
        else:
            self.warp_since = np.full(self.n, now, np.int32) if mask is None else np.where(mask, now, self.warp_since)
        self.moved()

    def _active(self, mask: Any) -> np.ndarray:
        return np.ones(self.n, bool) if mask is None else np.broadcast_to(mask, (self.n,))

    def whole_warp(self, mask: Any, site: Site) -> None:
        missing = self._active(self.mask) & ~self._active(mask)
        if missing.any():
            (lane,) = first(missing, self.lane)
            fail(
                f"a barrier that not all threads of the block reach: {thread_name(lane, self.extents)} is not here", site,
                remedy="move the barrier out of the condition",
            )  # fmt: skip

    def block_vote(self, kind: str, value: Any, mask: Any, site: Site) -> Any:
        """Block barrier with the number of lanes in which `value` holds (count), or whether all (and) or some (or) do."""
        if mask is False:
            return np.zeros(self.n, np.int32)
        self.sync(mask, site)
        active = self._active(mask)
        holds = (self.lanes(value) != 0).reshape(-1, self.batch.lanes_per_block)
        active = active.reshape(holds.shape)
        found = {"count": (holds & active).sum(1), "and": (holds | ~active).all(1), "or": (holds & active).any(1)}[kind]
        return np.repeat(found.astype(np.int32), self.batch.lanes_per_block)

    def cast_vote(self, kind: str, value: Any, mask: Any, site: Site) -> Ballot | None:
        """`block_vote` of a warp that runs on its own: the result is there once the ballot's wait is over."""
        if mask is False:
            return None
        self.whole_warp(mask, site)
        self.where, self.waits_for = site, None
        active = self._active(self.mask)
        holds = self.lanes(value)[active] != 0
        assert self.one_warp is not None
        ballot = self.batch.barriers.vote(kind, self.one_warp, int(holds.sum()), site, self.clock.tick(site))
        self.moved()
        return ballot

    def all_reduce(
        self, value: Any, holds: Any, axes: Sequence[int], combine: Callable[..., Any], start: Any, mask: Any, site: Site
    ) -> Any:  # fmt: skip
        """Combine over thread axes (0 is x) the values in which `holds`; every thread along the axes gets the result."""
        if mask is False:
            return np.zeros(self.n, np.asarray(start).dtype)
        taking = self._active(mask) & self.lanes(holds)
        x, y, z = self.extents
        values = np.where(taking, self.lanes(value), start).reshape(-1, self.batch.lanes_per_block)
        cube = values[:, : x * y * z].reshape(-1, z, y, x)
        for axis in axes:
            place = 3 - axis
            total = np.take(cube, [0], place)
            for k in range(1, cube.shape[place]):
                total = combine(total, np.take(cube, [k], place))
            cube = np.broadcast_to(total, cube.shape)
        found = np.zeros_like(values)
        found[:, : x * y * z] = cube.reshape(len(values), -1)
        return found.reshape(-1)

    # ---------------------------------------------------------------- mbarriers
    def mbarrier_init(self, bar: Any, index: Any, count: int, mask: Any) -> None:
        if mask is not False:
            self.batch.barriers.mbarrier(bar, int(np.max(index))).reset(count)

    def mbarrier_arrive(self, bar: str, index: Any, mask: Any, site: Site, rank: Any = None) -> None:
        """Arrive at a barrier of the block, or of block `rank` of the cluster."""
        if mask is False:
            return
        active, places = self._active(self.mask if mask is None else mask), self.lanes(index)
        ranks = self.lanes(self.batch.barriers.rank if rank is None else rank)
        for number in np.unique(ranks[active]).tolist():
            barriers = self.peer(number, f"an arrival at {bar}", site).barriers
            for place in np.unique(places[active & (ranks == number)]).tolist():
                arriving = active & (ranks == number) & (places == place)
                barriers.arrive_from(bar, place, arriving, self.one_warp, self.clock.tick(site), site)

    def peer(self, rank: int, what: str, site: Site) -> Any:
        """Block `rank` of the cluster."""
        if not 0 <= rank < len(self.batch.peers):
            fail(f"{what} names block {rank} of a cluster of {len(self.batch.peers)}", site, remedy="use ranks of the cluster")
        return self.batch.peers[rank]

    def cluster_arrive(self, relaxed: bool, mask: Any, site: Site) -> None:
        """Arrive at the barrier of the cluster."""
        if mask is not False:
            self.whole_warp(mask, site)
            self.batch.cluster.arrive(self.one_warp, relaxed, self.clock.tick(site), site)

    def cluster_wait(self, mask: Any, site: Site) -> Wait | None:
        """Wait until all warps of the cluster have arrived."""
        if mask is False:
            return None
        self.whole_warp(mask, site)
        self.where, self.waits_for = site, self.batch.cluster.missing
        return self.batch.cluster.wait(self.one_warp, site)

    def mbarrier_expect(self, bar: str, index: Any, count: Any, mask: Any, site: Site) -> None:
        """Every lane of the mask announces `count` bytes."""
        places, counts = self.lanes(index), self.lanes(count)
        for column in self.columns(mask):
            self.batch.barriers.expect(bar, int(places[column]), int(counts[column]), self.clock.tick(site), site)

    def fence_proxy(self, mask: Any, site: Site) -> None:
        """What the lanes of the mask know becomes visible to bulk copies and products."""
        if mask is not False and self.one_warp is not None:
            self.batch.barriers.fence(self.one_warp, mask, self.clock.tick(site))

    def mbarrier_wait(self, bar: str, index: Any, parity: Any, mask: Any, site: Site) -> Wait | None:
        if mask is False:
            return None
        active = self._active(mask)
        pairs = {(int(p), int(q)) for p, q in zip(self.lanes(index)[active], self.lanes(parity)[active], strict=True)}
        self.where = site
        ready, self.waits_for = self.batch.barriers.wait(bar, pairs, self.one_warp, site)
        return ready

    # ---------------------------------------------------------------- warps
    def shuffle(self, mode: str, value: Any, by: Any, width: Any, mask: Any) -> Any:
        return warps.shuffle(mode, value, by, width, mask, self.n)

    def vote(self, kind: str, value: Any, mask: Any, kindtype: Any) -> Any:
        if mask is False:
            return np.zeros(self.n, kindtype)
        return warps.vote(kind, value, mask, self.n).astype(kindtype)

    def warp_reduce(self, kind: str, value: Any, mask: Any) -> Any:
        return value if mask is False else warps.reduce(kind, value, mask, self.n)

    # ---------------------------------------------------------------- instructions
    def instruction(self, record: Any, operands: Sequence[tuple[Any, Any, Site]], mask: Any) -> None:
        """Execute an instruction of the table in all warps of the mask. operands: (memory, first element, site) of every lane."""
        if mask is False:
            return
        active = self._active(mask).reshape(-1, WARP)
        taking = active[:, 0]
        if (active != taking[:, None]).any() and (active != self._active(self.mask).reshape(-1, WARP))[taking].any():
            fail(f"{record.name} is executed by a part of a warp", operands[0][2], remedy="let whole warps execute it")
        inputs, written = [], []
        for operand, (memory, index, site) in zip(record.operands, operands, strict=True):
            count = operand.bytes // memory.kind.itemsize
            places = np.asarray(index, np.int64) + np.arange(count).reshape(-1, 1)
            lanes = mask if operand.lanes == WARP else both(mask, (self.column & (WARP - 1)) < operand.lanes)
            if isinstance(memory, Shared):
                self._aligned(memory, index, operand.bytes, lanes, site)
                if self.counters is not None:
                    self.counters.banks(self, site, index, lanes, memory, operand.role != "r", operand.bytes)
            if operand.role != "r":
                written.append((memory, places, lanes, site))
            if operand.role == "w":
                inputs.append(np.zeros((int(taking.sum()), count, WARP), memory.kind))
                continue
            value = memory.load(self, places, lanes, site, **_counted(memory))
            inputs.append(value.reshape(count, -1, WARP).swapaxes(0, 1)[taking])
        for (memory, places, lanes, site), result in zip(written, record.model(*inputs), strict=True):
            value = np.zeros((len(taking), *result.shape[1:]), memory.kind)
            value[taking] = result
            memory.store(self, places, value.swapaxes(0, 1).reshape(len(places), -1), lanes, site, **_counted(memory))

    def _aligned(self, memory: Shared, index: Any, size: int, mask: Any, site: Site) -> None:
        """An instruction's row in shared memory begins at a multiple of its size."""
        bad = (memory.offset + self.lanes(index) * memory.kind.itemsize) % size != 0
        if mask is not None:
            bad = bad & mask
        if bad.any():
            where, lane = first(bad, index, self.lane)
            name = thread_name(lane, self.extents)
            fail(f"{name} passes the address of {memory.name}[{where}], which is no multiple of {size} bytes", site)

    # ---------------------------------------------------------------- atomics
    def atomic(self, kind: str, memory: Any, index: Any, value: Any, mask: Any, site: Site, wants: bool) -> Any:
        """One element for each lane; returns the previous values if `wants`. Lanes take turns in an order drawn from the seed."""
        if mask is False:
            return np.zeros(self.n, memory.kind)
        shape = np.broadcast_shapes(np.shape(index), np.shape(value), (self.n,), *([] if mask is None else [mask.shape]))
        chosen = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        places = np.broadcast_to(np.asarray(index, np.int64), shape)[chosen]
        if isinstance(memory, Shared):
            where = np.broadcast_to(np.asarray(index, np.int64), shape)
            if int(where[chosen].max()) >= memory.size:
                memory.outside(self, index, mask, site)
            at, piece, order = memory.place(self, where, chosen, site)
            if kind == "load":
                memory.shadow.read(piece, order, site, memory.owner, atomic=True)
            else:
                if kind != "store":
                    memory.shadow.must_be_written(piece, order, site)
                memory.shadow.write(piece, order, site, memory.owner, lambda: np.zeros(np.shape(order.lane), bool), atomic=True)
                memory.shadow.writer[piece] = order.lane + ATOMIC
            cells: Any = memory.data
        else:
            assert isinstance(memory, Global)
            if places.size and (places.min() < 0 or places.max() >= memory.size):
                memory.outside(self, index, mask, site)
            at, cells = places, memory.flat
        values = np.broadcast_to(np.asarray(value, memory.kind), shape)[chosen]
        before = self._update(kind, cells, at, values, wants)
        if before is None:
            return None
        found = np.zeros(shape, memory.kind)
        found[chosen] = before
        return found

    def _update(self, kind: str, cells: Any, at: Any, values: np.ndarray, wants: bool) -> np.ndarray | None:
        if kind == "load":
            return cells[at]
        if kind == "store":
            cells[at] = values
            return None
        operation = _ATOMIC.get(kind)
        if operation is not None and not wants and cells.dtype.kind in "iuf":
            operation.at(cells, at, values)
            return None
        before = np.zeros_like(values)
        turns = list(range(len(values)))
        self.random.shuffle(turns)
        blocks = None if not isinstance(at, tuple) else at[0]
        index = at[1] if isinstance(at, tuple) else at
        for k in turns:
            place = index[k] if blocks is None else (blocks if isinstance(blocks, int) else blocks[k], index[k])
            old = cells[place]
            before[k] = old
            cells[place] = values[k] if operation is None else operation(old, values[k])
        return before

    # ---------------------------------------------------------------- asynchronous copies
    def cp_async(self, target: Shared, index: Any, source: Global, start: Any, count: int, inside: Any, mask: Any, site: Site) -> None:
        """Copy `count` elements, or zeros where the lane's `inside` is false; they land when the group they are committed to has been
        waited for."""
        if mask is False:
            return
        steps = np.arange(count).reshape(-1, *([1] * max(1, np.ndim(index), np.ndim(start))))
        where, origin = np.asarray(index, np.int64) + steps, np.asarray(start, np.int64) + steps
        where = np.array(np.broadcast_to(where, np.broadcast_shapes(where.shape, origin.shape, (self.n,))))
        reading = mask if inside is None else np.logical_and(True if mask is None else mask, inside) & np.ones(self.n, bool)
        values = source.load(self, np.array(np.broadcast_to(origin, where.shape)), reading, site)
        if self.counters is not None:
            self.counters.banks(self, site, where[0], mask, target, True, count * target.kind.itemsize)
        at, piece, order = target.place(self, where, mask, site)
        if int(at[1].max(initial=0)) >= target.size:
            target.outside(self, where, mask, site)
        target.shadow.begin_async(piece, order, site, target.owner, lambda: np.zeros(np.shape(order.lane), bool))
        column = np.broadcast_to(self.column, where.shape)
        if order.columns is not None:
            values, column = values[..., order.columns], column[..., order.columns]
        self.copies.append([target, at, piece, values, column, np.broadcast_to(order.lane, np.shape(at[1])), None])

    def cp_async_commit(self, mask: Any) -> None:
        if mask is False:
            return
        for copy in self.copies:
            if copy[6] is None:
                copy[6] = self.committed[copy[4]]
        self.committed[...] += 1 if mask is None else np.asarray(np.broadcast_to(mask, (self.n,)), np.int32)

    def cp_async_wait(self, left: int, mask: Any, site: Site) -> None:
        """The copies of all but the last `left` groups land."""
        if mask is False:
            return
        rest = []
        for copy in self.copies:
            target, at, piece, values, column, lane, number = copy
            if number is None or (number >= self.committed[column] - left).any():
                rest.append(copy)
                continue
            target.data[at] = values
            target.shadow.land_async(piece, lane, site)
        self.copies = rest

    # ---------------------------------------------------------------- looking in
    def device_assert(self, condition: Any, message: str, mask: Any, site: Site) -> None:
        if mask is False:
            return
        bad = ~self.lanes(condition).astype(bool) & self._active(self.mask if mask is None else mask)
        if bad.any():
            raise TileAssertionError(message or "device_assert failed", at=site.at)

    def print_line(
        self, message: str, buffer: str, dtype: str, value: Any, index: Any, mask: Any, once: bool, blocks: Sequence[Any]
    ) -> None:  # fmt: skip
        """One line for each lane of the mask (with `once`: for each block)."""
        if mask is False:
            return
        lanes = np.flatnonzero(self._active(self.mask if mask is None else mask))
        for column in lanes.tolist():
            if once and self.lane[column] != 0:
                continue
            place = [int(self.lanes(b)[column]) for b in blocks]
            place += [0] * (3 - len(place))
            thread = (int(self.tx[column]), int(self.ty[column]), int(self.tz[column]))
            parts = [f"msg={message!r}"] if message else []
            parts += [f"block=({place[0]}, {place[1]}, {place[2]})", f"thread=({thread[0]}, {thread[1]}, {thread[2]})"]
            if buffer:
                parts.append(f"buffer={buffer}, index={index}")
            if dtype:
                shown = self.lanes(value)[..., column]
                parts.append(f"dtype={dtype} value={bool(shown) if dtype == 'bool' else shown}")
            sys.stdout.write(" ".join(parts) + "\n")


_ATOMIC: dict[str, Any] = {
    "add": np.add, "max": np.fmax, "min": np.fmin, "or": np.bitwise_or, "and": np.bitwise_and, "xor": np.bitwise_xor,
}  # fmt: skip


def _counted(memory: Any) -> dict[str, bool]:
    """The traffic of an instruction is counted by rows, not by elements."""
    return {"counted": True} if isinstance(memory, Shared) else {}

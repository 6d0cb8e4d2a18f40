"""Shadow of shared memory: who wrote each piece last and who has read it since; finds races and reads of nothing.

In: accesses as arrays of pieces and lanes, and for every lane what is ordered before it. Out: nothing, or a `SimtError` with
both lines. A piece is the smallest element of the buffers that share its bytes. Time is a counter that every access and
barrier moves on; an access at time t is ordered before a lane if t lies before the lane's last barrier with that thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .report import Site, fail, first, thread_name

NOBODY = -1  # nobody has written this piece
ASYNC = -2  # an asynchronous copy into it is under way
SAME = 1 << 20  # several lanes wrote the same value in one statement
ATOMIC = 1 << 21  # an atomic update; the lane is added
MANY = 1 << 22  # several lanes of different warps have read it; several of one warp: MANY + 1 + warp
NEVER = np.int32(2**31 - 1)


class Clock:
    """Time of a batch of blocks, and which access happened when."""

    def __init__(self) -> None:
        self.now = 0
        self.sites: list[Site] = [Site(None, "start")]

    def tick(self, site: Site) -> int:
        self.now += 1
        self.sites.append(site)
        return self.now


class Shadow:
    """One range of bytes whose buffers overlap only each other. owners: indices into `buffers` per piece, where several
    buffers share bytes. readers: one record for each piece (`lanes` count per warp when `warps` > 1)."""

    def __init__(self, pieces: int, clock: Clock, extents: Sequence[int], buffers: Sequence[str], warps: int) -> None:
        self.clock = clock
        self.extents = extents
        self.buffers = buffers
        self.writer = np.full(pieces, NOBODY, np.int32)
        self.written = np.full(pieces, -1, np.int32)
        self.reader = np.full((warps, pieces), NOBODY, np.int32)
        self.read_at = np.full((warps, pieces), -1, np.int32)
        self.owner = np.full(pieces, -1, np.int16) if len(buffers) > 1 else None

    # ---------------------------------------------------------------- accesses
    def read(self, piece: Any, order: Any, site: Site, owner: int, atomic: bool = False) -> None:
        """order: the `Order` of the lanes, already restricted to those that take part."""
        writer, written = self.writer[piece], self.written[piece]
        if writer.min(initial=0) < 0:
            self._unwritten(piece, writer, order, site)
        bad = order.unordered(writer, written)
        if bad is not None:
            bad = bad & (writer != SAME) & (writer != order.lane + ATOMIC)
            if atomic:
                bad = bad & (writer < ATOMIC)
            if bad.any():
                self._race("read", bad, writer, written, order, site)
        if self.owner is not None:
            self._check_owner(piece, written, owner, order, site)
        row, now = order.row, self.clock.tick(site)
        reader, read_at = self.reader[row, piece], self.read_at[row, piece]
        self.reader[row, piece] = order.lane
        self.read_at[row, piece] = now
        merged = (order.recent(read_at) & (reader != order.lane)) | (self.reader[row, piece] != order.lane)
        if merged.any():
            same_warp = ((reader >> 5) == order.warp) | (reader == MANY + 1 + order.warp) | ~order.recent(read_at)
            mark = np.where(same_warp, MANY + 1 + order.warp, MANY)
            where = np.broadcast_to(piece, merged.shape)[merged]
            self.reader[row, where] = mark[merged]
            # Lanes of different warps in this very statement: the last mark stands; anyone else's makes it MANY.
            others = self.reader[row, where] != mark[merged]
            if others.any():
                self.reader[row, where[others]] = MANY

    def write(self, piece: Any, order: Any, site: Site, owner: int, unchanged: Any, atomic: bool = False) -> None:
        """unchanged(): lanes whose store leaves the memory as it is. Call before the store."""
        writer, written = self.writer[piece], self.written[piece]
        bad = order.unordered(writer, written)
        if bad is not None:
            if atomic:
                bad = bad & (writer < ATOMIC)
            bad = bad & (writer != order.lane + ATOMIC)
            if bad.any():
                pending = bad & (writer == ASYNC)
                bad = pending | (bad & ~unchanged())
                if bad.any():
                    self._race("write", bad, writer, written, order, site)
        for row in range(self.reader.shape[0]):
            self._check_readers(row, piece, order, site, unchanged)
        now = self.clock.tick(site)
        self.writer[piece] = order.lane + ATOMIC if atomic else order.lane
        self.written[piece] = now
        if self.owner is not None:
            self.owner[piece] = owner

    def _check_readers(self, row: int, piece: Any, order: Any, site: Site, unchanged: Any) -> None:
        reader, read_at = self.reader[row, piece], self.read_at[row, piece]
        bad = order.unordered_reader(row, reader, read_at)
        if bad is not None and bad.any():
            bad = bad & ~unchanged()
            if bad.any():
                self._race("write", bad, reader, read_at, order, site, earlier="read")

    def settle(self, piece: Any, order: Any, site: Site, agree: Any) -> None:
        """After a store: several lanes of one statement may have stored into one piece. agree(): lanes that find their value."""
        duplicate = self.writer[piece] != order.lane
        if not duplicate.any():
            return
        bad = duplicate & ~agree()
        if bad.any():
            other, lane = first(bad, self.writer[piece], order.lane)
            one, two = thread_name(lane, self.extents), thread_name(other, self.extents)
            fail(
                f"race on {site.buffer}: {one} and {two} write different values to one element in the same statement", site,
                remedy="let one thread write it, or use an atomic update",
            )  # fmt: skip
        self.writer[np.broadcast_to(piece, duplicate.shape)[duplicate]] = SAME

    def begin_async(self, piece: Any, order: Any, site: Site, owner: int, unchanged: Any) -> None:
        """An asynchronous copy is issued: until it lands nobody may touch the piece."""
        self.write(piece, order, site, owner, unchanged)
        self.writer[piece] = ASYNC
        self.written[piece] = NEVER
        self.issued = site

    def land_async(self, piece: Any, lane: Any, site: Site) -> None:
        self.writer[piece] = lane
        self.written[piece] = self.clock.tick(site)

    # ---------------------------------------------------------------- reports
    def _unwritten(self, piece: Any, writer: Any, order: Any, site: Site) -> None:
        pending = writer == ASYNC
        if pending.any():
            (lane,) = first(pending, order.lane)
            fail(
                f"{thread_name(lane, self.extents)} reads {site.buffer} where an asynchronous copy has not landed", site,
                (self.issued, "the copy was issued here"), remedy="wait for the copy's group, then synchronise the block",
            )  # fmt: skip
        (lane,) = first(writer == NOBODY, order.lane)
        fail(f"{thread_name(lane, self.extents)} reads {site.buffer} where nobody has written", site, remedy="initialise it first")

    def _check_owner(self, piece: Any, written: Any, owner: int, order: Any, site: Site) -> None:
        assert self.owner is not None
        bad = self.owner[piece] != owner
        if bad.any():
            other, time, lane = first(bad, self.owner[piece], written, order.lane)
            fail(
                f"{thread_name(lane, self.extents)} reads {site.buffer}, whose bytes {self.buffers[other]} has overwritten: "
                "two live buffers share memory", site, (self.clock.sites[time], f"{self.buffers[other]} was written here"),
            )  # fmt: skip

    def _race(self, mode: str, bad: Any, who: Any, when: Any, order: Any, site: Site, earlier: str = "written") -> None:
        other, time, lane = first(bad, who, when, order.lane)
        if other == ASYNC:
            fail(f"{thread_name(lane, self.extents)} touches {site.buffer} where an asynchronous copy has not landed", site,
                 (self.issued, "the copy was issued here"), remedy="wait for the copy's group, then synchronise the block")  # fmt: skip
        before = self.clock.sites[time]
        name = "several threads" if other >= MANY or other == SAME else thread_name(other % SAME, self.extents)
        fail(
            f"race on {site.buffer}: {thread_name(lane, self.extents)} {mode}s an element that {name} has {earlier}, with no barrier "
            "between them", site, (before, f"{earlier} here by {name}"), remedy="put T.sync_threads() between the two",
        )  # fmt: skip


class BlockOrder:
    """What is ordered before the lanes of whole blocks that synchronise by block and warp barriers only.

    since: time of each lane's last block barrier; warp_since: of its last warp or block barrier. row: reader records.
    """

    row = 0

    def __init__(self, lane: Any, warp: Any, since: Any, warp_since: Any) -> None:
        self.lane, self.warp, self.since, self.warp_since = lane, warp, since, warp_since

    def recent(self, when: Any) -> Any:
        return when >= self.since

    def unordered(self, who: Any, when: Any) -> Any:
        """Earlier accesses that no barrier separates from these lanes; None if there are none."""
        late = when >= self.since
        if not late.any():
            return None
        return late & (who != self.lane) & ~(((who & (SAME - 1)) >> 5 == self.warp) & (who < MANY) & (when < self.warp_since))

    def unordered_reader(self, row: int, who: Any, when: Any) -> Any:
        late = when >= self.since
        if not late.any():
            return None
        mine = (((who >> 5) == self.warp) | (who == MANY + 1 + self.warp)) & (when < self.warp_since)
        return late & (who != self.lane) & ~mine


class WarpOrder:
    """What is ordered before the lanes of one warp. seen: for every warp the time up to which its accesses are ordered
    before this warp (for the warp itself: its last warp barrier)."""

    def __init__(self, lane: Any, warp: int, seen: np.ndarray) -> None:
        self.lane, self.warp, self.seen, self.row = lane, warp, seen, warp

    def recent(self, when: Any) -> Any:
        return when >= self.seen[self.warp]

    def unordered(self, who: Any, when: Any) -> Any:
        late = when >= self.seen.min()
        if not late.any():
            return None
        warp = (np.maximum(who, 0) & (SAME - 1)) >> 5
        return late & ((when >= self.seen[np.minimum(warp, len(self.seen) - 1)]) | (who == ASYNC)) & (who != self.lane)

    def unordered_reader(self, row: int, who: Any, when: Any) -> Any:
        late = when >= self.seen[row]
        if not late.any():
            return None
        return late & (who != self.lane)

"""Shadow of shared memory: who wrote each piece last and who has read it since; finds races and reads of nothing.

In: accesses as arrays of pieces and lanes, and for every lane what is ordered before it. Out: nothing, or a `SimtError` with
both lines. A piece is the smallest element of the buffers that share its bytes. Time is a counter that every access and
barrier moves on; an access at time t is ordered before a lane if t lies before the lane's last barrier with that thread.

Asynchronous engines (bulk copies, wgmma) hold a piece from the issue on: one that is written (`begin_async`) until it lands, one
that is read (`begin_read`) until somebody has waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .report import Site, fail, first, thread_name

NOBODY = -1  # nobody has written this piece
ASYNC = -2  # an asynchronous copy into it is under way
SAME = 1 << 20  # several lanes wrote the same value in one statement; if all are of one warp, one of them is added
ATOMIC = 1 << 21  # an atomic update; the lane is added
MANY = 1 << 22  # several lanes of different warps have read it; several of one warp: MANY + 1 + warp
ANY = 1 << 23  # an engine has read it for a warp (added), which has waited for that
NEVER = 2**31 - 1  # time of what has not happened yet
UNWRITTEN = 2**31 - 2
WARP = 32
MOST_READS = 4096  # reads kept in the log


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
        self.written = np.full(pieces, UNWRITTEN, np.int32)
        self.log: list[tuple[Any, Any, int]] = []  # reads since the last barrier: pieces, order, time
        self.reader = np.full((warps, pieces), NOBODY, np.int32)
        self.read_at = np.full((warps, pieces), -1, np.int32)
        self.owner = np.full(pieces, -1, np.int16) if len(buffers) > 1 else None
        self.issued = np.zeros(pieces, np.int32)  # when the asynchronous copy was issued that is to land or has landed last
        self.busy: np.ndarray | None = None  # how many engines are reading each piece
        self.held: list[AsyncRead] = []
        self.agents: Sequence[str] = ()  # names of the mbarriers, whose bulk copies count as threads after the last one
        self.lanes = WARP * max(warps, -(-extents[0] * extents[1] * extents[2] // WARP))

    # ---------------------------------------------------------------- accesses
    def read(self, piece: Any, order: Any, site: Site, owner: int, atomic: bool = False) -> None:
        """order: of the lanes that take part."""
        written = self.written[piece]
        if (written >= order.since).any():
            self._look(piece, written, order, site, atomic)
        if self.owner is not None:
            self._check_owner(piece, written, owner, order, site)
        now = self.clock.tick(site)
        self.log.append((piece, order, now))
        if order.row is not None or len(self.log) > MOST_READS:
            self.flush()

    def must_be_written(self, piece: Any, order: Any, site: Site) -> None:
        writer = self.writer[piece]
        if writer.min(initial=0) < 0:
            self._unwritten(piece, writer, order, site)

    def _look(self, piece: Any, written: Any, order: Any, site: Site, atomic: bool) -> None:
        """Some piece was written after the last barrier, or never."""
        writer = self.writer[piece]
        if writer.min(initial=0) < 0:
            self._unwritten(piece, writer, order, site)
        bad = order.unordered(writer, written) & (writer != order.lane + ATOMIC)
        if bad.any():
            bad = bad & (((writer & SAME) == 0) | ((writer > SAME) & ((writer & (SAME - 1)) >> 5 != order.warp)))
        if atomic:
            bad = bad & (writer < ATOMIC)
        if bad.any():
            self._race("read", bad, piece, writer, written, order, site)

    def ordered(self, mask: Any) -> None:
        """The lanes of a mask have passed a barrier together with all of their blocks: their reads before it are done with."""
        if mask is None or not self.log:
            self.log.clear()
            return
        inside: dict[int, bool] = {}
        kept = []
        for read in self.log:
            key = id(read[1])
            if key not in inside:
                columns = read[1].columns
                inside[key] = columns is not None and bool(mask[columns].all())
            if not inside[key]:
                kept.append(read)
        self.log = kept

    def flush(self) -> None:
        """Enter the reads since the last barrier into the records that stores look at."""
        for piece, order, now in self.log:
            self._enter(piece, order, now)
        self.log.clear()

    def _enter(self, piece: Any, order: Any, now: int) -> None:
        row = order.row or 0
        reader, read_at = self.reader[row, piece], self.read_at[row, piece]
        self.reader[row, piece] = order.lane
        self.read_at[row, piece] = now
        recent = read_at >= order.since
        merged = (recent & (reader != order.lane)) | (self.reader[row, piece] != order.lane)
        if not merged.any():
            return
        same_warp = ((reader >> 5) == order.warp) | (reader == MANY + 1 + order.warp) | ~recent
        mark = np.where(same_warp, MANY + 1 + order.warp, MANY)[merged]
        where = np.broadcast_to(piece, merged.shape)[merged]
        self.reader[row, where] = mark
        others = self.reader[row, where] != mark  # lanes of different warps in one statement
        if others.any():
            self.reader[row, where[others]] = MANY

    def write(self, piece: Any, order: Any, site: Site, owner: int, unchanged: Any, atomic: bool = False) -> None:
        """unchanged(): lanes whose store leaves the memory as it is. Call before the store."""
        if self.held:
            self._check_held(piece, order, site)
        written = self.written[piece]
        if ((written >= order.since) & (written != UNWRITTEN)).any():
            writer = self.writer[piece]
            bad = order.unordered(writer, written) & (writer != NOBODY) & (writer != order.lane + ATOMIC)
            if atomic:
                bad = bad & (writer < ATOMIC)
            if bad.any():
                bad = (bad & (writer == ASYNC)) | (bad & ~unchanged())
                if bad.any():
                    self._race("write", bad, piece, writer, written, order, site)
        if self.log:
            self.flush()
        for row in range(self.reader.shape[0]):
            self._check_readers(row, piece, order, site, unchanged)
        self.writer[piece] = order.lane + ATOMIC if atomic else order.lane
        self.written[piece] = self.clock.tick(site)
        if self.owner is not None:
            self.owner[piece] = owner

    def _check_readers(self, row: int, piece: Any, order: Any, site: Site, unchanged: Any) -> None:
        read_at = self.read_at[row, piece]
        if not (read_at >= order.since).any():
            return
        reader = self.reader[row, piece]
        bad = order.unordered_reader(row, reader, read_at)
        if bad.any():
            bad = bad & ~unchanged()
            if bad.any():
                self._race("write", bad, piece, reader, read_at, order, site, earlier="read")

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
        places, warps = np.broadcast_to(piece, duplicate.shape)[duplicate], np.broadcast_to(order.warp, duplicate.shape)[duplicate]
        last = self.writer[places]
        one_warp = last >> 5 == warps
        self.writer[places] = np.where(one_warp, SAME + last, SAME)
        self.writer[places[~one_warp]] = SAME

    # ---------------------------------------------------------------- asynchronous engines
    def begin_async(self, piece: Any, order: Any, site: Site, owner: int, unchanged: Any) -> None:
        """An asynchronous copy is issued: until it lands nobody may touch the piece."""
        self.write(piece, order, site, owner, unchanged)
        self.issued[piece] = self.written[piece]
        self.writer[piece] = ASYNC
        self.written[piece] = NEVER

    def land_async(self, piece: Any, lane: Any, site: Site) -> None:
        """lane: the thread that has waited for the copy, or the number that stands for the bulk copies of an mbarrier."""
        self.writer[piece] = lane
        self.written[piece] = self.clock.tick(site)

    def begin_read(self, piece: Any, order: Any, site: Site, owner: int, fenced: np.ndarray) -> AsyncRead:
        """An engine begins to read: until `end_read` nobody may write the piece. fenced: for every thread the time up to which a proxy
        fence has made its writes visible to the engine."""
        self.read(piece, order, site, owner)
        self.check_proxy(piece, site, fenced)
        if self.busy is None:
            self.busy = np.zeros(len(self.writer), np.int16)
        found = AsyncRead(np.unique(piece), site)
        self.busy[found.piece] += 1
        self.held.append(found)
        return found

    def end_read(self, read: AsyncRead, order: Any, site: Site) -> None:
        """A thread has waited for the engine: what it read counts as read now, by that thread."""
        self._release(read)
        self._enter(read.piece, order, self.clock.tick(site))

    def end_warp_read(self, read: AsyncRead, warp: int, order: Any, site: Site) -> None:
        """A warp has waited for the engine, all lanes at once: whichever lane signals afterwards signals for all of them."""
        self._release(read)
        earlier = self.read_at[warp, read.piece] >= order.warp_since[WARP * warp : WARP * (warp + 1)].min()
        self.reader[warp, read.piece] = np.where(earlier, MANY + 1 + warp, ANY + warp)
        self.read_at[warp, read.piece] = self.clock.tick(site)

    def _release(self, read: AsyncRead) -> None:
        assert self.busy is not None
        self.held.remove(read)
        self.busy[read.piece] -= 1

    def check_proxy(self, piece: Any, site: Site, fenced: np.ndarray) -> None:
        """Raise if a thread wrote a piece with no proxy fence between that and the engine's access."""
        writer, written = self.writer[piece], self.written[piece]
        lane = writer & (SAME - 1)
        by_thread = (writer >= 0) & (lane < self.lanes)
        limit = np.where(writer == SAME, fenced.max(), fenced[np.where(by_thread, lane, 0)])
        bad = by_thread & (written >= limit)
        if bad.any():
            other, time = first(bad, lane, written)
            name = thread_name(other, self.extents)
            fail(
                f"{site.what} accesses {site.buffer} where {name} has written, with no proxy fence between them", site,
                (self.clock.sites[time], "written here"), remedy="put T.fence_proxy_async() between the two",
            )  # fmt: skip

    def _check_held(self, piece: Any, order: Any, site: Site) -> None:
        assert self.busy is not None
        bad = self.busy[piece] > 0
        if bad.any():
            place, lane = first(bad, piece, order.lane)
            reader = next(r.site for r in self.held if (r.piece == place).any())
            fail(
                f"{thread_name(lane, self.extents)} writes {site.buffer} while {reader.what} is reading it", site,
                (reader, f"{reader.what} was issued here"), remedy="wait for the group it belongs to, then synchronise",
            )  # fmt: skip

    # ---------------------------------------------------------------- reports
    def _unwritten(self, piece: Any, writer: Any, order: Any, site: Site) -> None:
        pending = writer == ASYNC
        if pending.any():
            lane, place = first(pending, order.lane, piece)
            fail(
                f"{thread_name(lane, self.extents)} reads {site.buffer} where an asynchronous copy has not landed", site,
                (self.clock.sites[self.issued[place]], "the copy was issued here"), remedy="wait for the copy, then synchronise the block",
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

    def _race(self, mode: str, bad: Any, piece: Any, who: Any, when: Any, order: Any, site: Site, earlier: str = "written") -> None:
        other, time, lane, place = first(bad, who, when, order.lane, piece)
        me = thread_name(lane, self.extents)
        if other == ASYNC or (self.lanes <= other < SAME and earlier == "written"):
            issued = self.clock.sites[self.issued[place]]
            if other == ASYNC:
                fail(f"{me} {mode}s {site.buffer} where an asynchronous copy has not landed", site,
                     (issued, "the copy was issued here"), remedy="wait for the copy, then synchronise the block")  # fmt: skip
            name = self.agents[other - self.lanes]
            fail(f"race on {site.buffer}: {me} {mode}s an element that a bulk copy has written, without a wait at its barrier {name}", site,
                 (issued, "the copy was issued here"), remedy=f"wait for the phase of {name} in which the copy lands")  # fmt: skip
        before = self.clock.sites[time]
        name = "several threads" if other >= MANY or other == SAME else thread_name(other % SAME, self.extents)
        fail(
            f"race on {site.buffer}: {me} {mode}s an element that {name} has {earlier}, with no barrier between them", site,
            (before, f"{earlier} here by {name}"), remedy="put T.sync_threads() between the two",
        )  # fmt: skip


@dataclass(eq=False)
class AsyncRead:
    """An engine is reading these pieces."""

    piece: np.ndarray
    site: Site


class Taking:
    """Lanes that take part in an access, and what is ordered before them. columns: their positions in the group, or None for
    all lanes (or after `flat`). block: number in the batch.

    Lanes of whole blocks, synchronised by block and warp barriers only: since is the time of each lane's last block barrier,
    warp_since of its last warp or block barrier. row: None.
    """

    row: int | None = None

    def __init__(self, columns: Any, lane: Any, warp: Any, block: Any, since: Any, warp_since: Any) -> None:
        self.columns, self.lane, self.warp, self.block, self.since, self.warp_since = columns, lane, warp, block, since, warp_since

    def flat(self, mask: np.ndarray) -> Taking:
        """The lanes of a mask with leading axes, one after the other."""
        picked = [v if not isinstance(v, np.ndarray) else np.broadcast_to(v, mask.shape)[mask] for v in self._parts()]
        return type(self)(None, *picked)

    def _parts(self) -> tuple[Any, ...]:
        return self.lane, self.warp, self.block, self.since, self.warp_since

    def unordered(self, who: Any, when: Any) -> Any:
        """Earlier accesses that no barrier separates from these lanes."""
        ordered_in_warp = ((who & (SAME - 1)) >> 5 == self.warp) & (who < MANY) & (when < self.warp_since)
        return (when >= self.since) & (who != self.lane) & ~ordered_in_warp

    def unordered_reader(self, row: int, who: Any, when: Any) -> Any:
        mine = (((who >> 5) == self.warp) | (who == MANY + 1 + self.warp)) & (when < self.warp_since)
        return (when >= self.since) & (who != self.lane) & ~mine


class WarpTaking(Taking):
    """Lanes of one warp that runs on its own. seen (as warp_since): for every thread, and for the bulk copies of every mbarrier, the
    time up to which its accesses are ordered before this warp (`Barriers.seen`). since: the earliest of them. row: the warp."""

    def __init__(self, columns: Any, lane: Any, warp: int, block: Any, since: Any, seen: np.ndarray) -> None:
        super().__init__(columns, lane, warp, block, since, seen)
        self.row = warp

    def flat(self, mask: np.ndarray) -> Taking:
        return WarpTaking(None, np.broadcast_to(self.lane, mask.shape)[mask], self.warp, self.block, self.since, self.warp_since)

    def unordered(self, who: Any, when: Any) -> Any:
        seen = self.warp_since[np.maximum(who, 0) & (SAME - 1)]
        return ((when >= seen) | (who == ASYNC)) & (who != self.lane)

    def unordered_reader(self, row: int, who: Any, when: Any) -> Any:
        seen = self.warp_since[WARP * row : WARP * (row + 1)]
        limit = np.where(who < MANY, seen[who % WARP], np.where(who < ANY, seen.min(), seen.max()))
        return (when >= limit) & (who != self.lane)

    def as_warp(self) -> WarpTaking:
        """All lanes as one, before which everything its own warp did is ordered."""
        seen = self.warp_since.copy()
        seen[WARP * self.warp : WARP * (self.warp + 1)] = NEVER
        return WarpTaking(None, np.int32(WARP * self.warp), self.warp, self.block, 0, seen)

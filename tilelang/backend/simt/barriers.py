"""Barriers between warps that run on their own: named block barriers and mbarriers, with what each one orders.

In: arrivals of warps, bytes of bulk copies. Out: predicates to wait for, and what each warp knows (`Barriers.known`, one row for each
warp): the time up to which what others did is ordered before it. Completing a barrier joins the knowledge of those who arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .report import Site, fail

Wait = Callable[[], bool]
WARP = 32
VOTES = -1  # number of the barrier that votes use


def own_lanes(warp: int) -> slice:
    """Columns of the threads of a warp."""
    return slice(WARP * warp, WARP * (warp + 1))


@dataclass
class Named:
    """arrived: warps of the running round. threads: how many threads they are. rounds: completed ones."""

    arrived: list[int] = field(default_factory=list)
    threads: int = 0
    rounds: int = 0
    site: Site | None = None


@dataclass
class Ballot:
    """A vote of the whole block. holds: threads in which the value holds. wait: None once all have voted (of the last voter)."""

    kind: str
    threads: int
    holds: int = 0
    wait: Wait | None = None

    @property
    def result(self) -> int:
        return {"count": self.holds, "and": int(self.holds == self.threads), "or": int(self.holds > 0)}[self.kind]


MOST_BYTES = (1 << 20) - 1  # largest number of outstanding bytes of an mbarrier (PTX ISA, "tx-count")


class MBarrier:
    """count: arrivals that complete a phase; left: those that are missing; bytes: expected ones that have not been copied (negative: copied
    ones that have not been expected). A phase is complete when both are zero.

    published: what the completed phases order; collected: what the running one will. agent: the column of `known` that stands for the
    bulk copies which signal this barrier.
    """

    def __init__(self, name: str, count: int, agent: int, columns: int) -> None:
        self.name, self.agent = name, agent
        self.published = np.zeros(columns, np.int64)
        self.reset(count)

    def reset(self, count: int) -> None:
        self.count, self.left, self.phase, self.bytes = count, count, 0, 0
        self.expected: Site | None = None  # where bytes were last expected
        self.published[:] = 0
        self.collected = np.zeros_like(self.published)

    def advance(self, now: int) -> None:
        """Complete the phase if nothing is missing."""
        if self.left or self.bytes:
            return
        self.collected[self.agent] = now
        np.maximum(self.published, self.collected, out=self.published)
        self.collected = np.zeros_like(self.published)
        self.left = self.count
        self.phase += 1

    def state(self) -> str:
        """What it waits for."""
        missing = [f"{self.left} of {self.count} arrivals"] if self.left else []
        if self.bytes:
            missing.append(f"{self.bytes} bytes" if self.bytes > 0 else f"the announcement of {-self.bytes} bytes that were copied")
        return f"{self.name}, in phase {self.phase}, is short of {' and '.join(missing)}"


class Barriers:
    """All barriers of one block. counts: (name, arrive counts) of its arrays of mbarriers. ranks: blocks of its cluster; rank: its number
    there; first: the barriers of block 0, None for itself. Warps and lanes are counted through the cluster.

    known[w]: columns of the threads (their accesses that are ordered before warp w; of its own threads: those before its last warp
    barrier), then of the mbarriers (the bulk copies that signal them), then of the threads again (their writes that a proxy fence has
    made visible to bulk copies and wgmma). seen, fenced: the parts of it. open_to: warps that know that the barriers are initialised.
    """

    def __init__(
        self, warps: int, threads: int, counts: Sequence[tuple[str, Sequence[int]]] = (), rank: int = 0, ranks: int = 1,
        first: Barriers | None = None,
    ) -> None:  # fmt: skip
        self.warps, self.threads, self.rank = warps, threads, rank
        places = [(name, k, count) for name, several in counts for k, count in enumerate(several)]
        lanes = WARP * warps * ranks
        columns = lanes + len(places) * ranks + lanes
        self.known = np.zeros((warps * ranks, columns), np.int64) if first is None else first.known
        self.seen, self.fenced = self.known[:, :-lanes], self.known[:, -lanes:]
        self.named: dict[int, Named] = {}
        agent = lanes + len(places) * rank
        self.bars = {(name, k): MBarrier(f"{name}[{k}]", count, agent + n, columns) for n, (name, k, count) in enumerate(places)}
        self.ballot: Ballot | None = None
        self.own = range(warps * rank, warps * (rank + 1))  # its warps
        self.open_to = set(self.own)
        self.ended = False
        self.signals: dict[int, tuple[int, str, Site]] = {}  # the last arrival of each lane of another block: time, barrier, place

    def mbarrier(self, name: str, index: int, site: Site | None = None) -> MBarrier:
        if (name, index) not in self.bars:
            fail(f"barrier {name}[{index}] does not exist", site or Site(None, "barrier"))
        return self.bars[name, index]

    def threads_of(self, warp: int) -> int:
        return min(WARP, self.threads - WARP * (warp % self.warps))

    def arrive_block(self, warp: int, ident: int, count: int | None, site: Site, now: int) -> Wait | None:
        """One warp arrives at a block barrier and waits for it."""
        barrier = self.named.setdefault(ident, Named())
        wanted = self.threads if count is None else count
        barrier.arrived.append(warp)
        barrier.threads += self.threads_of(warp)
        barrier.site = site
        if barrier.threads > wanted:
            fail(f"{barrier.threads} threads arrive at barrier {ident}, which is for {wanted}", site)
        if barrier.threads < wanted:
            round_ = barrier.rounds
            return lambda: barrier.rounds != round_
        members = barrier.arrived
        joined = self.known[members].max(0)
        for member in members:
            joined[own_lanes(member)] = now
        self.known[members] = np.maximum(self.known[members], joined)
        barrier.arrived, barrier.threads = [], 0
        barrier.rounds += 1
        return None

    def vote(self, kind: str, warp: int, holds: int, site: Site, now: int) -> Ballot:
        """One warp votes and waits for the others."""
        if self.ballot is None:
            self.ballot = Ballot(kind, self.threads)
        ballot = self.ballot
        ballot.holds += holds
        ballot.wait = self.arrive_block(warp, VOTES, None, site, now)
        if ballot.wait is None:
            self.ballot = None
        return ballot

    def fence(self, warp: int, lanes: np.ndarray | None, now: int) -> None:
        """A proxy fence of a warp (lanes: those that execute it, None: all): what is ordered before it, and its own writes."""
        np.maximum(self.fenced[warp], self.seen[warp, : self.fenced.shape[1]], out=self.fenced[warp])
        self.fenced[warp, own_lanes(warp)][lanes if lanes is not None else slice(None)] = now

    def arrive(self, name: str, index: int, arriving: np.ndarray, warp: int, now: int, site: Site) -> None:
        """The `arriving` lanes of a warp arrive at an mbarrier."""
        bar = self.mbarrier(name, index, site)
        np.maximum(bar.collected, self.known[warp], out=bar.collected)
        bar.collected[own_lanes(warp)][arriving] = now
        lanes = int(arriving.sum())
        if lanes > bar.left:
            fail(f"{lanes} threads arrive at {bar.name} whose phase expects {bar.left} more of {bar.count}", site,
                 remedy="give the barrier the number of threads that arrive")  # fmt: skip
        bar.left -= lanes
        bar.advance(now)

    def reached(self, warp: int, what: str, site: Site) -> None:
        """Raise if a warp of another block may not signal barriers of this one: before they are initialised, or after its end."""
        if self.ended:
            fail(f"{what} of block {self.rank} of the cluster, which has ended", site,
                 remedy="let no block end while another one may still signal its barriers")  # fmt: skip
        if warp not in self.open_to:
            fail(f"{what} of block {self.rank} of the cluster, which may not have initialised it yet", site,
                 remedy="synchronise the cluster after the barriers are made (T.cluster_sync)")  # fmt: skip

    def arrive_from(self, name: str, index: int, arriving: np.ndarray, warp: int, now: int, site: Site) -> None:
        """The `arriving` lanes of a warp of any block of the cluster arrive."""
        if warp not in self.own:
            self.reached(warp, f"an arrival at {name}[{index}]", site)
            for lane in np.flatnonzero(arriving).tolist():
                self.signals[WARP * warp + lane] = now, f"{name}[{index}]", site
        self.arrive(name, index, arriving, warp, now, site)

    def end(self) -> None:
        """The block ends; raise if it does so before it knows of all that others have signalled."""
        self.ended = True
        for lane, (time, name, site) in self.signals.items():
            if self.seen[list(self.own), lane].max() < time:
                fail(f"block {self.rank} of the cluster ends, and none of its warps has waited for an arrival at {name}", site,
                     remedy="wait for the phase before the block ends")  # fmt: skip

    def expect(self, name: str, index: int, count: int, now: int, site: Site) -> None:
        """The running phase also waits for `count` bytes of bulk copies."""
        bar = self.mbarrier(name, index, site)
        bar.bytes += count
        bar.expected = site
        if bar.bytes > MOST_BYTES:
            fail(f"{bar.name} expects {bar.bytes} bytes; an mbarrier counts to {MOST_BYTES}", site, remedy="copy less in a phase")
        bar.advance(now)

    def unbalanced(self) -> None:
        """Raise if a barrier still counts bytes when the block ends."""
        for bar in self.bars.values():
            if bar.bytes and bar.expected is not None:
                what = f"expects {bar.bytes} bytes more than" if bar.bytes > 0 else f"expects {-bar.bytes} bytes less than"
                fail(f"the block ends and {bar.name} {what} were copied", bar.expected, remedy="expect the bytes of its copies")

    def wait(self, name: str, pairs: set[tuple[int, int]], warp: int, site: Site) -> tuple[Wait, Callable[[], str]]:
        """A predicate that holds once the phases of these (barrier, parity) pairs have completed, and why it does not."""
        bars = [(self.mbarrier(name, index, site), parity) for index, parity in sorted(pairs)]
        if any(parity not in (0, 1) for _, parity in bars):
            fail(f"a wait for the phase of parity {max(p for _, p in bars)} of {bars[0][0].name}; a parity is 0 or 1", site)

        def ready() -> bool:
            if any((bar.phase & 1) == parity for bar, parity in bars):
                return False
            for bar, _ in bars:
                np.maximum(self.known[warp], bar.published, out=self.known[warp])
            return True

        def reason() -> str:
            return ", ".join(bar.state() for bar, parity in bars if (bar.phase & 1) == parity)

        return ready, reason


def waiting_text(waits: list[tuple[int, Site | None, str]]) -> list[tuple[Site, str]]:
    """Who waits where and for what, one entry a line of the program. waits: (warp, site, reason or "")."""
    places: dict[Any, tuple[Site, str, list[int]]] = {}
    for warp, site, reason in waits:
        if site is not None:
            places.setdefault(site.at, (site, reason, []))[2].append(warp)
    found = []
    for site, reason, who in places.values():
        several = len(who) > 1
        text = f"warp{'s' if several else ''} {', '.join(map(str, who))} wait{'' if several else 's'} here"
        found.append((site, f"{text}: {reason}" if reason else text))
    return found

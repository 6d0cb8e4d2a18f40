"""Barriers between warps that run on their own: named block barriers and mbarriers, with what each one orders.

In: arrivals of warps. Out: predicates to wait for; `seen[w, v]`: the time up to which accesses of warp v are ordered before
warp w (for v = w: its last warp barrier). Completing a barrier joins the knowledge of those who arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .report import Site, fail

Wait = Callable[[], bool]
VOTES = -1  # number of the barrier that votes use


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


class MBarrier:
    """count: arrivals that complete a phase. published: what the completed phases order; collected: what the running one will."""

    def __init__(self, name: str, count: int, warps: int) -> None:
        self.name, self.count, self.warps = name, count, warps
        self.reset(count)

    def reset(self, count: int) -> None:
        self.count, self.left, self.phase = count, count, 0
        self.published = np.zeros(self.warps, np.int64)
        self.collected = np.zeros(self.warps, np.int64)


class Barriers:
    """All barriers of one block."""

    def __init__(self, warps: int, threads: int) -> None:
        self.warps, self.threads = warps, threads
        self.seen = np.zeros((warps, warps), np.int64)
        self.named: dict[int, Named] = {}
        self.bars: dict[tuple[str, int], MBarrier] = {}
        self.ballot: Ballot | None = None

    def declare(self, name: str, counts: list[int]) -> None:
        for k, count in enumerate(counts):
            self.bars[name, k] = MBarrier(f"{name}[{k}]", count, self.warps)

    def mbarrier(self, name: str, index: int, site: Site | None = None) -> MBarrier:
        if (name, index) not in self.bars:
            fail(f"barrier {name}[{index}] does not exist", site or Site(None, "barrier"))
        return self.bars[name, index]

    def threads_of(self, warp: int) -> int:
        return min(32, self.threads - 32 * warp)

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
        joined = self.seen[members].max(0)
        joined[members] = now
        self.seen[members] = np.maximum(self.seen[members], joined)
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

    def arrive(self, name: str, index: int, lanes: int, warp: int, now: int, site: Site) -> None:
        """`lanes` threads of a warp arrive at an mbarrier."""
        bar = self.mbarrier(name, index, site)
        bar.collected = np.maximum(bar.collected, self.seen[warp])
        bar.collected[warp] = now
        if lanes > bar.left:
            fail(f"{lanes} threads arrive at {bar.name} whose phase expects {bar.left} more of {bar.count}", site,
                 remedy="give the barrier the number of threads that arrive")  # fmt: skip
        bar.left -= lanes
        if bar.left == 0:
            bar.published = np.maximum(bar.published, bar.collected)
            bar.collected = np.zeros(self.warps, np.int64)
            bar.left = bar.count
            bar.phase += 1

    def wait(self, name: str, pairs: set[tuple[int, int]], warp: int, site: Site) -> Wait:
        """A predicate that holds once the phases of these (barrier, parity) pairs have completed."""
        bars = [(self.mbarrier(name, index, site), parity) for index, parity in sorted(pairs)]

        def ready() -> bool:
            if any((bar.phase & 1) == parity for bar, parity in bars):
                return False
            for bar, _ in bars:
                self.seen[warp] = np.maximum(self.seen[warp], bar.published)
            return True

        return ready


def waiting_text(waits: list[tuple[int, Site | None]]) -> Any:
    """Who waits where, one entry a line of the program."""
    places: dict[Any, tuple[Site, list[int]]] = {}
    for warp, site in waits:
        if site is not None:
            places.setdefault(site.at, (site, []))[1].append(warp)
    found = []
    for site, who in places.values():
        several = len(who) > 1
        found.append((site, f"warp{'s' if several else ''} {', '.join(map(str, who))} wait{'' if several else 's'} here"))
    return found

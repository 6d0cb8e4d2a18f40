"""Blocks of a cluster that run together: their common barrier, and the turns that their warps take.

In: one batch for each block of a cluster (one alone is a cluster of its own). Out: memory changed, or a `SimtError`: a deadlock, a warp
that waits at the cluster's barrier without having arrived, signals to a block that has not begun or has ended. The rules are those
of the PTX ISA ("barrier.cluster"): the barrier waits for all threads of the cluster that have not ended; an arrival without order
(`relaxed`) makes nothing visible but initialised mbarriers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .barriers import Barriers, Wait, own_lanes, waiting_text
from .report import Site, fail


class ClusterBarrier:
    """The barrier of all warps of a cluster. arrived: those of the running round. waits: for warps that have arrived and not yet waited,
    the round. published: what the last round orders."""

    def __init__(self, blocks: Sequence[Barriers]) -> None:
        self.blocks = blocks
        self.known = blocks[0].known
        self.arrived: dict[int, Site] = {}
        self.waits: dict[int, int] = {}
        self.ended: set[int] = set()
        self.rounds = 0
        self.collected = np.zeros(self.known.shape[1], np.int64)
        self.published = self.collected

    def arrive(self, warp: int, relaxed: bool, now: int, site: Site) -> None:
        if warp in self.waits:
            fail(f"warp {warp} arrives again at the cluster's barrier before it has waited", site, remedy="wait first (T.cluster_wait)")
        self.arrived[warp], self.waits[warp] = site, self.rounds
        if not relaxed:
            np.maximum(self.collected, self.known[warp], out=self.collected)
            self.collected[own_lanes(warp)] = now
        self._advance()

    def wait(self, warp: int, site: Site) -> Wait:
        if warp not in self.waits:
            fail(f"warp {warp} waits at the barrier of the cluster without having arrived", site, remedy="arrive first (T.cluster_arrive)")
        mine = self.waits[warp]

        def ready() -> bool:
            if self.rounds == mine:
                return False
            np.maximum(self.known[warp], self.published, out=self.known[warp])
            for block in self.blocks:
                block.open_to.add(warp)
            self.waits.pop(warp, None)  # the question may be asked again before the warp goes on
            return True

        return ready

    def end(self, warp: int) -> None:
        """A warp ends: nobody waits for it any more."""
        self.ended.add(warp)
        self._advance()

    def missing(self) -> str:
        """Whom the running round waits for."""
        absent = [w for w in range(len(self.known)) if w not in self.arrived and w not in self.ended]
        return f"the barrier of the cluster is short of warp{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))}"

    def _advance(self) -> None:
        if self.arrived and len(self.arrived.keys() | self.ended) == len(self.known):
            self.arrived.clear()
            self.rounds += 1
            self.published, self.collected = self.collected, np.zeros_like(self.collected)


def run_blocks(blocks: Sequence[Any]) -> None:
    """Run the batches of one cluster. Warps take turns, and bulk copies land in between; what goes on is drawn from the seed."""
    draw, groups = blocks[0].draw, {g.one_warp: g for block in blocks for g in block.groups()}
    running = {warp: groups[warp].batch.start(groups[warp]) for warp in groups}
    left = [block.warps for block in blocks]
    waits: dict[int, Callable[[], bool]] = {}
    while running:
        ready = [w for w in running if w not in waits or waits[w]()]
        flying = [block.bulk.flying for block in blocks]
        choices = len(ready) + sum(flying)
        if not choices:
            _deadlock(groups, list(running), blocks[0].spec.site)
        number = draw.randrange(choices)
        if number >= len(ready):
            _land(blocks, flying, number - len(ready))
            continue
        warp = ready[number]
        waits.pop(warp, None)
        group = groups[warp]
        group.moved()
        try:
            waits[warp] = next(running[warp])
        except StopIteration:
            del running[warp]
            group.products.finish()
            group.batch.cluster.end(warp)
            left[group.batch.barriers.rank] -= 1
            if not left[group.batch.barriers.rank]:
                group.batch.end()
    for block in blocks:
        block.bulk.finish()


def _land(blocks: Sequence[Any], flying: Sequence[int], number: int) -> None:
    """One of the bulk copies under way lands."""
    for block, count in zip(blocks, flying, strict=True):
        if number < count:
            block.bulk.land(number)
            return
        number -= count


def _deadlock(groups: dict[int, Any], waiting: Sequence[int], site: Site) -> None:
    lines = waiting_text([(w, groups[w].where, groups[w].waits_for() if groups[w].waits_for else "") for w in waiting])
    ended = len(groups) - len(waiting)
    finished = f", the other {ended} have ended" if ended else ""
    fail(f"deadlock: {len(waiting)} of {len(groups)} warps wait for ever{finished}", lines[0][0] if lines else site, *lines)

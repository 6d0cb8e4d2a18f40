"""The plan of a kernel's shared memory: who lies where, how long, beside whom; and how to pack buffers into few bytes.

In: sizes, alignments and which buffers may not share bytes. Out: offsets, and the records `Planned` and `MemoryPlan`,
which the memory report of a kernel shows. Pure Python.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...errors import Location

_EXHAUSTIVE = 6  # buffers up to which all orders are tried
_TRIES = 500  # orders of more buffers that are tried


@dataclass(frozen=True)
class Planned:
    """One allocation. offset, bytes, alignment in bytes; reason: why this alignment. at: the line that allocates it. sharers: names of
    buffers that have bytes in common with it. layout: how its elements are arranged."""

    name: str
    scope: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    offset: int
    alignment: int
    reason: str
    at: Location | None
    sharers: tuple[str, ...] = ()
    layout: str = "row-major"


@dataclass(frozen=True)
class MemoryPlan:
    """Shared memory of one launch. kernel: position of the launch in the function. bytes: of the whole allocation; static: bytes that
    the printer declares beside it (`allreduce_memory.py`); limit: what a block may have, both together."""

    kernel: int
    bytes: int
    static: int
    limit: int
    buffers: tuple[Planned, ...]


# ---------------------------------------------------------------- packing
def pack(sizes: Sequence[int], alignments: Sequence[int], apart: Sequence[Collection[int]], bound: int = 0) -> list[int]:
    """Offsets so that buffers which must lie apart do not overlap, in as few bytes as found.

    apart[i]: the buffers that may not share bytes with i (symmetric). bound: bytes below which no packing can be; the search
    stops there. Good orders come first, each placed by best fit and at the lowest place; then all orders of a few buffers, which is
    exact (the best packing, taken in order of its offsets, is one of them, for at the lowest place none comes to lie higher), and a
    local search among the orders of many.
    """
    search = _Search(sizes, alignments, apart, bound)
    count = len(sizes)
    weight = [sum(sizes[j] for j in apart[i]) for i in range(count)]
    keys = (lambda i: (-sizes[i], i), lambda i: (-sizes[i] - weight[i], i), lambda i: (-weight[i], i), lambda i: i,
            lambda i: (-alignments[i], -sizes[i]))  # fmt: skip
    for order in [sorted(range(count), key=key) for key in keys]:
        if search.take(order, best_fit=True) or search.take(order):
            return search.offsets
    if count <= _EXHAUSTIVE:
        any(search.take(order) for order in itertools.permutations(range(count)))
    else:
        _improve(search, count)
    return search.offsets


class _Search:
    """The best placement so far, and the order it came from."""

    def __init__(self, sizes: Sequence[int], alignments: Sequence[int], apart: Sequence[Collection[int]], bound: int) -> None:
        self.sizes, self.alignments, self.apart, self.bound = sizes, alignments, apart, bound
        self.offsets: list[int] = []
        self.order: Sequence[int] = ()
        self.total = -1

    def take(self, order: Sequence[int], best_fit: bool = False) -> bool:
        """Place in this order; is the result as good as any can be?"""
        offsets = _place(order, self.sizes, self.alignments, self.apart, best_fit)
        total = extent(offsets, self.sizes)
        if self.total < 0 or total < self.total:
            self.offsets, self.order, self.total = offsets, order, total
        return self.total <= self.bound


def _improve(search: _Search, count: int) -> None:
    """Exchange two buffers of the best order as long as that helps, then look at orders at random; a fixed number of tries."""
    draw, tries, before = random.Random(0), 0, -1
    while tries < _TRIES:
        orders: list[list[int]] = []
        if before != search.total:
            before = search.total
            for i, j in itertools.combinations(range(count), 2):
                orders.append(list(search.order))
                orders[-1][i], orders[-1][j] = orders[-1][j], orders[-1][i]
        else:
            orders.append(draw.sample(range(count), count))
        for order in orders:
            tries += 1
            if search.take(order):
                return


def extent(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    """Bytes from 0 to the end of the last buffer."""
    return max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)


def _place(
    order: Sequence[int], sizes: Sequence[int], alignments: Sequence[int], apart: Sequence[Collection[int]], best_fit: bool
) -> list[int]:  # fmt: skip
    """Each buffer in turn into a gap between its neighbours that holds it, the lowest or the one it fills best; else behind them."""
    offsets = [-1] * len(sizes)
    for i in order:
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in apart[i] if offsets[j] >= 0)
        end, choice, slack = 0, -1, 0
        for low, high in taken:
            start = _align(end, alignments[i])
            if start + sizes[i] <= low and (choice < 0 or (best_fit and low - start - sizes[i] < slack)):
                choice, slack = start, low - start - sizes[i]
            end = max(end, high)
        offsets[i] = choice if choice >= 0 else _align(end, alignments[i])
    return offsets


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment

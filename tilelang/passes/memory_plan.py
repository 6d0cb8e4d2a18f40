"""The plan of a kernel's shared memory: who lies where, how long, beside whom; and how to pack buffers into few bytes.

In: sizes, alignments and which buffers may not share bytes. Out: offsets, and the records `Planned` and `MemoryPlan`,
which the memory report of a kernel shows. Pure Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Location

_EXHAUSTIVE = 7  # buffers up to which all orders are tried


@dataclass(frozen=True)
class Planned:
    """One allocation. offset, bytes, alignment in bytes; reason: why this alignment. at: the line that allocates it;
    first, last: source lines of its first and last use (None: never used, or unknown). sharers: names of buffers that have
    bytes in common with it. layout: how its elements are arranged."""

    name: str
    scope: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    offset: int
    alignment: int
    reason: str
    at: Location | None
    first: Location | None
    last: Location | None
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
    stops there. A few buffers are tried in every order, many in several good ones.
    """
    count = len(sizes)
    if count <= _EXHAUSTIVE:
        orders: Any = itertools.permutations(range(count))
    else:
        weight = [sum(sizes[j] for j in apart[i]) for i in range(count)]
        keys = (lambda i: (-sizes[i], i), lambda i: (-sizes[i] - weight[i], i), lambda i: (-weight[i], i), lambda i: i,
                lambda i: (-alignments[i], -sizes[i]))  # fmt: skip
        orders = [sorted(range(count), key=key) for key in keys]
        orders += [order[k:] + order[:k] for order in orders[:2] for k in range(1, count)]
    best: list[int] | None = None
    best_total = 0
    for order in orders:
        offsets = _place(order, sizes, alignments, apart)
        total = extent(offsets, sizes)
        if best is None or total < best_total:
            best, best_total = offsets, total
        if best_total <= bound:
            break
    return best or []


def extent(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    """Bytes from 0 to the end of the last buffer."""
    return max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)


def _place(order: Sequence[int], sizes: Sequence[int], alignments: Sequence[int], apart: Sequence[Collection[int]]) -> list[int]:
    """Each buffer in turn into the smallest gap between its neighbours that holds it, else behind them."""
    offsets = [-1] * len(sizes)
    for i in order:
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in apart[i] if offsets[j] >= 0)
        end, choice, slack = 0, -1, 0
        for low, high in taken:
            start = _align(end, alignments[i])
            if start + sizes[i] <= low and (choice < 0 or low - start - sizes[i] < slack):
                choice, slack = start, low - start - sizes[i]
            end = max(end, high)
        offsets[i] = choice if choice >= 0 else _align(end, alignments[i])
    return offsets


def _align(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment

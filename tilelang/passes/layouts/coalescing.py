"""The layout of a tile that is best for reading and writing memory: neighbouring threads hold neighbouring vectors.

In: a shape, the width of an element, the number of threads. Out: a `Fragment`: the flat row-major index, cut into vectors
of up to 16 bytes, dealt out to the threads in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...layout.algebra import ravel
from ...layout.fragment import Fragment

VECTOR_BITS = 128


def vector_width(row: int, bits: int, elements: int, threads: int) -> int:
    """Elements of one vector: a power of two of at most 16 bytes that divides the row, and leaves no thread without work
    that a smaller one would give it."""
    width = 1
    while width * 2 * bits <= VECTOR_BITS and row % (width * 2) == 0 and elements >= width * 2 * threads:
        width *= 2
    return width


def coalesced(shape: Sequence[int], bits: int, threads: int) -> Fragment:
    """The coalescing layout of a tile of elements of `bits` bits."""
    shape = tuple(shape)
    width = vector_width(shape[-1], bits, math.prod(shape), threads)
    vectors, rows = shape[-1] // width, math.prod(shape[:-1])
    mine = _threads_of_a_row(vectors, rows, threads)

    def in_turn(*coords):  # type: ignore[no-untyped-def]
        flat = ravel(coords, shape)
        if width == 1:
            return flat % threads, flat // threads
        return flat // width % threads, flat // (width * threads) * width + flat % width

    def by_rows(*coords):  # type: ignore[no-untyped-def]
        row, column = ravel(coords[:-1], shape[:-1]), coords[-1]
        at_once = threads // mine
        turn = row // at_once * (vectors // mine) + column // width // mine
        return row % at_once * mine + column // width % mine, turn * width + column % width

    return Fragment(shape, in_turn if mine == 0 else by_rows)


def _threads_of_a_row(vectors: int, rows: int, threads: int) -> int:
    """Where vectors dealt out in turn would not come to the same threads in every row: how many threads, at most a warp, share a row so
    that they do. Rows then need nothing of other warps to be reduced. 0 where there is no need, or no such number of 8 and more."""
    if vectors % threads == 0 or threads % vectors == 0:
        return 0
    fitting = (n for n in (32, 16, 8) if vectors % n == 0 and threads % n == 0 and rows % (threads // n) == 0)
    return next(fitting, 0)


def replicated(shape: Sequence[int], threads: int) -> Fragment:
    """Every thread holds the whole tile, in row-major registers."""
    shape = tuple(shape)
    if threads == 1:
        return coalesced(shape, VECTOR_BITS, 1)
    return Fragment(shape, lambda *index: (index[-1], ravel(index[:-1], shape)), replicate=threads)

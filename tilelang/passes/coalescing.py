"""The layout of a tile that is best for reading and writing memory: neighbouring threads hold neighbouring vectors.

In: a shape, the width of an element, the number of threads. Out: a `Fragment`: the flat row-major index, cut into vectors
of up to 16 bytes, dealt out to the threads in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..layout.algebra import ravel
from ..layout.fragment import Fragment

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

    def place(*coords):  # type: ignore[no-untyped-def]
        flat = ravel(coords, shape)
        if width == 1:
            return flat % threads, flat // threads
        return flat // width % threads, flat // (width * threads) * width + flat % width

    return Fragment(shape, place)


def replicated(shape: Sequence[int], threads: int) -> Fragment:
    """Every thread holds the whole tile, in row-major registers."""
    shape = tuple(shape)
    if threads == 1:
        return coalesced(shape, VECTOR_BITS, 1)
    return Fragment(shape, lambda *index: (index[-1], ravel(index[:-1], shape)), replicate=threads)

"""From a table of offsets back to a strided layout: how a formula is found for a layout that was given by a function.

In: an int64 array, the offset of each element. Out: the `StridedLayout` or the `BitMatrix` with exactly these offsets,
or None. Every answer has been compared with the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .algebra import Iter, StridedLayout


def recognise(offsets: np.ndarray) -> StridedLayout | None:
    """The strided layout (without swizzle) whose table is `offsets`; None if there is none."""
    zero = (0,) * offsets.ndim
    if offsets[zero] != 0:
        return None
    dims = []
    for axis in range(offsets.ndim):
        line = offsets[tuple(slice(None) if k == axis else 0 for k in range(offsets.ndim))]
        dim = _digits(line)
        if dim is None:
            return None
        dims.append(dim)
    layout = StridedLayout(tuple(dims))
    return layout if np.array_equal(layout.table(), offsets) else None


def _digits(line: np.ndarray) -> tuple[Iter, ...] | None:
    """Iterators of one dimension, outermost first: each runs as long as the offsets grow by its stride."""
    found: list[Iter] = []
    while len(line) > 1:
        stride = int(line[1] - line[0])
        breaks = np.nonzero(line != line[0] + stride * np.arange(len(line)))[0]
        extent = int(breaks[0]) if len(breaks) else len(line)
        if stride < 0 or len(line) % extent:
            return None
        found.append((extent, stride))
        line = line[::extent]
    return tuple(reversed(found)) or ((1, 0),)


@dataclass(frozen=True)
class BitMatrix:
    """A function that is linear over bits: the image of x is the XOR of `columns[k]` over the set bits k of x.
    Every swizzle of a layout with power-of-two extents is one."""

    columns: tuple[int, ...]

    def __call__(self, x: Any) -> Any:
        """The image of an integer, array or expression: one term for each run of bits that moves by one distance."""
        moves = sorted((to - k, k) for k, column in enumerate(self.columns) for to in range(column.bit_length()) if column >> to & 1)
        out: Any = 0
        while moves:
            distance, first = moves[0]
            length = next(n for n in range(1, len(moves) + 1) if n == len(moves) or moves[n] != (distance, first + n))
            moves = moves[length:]
            digit = x // (1 << first) % (1 << length) if first else x % (1 << length)
            term = digit * (1 << (first + distance)) if first + distance else digit
            out = out ^ term if not isinstance(out, int) or out else term
        return out

    def inverse(self) -> BitMatrix | None:
        """The inverse by elimination, or None if the columns depend on each other."""
        n = len(self.columns)
        rows = [(column, 1 << k) for k, column in enumerate(self.columns)]  # (image, argument) pairs
        for bit in range(n):
            pivot = next((r for r in range(bit, n) if rows[r][0] >> bit & 1), None)
            if pivot is None:
                return None
            rows[bit], rows[pivot] = rows[pivot], rows[bit]
            image, argument = rows[bit]
            rows = [(a ^ image, b ^ argument) if r != bit and a >> bit & 1 else (a, b) for r, (a, b) in enumerate(rows)]
        return BitMatrix(tuple(argument for image, argument in rows)) if all(image == 1 << k for k, (image, _) in enumerate(rows)) else None


def recognise_bits(offsets: np.ndarray) -> BitMatrix | None:
    """The bit-linear function from the flat row-major index to `offsets`, if it is one; the size must be a power of two."""
    flat = offsets.reshape(-1)
    bits = flat.size.bit_length() - 1
    if flat.size != 1 << bits:
        return None
    found = BitMatrix(tuple(int(flat[1 << k]) for k in range(bits)))
    return found if np.array_equal(np.broadcast_to(found(np.arange(flat.size)), flat.shape), flat) else None

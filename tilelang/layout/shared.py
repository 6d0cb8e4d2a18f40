"""Where the elements of a tile lie in shared memory: row-major, with padded rows, in swizzled panels, or as the user says.

In: the shape of a tile, the bits of an element, the arrangement. Out: a `SharedLayout`, which gives the offset of every element from
the first byte of the tile, in elements. Offsets are made of integer operators only: they work on integers, NumPy arrays and
expressions alike.

A swizzle of 128 bytes cuts the tile into panels of 128-byte columns, one after the other; row r of a panel is its r-th run of 128
bytes, whose 16-byte chunk j lies at chunk j ^ (r % 8). With 64 bytes it is j ^ (r / 2 % 4), with 32 bytes j ^ (r / 4 % 2). These are the
arrangements of bulk tensor copies and of the matrix descriptors of warpgroup instructions (PTX ISA, "Swizzling modes" of tensor
copies), which take the phase from the address: hence the alignments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .algebra import LayoutError, ravel
from .index_map import Layout
from .swizzle import CHUNK_BITS, SWIZZLE_BYTES

VECTOR_BYTES = 16
PERIOD_ROWS = 8  # rows after which every swizzle repeats


@dataclass(frozen=True)
class SharedLayout:
    """shape: of the buffer. bits: that one element takes. versions: copies of the tile that its first dimension counts, one after the
    other. swizzle: bytes of a panel's row, 0 for none. padding: elements after each row. given: the user's own layout of one
    version; its outputs are ravelled row-major. At most one of the last three is set."""

    shape: tuple[int, ...]
    bits: int
    versions: int = 1
    swizzle: int = 0
    padding: int = 0
    given: Layout | None = None

    def __post_init__(self) -> None:
        if self.bits % 8 or (self.shape and self.shape[0] % self.versions):
            raise LayoutError(f"{self.versions} versions of elements of {self.bits} bits in a buffer of shape {self.shape}")
        if self.swizzle and not fits(self.shape, self.bits, self.swizzle, self.versions):
            raise LayoutError(f"a tile of shape {self.shape} of {self.bits} bits is not made of panels of {self.swizzle} bytes")

    # ---- sizes
    @functools.cached_property
    def tile(self) -> tuple[int, ...]:
        """The shape of one version."""
        return (self.shape[0] // self.versions, *self.shape[1:]) if self.shape else ()

    @functools.cached_property
    def tile_elements(self) -> int:
        """Elements from the start of one version to the start of the next, gaps included."""
        if self.given is not None:
            return math.prod(self.given.get_output_shape())
        return math.prod(self.tile[:-1]) * (self.tile[-1] + self.padding) if self.tile else 1

    @property
    def elements(self) -> int:
        return self.versions * self.tile_elements

    @property
    def bytes(self) -> int:
        return self.elements * self.bits // 8

    @property
    def columns(self) -> int:
        """Elements in a row of a panel; of the tile where there are no panels."""
        return self.swizzle * 8 // self.bits if self.swizzle else self.tile[-1]

    @property
    def panel(self) -> int:
        """Elements from one panel to the next."""
        return self.tile[-2] * self.columns

    @property
    def chunk(self) -> int:
        """Elements in the 16 bytes that a swizzle moves as a whole."""
        return CHUNK_BITS // self.bits

    # ---- what it is called, and what it asks for
    @property
    def is_row_major(self) -> bool:
        return not self.swizzle and not self.padding and self.given is None

    @property
    def name(self) -> str:
        if self.given is not None:
            return "as annotated"
        if self.swizzle:
            return f"{self.swizzle}-byte swizzle"
        return f"rows padded by {self.padding * self.bits // 8} bytes" if self.padding else "row-major"

    @property
    def alignment(self) -> int:
        """Bytes of which the tile's address must be a multiple: 8 rows of a panel, else a vector."""
        return self.swizzle * PERIOD_ROWS if self.swizzle else VECTOR_BYTES

    @property
    def alignment_reason(self) -> str:
        return f"{self.swizzle}-byte swizzle: {PERIOD_ROWS} rows" if self.swizzle else f"vectors of {VECTOR_BYTES} bytes"

    # ---- places
    def split(self, *index: Any) -> tuple[Any, Any, Any, Any]:
        """(line, chunk, phase, within): with a swizzle the element lies at (line + (chunk ^ phase)) * self.chunk + within, where
        line is a multiple of the chunks in a row of a panel; without, at line + within."""
        if len(index) != len(self.shape):
            raise LayoutError(f"{len(index)} indices for a shared layout of shape {self.shape}")
        if not index:
            return 0, 0, 0, 0
        start: Any = 0
        if self.versions > 1 and (self.given is not None or self.tile[-1] != self.columns):
            start = index[0] // self.tile[0]
            index = (index[0] % self.tile[0], *index[1:])
        if self.given is not None:
            return start * self.tile_elements + self.given.linear(*index), 0, 0, 0
        if not self.swizzle:
            return self._row(index) * (self.columns + self.padding), 0, 0, index[-1]
        row, column = index[-2], index[-1]
        chunks = self.swizzle // VECTOR_BYTES
        line = self._row(index) * chunks
        if self.columns != self.tile[-1]:
            lead = ravel(index[:-2], self.tile[:-2]) * (self.tile[-2] * self.tile[-1] // self.chunk) if len(index) > 2 else 0
            panel = column // self.columns * (self.panel // self.chunk)
            line = start * (self.tile_elements // self.chunk) + lead + panel + row * chunks
        return line, column // self.chunk % chunks, row // (PERIOD_ROWS // chunks) % chunks, column % self.chunk

    def _row(self, index: Sequence[Any]) -> Any:
        """Number of the row among all rows."""
        return ravel(index[:-1], (*self.shape[:-1],)) if len(index) > 1 else 0

    def offset(self, *index: Any) -> Any:
        """Elements from the start of the buffer to the element at `index`: integers, arrays or expressions."""
        line, chunk, phase, within = self.split(*index)
        return (line + (chunk ^ phase)) * self.chunk + within if self.swizzle else line + within

    def offsets(self) -> np.ndarray:
        """The offset of every element: int64 array of the buffer's shape."""
        found = self.offset(*np.indices(self.shape, dtype=np.int64))
        return np.broadcast_to(np.asarray(found, np.int64), self.shape)

    # ---- vectors
    def keeps(self, count: int) -> bool:
        """Are `count` neighbours of a row that start at a multiple of `count` neighbours in memory, and their first offset such a
        multiple?"""
        if count == 1:
            return True
        if not self.shape or self.shape[-1] % count or self.tile_elements % count:
            return False
        if self.swizzle:
            return self.chunk % count == 0
        if self.given is None:
            return self.padding % count == 0
        runs = self.given.offsets().reshape(-1, count)
        return bool((runs == runs[:, :1] + np.arange(count)).all()) and not (runs[:, 0] % count).any()


def fits(shape: Sequence[int], bits: int, swizzle: int, versions: int = 1) -> bool:
    """Is a tile made of whole panels of this swizzle, 8 rows at a time?"""
    if len(shape) < 2 or swizzle not in SWIZZLE_BYTES or bits > CHUNK_BITS or CHUNK_BITS % bits:
        return False
    rows = shape[0] // versions if len(shape) == 2 else shape[-2]
    return shape[-1] * bits % (swizzle * 8) == 0 and rows % PERIOD_ROWS == 0


def widest(shape: Sequence[int], bits: int, versions: int = 1) -> SharedLayout | None:
    """The widest swizzle that a tile is made of; None if there is none."""
    for swizzle in SWIZZLE_BYTES:
        if fits(shape, bits, swizzle, versions):
            return SharedLayout(tuple(shape), bits, versions, swizzle)
    return None


def from_layout(layout: Layout, shape: Sequence[int], bits: int, versions: int = 1) -> SharedLayout:
    """The shared layout that a user's layout of one version is: recognised, element by element, where it is one of ours."""
    tile, wanted = layout.shape, layout.offsets()
    candidates = [SharedLayout(tile, bits, swizzle=s) for s in SWIZZLE_BYTES if fits(tile, bits, s)]
    rows = wanted.reshape(-1, wanted.shape[-1])
    step = int(rows[1, 0]) if len(rows) > 1 else rows.shape[1]
    candidates.append(SharedLayout(tile, bits, padding=max(step - rows.shape[1], 0)))
    for found in candidates:
        if np.array_equal(found.offsets(), wanted):
            return SharedLayout(tuple(shape), bits, versions, found.swizzle, found.padding)
    return SharedLayout(tuple(shape), bits, versions, given=layout)

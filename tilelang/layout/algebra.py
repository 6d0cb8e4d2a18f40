"""The algebra of strided layouts: where element (i, j, ...) of a tile lies, as exact integer arithmetic.

A layout maps coordinates to an offset in elements. Each dimension is a list of iterators (extent, stride), outermost
first: coordinate x is written in the mixed radix of the extents and each digit contributes digit * stride. An XOR
swizzle may permute the offsets afterwards. The last dimension varies fastest, as in NumPy; extents need not be powers
of two. Evaluation uses only `+ * // % ^`: it works on Python ints, NumPy arrays and symbolic expressions alike.
An operation whose result is no strided layout raises `LayoutError`; none ever returns an approximation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TileValueError

Iter = tuple[int, int]  # (extent, stride)
Dims = tuple[tuple[Iter, ...], ...]


class LayoutError(TileValueError):
    """Layouts that do not fit each other, or a result that is no layout of the wanted kind."""


@dataclass(frozen=True)
class Swizzle:
    """Offset bits [base, base+bits) ^= bits [base+shift, base+shift+bits). Its own inverse, since shift >= bits."""

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or self.shift < self.bits:
            raise LayoutError(f"{self}: needs bits >= 0, base >= 0 and shift >= bits")

    def __call__(self, offset: Any) -> Any:
        if self.bits == 0:
            return offset
        return offset ^ (offset // (1 << (self.base + self.shift)) % (1 << self.bits) * (1 << self.base))


def unravel(index: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Row-major coordinates of a flat index."""
    coords: list[Any] = []
    for k, extent in reversed(list(enumerate(shape))):
        coords.append(index % extent if k else index)
        index = index // extent
    return tuple(reversed(coords))


def ravel(coords: Sequence[Any], shape: Sequence[int]) -> Any:
    """Flat row-major index of coordinates."""
    index: Any = coords[0] if len(coords) else 0
    for x, extent in zip(coords[1:], shape[1:], strict=True):
        index = index * extent + x
    return index


@dataclass(frozen=True)
class StridedLayout:
    """dims: for each logical dimension its iterators (extent, stride), outermost first. swizzle: applied to the offset."""

    dims: Dims
    swizzle: Swizzle | None = None

    def __post_init__(self) -> None:
        for extent, stride in self.iterators():
            if extent < 1 or stride < 0:
                raise LayoutError(f"iterator {extent}:{stride}: extents must be positive and strides not negative")

    # ---- making
    @staticmethod
    def of(shape: Sequence[int], strides: Sequence[int]) -> StridedLayout:
        """One iterator for each dimension."""
        return StridedLayout(tuple(((e, s),) for e, s in zip(shape, strides, strict=True)))

    @staticmethod
    def row_major(shape: Sequence[int]) -> StridedLayout:
        """Dense, the last dimension fastest."""
        return StridedLayout.of(shape, [math.prod(shape[k + 1 :]) for k in range(len(shape))])

    @staticmethod
    def column_major(shape: Sequence[int]) -> StridedLayout:
        """Dense, the first dimension fastest."""
        return StridedLayout.of(shape, [math.prod(shape[:k]) for k in range(len(shape))])

    # ---- looking
    def iterators(self) -> Iterator[Iter]:
        """All iterators, outermost first."""
        return itertools.chain.from_iterable(self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(e for e, _ in dim) for dim in self.dims)

    @property
    def size(self) -> int:
        """Number of elements of the domain."""
        return math.prod(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        if self.swizzle is None:
            return 1 + sum((e - 1) * s for e, s in self.iterators())
        return 1 + int(self.table().max())

    def __call__(self, *coords: Any) -> Any:
        """Offset in elements of the element at these coordinates."""
        if len(coords) != len(self.dims):
            raise LayoutError(f"{len(coords)} coordinates for a layout of shape {self.shape}")
        offset: Any = 0
        for x, dim in zip(coords, self.dims, strict=True):
            digits = unravel(x, [e for e, _ in dim])
            for digit, (extent, stride) in zip(digits, dim, strict=True):
                if stride and extent > 1:
                    offset = offset + (digit if stride == 1 else digit * stride)
        return offset if self.swizzle is None else self.swizzle(offset)

    def table(self) -> np.ndarray:
        """Offsets of all elements: int64 array of the layout's shape."""
        grid = np.indices(self.shape, dtype=np.int64)
        return np.broadcast_to(self(*grid), self.shape)

    def is_injective(self) -> bool:
        """No two elements share an offset (enumerated)."""
        return len(np.unique(self.table())) == self.size

    def __str__(self) -> str:
        text = ", ".join("(" + " ".join(f"{e}:{s}" for e, s in dim) + ")" for dim in self.dims)
        return f"[{text}]" + (f" {self.swizzle}" if self.swizzle else "")

    # ---- rearranging the domain
    def coalesce(self) -> StridedLayout:
        """The same function of the flat row-major index, with as few iterators as possible; one dimension."""
        merged: list[Iter] = []
        for extent, stride in self.iterators():
            if extent == 1:
                continue
            if merged and merged[-1][1] == extent * stride:
                merged[-1] = (merged[-1][0] * extent, stride)
            else:
                merged.append((extent, stride))
        return StridedLayout((tuple(merged or [(1, 0)]),), self.swizzle)

    def reshape(self, shape: Sequence[int]) -> StridedLayout:
        """The same function of the flat row-major index, seen with another shape of the same size."""
        if math.prod(shape) != self.size:
            raise LayoutError(f"reshape of {self.size} elements to {tuple(shape)}")
        rest = list(self.coalesce().dims[0])
        dims = []
        for extent in reversed(shape):
            taken, rest = _take(rest, extent)
            dims.append(tuple(taken or [(1, 0)]))
        return StridedLayout(tuple(reversed(dims)), self.swizzle)

    def split(self, tile: Sequence[int]) -> StridedLayout:
        """Blocks of `tile`: shape (outer0, outer1, ..., tile0, tile1, ...)."""
        outer, inner = [], []
        for dim, extent in zip(self.dims, tile, strict=True):
            taken, rest = _take([it for it in dim if it[0] > 1], extent)
            inner.append(tuple(taken or [(1, 0)]))
            outer.append(tuple(rest or [(1, 0)]))
        return StridedLayout((*outer, *inner), self.swizzle)

    # ---- operations
    def compose(self, inner: StridedLayout) -> StridedLayout:
        """`self` after `inner`: the offset of `inner` is taken as the flat row-major index into `self`."""
        if inner.swizzle is not None:
            raise LayoutError("composition with a swizzled inner layout is no strided layout")
        if inner.cosize > self.size:
            raise LayoutError(f"inner layout reaches {inner.cosize - 1}, outer one has {self.size} elements")
        mine = list(self.coalesce().dims[0])
        dims = []
        for dim in inner.dims:
            out: list[Iter] = []
            for extent, stride in dim:
                out += _take(_take(mine, stride)[1], extent)[0] if extent > 1 and stride else [(extent, 0)]
            dims.append(tuple(out or [(1, 0)]))
        result = StridedLayout(tuple(dims), self.swizzle)
        # Sums of inner digits may carry over a radix of the outer layout: then no digit-wise layout is right.
        if not _carry_free(inner) and not np.array_equal(result.table(), self.reshape((self.size,))(inner.table())):
            raise LayoutError(f"{self} after {inner} is no strided layout")
        return result

    def inverse(self) -> StridedLayout:
        """From the offset to the flat row-major index; for dense layouts (offsets 0..size-1, each once), unswizzled."""
        if self.swizzle is not None:
            raise LayoutError("the inverse of a swizzled layout has the swizzle inside: use coords_of")
        order = self.coalesce().dims[0]
        place = [math.prod(e for e, _ in order[k + 1 :]) for k in range(len(order))]
        found = sorted(((s, e, p) for (e, s), p in zip(order, place, strict=True) if e > 1), reverse=True)
        step = self.size
        for stride, extent, _ in found:
            step //= extent
            if stride != step:
                raise LayoutError(f"{self} is not a bijection onto 0..{self.size - 1}")
        return StridedLayout((tuple((e, p) for _, e, p in found) or ((1, 0),),))

    def coords_of(self, offset: Any) -> tuple[Any, ...]:
        """Coordinates of the element at an offset, also symbolically; the layout must be dense."""
        plain = StridedLayout(self.dims).inverse()
        return unravel(plain(offset if self.swizzle is None else self.swizzle(offset)), self.shape)

    def complement(self, size: int) -> StridedLayout:
        """One-dimensional layout that visits the copies of this one that fill 0..size-1: each offset of the range is
        the sum of exactly one offset of each. The layout must be injective with strides that divide each other."""
        if self.swizzle is not None:
            raise LayoutError("complement of a swizzled layout")
        gaps: list[Iter] = []
        reach = 1
        for stride, extent in sorted((s, e) for e, s in self.iterators() if e > 1):
            if stride % reach or stride == 0:
                raise LayoutError(f"{self} has no complement: stride {stride} after {reach} elements")
            gaps.append((stride // reach, reach))
            reach = stride * extent
        if size % reach:
            raise LayoutError(f"{self} has no complement in {size}: it spans {reach}")
        gaps.append((size // reach, reach))
        return StridedLayout((tuple(reversed(gaps)),)).coalesce()

    def product(self, grid: StridedLayout) -> StridedLayout:
        """This layout as a block, repeated over `grid` dimension by dimension; copies are `cosize` elements apart."""
        if len(grid.dims) != len(self.dims) or grid.swizzle is not None:
            raise LayoutError(f"a block of shape {self.shape} repeated over {grid}")
        step = self.cosize
        dims = tuple((*[(e, s * step) for e, s in outer], *inner) for outer, inner in zip(grid.dims, self.dims, strict=True))
        if self.swizzle is not None and step % (1 << (self.swizzle.bits + self.swizzle.base + self.swizzle.shift)):
            raise LayoutError(f"{self.swizzle} does not repeat every {step} elements")
        return StridedLayout(dims, self.swizzle)

    def vector_width(self, limit: int | None = None) -> int:
        """The largest v <= limit such that every aligned group of v elements of the last dimension is v consecutive,
        v-aligned offsets: how many elements one memory instruction may move."""
        row = self.shape[-1] if self.dims else 1
        groups = self.table().reshape(-1, row)
        for v in range(min(row, limit or row), 1, -1):
            if row % v == 0:
                group = groups.reshape(-1, v)
                if not (group[:, 0] % v).any() and (group - group[:, :1] == np.arange(v)).all():
                    return v
        return 1


def _take(iterators: Sequence[Iter], count: int) -> tuple[list[Iter], list[Iter]]:
    """Split off the innermost `count` steps: (their iterators, the rest), both outermost first."""
    taken: list[Iter] = []
    rest = list(iterators)
    while count > 1:
        if not rest:
            raise LayoutError(f"{count} times more steps than the iterators {list(iterators)} have")
        extent, stride = rest.pop()
        if count % extent == 0:
            taken.append((extent, stride))
            count //= extent
        elif extent % count == 0:
            taken.append((count, stride))
            rest.append((extent // count, stride * count))
            count = 1
        else:
            raise LayoutError(f"{count} steps do not divide an iterator {extent}:{stride}")
    return list(reversed(taken)), rest


def _carry_free(layout: StridedLayout) -> bool:
    """Digits never carry into each other: each stride is a multiple of the reach of the smaller ones."""
    reach = 1
    for stride, extent in sorted((s, e) for e, s in layout.iterators() if e > 1):
        if stride == 0 or stride % reach:
            return False
        reach = stride * extent
    return True

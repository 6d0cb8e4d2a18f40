"""Layouts given by a function: the physical coordinates of the element at logical coordinates.

In: a shape and a function from coordinates to one or several physical coordinates, written with integer operators.
Out: a `Layout`, whose properties (output shape, injectivity, inverse) are computed exactly by enumerating the domain.
The function is called with NumPy index arrays here, and with whatever a caller passes (integers, expressions) elsewhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .algebra import LayoutError, StridedLayout, ravel, unravel
from .recognise import recognise, recognise_bits
from .symbol import coordinates


def _extent(value: Any) -> Any:
    """A Python int where the extent is a constant (of TVM, too); else the object itself."""
    number = getattr(value, "value", value)
    try:
        return int(number)
    except (TypeError, ValueError):
        return value


def as_shape(shape: Any) -> tuple[Any, ...]:
    """An extent or a sequence of extents as a tuple; constants become Python ints and must be positive."""
    extents = tuple(_extent(e) for e in (shape if hasattr(shape, "__iter__") else (shape,)))
    for extent in extents:
        if isinstance(extent, int) and extent < 1:
            raise LayoutError(f"layout of shape {extents}: extents must be positive")
    return extents


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What a forward function returned, as a tuple of coordinates."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class Layout:
    """Element `coords` of a buffer of `shape` lies at `forward_fn(*coords)` (one coordinate, or a list of them)."""

    def __init__(self, shape: Any, forward_fn: Callable[..., Any]) -> None:
        if not callable(forward_fn):
            raise LayoutError(f"layout of shape {shape}: expected a function of the coordinates, got {forward_fn!r}")
        self.shape = as_shape(shape)
        self._forward = forward_fn

    # ---- evaluation
    def map_forward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Physical coordinates at logical coordinates: integers, NumPy arrays or expressions."""
        if len(indices) != len(self.shape):
            raise LayoutError(f"{len(indices)} indices for a layout of shape {self.shape}")
        return as_tuple(self._forward(*indices))

    def __call__(self, *indices: Any) -> tuple[Any, ...]:
        return self.map_forward_index(indices)

    def linear(self, *indices: Any) -> Any:
        """Flat row-major offset inside the box of the output coordinates."""
        return ravel(self.map_forward_index(indices), self.get_output_shape())

    def _static_shape(self) -> tuple[int, ...]:
        if not all(isinstance(e, int) for e in self.shape):
            raise LayoutError(f"layout of shape {self.shape}: this needs constant extents")
        return self.shape

    @functools.cached_property
    def table(self) -> np.ndarray:
        """Physical coordinates of every element: int64 array of shape (*shape, number of output coordinates)."""
        shape = self._static_shape()
        grid = np.indices(shape, dtype=np.int64)
        out = self.map_forward_index(tuple(grid))
        table = np.stack([np.broadcast_to(np.asarray(c, dtype=np.int64), shape) for c in out], axis=-1)
        if table.min() < 0:
            where = tuple(int(x) for x in np.argwhere(table.min(axis=-1) < 0)[0])
            raise LayoutError(f"layout of shape {shape} sends element {where} to negative coordinates {table[where].tolist()}")
        return table

    # ---- properties
    def get_input_shape(self) -> tuple[Any, ...]:
        """Extents of the logical coordinates."""
        return self.shape

    def get_output_shape(self) -> tuple[int, ...]:
        """Extents of the physical coordinates: one more than the largest value of each."""
        return tuple(int(m) + 1 for m in self.table.reshape(-1, self.table.shape[-1]).max(axis=0))

    def get_forward_vars(self) -> list[Any]:
        """Names of the logical coordinates, for `get_forward_index`."""
        return coordinates(len(self.shape))

    def get_forward_index(self) -> list[Any]:
        """The physical coordinates as formulas of `get_forward_vars()`."""
        return list(self.map_forward_index(self.get_forward_vars()))

    @property
    def index(self) -> list[Any]:
        """The physical coordinates as formulas of `get_forward_vars()`."""
        return self.get_forward_index()

    def get_linearized_forward_index(self) -> Any:
        """The physical offset, row-major in `get_output_shape()`, as one formula."""
        return ravel(self.get_forward_index(), self.get_output_shape())

    def __repr__(self) -> str:
        try:
            places = ", ".join(map(str, self.get_forward_index()))
        except LayoutError:
            places = "by table"
        return f"Layout({list(self.shape)} -> {places})"

    def offsets(self) -> np.ndarray:
        """Flat row-major offset of every element: int64 array of the layout's shape."""
        return np.asarray(ravel(tuple(np.moveaxis(self.table, -1, 0)), self.get_output_shape()))

    def collision(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Two elements that share a place, the lowest such place, or None if the layout is injective."""
        flat = self.offsets().reshape(-1)
        if flat.max() < 8 * flat.size and np.bincount(flat).max() == 1:  # the usual answer, without sorting
            return None
        order = np.argsort(flat, kind="stable")
        same = np.nonzero(flat[order][1:] == flat[order][:-1])[0]
        if not len(same):
            return None
        first, second = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        return unravel(first, self.shape), unravel(second, self.shape)

    def is_equal(self, other: Any) -> bool:
        """The same shape and the same place for every element."""
        return (
            isinstance(other, Layout)
            and self.shape == other.shape
            and self.table.shape == other.table.shape
            and np.array_equal(self.table, other.table)
        )

    # ---- new layouts
    def _like(self, shape: Sequence[Any], forward: Callable[..., Any]) -> Layout:
        return type(self)(shape, forward)

    def strided(self) -> StridedLayout | None:
        """The same offsets as a strided layout, if they are one."""
        return recognise(self.offsets())

    def inverse(self) -> Layout:
        """From physical to logical coordinates. The layout must fill its output box, each place once. The inverse can be
        evaluated on integers and arrays always, and on expressions where the layout is strided or linear over bits."""
        box, shape = self.get_output_shape(), self._static_shape()
        if math.prod(box) != math.prod(shape) or self.collision() is not None:
            raise LayoutError(f"layout of shape {shape} onto {box} is no bijection: it has no inverse")
        found = self.strided()
        if found is not None:
            return self._like(box, lambda *places: list(found.coords_of(ravel(places, box))))
        bits = recognise_bits(self.offsets())
        back = bits.inverse() if bits is not None else None
        if back is not None:
            return self._like(box, lambda *places: list(unravel(back(ravel(places, box)), shape)))
        where = np.empty(math.prod(box), dtype=np.int64)
        where[self.offsets().reshape(-1)] = np.arange(where.size)
        return Layout(box, lambda *places: list(unravel(_look_up(where, ravel(places, box)), shape)))

    def repeat(self, dim: int, factor: int) -> Layout:
        """The layout put `factor` times side by side along dimension `dim`; the copy's number is a new first output."""
        rank = len(self.shape)
        if not -rank <= dim < rank or factor < 1:
            raise LayoutError(f"repeat(dim={dim}, factor={factor}) of a layout of shape {self.shape}")
        dim %= rank
        extent = self.shape[dim]
        shape = [e * factor if k == dim else e for k, e in enumerate(self.shape)]

        def forward(*index: Any) -> list[Any]:
            inside = [x % extent if k == dim else x for k, x in enumerate(index)]
            return [index[dim] // extent, *self.map_forward_index(inside)]

        return self._like(shape, forward)

    def expand(self, leading_shape: Sequence[Any]) -> Layout:
        """New leading dimensions, kept as they are in the output."""
        lead = as_shape(leading_shape)
        n = len(lead)
        return self._like((*lead, *self.shape), lambda *index: [*index[:n], *self.map_forward_index(index[n:])])

    def reshape(self, shape: Any, rescale_num: int = 1, rescale_den: int = 1) -> Layout:
        """The same memory seen with another shape in row-major order. When the element type changes, `rescale_num` new
        elements take the place of `rescale_den` old ones, and the last output coordinate counts new elements."""
        shape, mine = as_shape(shape), self._static_shape()
        if rescale_num < 1 or rescale_den < 1 or math.prod(shape) * rescale_den != math.prod(mine) * rescale_num:
            raise LayoutError(f"reshape of a layout of shape {mine} to {shape} with {rescale_num} new elements for {rescale_den} old ones")
        common = math.gcd(rescale_num, rescale_den)
        num, den = rescale_num // common, rescale_den // common
        if not self._keeps_together(den):
            raise LayoutError(f"reshape to {shape}: the layout separates the {den} old elements that become {num} new ones")

        def forward(*index: Any) -> list[Any]:
            part = ravel(index, shape) * den  # counted in parts: num of them are an old element, den a new one
            place = list(self.map_forward_index(unravel(part // num, mine)))
            return [*place[:-1], (place[-1] * num + part % num) // den]

        return self._like(shape, forward)

    def _keeps_together(self, count: int) -> bool:
        """Each aligned group of `count` elements is contiguous and aligned in the last output coordinate."""
        if count == 1:
            return True
        groups = self.table.reshape(-1, self.table.shape[-1])
        if len(groups) % count:
            return False
        groups = groups.reshape(-1, count, self.table.shape[-1])
        steps = groups - groups[:, :1]
        same_row = not steps[..., :-1].any()
        return same_row and bool((steps[..., -1] == np.arange(count)).all()) and not (groups[:, 0, -1] % count).any()


def _look_up(where: np.ndarray, index: Any) -> Any:
    """`where[index]` for integers and arrays."""
    if isinstance(index, np.ndarray):
        return where[index]
    try:
        return int(where[int(index)])
    except TypeError:
        text = "the inverse of a layout that is neither strided nor linear over bits has no formula"
        raise LayoutError(text, remedy="evaluate it at integers") from None

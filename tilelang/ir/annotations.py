"""What parameter annotations evaluate to: `T.Tensor(...)`, `T.ptr`, scalar types.

In: the user's shapes and types, checked. Out: three small records that the front end turns into parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TileTypeError, TileValueError
from .dtypes import canonical, dtype
from .expr import as_extent

# The largest extent that a 32-bit symbol may have. Indices that overhang it, as in the last block of a grid, fit in 32 bits.
LARGEST_SIZE = (1 << 31) - (1 << 20)


@dataclass(frozen=True)
class TensorParam:
    """A tensor parameter. shape, strides: ints or integer expressions, in elements; strides None = row-major, contiguous."""

    shape: tuple[Any, ...]
    dtype: dtype
    strides: tuple[Any, ...] | None = None
    scope: str = "global"

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class ScalarParam:
    """A scalar parameter passed by value."""

    dtype: dtype


@dataclass(frozen=True)
class PointerParam:
    """A raw device address; `dtype` is what it points to, None if unknown."""

    dtype: dtype | None = None
    scope: str = "global"


def shape_tuple(shape: Any, what: str, *, zero: bool = True) -> tuple[Any, ...]:
    """A shape as a tuple of ints and integer expressions. A single extent is a one-dimensional shape.

    what: the call, for messages. zero: extents of 0 are allowed (tensors of callers may be empty).
    """
    if shape is None or isinstance(shape, (str, bytes, dict)):
        raise TileTypeError(f"{what}: {shape!r} is no shape", remedy="give an int, or a list or tuple of ints and symbolic extents")
    extents = list(shape) if isinstance(shape, Sequence) or _is_array(shape) else [shape]
    out = []
    for axis, extent in enumerate(extents):
        value = as_extent(extent, f"{what}: extent {axis}")
        if isinstance(value, int) and (value < 0 or (value == 0 and not zero)):
            least = "0 or more" if zero else "positive"
            raise TileValueError(f"{what}: extent {axis} is {value}; extents are {least} (shape {tuple(extents)})")
        out.append(value)
    return tuple(out)


def _is_array(value: Any) -> bool:
    """TVM's and torch's own sequence classes, which are no `Sequence` for Python (an expression is none)."""
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "ty")


def tensor_param(
    shape: Any, element: Any = "float32", strides: Any = None, scope: str | None = None, what: str = "T.Tensor"
) -> TensorParam:
    """Checked `TensorParam`; an element type `PointerParam` means a table of addresses (int64)."""
    kind = canonical("int64") if isinstance(element, PointerParam) or getattr(element, "is_pointer_marker", False) else canonical(element)
    extents = shape_tuple(shape, what)
    steps = None if strides is None else shape_tuple(strides, f"{what} strides")
    if steps is not None and len(steps) != len(extents):
        raise TileValueError(f"{what}: {len(extents)} extents but {len(steps)} strides")
    return TensorParam(extents, kind, steps, scope or "global")

"""From a table of offsets back to a strided layout: how a formula is found for a layout that was given by a function.

In: an int64 array, the offset of each element. Out: the `StridedLayout` with exactly these offsets, or None.
"""

from __future__ import annotations

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

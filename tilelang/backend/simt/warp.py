"""Operations of whole warps and blocks on arrays of lanes: shuffles, votes, reductions.

In: values of all lanes (the last axis, 32 lanes of a warp together) and the mask of those that take part. Out: values of
all lanes. A source lane that does not take part gives the reader its own value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WARP = 32


def _lanes(value: Any, n: int, kind: Any = None) -> np.ndarray:
    """The value in every lane."""
    array = np.asarray(value, kind)
    return array if array.shape == (n,) else np.broadcast_to(array, (n,))


def _active(mask: Any, n: int) -> np.ndarray:
    return np.ones(n, bool) if mask is None else np.broadcast_to(mask, (n,))


def shuffle(mode: str, value: Any, by: Any, width: Any, mask: Any, n: int) -> Any:
    """mode idx, up, down or xor; `by` is the lane or the distance, inside groups of `width` lanes."""
    value, by, width = _lanes(value, n), _lanes(by, n, np.int64), _lanes(width, n, np.int64)
    column = np.arange(n)
    lane = column & (WARP - 1)
    inside = lane & (width - 1)
    begin = lane - inside
    if mode == "idx":
        target, valid = begin + (by & (width - 1)), np.ones(n, bool)
    elif mode == "up":
        target, valid = lane - by, inside - by >= 0
    elif mode == "down":
        target, valid = lane + by, inside + by < width
    else:
        target = lane ^ by
        valid = target < begin + width
    source = np.where(valid, column - lane + target, column)
    source = np.where((source >= 0) & (source < n), source, column)
    return np.where(_active(mask, n)[source], value[source], value)


def vote(kind: str, value: Any, mask: Any, n: int) -> Any:
    """any, all: 0 or 1; ballot, activemask: one bit for each lane; match_any, match_all: masks of equal lanes."""
    active = _active(mask, n).reshape(-1, WARP)
    bits = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
    if kind == "activemask":
        found = (active * bits).sum(1, dtype=np.uint64)
    elif kind.startswith("match"):
        values = _lanes(value, n).reshape(-1, WARP)
        same = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        each = (same * bits).sum(2, dtype=np.uint64)
        if kind == "match_all":
            members = (active * bits).sum(1, dtype=np.uint64)[:, None]
            each = np.where(each == members, each, np.uint64(0))
        return each.reshape(-1)
    else:
        holds = (_lanes(value, n) != 0).reshape(-1, WARP)
        if kind == "ballot":
            found = ((holds & active) * bits).sum(1, dtype=np.uint64)
        else:
            found = ((holds & active).any(1) if kind == "any" else (holds | ~active).all(1)).astype(np.uint64)
    return np.repeat(found, WARP)


_FOLD = {
    "sum": np.add, "max": np.fmax, "min": np.fmin, "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
}  # fmt: skip


def reduce(kind: str, value: Any, mask: Any, n: int) -> Any:
    """The value combined over each warp's active lanes, by halves, in every lane."""
    values = _lanes(value, n)
    active = _active(mask, n).reshape(-1, WARP)
    fold = _FOLD[kind]
    rows = values.reshape(-1, WARP).copy()
    # A lane that does not take part repeats one that does (idempotent kinds) or adds nothing.
    first = rows[np.arange(len(rows)), active.argmax(1)][:, None]
    rest = np.zeros_like(rows) if kind in ("sum", "bitxor") else np.broadcast_to(first, rows.shape)
    rows = np.where(active, rows, rest)
    width = WARP
    while width > 1:
        width //= 2
        rows = fold(rows[:, :width], rows[:, width : 2 * width])
    return np.repeat(rows[:, 0], WARP).astype(values.dtype, copy=False)

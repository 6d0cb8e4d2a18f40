"""What the emulator tells when a kernel does something undefined: both source lines, the memory's name, threads.

In: sites (numbers of accesses in the generated code) and lanes. Out: a raised `SimtError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...errors import Location, SimtError

WARP = 32


@dataclass(frozen=True)
class Site:
    """One access or synchronisation in the program. what: how the program writes it. buffer: the memory's name. vector: the axis, from
    the end, of the vectorised loop around it (0: none)."""

    at: Location | None
    what: str
    buffer: str = ""
    vector: int = 0


def thread_name(linear: int, extents: Sequence[int]) -> str:
    """The thread as the user counts: its index, or (x, y, z) where the block has more than one dimension. Threads of the further blocks
    of a cluster are counted on."""
    x, y, z = extents
    rank, linear = divmod(linear, WARP * -(-x * y * z // WARP))
    block = f" of block {rank} of the cluster" if rank else ""
    if y == 1 and z == 1:
        return f"thread {linear}{block}"
    return f"thread ({linear % x}, {linear // x % y}, {linear // (x * y)}){block}"


def fail(message: str, site: Site, *others: tuple[Site, str], remedy: str = "") -> NoReturn:
    """Raise at the line of `site`; `others` are further lines with what happened there."""
    notes = [(other.at, label) for other, label in others if other.at is not None]
    raise SimtError(message, at=site.at, notes=notes, remedy=remedy)


def first(bad: Any, *values: Any) -> list[int]:
    """The values at the first position where `bad` holds (all broadcast to its shape)."""
    where = np.flatnonzero(np.broadcast_to(bad, np.broadcast_shapes(np.shape(bad), *(np.shape(v) for v in values))))[0]
    shape = np.broadcast_shapes(np.shape(bad), *(np.shape(v) for v in values))
    return [int(np.broadcast_to(v, shape).reshape(-1)[where]) for v in values]

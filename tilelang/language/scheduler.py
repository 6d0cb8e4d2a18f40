"""`T.PersistentTileScheduler`: which tile a persistent block works on next.

In: the numbers of tiles along M and N, and of workers. Out: indices of the current tile as variables of the running
thread. The tiles of one strip of `swizzle_size` along the S axis are visited together, walking along the other axis P.
"""

from __future__ import annotations

import os
from typing import Any

from ..errors import TileRuntimeError, TileValueError
from ..frontend.constructs import as_bound, typed
from ..ir.builder import current, in_kernel
from ..ir.expr import binary, convert
from ..ir.tvm_api import Var
from .allocate import alloc_var


class PersistentTileScheduler:
    """Deals tiles out to persistent blocks.

    num_m_tiles, num_n_tiles: ints or expressions. num_workers: blocks that share the tiles; without it, the number of
    this machine's cores // cluster_size. swizzle_size: width of a strip. column_major: strips are cut along N and walked
    along M; otherwise the reverse. stateful: keep the current tile in variables; without it only `coord` can be used.
    m_idx, n_idx, linear_idx, current_iter: the current tile, int32 variables, set by `init` and `next_tile`.
    """

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        what = "T.PersistentTileScheduler"
        for label, value in (("swizzle_size", swizzle_size), ("cluster_size", cluster_size)):
            if not isinstance(value, int) or value <= 0:
                raise TileValueError(f"{what}: {label} is {value!r}; it is a positive int")
        self.num_m_tiles, self.num_n_tiles = as_bound(num_m_tiles, f"{what}: num_m_tiles"), as_bound(num_n_tiles, f"{what}: num_n_tiles")
        self.num_tiles = binary("*", self.num_m_tiles, self.num_n_tiles)
        workers = max(1, (os.cpu_count() or 1) // cluster_size) if num_workers is None else num_workers
        self.num_workers = as_bound(workers, f"{what}: num_workers")
        self.swizzle_size, self.column_major, self.name = swizzle_size, column_major, name
        self._state: dict[str, Var] = {}
        if stateful:
            in_kernel(what)
            self._allocate(name)

    def _allocate(self, name: str | None) -> None:
        builder = current("T.PersistentTileScheduler")
        before = builder.target_name
        for part in ("m_idx", "n_idx", "linear_idx", "current_iter"):
            builder.target_name = f"{name or before or 'tile'}_{part}"
            self._state[part] = alloc_var("int32")
        builder.target_name = before

    def _variable(self, part: str) -> Var:
        if part not in self._state:
            raise TileRuntimeError(f"{part} of a scheduler without state", remedy="make it with stateful=True, or use coord(tile)")
        return self._state[part]

    m_idx = property(lambda self: self._variable("m_idx"), doc="Tile index along M.")
    n_idx = property(lambda self: self._variable("n_idx"), doc="Tile index along N.")
    linear_idx = property(lambda self: self._variable("linear_idx"), doc="Position in the order of tiles.")
    current_iter = property(lambda self: self._variable("current_iter"), doc="How many tiles this worker has finished.")

    def init(self, worker: Any) -> None:
        """Start with the tile of this worker (usually the block index)."""
        self._set("linear_idx", worker)
        self._set("current_iter", 0)
        self._locate()

    def valid(self) -> Any:
        """Is there a current tile? A condition for `while`."""
        return binary("<", self.linear_idx, self.num_tiles)

    def next_tile(self) -> None:
        """Go on to this worker's next tile."""
        self._set("linear_idx", binary("+", self.linear_idx, self.num_workers))
        self._set("current_iter", binary("+", self.current_iter, 1))
        self._locate()

    def coord(self, tile: Any) -> tuple[Any, Any]:
        """(m, n) of the tile at a position in the order."""
        along, across = (self.num_m_tiles, self.num_n_tiles) if self.column_major else (self.num_n_tiles, self.num_m_tiles)
        strip = binary("//", tile, binary("max", 1, binary("*", along, self.swizzle_size)))
        first = binary("*", strip, self.swizzle_size)
        width = binary("max", 1, binary("min", self.swizzle_size, binary("-", across, first)))
        inside = binary("-", tile, binary("*", first, along))
        p, s = binary("//", inside, width), binary("+", first, binary("%", inside, width))
        return (p, s) if self.column_major else (s, p)

    def _set(self, part: str, value: Any) -> None:
        value = typed(value, "int32") if isinstance(value, int) else convert(value, "int32")
        current("T.PersistentTileScheduler").store(self._variable(part), value, [0])

    def _locate(self) -> None:
        m, n = self.coord(self.linear_idx)
        self._set("m_idx", m)
        self._set("n_idx", n)

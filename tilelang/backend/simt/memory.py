"""Memory of an emulated block: registers, shared bytes with their shadow, global arrays; every access is checked.

In: indices of all lanes (a Python int where they agree) and a mask. Out: values of all lanes; memory changed in the lanes
of the mask. Lanes are the last axis; leading axes are iterations that run together.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

import numpy as np

from .report import Site, fail, first, thread_name
from .shadow import Clock, Shadow
from .values import spread

_UNSIGNED = {4: np.uint32, 8: np.uint64}


def index_view(index: np.ndarray) -> np.ndarray:
    """An index whose negative values are out of range in NumPy too (which would count them from the end)."""
    if index.dtype.itemsize == 4:
        return index.view(np.uint32) if index.dtype.kind == "i" else index
    if index.dtype.itemsize == 8 and index.size and index.min() < 0:
        raise IndexError
    return index


class Memory:
    """What the kinds of memory have in common: a name, an element type, a size in elements."""

    def __init__(self, name: str, kind: Any, size: int) -> None:
        self.name, self.kind, self.size = name, np.dtype(kind), size

    def outside(self, group: Any, index: Any, mask: Any, site: Site) -> NoReturn:
        """Raise for the first lane whose index lies outside."""
        bad = (np.asarray(index) < 0) | (np.asarray(index) >= self.size)
        if mask is not None:
            bad = bad & mask
        where, lane = first(bad, index, group.lane)
        fail(
            f"{thread_name(lane, group.extents)} of block {group.block_name(lane)} accesses element {where} of {self.name}, "
            f"which has {self.size}", site, remedy="guard the access, or correct the index",
        )  # fmt: skip


# ---------------------------------------------------------------- global memory
class Global(Memory):
    """A tensor in global memory as a flat window over the caller's array."""

    def __init__(self, name: str, flat: np.ndarray, block_private: bool = False) -> None:
        super().__init__(name, flat.dtype, flat.size)
        self.flat = flat

    def load_one(self, group: Any, index: int, mask: Any, site: Site) -> Any:
        """The element at an index that all lanes share, as one value."""
        if mask is False:
            return self.kind.type(0)
        if not 0 <= index < self.size:
            self.outside(group, index, mask, site)
        return self.flat[index]

    def load(self, group: Any, index: Any, mask: Any, site: Site) -> Any:
        if mask is False:
            return np.zeros(group.n, self.kind)
        if group.counters is not None:
            group.counters.sectors(group, site, index, mask, self.kind.itemsize, False)
        try:
            if mask is None:
                return self.flat[index_view(index)] if isinstance(index, np.ndarray) else np.full(group.n, self.flat[_one(index)])
            shape = np.broadcast_shapes(np.shape(index), mask.shape, (group.n,))
            mask = np.broadcast_to(mask, shape)
            found = np.zeros(shape, self.kind)
            found[mask] = self.flat[index_view(np.ascontiguousarray(spread(_array(index), mask)))]
            return found
        except IndexError:
            return self.outside(group, index, mask, site)

    def load_any(self, group: Any, index: Any, mask: Any, site: Site) -> Any:
        return self.load(group, index, mask, site)

    def store(self, group: Any, index: Any, value: Any, mask: Any, site: Site) -> None:
        if mask is False:
            return
        if group.counters is not None:
            group.counters.sectors(group, site, index, mask, self.kind.itemsize, True)
        try:
            if mask is None:
                if isinstance(index, np.ndarray):
                    self.flat[index_view(index)] = value
                else:
                    self.flat[_one(index)] = value[..., -1] if isinstance(value, np.ndarray) else value
                return
            mask = np.broadcast_to(mask, np.broadcast_shapes(np.shape(index), np.shape(value), mask.shape, (group.n,)))
            self.flat[index_view(np.ascontiguousarray(spread(_array(index), mask)))] = spread(value, mask)
        except IndexError:
            self.outside(group, index, mask, site)

    def as_type(self, name: str, kind: Any, size: int) -> Global:
        """The same memory under another element type."""
        return Global(name, self.flat.view(kind))


class Scattered(Global):
    """A tensor whose address differs between lanes, as a window over all of their memory.

    addresses: in bytes, of all lanes; those of lanes outside of the mask may be anything. size: elements of each lane's tensor.
    """

    def __init__(self, name: str, addresses: np.ndarray, kind: Any, size: int, mask: Any, site: Site) -> None:
        width = np.dtype(kind).itemsize
        active = np.broadcast_to(True if mask is None else mask, addresses.shape)
        addresses = np.where(active, addresses, addresses[active].min()).astype(np.int64)
        lowest = int(addresses.min())
        if lowest <= 0 or ((addresses - lowest) % width).any():
            fail(f"{name} stands at addresses that are null or no multiples of {width} bytes from each other", site)
        self.starts = (addresses - lowest) // width
        window = (ctypes.c_uint8 * ((int(self.starts.max()) + size) * width)).from_address(lowest)
        super().__init__(name, np.ctypeslib.as_array(window).view(kind))
        self.each = Memory(name, kind, size)

    def at(self, group: Any, index: Any, mask: Any, site: Site) -> np.ndarray:
        """The places in the window of an index into the lanes' tensors."""
        index = np.asarray(index, np.int64)
        inside = (index >= 0) & (index < self.each.size)
        if mask is not False and not (inside if mask is None else inside | ~mask).all():
            self.each.outside(group, np.broadcast_to(index, np.broadcast_shapes(index.shape, self.starts.shape)), mask, site)
        return np.where(inside, index, 0) + self.starts


def _one(index: int) -> int:
    if index < 0:
        raise IndexError
    return index


def _array(index: Any) -> np.ndarray:
    return index if isinstance(index, np.ndarray) else np.asarray(index, np.int64)


# ---------------------------------------------------------------- registers
class Registers(Memory):
    """Per-thread memory: `rows[k]` is element k in all lanes. full: rows known to be written in every lane. recast: the bytes of
    a lane stand together, for views with elements of another size (whose reads are not checked for a store before)."""

    def __init__(self, name: str, kind: Any, size: int, lanes: int, site: Site, recast: bool = False) -> None:
        super().__init__(name, kind, size)
        self.bytes = np.zeros((lanes, size * self.kind.itemsize), np.uint8) if recast else None
        self.rows = np.zeros((size, lanes), self.kind) if self.bytes is None else self.bytes.view(self.kind).T
        self.full = [recast] * size
        self.known: np.ndarray | None = None
        self.site = site
        self.all_full = recast
        self.under: list[Any] = [None] * size  # the mask under which a row was last stored

    def load(self, group: Any, index: Any, mask: Any, site: Site) -> Any:
        if isinstance(index, int):
            if not 0 <= index < self.size:
                self.outside(group, index, mask, site)
            if not self.full[index] and (mask is None or self.under[index] is not mask):
                self._check(group, index, mask, site)
            return self.rows[index]
        if not self.all_full:
            self._check(group, index, mask, site)
        try:
            if index.shape[-1] == 1 and (mask is None or mask is False or mask.ndim == 1):
                return self.rows[index_view(index[..., 0])]
            if mask is not None:
                index = np.where(mask, index, 0).astype(np.int64) if mask is not False else np.zeros(group.n, np.int64)
            return self.rows[index_view(index), group.column]
        except IndexError:
            return self.outside(group, index, mask, site)

    def store(self, group: Any, index: Any, value: Any, mask: Any, site: Site) -> None:
        if mask is False:
            return
        try:
            if isinstance(index, int):
                if not 0 <= index < self.size:
                    raise IndexError
                if mask is None:
                    self.rows[index] = value
                    self.full[index] = True
                else:
                    np.copyto(self.rows[index], value, where=mask)
                    if not self.full[index]:
                        self._know()[index] |= mask
                        self.under[index] = mask
                return
            if mask is None and index.shape[-1] == 1:
                places = index_view(index[..., 0])
                self.rows[places] = value
                self._fill(places)
                return
            shape = np.broadcast_shapes(np.shape(index), np.shape(value), (group.n,), *(() if mask is None else (mask.shape,)))
            chosen = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
            places = index_view(np.ascontiguousarray(spread(index, chosen))), spread(group.column, chosen)
            self.rows[places] = spread(value, chosen)
            if not self.all_full:
                self._know()[places] = True
        except IndexError:
            self.outside(group, index, mask, site)

    def load_any(self, group: Any, index: Any, mask: Any, site: Site) -> Any:
        """`load` of what may never have been written."""
        before = self.full, self.all_full
        self.full, self.all_full = [True] * self.size, True
        try:
            return self.load(group, index, mask, site)
        finally:
            self.full, self.all_full = before

    def _fill(self, places: Any) -> None:
        if self.all_full:
            return
        for k in places.reshape(-1).tolist():
            self.full[k] = True
        if all(self.full):
            self.all_full = True

    def _know(self) -> np.ndarray:
        if self.known is None:
            self.known = np.zeros(self.rows.shape, bool)
            self.known[np.asarray(self.full, bool)] = True
        return self.known

    def _check(self, group: Any, index: Any, mask: Any, site: Site) -> None:
        """Every lane of the mask must have written what it reads."""
        if mask is False:
            return
        known = self._know()
        known[np.asarray(self.full, bool)] = True
        flat = np.clip(index, 0, self.size - 1)
        bad = ~known[flat, group.column] if isinstance(index, np.ndarray) else ~known[flat]
        if mask is not None:
            bad = bad & mask
        if not bad.any():
            if isinstance(index, int):
                self.under[index] = mask
                self.full[index] = bool(known[index].all())
            return
        where, lane = first(bad, index, group.lane)
        fail(
            f"{thread_name(lane, group.extents)} reads register {self.name}[{where}], which it has not written", site,
            (self.site, f"{self.name} is allocated here"), remedy="initialise it first",
        )  # fmt: skip

    def as_type(self, name: str, kind: Any, size: int) -> Registers:
        """The same registers under another element type."""
        if self.bytes is not None:
            recast = Registers(name, kind, 0, 0, self.site, True)
            recast.bytes, recast.rows = self.bytes, self.bytes.view(kind).T
            recast.size, recast.full, recast.under = size, [True] * size, [None] * size
            return recast
        view = Registers.__new__(Registers)
        Memory.__init__(view, name, kind, size)
        view.bytes, view.rows = None, self.rows.view(kind)
        view.full, view.known, view.site, view.all_full, view.under = self.full, self._know(), self.site, False, self.under
        return view


# ---------------------------------------------------------------- shared memory
class SharedBlock:
    """The shared bytes of a batch of blocks, and their shadow. groups: sets of buffers that share bytes, with the range
    they cover and their smallest element."""

    def __init__(self, blocks: int, size: int, clock: Clock, extents: Any, warps: int) -> None:
        self.blocks, self.clock, self.extents, self.warps = blocks, clock, extents, warps
        self.bytes = np.full((blocks, max(size, 16)), 0xA5, np.uint8)

    def shadow(self, low: int, high: int, piece: int, names: list[str]) -> tuple[Shadow, int]:
        pieces = -(-(high - low) // piece)
        return Shadow(self.blocks * pieces, self.clock, self.extents, names, self.warps), pieces


class Shared(Memory):
    """One shared buffer (or a view of one). owner: its number in the shadow's list of buffers. pieces: first byte of the
    shadow's range, bytes of a piece, pieces of a block."""

    def __init__(
        self, name: str, kind: Any, size: int, block: SharedBlock, offset: int, shadow: Shadow, pieces: tuple[int, int, int], owner: int
    ) -> None:  # fmt: skip
        super().__init__(name, kind, size)
        self.block, self.offset, self.shadow, self.shape, self.owner = block, offset, shadow, pieces, owner
        low, piece, self.pieces = pieces
        width = self.kind.itemsize
        self.data = block.bytes[:, offset : offset + size * width].view(self.kind)
        self.scale = max(1, width // piece)
        self.first = (offset - low) // piece
        self.each = np.arange(self.scale)

    def as_type(self, name: str, kind: Any, size: int) -> Shared:
        return Shared(name, kind, size, self.block, self.offset, self.shadow, self.shape, self.owner)

    def place(self, group: Any, index: Any, mask: Any, site: Site) -> tuple[Any, Any, Any]:
        """((block, element), shadow pieces, order) of every lane that takes part. The lanes of a mask without leading axes
        are picked along the last axis, any other mask flattens."""
        taking = group.taking(mask)
        where = index if isinstance(index, np.ndarray) else np.full(group.n, index, np.int32)
        if where.shape[-1] == 1 and group.n != 1:
            where = np.repeat(where, group.n, -1)
        if taking.columns is not None:
            where = where[..., taking.columns]
        elif mask is not None:
            shape = np.broadcast_shapes(where.shape, mask.shape)
            mask = np.broadcast_to(mask, shape)
            where, taking = np.broadcast_to(where, shape)[mask], taking.flat(mask)
        if where.dtype.itemsize == 8 and where.size and int(where.min()) < 0:
            self.outside(group, index, mask, site)
        at = taking.block, where.view(np.uint32) if where.dtype == np.int32 else where
        base = taking.block * self.pieces + self.first
        piece = where * self.scale + base if self.scale > 1 else where + base
        if self.scale > 1:
            piece = piece + self.each.reshape(-1, *([1] * piece.ndim))
        return at, piece, taking

    def at_bytes(self, address: np.ndarray, site: Site) -> tuple[np.ndarray, np.ndarray]:
        """(elements, shadow pieces) at byte addresses of the block's shared memory, for engines (one block at a time)."""
        index = (address - self.offset) // self.kind.itemsize
        bad = (index < 0) | (index >= self.size)
        if bad.any():
            (where,) = first(bad, index)
            fail(f"{site.what} reaches element {where} of {self.name}, which has {self.size}", site, remedy="correct the address")
        piece = index * self.scale + self.first
        return index, piece + self.each.reshape(-1, *([1] * piece.ndim)) if self.scale > 1 else piece

    def load(self, group: Any, index: Any, mask: Any, site: Site, atomic: bool = False, counted: bool = False) -> Any:
        """counted: the traffic is known already."""
        if mask is False:
            return np.zeros(group.n, self.kind)
        if group.counters is not None and not counted:
            group.counters.banks(group, site, index, mask, self, False)
        at, piece, order = self.place(group, index, mask, site)
        try:
            value = self.data[at]
        except IndexError:
            self.outside(group, index, mask, site)
        self.shadow.read(piece, order, site, self.owner, atomic)
        if mask is None:
            return value
        if order.columns is not None:
            found = np.zeros((*value.shape[:-1], group.n), self.kind)
            found[..., order.columns] = value
            return found
        mask = np.broadcast_to(mask, np.broadcast_shapes(np.shape(index), mask.shape, (group.n,)))
        found = np.zeros(mask.shape, self.kind)
        found[mask] = value
        return found

    def store(self, group: Any, index: Any, value: Any, mask: Any, site: Site, counted: bool = False) -> None:
        if mask is False:
            return
        if group.counters is not None and not counted:
            group.counters.banks(group, site, index, mask, self, True)
        lead = np.shape(value)[:-1]
        if lead and np.shape(index)[:-1] != lead:
            index = np.broadcast_to(index, np.broadcast_shapes(np.shape(index), np.shape(value))).copy()
        at, piece, order = self.place(group, index, mask, site)
        if order.columns is not None:
            value = value[..., order.columns] if isinstance(value, np.ndarray) and value.shape[-1:] == (group.n,) else value
        elif mask is not None:
            shape = np.broadcast_shapes(np.shape(index), mask.shape, (group.n,))
            value = spread(value, np.broadcast_to(mask, shape))
        try:
            self.put(at, piece, order, value, site)
        except IndexError:
            self.outside(group, index, mask, site)

    load_any = load

    def put(self, at: Any, piece: Any, order: Any, value: Any, site: Site) -> None:
        """Store into places that are already resolved."""
        if np.size(at[1]) and int(at[1].max()) >= self.size:
            raise IndexError

        def same() -> Any:
            return _bits(self.data[at]) == _bits(np.broadcast_to(np.asarray(value, self.kind), at[1].shape))

        self.shadow.write(piece, order, site, self.owner, same)
        self.data[at] = value
        self.shadow.settle(piece, order, site, same)


def _bits(values: Any) -> Any:
    array = np.ascontiguousarray(values)
    return array.view(f"u{array.dtype.itemsize}")

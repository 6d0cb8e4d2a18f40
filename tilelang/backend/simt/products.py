"""Warpgroup products (wgmma) of one warp: asynchronous reads of shared memory and registers, groups, fences.

In: operands of `tl.wgmma`, each warp of a warpgroup on its own (it computes 16 of the 64 rows). Out: results in the accumulator, which
the warp may not touch before it has waited; or a `SimtError`: operands written without a fence, registers or shared memory used before
the wait, matrices outside of their buffer, warps of a warpgroup that execute different products.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...layout.fragment import Fragment
from ..gpu.wgmma import ATOM_ROWS, CHUNK, WARP_ROWS, Matrix, Product
from .memory import Memory, Registers, Shared
from .report import Site, fail, thread_name
from .shadow import AsyncRead

WARPS = 4  # of a warpgroup
WARP = 32
FREE, READING, UPDATING, WRITING = 0, 1, 2, 3  # what a product does with registers; WRITING: updates without reading


class GuardedRegisters(Registers):
    """Registers that products use. state: what the products in flight do with each row; changed: rows stored since the last fence."""

    def __init__(self, name: str, kind: Any, size: int, lanes: int, site: Site) -> None:
        super().__init__(name, kind, size, lanes, site)
        self.state = np.zeros(size, np.int8)
        self.changed = np.zeros(size, bool)
        self.users: dict[int, Site] = {}

    def load(self, group: Any, index: Any, mask: Any, site: Site) -> Any:
        self._free(group, index, mask, UPDATING, "reads", site)
        return super().load(group, index, mask, site)

    def store(self, group: Any, index: Any, value: Any, mask: Any, site: Site) -> None:
        self._free(group, index, mask, READING, "writes", site)
        super().store(group, index, value, mask, site)
        if mask is not False:
            self.changed[index if isinstance(index, int) else np.unique(index)] = True

    def _free(self, group: Any, index: Any, mask: Any, least: int, what: str, site: Site) -> None:
        if mask is False or not self.users:
            return
        rows = np.atleast_1d(np.clip(index, 0, self.size - 1))
        bad = self.state[rows] >= least
        if bad.any():
            row = int(rows[bad].reshape(-1)[0])
            fail(
                f"{thread_name(int(group.lane[0]), group.extents)} {what} register {self.name}[{row}], which a product in flight uses",
                site, (self.users[row], "the product was issued here"), remedy="wait for its group first (T.warpgroup_wait)",
            )  # fmt: skip

    def as_type(self, name: str, kind: Any, size: int) -> GuardedRegisters:
        """The same registers under another element type of the same size."""
        view = GuardedRegisters.__new__(GuardedRegisters)
        Memory.__init__(view, name, kind, size)
        view.bytes, view.rows = None, self.rows.view(kind)
        view.full, view.known, view.site, view.all_full, view.under = self.full, self._know(), self.site, False, self.under
        view.state, view.changed, view.users = self.state, self.changed, self.users
        return view


@dataclass(eq=False)
class _Flight:
    """A product that has not been waited for: (registers, rows, state), what it reads. group: None while that is open."""

    record: Product
    site: Site
    registers: list[tuple[GuardedRegisters, np.ndarray, int]] = field(default_factory=list)
    reads: list[tuple[Shared, AsyncRead]] = field(default_factory=list)
    group: int | None = None


class Warpgroup:
    """Compares what the warps of a warpgroup execute."""

    def __init__(self) -> None:
        self.done: list[list[Site]] = [[] for _ in range(WARPS)]

    def step(self, warp: int, site: Site) -> None:
        """A warp executes a product, or closes or awaits a group; raise if another warp did something else at this point."""
        mine = self.done[warp % WARPS]
        mine.append(site)
        for other, theirs in enumerate(self.done):
            if len(theirs) >= len(mine) and theirs[len(mine) - 1] is not site:
                there, name = theirs[len(mine) - 1], warp - warp % WARPS + other
                fail(f"warp {warp} executes {site.what} where warp {name} of its warpgroup executes {there.what}", site,
                     (there, f"warp {name} was here"), remedy="let whole warpgroups execute products")  # fmt: skip

    def finish(self) -> None:
        """The block ends."""
        longest = max(self.done, key=len)
        if any(len(d) != len(longest) for d in self.done):
            counts = ", ".join(str(len(d)) for d in self.done)
            fail(f"warps of a warpgroup executed {counts} steps of its products", longest[-1], remedy="let whole warpgroups execute them")


@dataclass(frozen=True)
class Source:
    """An operand: its memory, first element; matrix: how shared memory holds it, None for registers."""

    memory: Any
    start: Any
    matrix: Matrix | None = None


class Products:
    """The products of one warp. fenced: for every thread the time up to which its writes are visible to them."""

    def __init__(self, group: Any, warpgroup: Warpgroup, fenced: np.ndarray) -> None:
        self.group, self.warpgroup, self.visible = group, warpgroup, fenced
        self.warp = group.one_warp % group.batch.warps
        self.flights: list[_Flight] = []
        self.groups = 0
        self.fenced = False

    def fence(self, mask: Any, site: Site) -> None:
        """wgmma.fence: what has been stored into registers may be used."""
        if self._starts(mask, site):
            self.fenced = True
            for registers in self.group.guarded:
                registers.changed[:] = False

    def issue(self, record: Product, c: Source, a: Source, b: Source, keep: Any, mask: Any, site: Site) -> None:
        """C = A B + (keep ? C : 0) for the 16 rows of this warp."""
        if not self._starts(mask, site):
            return
        if not self.fenced:
            fail(f"{site.what} before any fence of registers", site, remedy="put T.warpgroup_arrive() in front of the first product")
        flight = _Flight(record, site)
        rows = np.arange(WARP_ROWS)[:, None]
        if a.matrix is None:
            left = self._use(flight, a, record.left, (WARP_ROWS, record.k), READING)
        else:
            left = self._matrix(flight, a, rows + WARP_ROWS * (self.warp % WARPS), record.k)
        right = self._matrix(flight, b, np.arange(record.n)[:, None], record.k).T
        kept = bool(np.all(keep))
        before = self._use(flight, c, record.accumulator, (WARP_ROWS, record.n), UPDATING if kept else WRITING)
        lane, register = _places(record.accumulator, before.shape)
        c.memory.rows[int(c.start) + register, lane] = record.model(before if kept else np.zeros_like(before), left, right)
        for row in np.unique(register).tolist():
            c.memory.full[int(c.start) + row] = True
        self.flights.append(flight)
        self._mark()

    def commit(self, mask: Any, site: Site) -> None:
        """Close the group of the products issued so far."""
        if self._starts(mask, site):
            for flight in self.flights:
                flight.group = self.groups if flight.group is None else flight.group
            self.groups += 1

    def wait(self, left: int, mask: Any, site: Site) -> None:
        """The products of all but the last `left` groups are complete."""
        if not self._starts(mask, site):
            return
        done = [f for f in self.flights if f.group is not None and f.group < self.groups - left]
        for flight in done:
            self.flights.remove(flight)
            for memory, read in flight.reads:
                memory.shadow.end_warp_read(read, self.group.one_warp, self.group.taking(None), site)
        self._mark()

    def finish(self) -> None:
        """The warp ends."""
        for flight in self.flights:
            fail("a warp ends while its product is in flight", flight.site, remedy="wait for its group (T.warpgroup_wait)")

    # ---------------------------------------------------------------- operands
    def _starts(self, mask: Any, site: Site) -> bool:
        if mask is False:
            return False
        self.group.whole_warp(mask, site)
        self.warpgroup.step(self.warp, site)
        return True

    def _mark(self) -> None:
        """Note on the registers which of them products in flight use."""
        for registers in self.group.guarded:
            registers.state[:] = FREE
            registers.users.clear()
        for flight in self.flights:
            for registers, rows, state in flight.registers:
                registers.state[rows] = np.maximum(registers.state[rows], state)
                registers.users.update(dict.fromkeys(rows.tolist(), flight.site))

    def _use(self, flight: _Flight, source: Source, layout: Fragment, shape: tuple[int, int], state: int) -> np.ndarray:
        """The rows of this warp of an operand in registers, which the product will read (READING) or update."""
        lane, register = _places(layout, shape)
        rows, memory, site = int(source.start) + np.unique(register), source.memory, flight.site
        if rows[-1] >= memory.size:
            memory.outside(self.group, int(rows[-1]), None, site)
        if memory.changed[rows].any():
            fail(f"{site.what} uses registers of {memory.name} that were stored since the last fence", site,
                 remedy="put T.warpgroup_arrive() between the store and the product")  # fmt: skip
        for other in self.flights:
            for registers, theirs, what in other.registers:
                chained = READING not in (state, what) and other.record == flight.record
                if registers.state is memory.state and not chained and max(what, state) > READING and np.isin(theirs, rows).any():
                    fail(f"{site.what} uses registers of {memory.name} that a product in flight uses", site,
                         (other.site, "that product was issued here"), remedy="wait for its group first")  # fmt: skip
        flight.registers.append((memory, rows, min(state, UPDATING)))
        if state == WRITING:
            return np.zeros(shape, memory.kind)
        for row in rows.tolist():
            Registers.load(memory, self.group, row, None, site)  # has every lane written it?
        return memory.rows[_same(source.start, site) + register, lane]

    def _matrix(self, flight: _Flight, source: Source, rows: np.ndarray, k: int) -> np.ndarray:
        """Rows of an operand in shared memory: (rows, k)."""
        memory, matrix, site = source.memory, source.matrix, flight.site
        assert matrix is not None
        size = memory.kind.itemsize
        start = memory.offset + _same(source.start, site) * size
        line = matrix.swizzle or CHUNK
        if start % CHUNK or (matrix.swizzle and start % (ATOM_ROWS * line) >= line):
            what = f"the matrix in {memory.name} begins at byte {start}, inside of a swizzle pattern of {ATOM_ROWS * line} bytes"
            fail(f"{site.what}: {what}", site)
        index, piece = memory.at_bytes(matrix.addresses(start, rows, np.arange(k), size), site)
        seen = self.group.taking(None)
        order = seen.as_warp()
        where = Site(site.at, site.what, memory.name)
        flight.reads.append((memory, memory.shadow.begin_read(piece, order, where, memory.owner, self.visible)))
        return memory.data[0, index]


def _same(index: Any, site: Site) -> int:
    """The element that all lanes of the warp name."""
    lanes = np.asarray(index).reshape(-1)
    if (lanes != lanes[0]).any():
        fail(f"{site.what}: lanes of a warp name different operands, from element {lanes.min()} to {lanes.max()}", site)
    return int(lanes[0])


def _places(layout: Fragment, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(lane, register) of the elements of a warp's 16 rows."""
    thread, register = layout.forward(list(np.indices(shape)))
    return np.broadcast_to(thread, shape) % WARP, np.broadcast_to(register, shape)

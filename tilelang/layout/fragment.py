"""Fragments: tiles spread over the registers of a block's threads, and the exact relation behind each one.

A fragment sends (tile coordinates, copy) to (thread, register). An element may live on several threads; the copy number
names which. Extents need not be powers of two, threads may be unused. All properties are found by enumerating the tile:
two elements never share a register (`check`), what a thread holds (`inverse`), whether one fragment can serve where
another is wanted (`join`).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .algebra import LayoutError, StridedLayout, ravel, unravel
from .index_map import as_shape, as_tuple
from .recognise import recognise
from .symbol import Symbol, coordinates

Owner = tuple[int, int]  # (thread, register)


@dataclass(frozen=True)
class Conflict:
    """The first element for which two fragments disagree: its coordinates, and the threads that hold it in each."""

    element: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]

    def __str__(self) -> str:
        return f"element {self.element} is wanted on threads {list(self.first)} and on threads {list(self.second)}"


# (coordinates, copy) -> (thread, register coordinates; None: numbered automatically)
Rule = Callable[[Sequence[Any], Any], tuple[Any, "tuple[Any, ...] | None"]]


def _with_copy(function: Callable[..., Any], rank: int, copies: int) -> Callable[[Sequence[Any], Any], Any]:
    """`function` as one of (coordinates, copy): the user's may or may not take the copy number as its last argument."""
    kinds = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in kinds)
    if len(kinds) > rank or (open_ended and copies > 1):
        return lambda coords, rep: function(*coords, rep)
    return lambda coords, rep: function(*coords)


class Fragment:
    """Copy `rep` of element `coords` lies in register `index` of thread `thread`.

    forward_fn(*coords[, rep]) -> (thread, index), or the two functions forward_thread_fn(*coords[, rep]) -> thread and
    forward_index_fn(*coords[, rep]) -> index; without an index function each thread numbers its elements in row-major
    order. replicate: number of copies. An index may have several coordinates; they are flattened in row-major order.
    """

    def __init__(
        self, shape: Any, forward_fn: Callable[..., Any] | None = None, forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1, forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.shape: tuple[int, ...] = as_shape(shape)
        if not all(isinstance(e, int) for e in self.shape):
            raise LayoutError(f"fragment of shape {self.shape}: extents must be compile-time constants")
        if not isinstance(replicate, int) or replicate < 1:
            raise LayoutError(f"fragment of shape {self.shape}: replicate={replicate!r}, expected a positive integer")
        if (forward_fn is None) == (forward_thread_fn is None):
            raise LayoutError(
                f"fragment of shape {self.shape}: expected one of forward_fn and forward_thread_fn",
                remedy="give forward_fn(*coords[, rep]) -> (thread, index), or forward_thread_fn and forward_index_fn",
            )
        self.replicate_size = replicate
        self._rule = self._user_rule(forward_fn, forward_thread_fn, forward_index_fn)

    def _user_rule(self, both: Any, thread: Any, index: Any) -> Rule:
        rank = len(self.shape)
        if both is not None:
            place = _with_copy(both, rank, self.replicate_size)

            def rule(coords: Sequence[Any], rep: Any) -> tuple[Any, tuple[Any, ...] | None]:
                out = as_tuple(place(coords, rep))
                if len(out) < 2:
                    raise LayoutError(f"fragment of shape {self.shape}: forward_fn must return (thread, index), got {out}")
                return out[0], out[1:] if len(out) > 2 else as_tuple(out[1])

            return rule
        thread_of = _with_copy(thread, rank, self.replicate_size)
        if index is None:
            return lambda coords, rep: (thread_of(coords, rep), None)
        index_of = _with_copy(index, rank, self.replicate_size)
        return lambda coords, rep: (thread_of(coords, rep), as_tuple(index_of(coords, rep)))

    # ---- evaluation
    def forward(self, coords: Sequence[Any], rep: Any = 0) -> tuple[Any, Any]:
        """(thread, register) of one copy: integers, NumPy arrays or expressions."""
        if len(coords) != len(self.shape):
            raise LayoutError(f"{len(coords)} indices for a fragment of shape {self.shape}")
        thread, index = self._rule(coords, rep)
        if index is None:
            return thread, self._numbered(coords, rep)
        return thread, index[0] if len(index) == 1 else ravel(index, self._index_box)

    def map_forward_thread(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """The thread that holds copy `rep` of an element."""
        return self.forward(indices, rep)[0]

    def map_forward_index(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """The register that holds copy `rep` of an element."""
        return self.forward(indices, rep)[1]

    def __call__(self, *indices: Any) -> tuple[Any, Any]:
        return self.forward(indices[: len(self.shape)], *indices[len(self.shape) :])

    def get_forward_vars(self) -> list[Any]:
        """Names of coordinates and copy, for `thread` and `index`."""
        return [*coordinates(len(self.shape)), Symbol("rep")]

    @property
    def thread(self) -> Any:
        """The thread as a formula of `get_forward_vars()`."""
        *coords, rep = self.get_forward_vars()
        return self.forward(coords, rep)[0]

    @property
    def index(self) -> list[Any]:
        """The register as formulas of `get_forward_vars()`."""
        *coords, rep = self.get_forward_vars()
        return [self.forward(coords, rep)[1]]

    def get_forward_index(self) -> list[Any]:
        """The register as formulas of `get_forward_vars()`."""
        return self.index

    def __repr__(self) -> str:
        return f"Fragment({list(self.shape)} x {self.replicate_size} -> thread {self.thread}, index {', '.join(map(str, self.index))})"

    def _grid(self) -> tuple[list[np.ndarray], np.ndarray]:
        *coords, rep = np.indices((*self.shape, self.replicate_size), dtype=np.int64)
        return coords, rep

    @functools.cached_property
    def _index_box(self) -> tuple[int, ...]:
        """Extents of a register index that has several coordinates."""
        return tuple(int(np.max(x)) + 1 for x in self._rule(*self._grid())[1] or ())

    @functools.cached_property
    def _numbers(self) -> np.ndarray:
        """Register numbers when none were given: the n-th element that a thread holds, in row-major order."""
        shape = (*self.shape, self.replicate_size)
        threads = np.broadcast_to(self._rule(*self._grid())[0], shape)
        held: dict[int, dict[int, int]] = {}  # thread -> element -> register
        numbers = []
        for k, thread in enumerate(threads.reshape(-1).tolist()):
            registers = held.setdefault(thread, {})
            numbers.append(registers.setdefault(k // self.replicate_size, len(registers)))
        return np.array(numbers, dtype=np.int64).reshape(shape)

    def _numbered(self, coords: Sequence[Any], rep: Any) -> Any:
        found = recognise(self._numbers)
        return found(*coords, rep) if found is not None else self._numbers[(*coords, rep)]

    @functools.cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """(threads, registers) of every copy of every element: int64 arrays of shape (*shape, copies)."""
        shape = (*self.shape, self.replicate_size)
        thread, index = self.forward(*self._grid())
        threads, registers = (np.ascontiguousarray(np.broadcast_to(np.asarray(x, dtype=np.int64), shape)) for x in (thread, index))
        for what, array in (("thread", threads), ("register", registers)):
            if array.min() < 0:
                where = tuple(int(x) for x in np.argwhere(array < 0)[0])
                raise LayoutError(f"fragment of shape {self.shape}: element {where[:-1]} has {what} {array[where]}")
        return threads, registers

    # ---- properties
    def get_thread_size(self) -> int:
        """Number of threads: one more than the largest thread that holds an element."""
        return int(self.table[0].max()) + 1

    def get_register_size(self) -> int:
        """Registers (elements) that each thread needs."""
        return int(self.table[1].max()) + 1

    def owners(self, coords: Sequence[int]) -> list[Owner]:
        """Where the copies of an element are, sorted, each once."""
        threads, registers = self.table
        return sorted(set(zip(threads[tuple(coords)].tolist(), registers[tuple(coords)].tolist(), strict=True)))

    def inverse(self) -> np.ndarray:
        """What each register holds: int64 array (threads, registers) of flat row-major elements, -1 where unused.
        Raises if two elements share a register."""
        return self._held

    @functools.cached_property
    def _held(self) -> np.ndarray:
        threads, registers = self.table
        held = np.full((self.get_thread_size(), self.get_register_size()), -1, dtype=np.int64)
        elements = np.broadcast_to(np.arange(math.prod(self.shape)).reshape((*self.shape, 1)), threads.shape)
        held[threads, registers] = elements
        clash = np.argwhere(held[threads, registers] != elements)
        if len(clash):
            where = tuple(int(x) for x in clash[0])
            thread, register = int(threads[where]), int(registers[where])
            pair = f"elements {where[:-1]} and {unravel(int(held[thread, register]), self.shape)}"
            raise LayoutError(f"fragment of shape {self.shape}: {pair} share register {register} of thread {thread}")
        return held

    def check(self, threads: int | None = None) -> None:
        """Raise unless no two elements share a register and, if given, all lie on the first `threads` threads."""
        self.inverse()
        if threads is not None and self.get_thread_size() > threads:
            raise LayoutError(f"fragment of shape {self.shape} uses {self.get_thread_size()} threads, the block has {threads}")

    def strided(self) -> tuple[StridedLayout, StridedLayout] | None:
        """(thread, register) as strided layouts over (*coords, copy), if they are such."""
        thread, register = (recognise(t) for t in self.table)
        return None if thread is None or register is None else (thread, register)

    def coords_of(self, thread: Any, register: Any) -> tuple[Any, ...]:
        """Tile coordinates of what a register holds. Integers and NumPy arrays always; expressions where the fragment is
        strided and every register of its threads is used."""
        if isinstance(thread, int | np.integer | np.ndarray) and isinstance(register, int | np.integer | np.ndarray):
            flat = self.inverse()[thread, register]
            if np.min(flat) < 0:
                raise LayoutError(f"fragment of shape {self.shape}: register {register} of thread {thread} holds nothing")
            return unravel(flat if isinstance(flat, np.ndarray) else int(flat), self.shape)
        threads = self.get_thread_size()
        found = recognise(self.table[1] * threads + self.table[0])
        if found is None:
            raise LayoutError(f"fragment of shape {self.shape} is not strided: it has no formula for what a register holds")
        return found.coords_of(register * threads + thread)[:-1]

    def is_equal(self, other: Any) -> bool:
        """The same shape, and every copy of every element in the same register of the same thread."""
        return (
            isinstance(other, Fragment)
            and (self.shape, self.replicate_size) == (other.shape, other.replicate_size)
            and all(np.array_equal(a, b) for a, b in zip(self.table, other.table, strict=True))
        )

    def contains(self, other: Fragment) -> Conflict | None:
        """None if every thread that holds an element in `other` holds it here too; else the first element that fails."""
        if self.shape != other.shape:
            raise LayoutError(f"fragments of shapes {self.shape} and {other.shape}")
        mine, wanted = self.table[0], other.table[0]
        missing = np.argwhere(~(wanted[..., :, None] == mine[..., None, :]).any(axis=-1))
        if not len(missing):
            return None
        element = tuple(int(x) for x in missing[0][:-1])
        first, second = (tuple(sorted(set(t[element].tolist()))) for t in (mine, wanted))
        return Conflict(element, first, second)

    def join(self, other: Fragment) -> Fragment | Conflict:
        """The one of two fragments of a tile that can serve for both, or the first element for which neither can.
        Only threads count: which register holds an element is each fragment's own affair."""
        conflict = self.contains(other)
        if conflict is None:
            return self
        return other if other.contains(self) is None else conflict

    # ---- new fragments
    def _like(self, shape: Sequence[int], place: Callable[[Sequence[Any], Any], tuple[Any, Any]], replicate: int) -> Fragment:
        """A fragment of this class by its place function (coordinates, copy) -> (thread, register)."""
        rank = len(shape)
        return type(self)(shape, lambda *index: place(index[:rank], index[rank] if len(index) > rank else 0), replicate=replicate)

    def repeat(self, repeats: Sequence[int], repeat_on_thread: bool = False, lower_dim_first: bool = True) -> Fragment:
        """Tile the fragment by the factors. New copies of the pattern lie on new threads (`repeat_on_thread`) or in new
        registers; `lower_dim_first`: the copies are counted with the last dimension fastest, else the first."""
        factors, shape = [int(r) for r in repeats], self.shape
        if len(factors) != len(shape) or min(factors) < 1:
            raise LayoutError(f"repeat by {tuple(repeats)} of a fragment of shape {shape}: expected a positive factor for each dimension")
        number = StridedLayout.row_major(factors) if lower_dim_first else StridedLayout.column_major(factors)
        step = self.get_thread_size() if repeat_on_thread else self.get_register_size()

        def place(coords: Sequence[Any], rep: Any) -> tuple[Any, Any]:
            shift = number(*[x // e for x, e in zip(coords, shape, strict=True)]) * step
            thread, register = self.forward([x % e for x, e in zip(coords, shape, strict=True)], rep)
            return (thread + shift, register) if repeat_on_thread else (thread, register + shift)

        return self._like([e * r for e, r in zip(shape, factors, strict=True)], place, self.replicate_size)

    def replicate(self, copies: int) -> Fragment:
        """`copies` times as many copies: each group of threads again on the threads after it."""
        if copies < 1:
            raise LayoutError(f"replicate({copies}): expected a positive number of copies")
        threads, mine = self.get_thread_size(), self.replicate_size

        def place(coords: Sequence[Any], rep: Any) -> tuple[Any, Any]:
            thread, register = self.forward(coords, rep % mine)
            return thread + rep // mine * threads, register

        return self._like(self.shape, place, mine * copies)

    def condense_rep_var(self) -> Fragment:
        """The same owners with as few copies as a regular choice of them allows: copies that coincide are dropped."""
        total = self.replicate_size
        code = self.table[0] * self.get_register_size() + self.table[1]
        everything = [set(row) for row in code.reshape(-1, total).tolist()]
        for count in (c for c in range(1, total) if total % c == 0):
            for step in (1, total // count):
                kept = code[..., : count * step : step].reshape(-1, count).tolist()
                if all(set(row) == every for row, every in zip(kept, everything, strict=True)):
                    return self._like(self.shape, lambda coords, rep, step=step: self.forward(coords, rep * step), count)
        return self


def make_fully_replicated_layout_fragment(buffer: Any, threads: int) -> Fragment:
    """Every thread holds the whole buffer, in row-major registers."""
    shape = as_shape(buffer.shape)
    return Fragment(shape, lambda *index: (index[-1], ravel(index[:-1], shape)), replicate=threads)


def make_gemm_fragment_8x8() -> Fragment:
    """The 8 x 8 block of a matrix instruction: four threads a row, two neighbouring elements each."""
    return Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))


def make_gemm_fragment_8x8_transposed() -> Fragment:
    """The transposed 8 x 8 block: four threads a column, two neighbouring elements each."""
    return Fragment((8, 8), lambda i, j: (j * 4 + i // 2, i % 2))

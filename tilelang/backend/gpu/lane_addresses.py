"""The byte addresses of one access to shared memory: every lane of every warp, in every iteration of the loops around it.

In: what an access names, and what stands around it. Out: arrays of addresses, as `layout/banks.py` counts them, and the reason if they do
not stand for every block and all data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.dtypes import dtype
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import Expr, IntImm, Var, dtype_of, shape_of, tirx
from ...layout import LayoutError
from ...layout.banks import NOBODY, WARP

MAX_POINTS = 1 << 19  # addresses of one access that are enumerated


@dataclass(frozen=True)
class Around:
    """What stands around an access. loops: (variable, first, extent), outermost first. vector: variable and extent of the VECTORIZED
    loop whose iterations become one access where they can. still: variables of unrolled loops that write no shared memory: of loads
    that are the same in all their iterations one remains. why: what makes the counts inexact."""

    loops: tuple[tuple[Var, int, int], ...] = ()
    conditions: tuple[Expr, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    vector: tuple[Var, int] | None = None
    still: tuple[Var, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Spot:
    """What an access names: an element by flat index, `width` bytes from there, lanes that take part."""

    buffer: Var
    mins: tuple[Expr, ...]
    width: int
    op: str
    span: Any
    lanes: int = WARP
    vector: bool = False  # may iterations of the vector loop be one access?
    why: str = ""


class Values(Mapping[Any, Any]):
    """Values of variables: those given, and names of the program through what they are bound to."""

    def __init__(self, given: Mapping[Var, Any], bound: Mapping[Var, Expr]) -> None:
        self.known, self.bound = dict(given), bound

    def __contains__(self, name: object) -> bool:
        return name in self.known or name in self.bound

    def __getitem__(self, name: Any) -> Any:
        if name not in self.known:
            self.known[name] = evaluate(self.bound[name], self)
        return self.known[name]

    def __iter__(self) -> Iterator[Any]:
        return iter({**self.known, **self.bound})

    def __len__(self) -> int:
        return len({**self.known, **self.bound})


class Points:
    """The addresses of one access over loops and threads."""

    def __init__(self, kernel: KernelRegion, bound: Mapping[Var, Expr], spot: Spot, around: Around) -> None:
        self.kernel, self.bound, self.spot, self.around = kernel, bound, spot, around
        named = _names([*spot.mins, *around.conditions], bound)
        self.used = [loop for loop in around.loops if loop[0] in named]
        once = around.still if spot.op == "load" else ()
        self.times = math.prod(extent for var, _, extent in around.loops if var not in named and var not in once)
        self.vector = around.vector if around.vector is not None and around.vector[0] in named else None
        self.threads = -(-kernel.num_threads // WARP) * WARP
        self.why = ""
        if any(var in _names(around.conditions, bound) and extent != 1 for var, extent in kernel.blocks):
            self.why = "a condition depends on the block"

    def requests(self) -> int:
        """Accesses of one block if every lane takes part."""
        return math.prod(extent for _, _, extent in self.around.loops) * self.threads // WARP

    def addresses(self, offset: int) -> tuple[np.ndarray, int, int, str]:
        """(addresses of the lanes (accesses, 32), bytes of a lane, how often each stands, why not exact). Raises LayoutError if the
        element is no integer arithmetic of loops and threads."""
        self._shrink()
        lanes = self.vector[1] if self.vector is not None else 1
        shape = (*(extent for _, _, extent in self.used), lanes, self.threads)
        if 0 in shape or not self.times:
            return np.full((0, WARP), NOBODY), self.spot.width, self.times, self.why
        values = self._values(shape)
        flat = np.broadcast_to(self._flat(values), shape)
        mask = np.broadcast_to(self._mask(values, len(shape)), shape)
        at = offset + flat * element_bytes(self.spot.buffer)
        width, at, mask = self._packed(at, mask)
        rows = np.where(mask, at, NOBODY).reshape(-1, WARP)
        return rows, width, self.times, self.why

    def _shrink(self) -> None:
        """Keep the enumeration small: a loop that only moves all lanes by whole words counts once, times its trips."""
        conditions = _names(self.around.conditions, self.bound)
        for loop in list(self.used):
            if loop[0] not in conditions and self._moves_all(loop):
                self.used.remove(loop)
                self.times *= loop[2]
        while self.used and math.prod(extent for _, _, extent in self.used) * self.threads > MAX_POINTS:
            self.times *= self.used.pop(0)[2]
            self.why = "one iteration of a long loop stands for all"

    def _moves_all(self, loop: tuple[Var, int, int]) -> bool:
        """Does the loop add the same multiple of the access's alignment to the address of every lane?"""
        var, low, extent = loop
        others = {v for v, _ in self.kernel.threads} | {v for v, _, _ in self.around.loops if not v.same_as(var)}
        if self.around.vector is not None:
            others.add(self.around.vector[0])
        total: Any = 0
        try:
            for index, stride in zip(self.spot.mins, _strides(self.spot.buffer), strict=True):
                for sign, term in _terms(index, self.bound):
                    named = _names([term], self.bound)
                    if var in named:
                        if named & others:
                            return False
                        blocks = {v: 0 for v, _ in self.kernel.blocks}
                        total = total + sign * stride * evaluate(term, Values({**blocks, var: np.arange(low, low + extent)}, self.bound))
        except LayoutError:
            return False
        return not np.any(np.asarray(total) * element_bytes(self.spot.buffer) % 16)

    def _values(self, shape: tuple[int, ...]) -> Values:
        rank = len(shape)
        given: dict[Var, Any] = {v: 0 for v, _ in self.kernel.blocks}
        given |= {var: low for var, low, _ in self.around.loops}
        for k, (var, low, extent) in enumerate(self.used):
            given[var] = _axis(np.arange(low, low + extent), k, rank)
        if self.around.vector is not None:
            given[self.around.vector[0]] = 0
        if self.vector is not None:
            given[self.vector[0]] = _axis(np.arange(self.vector[1]), rank - 2, rank)
        rest = np.minimum(np.arange(self.threads), self.kernel.num_threads - 1)
        for var, extent in self.kernel.threads:
            given[var] = _axis(rest % extent, rank - 1, rank)
            rest = rest // extent
        return Values(given, self.bound)

    def _flat(self, values: Values) -> Any:
        return sum((evaluate(m, values) * s for m, s in zip(self.spot.mins, _strides(self.spot.buffer), strict=True)), np.int64(0))

    def _mask(self, values: Values, rank: int) -> np.ndarray:
        threads = np.arange(self.threads)
        mask = (threads < self.kernel.num_threads) & (threads % WARP < self.spot.lanes)
        for groups in self.around.groups:
            mask &= np.isin(threads // 128, groups)
        result = _axis(mask, rank - 1, rank).astype(bool)
        for condition in self.around.conditions:
            try:
                result = result & np.asarray(evaluate(condition, values), bool)
            except LayoutError:
                self.why = "a condition depends on data or sizes known at run time, and counts as true"
        return result

    def _packed(self, at: np.ndarray, mask: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        """Iterations of a vector loop as accesses of up to 16 bytes, where they are one run in every lane; else element by element."""
        lanes, size = at.shape[-2], element_bytes(self.spot.buffer)
        total = lanes * size
        if lanes == 1 or not self.spot.vector or (total > 16 and total % 16) or (total <= 16 and total & (total - 1)):
            return self.spot.width, at, mask
        unit = min(total, 16)
        first = at[..., :1, :]
        together = np.array_equal(mask, np.broadcast_to(mask[..., :1, :], at.shape))
        run = np.array_equal(at, first + size * np.arange(lanes).reshape(-1, 1))
        if not run or not together or np.any(np.where(mask[..., :1, :], first % unit, 0)):
            return self.spot.width, at, mask
        step = unit // size
        return unit, at[..., ::step, :], mask[..., ::step, :]


# ---------------------------------------------------------------- small questions
def _names(exprs: Sequence[Any], bound: Mapping[Var, Expr]) -> set[Var]:
    """Variables that expressions depend on, through names."""
    found: set[Var] = set()
    todo = list(exprs)

    def note(var: Var) -> None:
        if var not in found:
            found.add(var)
            if var in bound:
                todo.append(bound[var])

    while todo:
        walk(todo.pop(), {Var: note})
    return found


def _terms(expr: Any, bound: Mapping[Var, Expr], sign: int = 1) -> Iterator[tuple[int, Any]]:
    """The summands of an index, with their signs; products with a constant are opened."""
    if isinstance(expr, Var) and expr in bound:
        yield from _terms(bound[expr], bound, sign)
    elif isinstance(expr, tirx.Add | tirx.Sub):
        yield from _terms(expr.a, bound, sign)
        yield from _terms(expr.b, bound, sign if isinstance(expr, tirx.Add) else -sign)
    elif isinstance(expr, tirx.Mul) and isinstance(expr.b, IntImm):
        yield from _terms(expr.a, bound, sign * int(expr.b))
    else:
        yield sign, expr


def _axis(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    shape = [1] * rank
    shape[axis] = len(values)
    return values.reshape(shape)


def element_bytes(buffer: Var) -> int:
    element = dtype(dtype_of(buffer))
    return max(element.bits, 8) * element.lanes // 8


def _strides(buffer: Var) -> list[int]:
    """In elements; row-major where the buffer has none of its own."""
    if len(buffer.ty.strides):
        return [int(s) for s in buffer.ty.strides]
    strides, step = [], 1
    for extent in reversed(shape_of(buffer)):
        strides.insert(0, step)
        step *= int(extent) if isinstance(extent, int) else 1
    return strides

"""Random tile programs, each with its meaning in plain NumPy.

In: a seed. Out: a `Program`: source text in the tile language and `reference(arrays)`, which interprets the same
statements block by block with int64 arithmetic. All values are small integers kept in range by clamping, so every
element type holds them exactly and results must be equal, not close.

A statement is an object with `lines()` (its source) and `run(env)` (its meaning); neither knows the compiler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

LIMIT = 15  # every stored value lies in [-LIMIT, LIMIT]: exact in int8 and in products of two in float16
FLOATS, INTS = ("float32", "float16", "bfloat16", "float8_e4m3fn"), ("int32", "int16", "int8", "uint8")
# Element types whose arithmetic does not hold all intermediate values: elements are converted when they are read.
WIDENED = {"bfloat16": "float32", "float8_e4m3fn": "float32", "uint8": "int32"}


@dataclass
class Tile:
    """A buffer: `scope` is global, shared, shared.dyn, local.fragment; `bound` the largest absolute value in it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    bound: int = LIMIT
    root: str = ""  # name of the tile whose storage this view names; "": its own

    @property
    def low(self) -> int:
        """The least value stored in it."""
        return 0 if self.dtype == "uint8" else -self.bound

    @property
    def storage(self) -> str:
        return self.root or self.name

    def read(self, index: str) -> str:
        """An element as an operand of arithmetic."""
        wide = WIDENED.get(self.dtype)
        return f"T.cast({self.name}[{index}], {wide!r})" if wide else f"{self.name}[{index}]"


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


class Env:
    """State of one block of the reference: block indices, tiles and scalars; globals are shared by all blocks."""

    def __init__(self, globals_: dict[str, np.ndarray], block: dict[str, int]):
        self.tiles: dict[str, np.ndarray] = dict(globals_)
        self.scalars: dict[str, int] = dict(block)

    def put(self, name: str, value: Any) -> None:
        """Store into a tile in place: views name the same storage."""
        self.tiles[name][...] = value

    def value(self, text: str) -> int:
        """Value of a scalar expression: the language's integer arithmetic is Python's."""
        return int(eval(text, {"min": min, "max": max}, self.scalars))


Run = Callable[[Env], None]


@dataclass
class Stmt:
    """Source lines of a statement, its meaning, and its nested body (indented under the first lines)."""

    head: list[str]
    run: Run
    body: Sequence[Stmt] = ()

    def lines(self, indent: int) -> list[str]:
        out = ["    " * indent + line for line in self.head]
        for inner in self.body:
            out += inner.lines(indent + 1)
        return out


class Break(Exception):
    pass


class Continue(Exception):
    pass


def run_all(stmts: Sequence[Stmt], env: Env) -> None:
    for stmt in stmts:
        stmt.run(env)


def read_padded(array: np.ndarray, mins: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """The block of `array`; zeros where it lies outside."""
    out = np.zeros(extents, np.int64)
    index = np.meshgrid(*[np.arange(m, m + e) for m, e in zip(mins, extents, strict=True)], indexing="ij")
    ok = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, array.shape, strict=True)])
    out[ok] = array[tuple(i[ok] for i in index)]
    return out


def write_clipped(array: np.ndarray, mins: Sequence[int], value: np.ndarray) -> None:
    """Store the block; parts outside of `array` are dropped."""
    index = np.meshgrid(*[np.arange(m, m + e) for m, e in zip(mins, value.shape, strict=True)], indexing="ij")
    ok = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(index, array.shape, strict=True)])
    array[tuple(i[ok] for i in index)] = value[ok]


@dataclass
class Expr:
    """An elementwise expression: source, its meaning over index grids, and a bound on its absolute value."""

    text: str
    value: Callable[[Env, Sequence[np.ndarray]], Any]
    bound: int
    integer: bool = False


@dataclass
class Program:
    seed: int
    source: str
    params: list[Tile]
    outputs: list[int]
    grid: tuple[int, ...]
    body: list[Stmt] = field(default_factory=list)
    inits: dict[str, int] = field(default_factory=dict)

    def arrays(self) -> list[np.ndarray]:
        """Random arguments; outputs hold a value that no statement may leave behind by accident."""
        rng = np.random.default_rng(self.seed)
        return [
            np.full(p.shape, 99, numpy_type(p.dtype)) if k in self.outputs and p.name not in self.inits
            else rng.integers(p.low, p.bound + 1, p.shape).astype(numpy_type(p.dtype))
            for k, p in enumerate(self.params)
        ]  # fmt: skip

    def reference(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        state = {p.name: a.astype(np.int64) for p, a in zip(self.params, arrays, strict=True)}
        for index in np.ndindex(*reversed(self.grid)):
            block: dict[str, int] = dict(zip(("bx", "by", "bz"), reversed(index), strict=False))
            run_all(self.body, Env(state, block))
        return [state[self.params[k].name] for k in self.outputs]


def clamp(value: Any, low: int = -LIMIT) -> Any:
    return np.clip(value, low, LIMIT)


def choose_shape(rng: random.Random, rank: int) -> tuple[int, ...]:
    return tuple(
        rng.choice((1, 2, 3, 4, 7, 8, 12, 16, 17, 20, 24, 32, 33)) if rank > 1 else rng.choice((1, 5, 16, 31, 32, 48, 64, 100))
        for _ in range(rank)
    )

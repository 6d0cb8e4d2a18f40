"""Can two accesses meet in an element from different threads? The proof that no barrier is needed between them.

In: two footprints whose bases are written with the variables of the same moment. Out: yes (assume so) or no (proved).
For each index the difference of the bases is a constant, a small set of constants, or unknown; an unknown index is left
out, so that the remaining ones must tell the threads apart for every value it may have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ir.evaluate import evaluate
from ...ir.rewrite import walk
from ...ir.tvm_api import Expr, IntImm, TensorLoad, Var, dtype_of, ffi, is_expr, linear_coefficients, tirx
from ...layout import LayoutError
from .facts import Facts
from .footprints import Footprint

_MAX_CASES = 4096


class RaceProof:
    """Answers are kept by footprint pair and base differences. facts: ranges of all loop and block variables."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._known: dict[Any, bool] = {}
        self._pairs: dict[tuple[int, int, int], tuple[Footprint, Footprint, bool]] = {}  # the same two objects come round many times
        self._differences: dict[Any, Any] = {}

    def may_race(self, first: Footprint, second: Footprint, unit: int = 1) -> bool:
        """Could different threads touch one element, at least one of them writing? unit: threads that do not count as different: so many
        consecutive ones, whole warps or one. What lanes of a warp write for each other belongs to their warp."""
        pair = id(first), id(second), unit
        if pair not in self._pairs:
            self._pairs[pair] = first, second, self._may_race(first, second, unit)
        return self._pairs[pair][2]

    def _may_race(self, first: Footprint, second: Footprint, unit: int) -> bool:
        if not (first.writes or second.writes) or (first.atomic and second.atomic) or not first.root.same_as(second.root):
            return False
        if not first.buffer.same_as(second.buffer) or len(first.dims) != len(second.dims):
            return True
        differences = [self._difference(a.base, b.base) for a, b in zip(first.dims, second.dims, strict=True)]
        key = (first.serial, second.serial, str(differences), unit)
        if key not in self._known:
            self._known[key] = _race(first, second, differences, unit)
        return self._known[key]

    # ---------------------------------------------------------------- base(second) - base(first)
    def _difference(self, a: Any, b: Any) -> list[int] | None:
        """All values that `b - a` can have, or None if they are too many."""
        if a is None and b is None:
            return [0]
        a, b = (_zero_like(b) if a is None else a), (_zero_like(a) if b is None else b)
        if is_expr(a) and is_expr(b) and dtype_of(a) != dtype_of(b):
            return None
        key = (ffi.structural_hash(a), ffi.structural_hash(b), str(a), str(b))
        if key not in self._differences:
            self._differences[key] = self._cases(b - a)
        return self._differences[key]

    def _cases(self, difference: Any) -> list[int] | None:
        difference = self.facts.simplify(difference)
        if isinstance(difference, IntImm):
            return [int(difference)]
        found: list[Var] = []
        loads: list[Any] = []
        walk(difference, {Var: lambda v: found.append(v) if not any(v.same_as(f) for f in found) else None, TensorLoad: loads.append})
        if loads:
            return None
        domains = [self._domain(difference, var) for var in found]
        if any(d is None for d in domains) or math.prod(d[1] for d in domains if d) > _MAX_CASES:
            return None
        env: dict[Var, Any] = {}
        for k, (var, domain) in enumerate(zip(found, domains, strict=True)):
            assert domain is not None
            shape = [1] * len(found)
            shape[k] = domain[1]
            env[var] = np.arange(domain[0], domain[0] + domain[1]).reshape(shape)
        try:
            return sorted({int(v) for v in np.ravel(evaluate(difference, env)).tolist()})
        except LayoutError:
            return None

    def _domain(self, expr: Expr, var: Var) -> tuple[int, int] | None:
        """(least value, count) of values of `var` that show every value of `expr`: its range, or a period."""
        low, high = self.facts.bounds(var)
        if high - low < _MAX_CASES:
            return low, high - low + 1
        period = _period(expr, var)
        return None if period is None else (0, period)


def _zero_like(value: Any) -> Any:
    return tirx.const(0, dtype_of(value)) if is_expr(value) else 0


def _period(expr: Expr, var: Var) -> int | None:
    """A number p such that adding p to `var` changes nothing: all uses of it are linear, below a modulus."""
    moduli: list[int] = []
    covered = 0

    def modulo(node: Any) -> None:
        nonlocal covered
        if not isinstance(node.b, IntImm) or int(node.b) <= 0:
            return
        uses = _occurrences(node.a, var)
        linear = linear_coefficients(node.a, [var]) if uses else None
        if linear is not None and not _occurrences(linear[1], var):
            moduli.append(int(node.b))
            covered += uses

    walk(expr, {tirx.FloorMod: modulo})
    if not moduli or covered < _occurrences(expr, var):
        return None
    return math.lcm(*moduli)


def _occurrences(expr: Any, var: Var) -> int:
    count = 0

    def visit(v: Var) -> None:
        nonlocal count
        count += bool(v.same_as(var))

    walk(expr, {Var: visit})
    return count


# ---------------------------------------------------------------- enumeration
def _race(first: Footprint, second: Footprint, differences: list[list[int] | None], unit: int) -> bool:
    if not len(first.threads) or not len(second.threads):
        return False
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for a, b, cases in zip(first.dims, second.dims, differences, strict=True):
        if a.rel is None or b.rel is None or cases is None:
            continue
        if not any(_overlap(a.rel, b.rel + case) for case in cases):
            return False
        if len(cases) == 1:
            kept.append((a.rel, b.rel + cases[0]))
    if unit == 1 and (first.warp_wide or second.warp_wide):
        return _any_common(kept, first, second)
    threads_a, threads_b = first.threads // unit, second.threads // unit
    if not kept:
        return _several(threads_a, threads_b)
    keys_a, keys_b = _keys(kept)
    return _shared_by_threads(keys_a, threads_a, keys_b, threads_b)


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    if a.max() < b.min() or b.max() < a.min():
        return False
    if len(a) * len(b) <= 64:  # strided constants such as the parity of a stage
        return bool(np.isin(a, b).any())
    return True


def _several(a: np.ndarray, b: np.ndarray) -> bool:
    return not a.min() == a.max() == b.min() == b.max()


def _keys(kept: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """One integer for each element, the same for equal elements."""
    total_a, total_b = np.zeros(len(kept[0][0]), np.int64), np.zeros(len(kept[0][1]), np.int64)
    for a, b in kept:
        low = min(a.min(), b.min())
        width = max(a.max(), b.max()) - low + 1
        total_a, total_b = total_a * width + (a - low), total_b * width + (b - low)
    return total_a, total_b


def _any_common(kept: list[tuple[np.ndarray, np.ndarray]], first: Footprint, second: Footprint) -> bool:
    if not kept:
        return True
    keys_a, keys_b = _keys(kept)
    return bool(np.isin(keys_a, keys_b).any())


def _shared_by_threads(keys_a: np.ndarray, threads_a: np.ndarray, keys_b: np.ndarray, threads_b: np.ndarray) -> bool:
    """Is there an element in both with more than one thread?"""
    element, count = _numbered(np.concatenate([keys_a, keys_b]))
    threads = np.concatenate([threads_a, threads_b])
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, -1)
    np.minimum.at(low, element, threads)
    np.maximum.at(high, element, threads)
    common = np.zeros(count, np.int8)
    common[element[: len(keys_a)]] |= 1
    common[element[len(keys_a) :]] |= 2
    return bool(((common == 3) & (low != high)).any())


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """Small numbers for keys, the same for equal ones, and a bound of them. Keys that lie densely need no sorting."""
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span <= 8 * len(keys):
        return keys - low, span
    distinct, numbers = np.unique(keys, return_inverse=True)
    return numbers, len(distinct)

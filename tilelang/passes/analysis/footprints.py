"""Which thread touches which elements: the accesses of a thread-level statement as arrays over threads and iterations.

In: a statement of one thread's program, with the loops and conditions inside it. Out: `Footprint`s of memory that other
threads of the block use (shared, global). An index is a base, common to all threads (block indices, outer loops, sizes),
plus a part enumerated with NumPy over all threads and inner iterations. What cannot be enumerated counts as any index.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...ir.access import Access, accesses
from ...ir.dialect import BARRIER, CLUSTER_BARRIER, FRAGMENT, SHARED_SCOPES, THREAD_SCOPES, op_name
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AttrStmt,
    Bind,
    Expr,
    For,
    IfThenElse,
    IntImm,
    SeqStmt,
    Var,
    While,
    is_buffer,
    is_expr,
    linear_coefficients,
    tirx,
)  # fmt: skip
from ...layout import LayoutError
from .facts import MAX_LEAVES, conjuncts, holds_load, leaves
from .thread_uniformity import ThreadUniformity

MAX_POINTS = 1 << 20  # (thread, iteration, element) triples of one access; larger ones count as touching anything
# Scopes without elements that several threads share.
_PRIVATE = (*THREAD_SCOPES, FRAGMENT, BARRIER, CLUSTER_BARRIER)
_WARP_WIDE = ("tl.instr",)  # lanes read and write for each other: no thread owns the elements it names


@dataclass(frozen=True)
class Dim:
    """One index: `base` plus the enumerated `rel` (None: any index at all)."""

    base: Any
    rel: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Footprint:
    """One access by the threads of a group. serial: the same for copies made by `at`. threads: the linear thread of each
    point, as long as each `rel`. warp_wide: no thread owns the elements. landing: the write of an asynchronous copy.
    exact: the points are all touched whenever the statement runs (otherwise some may not be)."""

    serial: int
    root: Var
    buffer: Var
    mode: str
    atomic: bool
    warp_wide: bool
    landing: bool
    exact: bool
    dims: tuple[Dim, ...]
    threads: np.ndarray
    node: Any
    span: Any

    @property
    def writes(self) -> bool:
        return self.mode != "r"

    @functools.cached_property
    def key(self) -> tuple[int, tuple[str, ...]]:
        """The access and the moment it is described for."""
        return self.serial, tuple(str(d.base) for d in self.dims)

    def at(self, bases: Sequence[Any]) -> Footprint:
        """The same access with other bases (of another iteration of an outer loop)."""
        dims = tuple(Dim(b, d.rel) for b, d in zip(bases, self.dims, strict=True))
        return replace(self, dims=dims)


@dataclass
class _Around:
    """What stands around an access inside the statement: loops with constant bounds, conditions. certain: nothing else
    decides whether it happens."""

    loops: dict[Var, tuple[int, int]]
    conditions: list[Any]
    certain: bool = True


class Footprints:
    """Makes footprints for one kernel region. relevant: roots of memory that the kernel writes somewhere, and all of
    shared memory if `reads` is set; those of `only`, if given."""

    def __init__(
        self, kernel: KernelRegion, uniform: ThreadUniformity, roots: Mapping[Var, Var], reads: bool = False,
        only: Collection[Var] | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.uniform, self.roots = kernel, uniform, roots
        wanted = (a for a in accesses(kernel.body, roots) if not _is_private(a.root))
        self.relevant = {a.root for a in wanted if a.writes or (reads and is_buffer(a.root) and a.root.scope() in SHARED_SCOPES)}
        if only is not None:
            self.relevant &= set(only)
        self.count = 0
        self.values: dict[Var, Expr] = {}
        self.sizes: dict[Var, int] = {}
        walk(kernel.body, {Bind: self._note})

    def _note(self, bind: Bind) -> None:
        """Names of index arithmetic are replaced by their values."""
        if is_expr(bind.value) and not is_buffer(bind.var) and not holds_load(bind.value):
            self.sizes[bind.var] = leaves(bind.value, self.sizes)
            if self.sizes[bind.var] <= MAX_LEAVES:
                self.values[bind.var] = substitute(bind.value, self.values)

    def of(self, node: Any, threads: np.ndarray) -> list[Footprint]:
        """Footprints of a statement or expression executed by these linear threads."""
        return list(self._collect(node, _Around({}, []), threads))

    # ---------------------------------------------------------------- descent
    def _collect(self, node: Any, around: _Around, threads: np.ndarray) -> Iterator[Footprint]:
        if isinstance(node, SeqStmt):
            for child in node.seq:
                yield from self._collect(child, around, threads)
        elif isinstance(node, For):
            yield from self._leaf([node.min, node.extent], node, around, threads)
            yield from self._collect(node.body, self._with_loop(node, around), threads)
        elif isinstance(node, IfThenElse):
            yield from self._leaf([node.condition], node, around, threads)
            yield from self._collect(node.then_case, self._when(around, conjuncts(node.condition)), threads)
            if node.else_case is not None:
                yield from self._collect(node.else_case, self._when(around, [tirx.Not(node.condition)]), threads)
        elif isinstance(node, While):
            yield from self._leaf([node.condition], node, around, threads)
            yield from self._collect(node.body, replace(around, certain=False), threads)
        elif isinstance(node, AttrStmt):
            yield from self._collect(node.body, around, threads)
        else:
            yield from self._leaf([node], node, around, threads)

    def _with_loop(self, loop: For, around: _Around) -> _Around:
        if not (isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)):
            return replace(around, certain=False)
        return replace(around, loops={**around.loops, loop.loop_var: (int(loop.min), int(loop.extent))})

    def _when(self, around: _Around, conditions: Sequence[Any]) -> _Around:
        return replace(around, conditions=[*around.conditions, *conditions])

    def _leaf(self, nodes: Sequence[Any], at: Any, around: _Around, threads: np.ndarray) -> Iterator[Footprint]:
        for node in nodes:
            for access in accesses(node, self.roots):
                if access.root in self.relevant:
                    yield self._footprint(access, at, around, threads)

    # ---------------------------------------------------------------- one access
    def _footprint(self, access: Access, at: Any, around: _Around, threads: np.ndarray) -> Footprint:
        name = op_name(access.node)
        rank = len(access.buffer.ty.shape) if is_buffer(access.buffer) else 1
        ranges = access.ranges if access.ranges is not None else [None] * rank
        parts = [self._split(r, around) for r in ranges]
        dims, points, exact = self._enumerate(parts, ranges, around, threads)
        self.count += 1
        return Footprint(
            self.count, access.root, access.buffer, access.mode, access.atomic, name in _WARP_WIDE, name == "tl.cp_async" and access.writes,
            exact and name not in _WARP_WIDE, dims, points, access.node, getattr(at, "span", None),
        )  # fmt: skip

    def _split(self, r: Any, around: _Around) -> tuple[Any, Any] | None:
        """(base, enumerated part) of an index, or None if it has neither form."""
        if r is None or not isinstance(r.extent, int | IntImm):
            return None
        index = substitute(r.min, self.values) if self.values and is_expr(r.min) else r.min
        if holds_load(index):
            return None
        known = dict.fromkeys([*self.uniform.thread_vars, *around.loops])
        base, moving = None, None
        for sign, term in _terms(index):
            named: list[Var] = []
            walk(term, {Var: named.append})
            if not any(v in known for v in named):
                if any(self.uniform.is_varying(v) for v in named):
                    return None
                base = _plus(base, sign, term)
            elif all(v in known for v in named):
                moving = _plus(moving, sign, term)
            else:
                split = self._linear(term, [v for v in known if any(v.same_as(n) for n in named)])
                if split is None:
                    return None
                moving, base = _plus(moving, sign, split[0]), _plus(base, sign, split[1])
        return base, moving

    def _linear(self, term: Expr, known: list[Var]) -> tuple[Any, Any] | None:
        """A term that mixes both kinds of variables, if it is linear in the enumerated ones."""
        found = linear_coefficients(term, known)
        if found is None:
            return None
        rest: list[Var] = []
        walk(found[1], {Var: rest.append})
        if any(self.uniform.is_varying(v) for v in rest):
            return None
        moving = None
        for coefficient, var in zip(found[0], known, strict=True):
            moving = _plus(moving, 1, var * tirx.const(coefficient, str(var.ty.dtype)))
        return moving, found[1]

    def _enumerate(self, parts: Any, ranges: Any, around: _Around, threads: np.ndarray) -> tuple[tuple[Dim, ...], np.ndarray, bool]:
        """Arrays over (thread, inner iterations, elements of the block), one for each dimension, and the threads."""
        used: list[Var] = []
        conditions = [substitute(c, self.values) if self.values else c for c in around.conditions]
        threads = self._taking(conditions, around, threads)
        for part in (*(p[1] for p in parts if p is not None and p[1] is not None), *conditions):
            walk(part, {Var: lambda v: used.append(v) if v in around.loops and not any(v.same_as(u) for u in used) else None})
        extents = [1 if p is None else int(r.extent) for p, r in zip(parts, ranges, strict=True)]
        shape = [len(threads), *(max(around.loops[v][1], 0) for v in used), *extents]
        if np.prod(shape, dtype=np.float64) > MAX_POINTS:
            return tuple(Dim(None, None) for _ in parts), threads, False
        env = self._environment(threads, used, around, len(shape))
        dims: list[tuple[Any, Any]] = []
        for k, part in enumerate(parts):
            rel = None
            if part is not None:
                try:
                    rel = evaluate(part[1], env) if part[1] is not None else np.zeros((), np.int64)
                    rel = rel + _axis(np.arange(extents[k]), 1 + len(used) + k, len(shape))
                except LayoutError:
                    rel = None
            dims.append((part[0] if part is not None else None, rel))
        keep, exact = self._where(conditions, env, shape)
        flat = lambda a: np.broadcast_to(a, shape).ravel()[keep]  # noqa: E731
        found = tuple(Dim(base, None if rel is None else flat(rel)) for base, rel in dims)
        return found, flat(_axis(threads, 0, len(shape))), exact and around.certain

    def _taking(self, conditions: Sequence[Any], around: _Around, threads: np.ndarray) -> np.ndarray:
        """The threads for which those conditions hold that loops do not change: often one of many."""
        for condition in conditions:
            named: list[Var] = []
            walk(condition, {Var: named.append})
            if not named or not all(v in self.uniform.thread_vars and v not in around.loops for v in named):
                continue
            try:
                holds = np.asarray(evaluate(condition, self._environment(threads, [], around, 1)), bool)
            except LayoutError:
                continue
            threads = threads[np.broadcast_to(holds, threads.shape)]
        return threads

    def _where(self, conditions: Sequence[Any], env: dict[Var, np.ndarray], shape: Sequence[int]) -> tuple[Any, bool]:
        """(the points at which the conditions hold, as an index of the flat arrays; whether all conditions could be evaluated)"""
        masks: list[np.ndarray] = []
        exact = True
        for condition in conditions:
            try:
                masks.append(np.asarray(evaluate(condition, env), bool))
            except LayoutError:
                exact = False
        if all(mask.all() for mask in masks):
            return slice(None), exact
        return np.broadcast_to(functools.reduce(np.logical_and, masks), shape).ravel(), exact

    def _environment(self, threads: np.ndarray, used: list[Var], around: _Around, rank: int) -> dict[Var, np.ndarray]:
        env: dict[Var, np.ndarray] = {}
        rest = threads
        for var, extent in self.kernel.threads:
            env[var] = _axis(rest % extent, 0, rank)
            rest = rest // extent
        for k, var in enumerate(used):
            low, extent = around.loops[var]
            env[var] = _axis(np.arange(low, low + extent), 1 + k, rank)
        return env


def _is_private(root: Var) -> bool:
    return is_buffer(root) and (root.scope() in _PRIVATE or root.scope().startswith("local"))


def _axis(values_: np.ndarray, axis: int, rank: int) -> np.ndarray:
    shape = [1] * rank
    shape[axis] = len(values_)
    return values_.reshape(shape).astype(np.int64)


def _terms(expr: Any, sign: int = 1) -> Iterator[tuple[int, Any]]:
    if isinstance(expr, tirx.Add):
        yield from _terms(expr.a, sign)
        yield from _terms(expr.b, sign)
    elif isinstance(expr, tirx.Sub):
        yield from _terms(expr.a, sign)
        yield from _terms(expr.b, -sign)
    else:
        yield sign, expr


def _plus(total: Any, sign: int, term: Any) -> Any:
    if total is None:
        return term if sign > 0 else 0 - term
    return total + term if sign > 0 else total - term

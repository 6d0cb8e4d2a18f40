"""Every access of a kernel to shared memory, and the bank conflicts that it will have, without running it.

In: a kernel region after `plan_shared`. Out: `SharedAccess` records in program order: how many warp-level accesses of one block, how
many passes they take, which lanes collide. The byte address of each lane is enumerated over the iterations of the loops around an access
and over all warps; the counting rule is that of `layout/banks.py`. Block (0, 0, 0) stands for all blocks. What depends on data, on sizes
known at run time, or on the block, is told as not exact, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import Location
from ...ir.access import accesses, view_roots
from ...ir.dialect import ANNOTATION_ALLOC, ATTR_WS, IF_THEN_ELSE, SHARED_SCOPES, attr, op_name
from ...ir.dtypes import dtype
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    dtype_of,
    is_buffer,
    location_of_span,
    shape_of,
    tirx,
)  # fmt: skip
from ...layout import LayoutError
from ...layout.banks import NOBODY, WARP, collision, passes
from .instr import INSTRUCTIONS
from .instr import SHARED as IN_SHARED

MAX_POINTS = 1 << 19  # addresses of one access that are enumerated
_BY_ADDRESS = ("tirx.address_of", "tirx.ptr_to")
_ALLREDUCE = "tirx.tvm_thread_allreduce"
_LEAVE = ("tirx.break_loop", "tirx.continue_loop")


@dataclass(frozen=True)
class SharedAccess:
    """One access of the final program. buffer: the allocation's name. at: the user's line. op: load, store, cp.async, atomic, or the
    instruction. element: what lane and iteration name, as the final program writes it. width: bytes of one lane. requests: warp-level
    accesses of one block; passes: rounds they take; conflicts: rounds beyond those that any placement needs. bank, lanes: the worst
    request's busiest bank, and lanes that want different words of it (one lane for each word). exact: do the numbers hold for every
    block and all data? why: the reason if not."""

    buffer: str
    at: Location | None
    op: str
    element: str
    width: int
    requests: int
    passes: int
    conflicts: int
    bank: int
    lanes: tuple[int, ...]
    exact: bool
    why: str = ""

    @property
    def line(self) -> int | None:
        return None if self.at is None else self.at.line


@dataclass(frozen=True)
class _Around:
    """What stands around an access. loops: (variable, first, extent), outermost first. vector: variable and extent of the VECTORIZED
    loop whose iterations become one access where they can. why: what makes the counts inexact."""

    loops: tuple[tuple[Var, int, int], ...] = ()
    conditions: tuple[Expr, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    vector: tuple[Var, int] | None = None
    why: str = ""


@dataclass(frozen=True)
class _Spot:
    """What an access names: an element by flat index, `width` bytes from there, lanes that take part."""

    buffer: Var
    mins: tuple[Expr, ...]
    width: int
    op: str
    span: Any
    lanes: int = WARP
    vector: bool = False  # may iterations of the vector loop be one access?
    why: str = ""


def shared_accesses(kernel: KernelRegion) -> tuple[SharedAccess, ...]:
    """The accesses of one kernel region at level THREADS, in program order."""
    return tuple(_Collector(kernel).run())


class _Values(Mapping[Any, Any]):
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


class _Collector:
    """Walks one kernel with the loops and conditions around each place."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.kernel = kernel
        self.roots = view_roots(kernel.body)
        self.offsets: dict[Var, int] = {}
        self.bound: dict[Var, Expr] = {}
        self.found: list[SharedAccess] = []
        self.span: Any = kernel.span

        def place(stmt: AllocBuffer) -> None:
            facts = dict((stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
            if stmt.buffer.scope() in SHARED_SCOPES and "offset" in facts:
                self.offsets[stmt.buffer] = int(facts["offset"])

        walk(kernel.body, {AllocBuffer: place})

    def run(self) -> list[SharedAccess]:
        if self.offsets:
            self._stmt(self.kernel.body, _Around())
        return self.found

    # ---------------------------------------------------------------- descent
    def _stmt(self, stmt: Stmt, around: _Around) -> None:
        before, self.span = self.span, getattr(stmt, "span", None) or self.span
        if isinstance(stmt, SeqStmt):
            for child in stmt.seq:
                self._stmt(child, around)
        elif isinstance(stmt, For):
            self._for(stmt, around)
        elif isinstance(stmt, IfThenElse):
            self._expr(stmt.condition, around)
            self._stmt(stmt.then_case, _when(around, stmt.condition))
            if stmt.else_case is not None:
                self._stmt(stmt.else_case, _when(around, tirx.Not(stmt.condition)))
        elif isinstance(stmt, While):
            around = replace(around, vector=None, why="a while loop around it")
            self._expr(stmt.condition, around)
            self._stmt(stmt.body, around)
        elif isinstance(stmt, AttrStmt):
            groups = (tuple(int(g) for g in stmt.node),) if stmt.attr_key == ATTR_WS else ()
            self._stmt(stmt.body, replace(around, groups=around.groups + groups))
        elif isinstance(stmt, BufferStore):
            self._expr(stmt.value, around)
            for index in stmt.indices:
                self._expr(index, around)
            self._access(stmt.buffer, stmt.indices, "store", around, vector=True)
        elif isinstance(stmt, Bind):
            self._bind(stmt, around)
        elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call):
            self._call(stmt.value, around)
        self.span = before

    def _for(self, loop: For, around: _Around) -> None:
        self._expr(loop.extent, around)
        low, extent, why = self._bounds(loop)
        if _is_left(loop.body):
            why = "the loop may be left early"
        around = replace(around, why=why or around.why)
        if int(loop.kind) == int(ForKind.VECTORIZED) and not why and low == 0 and _is_plain(loop.body):
            around = replace(around, vector=(loop.loop_var, extent))
        else:
            around = replace(around, loops=(*around.loops, (loop.loop_var, low, extent)), vector=None)
        self._stmt(loop.body, around)

    def _bounds(self, loop: For) -> tuple[int, int, str]:
        if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
            return int(loop.min), max(int(loop.extent), 0), ""
        values = _Values({v: 0 for v, _ in self.kernel.blocks}, self.bound)
        try:
            return int(evaluate(loop.min, values)), max(int(evaluate(loop.extent, values)), 0), "the trip count differs between blocks"
        except (LayoutError, TypeError, ValueError):
            return 0, 1, "the trip count is known at run time; one iteration is counted"

    def _bind(self, bind: Bind, around: _Around) -> None:
        self._expr(bind.value, around)
        if str(getattr(bind.var.ty, "dtype", "")).startswith(("int", "uint", "bool")):
            self.bound[bind.var] = bind.value

    def _expr(self, expr: Any, around: _Around) -> None:
        """Loads of an expression, those of a choice under its condition."""

        def on_load(node: TensorLoad, descend: Descend) -> Any:
            for index in node.indices:
                descend(index)
            self._access(node.source, node.indices, "load", around, vector=True)
            return node

        def on_call(node: Call, descend: Descend) -> Any:
            if op_name(node) != IF_THEN_ELSE:
                self._call(node, around)
                return node
            condition, a, b = node.args
            descend(condition)
            self._expr(a, _when(around, condition))
            self._expr(b, _when(around, tirx.Not(condition)))
            return node

        rewrite(expr, {TensorLoad: on_load, Call: on_call})

    def _call(self, call: Call, around: _Around) -> None:
        name = op_name(call)
        args = call.args[: 2 + int(call.args[0])] if name == _ALLREDUCE else call.args  # the results behind them are written
        for arg in args:
            if not isinstance(arg, TensorRegion | TensorLoad) or (isinstance(arg, TensorLoad) and name not in _BY_ADDRESS):
                self._expr(arg, around)
        if name == "tl.instr":
            record = INSTRUCTIONS.get(str(attr(call, "name")))
            for operand, arg in zip(record.operands if record else (), call.args, strict=False):
                if operand.memory == IN_SHARED:
                    self._region(arg, operand.bytes, str(attr(call, "name")), around, operand.lanes)
        elif name == "tl.cp_async":
            chunk = math.prod(int(r.extent) for r in call.args[0].region) * _bytes(call.args[0].source)
            self._region(call.args[0], chunk, "cp.async", around)
        elif name == "tl.atomic":
            self._region(call.args[0], _bytes(call.args[0].source), "atomic", around, why="atomics on one word take turns")
        elif name == "tl.dp4a":
            for arg in call.args:
                self._region(arg, 4, "load", around)
        else:
            for access in accesses(call, self.roots):
                if access.node.same_as(call) and access.root in self.offsets and access.ranges is None:
                    why = f"its address goes to {name.rpartition('.')[2]}"
                    self.found.append(SharedAccess(str(access.root.name), self._at(), "unknown", "", 0, 0, 0, 0, 0, (), False, why))

    def _at(self) -> Location | None:
        return location_of_span(self.span) if self.span is not None else None

    def _region(self, arg: Any, width: int, op: str, around: _Around, lanes: int = WARP, why: str = "") -> None:
        if isinstance(arg, TensorRegion) and self._root(arg.source) in self.offsets:
            self._count(_Spot(arg.source, tuple(r.min for r in arg.region), width, op, self.span, lanes, why=why), around)

    def _access(self, buffer: Var, indices: Sequence[Expr], op: str, around: _Around, vector: bool) -> None:
        if self._root(buffer) not in self.offsets:
            return
        mins = tuple(i.base if isinstance(i, tirx.Ramp) else i for i in indices)
        lanes = next((int(i.lanes) for i in indices if isinstance(i, tirx.Ramp)), 1)
        self._count(_Spot(buffer, mins, _bytes(buffer) * lanes, op, self.span, vector=vector and lanes == 1), around)

    def _root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer) if is_buffer(buffer) else None

    # ---------------------------------------------------------------- counting
    def _count(self, spot: _Spot, around: _Around) -> None:
        root = self._root(spot.buffer)
        element = f"{spot.buffer.name}[{', '.join(str(m) for m in spot.mins)}]"
        points = _Points(self.kernel, self.bound, spot, around)
        why = spot.why or around.why
        try:
            rows, width, times, reason = points.addresses(self.offsets[root])
            why = why or reason
        except LayoutError:
            requests = points.requests()
            record = (requests, requests, 0, 0, ())
            self.found.append(SharedAccess(
                str(root.name), self._at(), spot.op, element, spot.width, *record, False, "the element depends on data",
            ))  # fmt: skip
            return
        rounds, needed = passes(rows, width)
        extra = rounds - needed
        bank, lanes = (0, ())
        if len(extra) and int(extra.max()) > 0:
            bank, lanes = collision(rows[int(extra.argmax())], width)
        requests = int((needed > 0).sum()) * times
        self.found.append(SharedAccess(
            str(root.name), self._at(), spot.op, element, width, requests, int(rounds.sum()) * times, int(extra.sum()) * times, bank, lanes,
            not why, why,
        ))  # fmt: skip


class _Points:
    """The addresses of one access over loops and threads."""

    def __init__(self, kernel: KernelRegion, bound: Mapping[Var, Expr], spot: _Spot, around: _Around) -> None:
        self.kernel, self.bound, self.spot, self.around = kernel, bound, spot, around
        named = _names([*spot.mins, *around.conditions], bound)
        self.used = [loop for loop in around.loops if loop[0] in named]
        self.times = math.prod(extent for var, _, extent in around.loops if var not in named)
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
        at = offset + flat * _bytes(self.spot.buffer)
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
                        total = total + sign * stride * evaluate(term, _Values({**blocks, var: np.arange(low, low + extent)}, self.bound))
        except LayoutError:
            return False
        return not np.any(np.asarray(total) * _bytes(self.spot.buffer) % 16)

    def _values(self, shape: tuple[int, ...]) -> _Values:
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
        return _Values(given, self.bound)

    def _flat(self, values: _Values) -> Any:
        return sum((evaluate(m, values) * s for m, s in zip(self.spot.mins, _strides(self.spot.buffer), strict=True)), np.int64(0))

    def _mask(self, values: _Values, rank: int) -> np.ndarray:
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
        lanes, size = at.shape[-2], _bytes(self.spot.buffer)
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
def _when(around: _Around, condition: Expr) -> _Around:
    return replace(around, conditions=(*around.conditions, condition))


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


def _bytes(buffer: Var) -> int:
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


def _is_plain(body: Stmt) -> bool:
    """Stores, names and conditions only: what may become vector accesses."""
    if isinstance(body, SeqStmt):
        return all(_is_plain(child) for child in body.seq)
    if isinstance(body, IfThenElse):
        return body.else_case is None and _is_plain(body.then_case)
    return isinstance(body, BufferStore | Bind)


def _is_left(body: Stmt) -> bool:
    """Does a break or continue stand in the body?"""
    found: list[Call] = []
    walk(body, {Call: lambda c: found.append(c) if op_name(c) in _LEAVE else None})
    return bool(found)

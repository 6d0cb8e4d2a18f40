"""Reducers become tiles of partial results, one for each loop that contributes, which all threads share.

In: a TILE program. Out: the same, where an accumulator `acc` (T.alloc_reducer) that the loop over (i, j) updates as acc[i] has given
way to a fragment with an element for each (i, j): an update touches no element of another thread, and T.finalize_reducer reduces the
fragment along j, once. A loop over more elements than registers can hold contributes in several turns. Accumulators that the program
names in any other way (an index that is no loop variable, inside a thread group) stay; they become tiles in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ...ir.access import allocations
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, ATTR_WS, FRAGMENT, REDUCER, attr, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Call,
    Evaluate,
    Expr,
    FloatImm,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    Span,
    Stmt,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    ffi,
    is_buffer,
    location_of,
    region,
    seq,
    static_shape,
)  # fmt: skip
from ...tileop.loops import tile
from ...tileop.reduce import Combine
from ..analysis.nests import Nest, is_nest, read_nest
from .reducer_epochs import with_epochs

MOST_REGISTERS = 64  # of one thread, for all partial results of one accumulator
_INIT, _UPDATE, _FINALIZE = "tl.tileop.reducer_init", "tl.reducer_update", "tl.tileop.reducer_finalize"


def spread_reducers(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Give the reducers of every kernel region tiles of partial results."""
    return func.with_body(map_kernels(func.body, lambda kernel: _Kernel(with_epochs(kernel), ctx).run().to_stmt()))


@dataclass
class _Update:
    """One contribution: the call, its nest, and the loops that the accumulator's index does not name, which are dimension `dim` of the
    partial results. turns: how many times the nest is executed, each with `width` iterations of its last free loop, then numbered by
    `inner`."""

    call: Call
    nest: Nest
    free: list[For]
    dim: int
    turns: int = 1
    inner: Var = field(default_factory=lambda: Var("inner", "int32"))

    @property
    def width(self) -> int:
        return int(self.free[-1].extent) // self.turns if self.free else 1

    @property
    def depth(self) -> int:
        """Partial results for each element of the accumulator."""
        return math.prod([*(int(f.extent) for f in self.free[:-1]), self.width])


@dataclass
class _Reducer:
    """One accumulator. start: the values that its epoch began with, where they are not those that change nothing. partials: the tile of
    each update."""

    buffer: Var
    op: str
    updates: list[_Update]
    start: Var | None
    partials: list[Var] = field(default_factory=list)

    @property
    def tiles(self) -> list[Var]:
        return [*([self.start] if self.start is not None else []), *self.partials]


class _Kernel:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.uses: dict[Var, int] = {}
        self.inits: dict[Var, list[Call]] = {}
        self.updates: dict[Var, list[_Update]] = {}
        self.known: dict[Var, int] = {}  # uses that are understood
        self.nests: dict[int, int] = {}  # updates in a nest
        self.planned: dict[Var, _Reducer] = {}

    def run(self) -> KernelRegion:
        allocs = {b: s for b, s in allocations(self.kernel.body).items() if b.scope() == REDUCER}
        if not allocs:
            return self.kernel
        self.read()
        for buffer, stmt in allocs.items():
            found = self.plan(buffer, stmt)
            if found is not None:
                self.planned[buffer] = found
                self.ctx.note(location_of(stmt), "reducer", f"{buffer.name}: partial results in registers")
        return self.kernel.with_body(self.rewritten()) if self.planned else self.kernel

    # ---------------------------------------------------------------- what the program does with them
    def read(self) -> None:
        """Every use of a reducer, those inside thread groups left out of the ones that are understood."""
        body, groups = self.kernel.body, []
        walk(body, {Var: self.count, AttrStmt: lambda node: groups.append(node) if node.attr_key == ATTR_WS else None})
        if groups:
            return

        def loop(node: For, visitor: Any) -> None:
            if is_nest(node):
                found = read_nest(node, lambda _: False, {})
                walk(node, {Evaluate: lambda s: self.update(s.value, found)})
            else:
                visitor.default_visit(node)

        ffi.structural_visit(body, [(For, loop), (Evaluate, lambda node, visitor: self.operator(node))])

    def count(self, var: Var) -> None:
        if is_buffer(var) and var.scope() == REDUCER:
            self.uses[var] = self.uses.get(var, 0) + 1

    def operator(self, node: Evaluate) -> None:
        call = node.value
        if op_name(call) == _INIT and _is_whole(call.args[0]):
            self.inits.setdefault(call.args[0].source, []).append(call)
            self.understood(call.args[0].source)
        elif op_name(call) == _FINALIZE and _is_whole(call.args[0]):
            self.understood(call.args[0].source)

    def update(self, call: Any, nest: Nest) -> None:
        if op_name(call) != _UPDATE:
            return
        named = [r.min for r in call.args[0].region]
        loops = [next((f for f in nest.loops if f.loop_var.same_as(i)), None) for i in named]
        chosen = [f for f in loops if f is not None]
        plain = all(f is not None or isinstance(i, IntImm) for f, i in zip(loops, named, strict=True))
        if not plain or nest.static_extents is None or len({f.loop_var for f in chosen}) != len(chosen):
            return
        free = [f for f in nest.loops if not any(f.same_as(c) for c in chosen)]
        dim = _place_of(free, nest, loops)
        self.updates.setdefault(call.args[0].source, []).append(_Update(call, nest, free, dim))
        self.nests[id(nest)] = self.nests.get(id(nest), 0) + 1
        self.understood(call.args[0].source)

    def understood(self, buffer: Var) -> None:
        self.known[buffer] = self.known.get(buffer, 0) + 1

    # ---------------------------------------------------------------- tiles of partial results
    def plan(self, buffer: Var, stmt: AllocBuffer) -> _Reducer | None:
        updates, inits = self.updates.get(buffer, []), self.inits.get(buffer, [])
        if not updates or not inits or self.known[buffer] + 1 != self.uses[buffer]:  # the allocation names it, too
            return None
        facts: Any = (stmt.annotations or {})[ANNOTATION_ALLOC]
        op, dtype, shape = str(facts["op"]), dtype_of(buffer), static_shape(buffer)
        room = MOST_REGISTERS * self.kernel.num_threads // len(updates)
        for update in updates:
            turns = _turns(update, math.prod(shape), room, alone=self.nests[id(update.nest)] == 1)
            if turns is None:
                return None
            update.turns = turns
        identity = Combine(op, dtype).identity(dtype)
        plain = all(_same_constant(call.args[1], identity) for call in inits)
        start = None if plain else decl_buffer(shape, dtype, f"{buffer.name}_start", FRAGMENT, span=stmt.span)
        shapes = [(*shape[: u.dim], u.depth, *shape[u.dim :]) for u in updates]
        partials = [decl_buffer(s, dtype, f"{buffer.name}_partial", FRAGMENT, span=stmt.span) for s in shapes]
        return _Reducer(buffer, op, updates, start, partials)

    # ---------------------------------------------------------------- the program with them
    def rewritten(self) -> Stmt:
        table = {id(u): (r, u, t) for r in self.planned.values() for u, t in zip(r.updates, r.partials, strict=True)}
        places = [(u.call, u, t) for _, u, t in table.values()]

        def on_alloc(node: AllocBuffer, descend: Descend) -> Stmt:
            found = self.planned.get(node.buffer)
            return node if found is None else seq([AllocBuffer(t, {ANNOTATION_ALLOC: {}}, node.span) for t in found.tiles])

        def on_evaluate(node: Evaluate, descend: Descend) -> Stmt:
            call, name = node.value, op_name(node.value)
            if name in (_INIT, _FINALIZE) and call.args[0].source in self.planned:
                make = _begin if name == _INIT else _end
                return make(self.planned[call.args[0].source], call, node.span)
            found = next(((u, t) for c, u, t in places if c.same_as(call)), None) if name == _UPDATE else None
            return descend.children(node) if found is None else _contribution(*found, node.span)

        def on_loop(node: For, descend: Descend) -> Stmt:
            update = next((u for _, u, _ in places if u.turns > 1 and u.nest.loops[0].same_as(node)), None)
            body = descend.children(node)
            return body if update is None else _in_turns(body, update)

        return rewrite(self.kernel.body, {AllocBuffer: on_alloc, Evaluate: on_evaluate, For: on_loop})


def _is_whole(block: TensorRegion) -> bool:
    shape = static_shape(block.source)
    return all(
        isinstance(r.min, IntImm) and int(r.min) == 0 and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(block.region, shape, strict=True)
    )


def _place_of(free: list[For], nest: Nest, named: list[For | None]) -> int:
    """The dimension of the free loops among those of the accumulator, whose loops are `named`: in the order of the nest, which is that of
    the memory it reads."""
    if not free:
        return len(named)
    order = {f.loop_var: k for k, f in enumerate(nest.loops)}
    last = order[free[-1].loop_var]
    return next((k for k, f in enumerate(named) if f is not None and order[f.loop_var] > last), len(named))


def _turns(update: _Update, elements: int, room: int, alone: bool) -> int | None:
    """In how many turns a nest contributes, so that its partial results have room; None if that cannot be. alone: the nest has no other
    update, so that its last free loop may be divided."""
    if elements * update.depth <= room:
        return 1
    if not alone or not update.free:
        return None
    extent = int(update.free[-1].extent)
    fixed = elements * (update.depth // extent)
    return next((extent // c for c in range(extent - 1, 0, -1) if extent % c == 0 and fixed * c <= room), None)


def _same_constant(value: Any, other: Any) -> bool:
    kinds = IntImm | FloatImm
    return isinstance(value, kinds) and isinstance(other, kinds) and float(value.value) == float(other.value)


def _begin(reducer: _Reducer, call: Call, span: Span | None) -> Stmt:
    """The epoch begins: no partial result yet."""
    dtype = dtype_of(reducer.buffer)
    identity = Combine(reducer.op, dtype).identity(dtype)
    values = [(t, identity) for t in reducer.partials] + ([(reducer.start, call.args[1])] if reducer.start is not None else [])
    return seq([Evaluate(make_call("tl.tileop.fill", [tile(t), v], span=span), span) for t, v in values])


def _end(reducer: _Reducer, call: Call, span: Span | None) -> Stmt:
    """The epoch ends: the partial results of all loops are combined into the destination."""
    shape, dtype = static_shape(reducer.buffer), dtype_of(reducer.buffer)
    total = decl_buffer(shape, dtype, f"{reducer.buffer.name}_total", FRAGMENT, span=span)
    stmts: list[Stmt] = [AllocBuffer(total, {ANNOTATION_ALLOC: {}}, span)]
    if reducer.start is not None:
        stmts.append(_copy(tile(reducer.start), tile(total), span))
    for number, (update, partial) in enumerate(zip(reducer.updates, reducer.partials, strict=True)):
        clear = number == 0 and reducer.start is None
        attrs = {"kind": reducer.op, "dim": update.dim, "clear": clear, "nan_propagate": False}
        stmts.append(Evaluate(make_call("tl.tileop.reduce", [tile(partial), tile(total)], span=span, **attrs), span))
    return seq([*stmts, _copy(tile(total), call.args[1], span)])


def _copy(source: TensorRegion, target: TensorRegion, span: Span | None) -> Stmt:
    return Evaluate(make_call("tl.tileop.copy", [source, target], span=span), span)


def _contribution(update: _Update, partial: Var, span: Span | None) -> Stmt:
    """The update of the partial result that belongs to this iteration."""
    place: Expr = const(0, "int32")
    for loop in update.free:
        divided = update.turns > 1 and loop.same_as(update.free[-1])
        step, index = (update.width, update.inner) if divided else (int(loop.extent), loop.loop_var)
        place = index if loop.same_as(update.free[0]) else place * const(step, "int32") + index
    mins = [r.min for r in update.call.args[0].region]
    mins.insert(update.dim, place)
    target = region(partial, mins, [1] * len(mins))
    return Evaluate(make_call(_UPDATE, [target, update.call.args[1]], span=update.call.span, op=attr(update.call, "op")), span)


def _in_turns(nest: Any, update: _Update) -> Stmt:
    """The nest, several times, each with a part of its last free loop: in the place of its variable, turn * width + `inner`."""
    last, turn = update.free[-1], Var("turn", "int32")
    loops: list[For] = []
    while len(loops) < len(update.nest.loops):
        loops.append(nest)
        nest = nest.body
    body = substitute(nest, {last.loop_var: turn * const(update.width, "int32") + update.inner})
    for loop in reversed(loops):
        mine = loop.loop_var.same_as(last.loop_var)
        var, extent = (update.inner, const(update.width, "int32")) if mine else (loop.loop_var, loop.extent)
        body = For(var, loop.min, extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step, loop.span)
    return For(turn, const(0, "int32"), const(update.turns, "int32"), ForKind.SERIAL, body, span=update.nest.span)

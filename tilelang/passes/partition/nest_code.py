"""Statements of one thread for a nest: loops over its registers or strides over the block, accesses rewritten.

In: a `Nest` and the decision for each fragment (registers, or a shared scratch tile). Out: statements without PARALLEL loops.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.effects import has_effect
from ...ir.positions import simplified
from ...ir.rewrite import Descend, rewrite, substitute, uses
from ...ir.tvm_api import (
    Analyzer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Range,
    Span,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    const,
    dtype_of,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from ..analysis.nests import Nest
from ..analysis.thread_groups import Threads
from ..layouts.loop_layouts import LoopLayout
from ..layouts.register_maps import Digit, RegisterMap
from .idle_loops import skipped
from .packed_updates import is_update, packed

Place = tuple[int, tuple[Digit, ...]]  # register: base + digits of the loop's register
MAX_UNROLLED_STEPS = 8


@dataclass
class Homes:
    """Where the accesses of a nest go. registers: (node, register buffer, place) for accesses to registers; scratch: shared
    tile of each fragment that is converted."""

    registers: list[tuple[Any, Var, Place]] = field(default_factory=list)
    scratch: dict[Var, Var] = field(default_factory=dict)

    def place(self, node: Any) -> tuple[Var, Place] | None:
        return next(((buffer, place) for known, buffer, place in self.registers if known.same_as(node)), None)


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else tirx.And(result, condition)
    return result


def guarded(stmt: Stmt, conditions: Sequence[Expr], span: Span | None) -> Stmt:
    condition = conjunction(conditions)
    return stmt if condition is None else IfThenElse(condition, stmt, None, span)


# ---------------------------------------------------------------- the body
def rewritten_body(nest: Nest, homes: Homes, register: Expr | None, first: Sequence[Expr]) -> Stmt:
    """The body with fragments replaced by registers (their index from `register`, the loop's) and scratch tiles. Memory of
    the block is written where `first` holds only. Loops that are still PARALLEL become serial."""

    def index(place: Place) -> Expr:
        base, digits = place
        total: Expr | None = None
        for digit in digits:
            assert register is not None
            term = digit(register)
            total = term if total is None else total + term
        if total is None:
            return const(base, "int32")
        return total + base if base else total

    def on_load(node: TensorLoad, descend: Descend) -> Expr:
        found = homes.place(node)
        if found is not None:
            return load(found[0], [index(found[1])], node.span)
        if node.source in homes.scratch:
            return load(homes.scratch[node.source], [descend(i) for i in node.indices], node.span)
        return descend.children(node)

    def on_store(node: BufferStore, descend: Descend) -> Stmt:
        found, value = homes.place(node), descend(node.value)
        if found is not None:
            return store(found[0], value, [index(found[1])], node.span)
        target = homes.scratch.get(node.buffer, node.buffer)
        result = store(target, value, [descend(i) for i in node.indices], node.span)
        return result if node.buffer in nest.inner or node.buffer in nest.outer_locals else guarded(result, first, node.span)

    def on_region(node: TensorRegion, descend: Descend) -> Expr:
        found = homes.place(node)
        if found is not None:
            return region(found[0], [index(found[1])], [const(1, "int32")])
        if node.source in homes.scratch:
            mins, extents = [descend(r.min) for r in node.region], [descend(r.extent) for r in node.region]
            return region(homes.scratch[node.source], mins, extents)
        return descend.children(node)

    def on_evaluate(node: Evaluate, descend: Descend) -> Stmt:
        result = descend.children(node)
        return guarded(result, first, node.span) if isinstance(node.value, Call) and has_effect(node.value) else result

    def on_loop(node: For, descend: Descend) -> Stmt:
        if node.kind != ForKind.PARALLEL:
            return descend.children(node)
        return For(node.loop_var, descend(node.min), descend(node.extent), ForKind.SERIAL, descend(node.body), span=node.span)

    def on_attr(node: AttrStmt, descend: Descend) -> Stmt:
        return descend(node.body) if node.attr_key.startswith("tl.") else descend.children(node)

    rules = {TensorLoad: on_load, BufferStore: on_store, TensorRegion: on_region, Evaluate: on_evaluate, For: on_loop, AttrStmt: on_attr}
    return rewrite(nest.body, rules)


def _bindings(nest: Nest, values: Mapping[Var, Expr], body: Stmt) -> list[Stmt]:
    """Names for the loop variables that the body uses."""
    return [Bind(var, values[var], nest.span) for var in nest.vars if var in values and uses(body, var)]


def serial_loops(loops: Sequence[For], body: Stmt, span: Span | None) -> Stmt:
    for loop in reversed(loops):
        body = For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, body, span=span)
    return body


# ---------------------------------------------------------------- loops over registers
def over_registers(
    layout: LoopLayout, homes: Homes, threads: Threads, member: Sequence[Expr], vectors: bool = False, positions: Collection[Var] = ()
) -> Stmt:  # fmt: skip
    """Each thread executes the iterations of the elements in its registers; the loop is to be unrolled. vectors: registers
    with neighbouring elements are gathered in VECTORIZED loops, and where the nest is one atomic addition, in additions of packs.
    positions: see `skipped`."""
    nest, held = layout.nest, layout.registers
    low, high = _used_registers(layout)
    width = math.gcd(_neighbours(held), math.gcd(low, high - low)) if vectors else 1
    counter, lane = Var("r", "int32"), Var("lane", "int32")
    register = counter * width + lane if width > 1 else counter
    prover = _prover(threads, counter, -(-held.registers // width))
    prover.bind(lane, Range.from_min_extent(0, width))
    table = {c: e if isinstance(e, Expr) else const(int(e), "int32") for c, e in
             zip(layout.coords, held.coords(threads.index, register), strict=True)}  # fmt: skip
    values = {v: simplified(substitute(e, table), prover) for v, e in layout.values.items()}
    conditions = [*held.holds(threads.index, register), *(substitute(c, table) for c in layout.conditions)]
    conditions = [c for c in (simplified(c, prover) for c in conditions) if not (isinstance(c, IntImm) and int(c))]
    outside = [*member, *(c for c in conditions if not uses(c, counter) and not uses(c, lane))]
    each = [c for c in conditions if uses(c, lane)]
    inside = [c for c in conditions if uses(c, counter) and not uses(c, lane)]
    body = rewritten_body(nest, homes, register, held.is_first(threads.index))
    body = guarded(seq([*_bindings(nest, values, body), serial_loops(layout.serial, body, nest.span)]), each, nest.span)
    if width > 1 and is_update(nest.body):
        body = packed(lane, width, body, nest.span)
    elif width > 1:
        body = For(lane, 0, width, ForKind.VECTORIZED, body, span=nest.span)
    body = guarded(body, inside, nest.span)
    loop = For(counter, low // width, (high - low) // width, ForKind.UNROLLED, body, span=nest.span)
    return guarded(skipped(loop, positions), outside, nest.span)


def _neighbours(held: RegisterMap) -> int:
    """How many consecutive registers hold consecutive elements of a row (a power of two, at most 16)."""
    width, row = 16, held.layout.shape[-1]
    while width > 1:
        if held.registers % width == 0 and row % width == 0:
            groups = held.held.reshape(len(held.held), -1, width)
            whole = (groups == groups[..., :1] + (groups[..., :1] >= 0) * np.arange(width)).all()
            if whole and not (groups[..., 0][groups[..., 0] >= 0] % width).any():
                return width
        width //= 2
    return 1


def _used_registers(layout: LoopLayout) -> tuple[int, int]:
    """The range of registers for which any thread has an iteration."""
    active, _ = layout.active()
    used = active.any(axis=0).nonzero()[0]
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


def _prover(threads: Threads, register: Var, count: int) -> Any:
    prover = Analyzer()
    if isinstance(threads.index, Var):
        prover.bind(threads.index, Range.from_min_extent(0, threads.count))
    prover.bind(register, Range.from_min_extent(0, count))
    return prover


# ---------------------------------------------------------------- strides over the block
def over_block(nest: Nest, homes: Homes, threads: Threads, serial: Sequence[For], width: int = 1) -> Stmt:
    """Iterations are dealt out to the threads in turn, `width` neighbours at a time; `serial` loops stay inside. Accesses to
    registers must not depend on the iteration."""
    spread = [f for f in nest.loops if not any(f.same_as(s) for s in serial)]
    body = serial_loops(serial, rewritten_body(nest, homes, None, []), nest.span)
    extents = [int(f.extent) if isinstance(f.extent, IntImm) else f.extent for f in spread]
    count = math.prod(extents) if all(isinstance(e, int) for e in extents) else _product(extents)
    wide = not isinstance(count, int) and dtype_of(count) == "int64"
    thread, lane = Cast("int64", threads.index) if wide else threads.index, Var("lane", "int32")

    def iteration(first: Expr) -> Stmt:
        values = _unravelled(spread, extents, first)
        if width > 1:
            values[spread[-1].loop_var] = values[spread[-1].loop_var] + lane
        one = seq([*_bindings(nest, values, body), body])
        return For(lane, 0, width, ForKind.VECTORIZED, one, span=nest.span) if width > 1 else one

    if isinstance(count, int) and count <= threads.count * width:
        whole = iteration(thread * width if width > 1 else thread)
        enough = count == threads.count * width
        return whole if enough else guarded(whole, [tirx.LT(thread, const(count // width, "int32"))], nest.span)
    step = Var("step", "int64" if wide else "int32")
    turn = step * threads.count + thread
    if isinstance(count, int):
        steps: Any = -(-count // (threads.count * width))
        conditions = [tirx.LT(turn, const(count // width, "int32"))] if count % (threads.count * width) else []
    else:
        steps = (count + (threads.count - 1)) // threads.count
        conditions = [tirx.LT(turn, count)]
    whole = guarded(iteration(turn * width if width > 1 else turn), conditions, nest.span)
    kind = ForKind.UNROLLED if isinstance(steps, int) and steps <= MAX_UNROLLED_STEPS else ForKind.SERIAL
    return For(step, const(0, dtype_of(step)), const(steps, "int32") if isinstance(steps, int) else steps, kind, whole, span=nest.span)


def _product(extents: Sequence[Any]) -> Expr:
    """The product of extents, one of them symbolic, in 64 bits if any of them is."""
    wide = any(not isinstance(e, int) and dtype_of(e) == "int64" for e in extents)
    dtype = "int64" if wide or len(extents) > 1 else "int32"
    total: Expr | None = None
    for extent in extents:
        term = const(extent, dtype) if isinstance(extent, int) else extent if dtype_of(extent) == dtype else Cast(dtype, extent)
        total = term if total is None else total * term
    assert total is not None
    return total


def _unravelled(loops: Sequence[For], extents: Sequence[Any], flat: Expr) -> dict[Var, Expr]:
    """Loop variables from the number of the iteration."""
    values: dict[Var, Expr] = {}
    for k, (loop, extent) in reversed(list(enumerate(zip(loops, extents, strict=True)))):
        dtype = dtype_of(flat)
        size = extent if isinstance(extent, int) or dtype_of(extent) == dtype else Cast(dtype, extent)
        index = flat % size if k else flat
        flat = flat // size if k else flat
        if dtype != dtype_of(loop.loop_var):
            index = Cast(dtype_of(loop.loop_var), index)
        values[loop.loop_var] = index if isinstance(loop.min, IntImm) and int(loop.min) == 0 else index + loop.min
    return values


# ---------------------------------------------------------------- conversions
def to_scratch(held: RegisterMap, registers: Var, scratch: Var, threads: Threads, member: Sequence[Expr], span: Span | None) -> Stmt:
    """The first copies of a fragment, stored into a shared tile of the same shape."""
    outside = [*member, *held.is_first(threads.index)]
    return _each_register(held, threads, outside, span, lambda r, at: store(scratch, load(registers, [r]), at, span))


def from_scratch(held: RegisterMap, registers: Var, scratch: Var, threads: Threads, member: Sequence[Expr], span: Span | None) -> Stmt:
    """Every copy of a fragment, read from a shared tile."""
    return _each_register(held, threads, list(member), span, lambda r, at: store(registers, load(scratch, at), [r], span))


def _each_register(held: RegisterMap, threads: Threads, outside: list[Expr], span: Span | None, make: Any) -> Stmt:
    width = _neighbours(held)
    counter, lane = Var("r", "int32"), Var("lane", "int32")
    register = counter * width + lane if width > 1 else counter
    prover = _prover(threads, counter, held.registers // width)
    prover.bind(lane, Range.from_min_extent(0, width))
    at = [prover.simplify(c) if isinstance(c, Expr) else c for c in held.coords(threads.index, register)]
    conditions = [c for c in map(prover.simplify, held.holds(threads.index, register)) if not (isinstance(c, IntImm) and int(c))]
    body = guarded(make(register, at), [c for c in conditions if uses(c, lane)], span)
    if width > 1:
        body = For(lane, 0, width, ForKind.VECTORIZED, body, span=span)
    body = guarded(body, [c for c in conditions if uses(c, counter) and not uses(c, lane)], span)
    loop = For(counter, 0, held.registers // width, ForKind.UNROLLED, body, span=span)
    return guarded(loop, [*outside, *(c for c in conditions if not uses(c, counter) and not uses(c, lane))], span)

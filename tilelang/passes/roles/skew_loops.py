"""Loops whose body is two halves in a row, each with products of its own: the second half of an iteration runs beside the first half of
the next one.

In: the statements of a loop's body at TILE, without the copies that a producer makes. Out: where to cut it, or why not. The halves are

    first:   head (up to its first products), work (on their results), tail (products of what the work left)
    second:  head (its first products), work, tail (products), rest (what is done with their results)

and the body becomes, where ' marks the next iteration,

    second.head;  first.head';  second.work;  second.tail;  first.work';  first.tail';  second.rest

with the first half of the first iteration before the loop, and the second half of the last one behind it. So matrix units have
first.head' while threads are at second.work, second.tail during first.work', first.tail' during second.rest and around the loop. Products
of second.tail that need a barrier, since threads wrote their operands, stand before first.tail': by then all have long arrived.

It is right if nothing of the next iteration's first half changes places with a statement of the second half that touches what it writes,
or writes what it touches. The cut stands before the first of several products in a row whose results the statements behind them need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.access import Access, accesses
from ...ir.dialect import FRAGMENT, SHARED_SCOPES, op_name, tile_call
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    Analyzer,
    Bind,
    Call,
    DeclBuffer,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Range,
    Stmt,
    Var,
    const,
    dtype_of,
    is_buffer,
    seq,
    shape_of,
    tirx,
)  # fmt: skip
from ..pipeline.pipeline_copies import with_version
from .rings import Ring, RingLoop, count_one, mbarrier, number_of, release_slot, slot_of
from .rotate_loops import NotRotated, with_own_names

_PRODUCT = "tl.tileop.gemm"
_OTHER_REGISTERS = 24  # of a thread, beside its fragments: what the assembler keeps for addresses, loops and scalars


@dataclass(frozen=True)
class Half:
    """Positions in the body: [start, head) head, [head, work) work, [work, tail) tail, [tail, end) rest (none in a first half)."""

    start: int
    head: int
    work: int
    tail: int
    end: int


@dataclass(frozen=True)
class Skew:
    """first, second: the halves. late: the first product of the second half's tail that needs a barrier. free: the statement of the first
    half's work before which the earlier ones let their slots go: the one that overwrites what the first half's tail reads, so that its
    registers need not be new ones."""

    first: Half
    second: Half
    late: int
    free: int


def skew_of(node: For, stmts: Sequence[Stmt], roots: Mapping[Var, Var], threads: int, registers: int) -> Skew | None:
    """How to skew a loop with this body; None if it has not two halves. threads: those that share a fragment. registers: of each.
    Raises `NotRotated` with a reason."""
    touched = [accesses(stmt, roots) for stmt in stmts]
    halves = _halves(stmts, touched)
    if halves is None or (isinstance(node.extent, IntImm) and int(node.extent) < 2):
        return None
    first, second = halves
    _only_known_statements(node, stmts)
    _may_change_places(touched, range(first.start, first.head), range(second.head, second.end))
    late = _late(touched, second)
    _may_change_places(touched, range(first.head, first.work), range(late, second.end))
    _may_change_places(touched, range(first.work, first.end), range(second.tail, second.end))
    operands = {a.root for k in range(first.work, first.tail) for a in touched[k] if not a.writes}
    free = next((k for k in range(first.head, first.work) if any(a.writes and a.root in operands for a in touched[k])), first.work)
    skew = Skew(first, second, late, free)
    _fits(stmts, touched, skew, threads, registers)
    return skew


# ---------------------------------------------------------------- where to cut
def _halves(stmts: Sequence[Stmt], touched: Sequence[Sequence[Access]]) -> tuple[Half, Half] | None:
    runs = _runs(stmts)
    for before, run, behind in zip(runs, runs[1:], runs[2:], strict=False):
        cut = next((k for k in run if _needed(touched, k, range(run.stop, behind.start))), None)
        if cut is None or not _needed(touched, before.start, range(before.stop, run.start)):
            continue
        if len(runs) != 3 or not _needed(touched, before.stop - 1, range(before.stop, run.start)):
            return None  # more of these would each need an order of their own
        first = Half(0, before.stop, run.start, cut, cut)
        return first, Half(cut, run.stop, behind.start, behind.stop, len(stmts))
    return None


def _late(touched: Sequence[Sequence[Access]], second: Half) -> int:
    """The first product at the end that reads what threads write to shared memory in the loop."""
    written = {a.root for effects in touched for a in effects if a.writes and is_buffer(a.root) and a.root.scope() in SHARED_SCOPES}
    return next((k for k in range(second.work, second.tail) if any(a.root in written for a in touched[k])), second.tail)


def _runs(stmts: Sequence[Stmt]) -> list[range]:
    """Products that follow each other with nothing but names between."""
    runs: list[range] = []
    for k, stmt in enumerate(stmts):
        if not is_product(stmt):
            continue
        if runs and all(isinstance(s, Bind) for s in stmts[runs[-1].stop : k]):
            runs[-1] = range(runs[-1].start, k + 1)
        else:
            runs.append(range(k, k + 1))
    return runs


def _needed(touched: Sequence[Sequence[Access]], product: int, where: range) -> bool:
    """Do statements there touch what the product writes?"""
    results = {a.root for a in touched[product] if a.writes}
    return any(a.root in results for k in where for a in touched[k])


def is_product(stmt: Stmt) -> bool:
    found = tile_call(stmt)
    return found is not None and op_name(found) == _PRODUCT


# ---------------------------------------------------------------- may it be done?
def _only_known_statements(node: For, stmts: Sequence[Stmt]) -> None:
    """Only statements whose every effect is known move, and only what can be written twice is."""
    held: list[str] = []

    def of_call(call: Call) -> None:
        if op_name(call) == _PRODUCT:
            held.append("it has products in an inner loop or condition")

    if node.step is not None and not (isinstance(node.step, IntImm) and int(node.step) == 1):
        held.append("its step is not one")
    for stmt in stmts:
        walk(stmt, {(AllocBuffer, DeclBuffer): lambda d: held.append(f"{d.buffer.name} is declared in its body")})
        if isinstance(stmt, Bind) and accesses(stmt.value):
            held.append(f"{stmt.var.name} is read from memory")
        if tile_call(stmt) is None:
            walk(stmt, {Call: of_call})
            if not isinstance(stmt, For | IfThenElse | Bind):
                held.append("a statement of it is executed by each thread")
    if held:
        raise NotRotated(held[0])


def _may_change_places(touched: Sequence[Sequence[Access]], ahead: range, passed: range) -> None:
    """Statements of the next iteration (`ahead`) go before statements of this one (`passed`)."""
    for ours in (a for k in ahead for a in touched[k]):
        for theirs in (a for k in passed for a in touched[k]):
            unknown = not is_buffer(ours.root) or not is_buffer(theirs.root)
            if (ours.writes or theirs.writes) and (unknown or ours.root.same_as(theirs.root)):
                raise NotRotated(f"its first products and its last ones both touch {ours.buffer.name}")


def _fits(stmts: Sequence[Stmt], touched: Sequence[Sequence[Access]], skew: Skew, threads: int, registers: int) -> None:
    """The fragments that live at once in the new order have to fit the registers. A statement may put its results where operands were that
    nobody needs afterwards."""
    first, second, late = skew.first, skew.second, skew.late
    order = [*range(second.start, second.head), *range(first.head), *range(second.head, late), *range(first.head, first.work),
             *range(late, second.tail), *range(first.work, first.end), *range(second.tail, second.end)]  # fmt: skip
    effects = [{a.root: _mode(stmts[k], touched[k], a.root) for a in touched[k] if _is_fragment(a.root)} for k in order]
    live: set[Var] = set()
    most = 0
    for _ in range(2):  # around the loop
        for now in reversed(effects):
            live = (live - {tile for tile, mode in now.items() if mode == "w"}) | {tile for tile, mode in now.items() if mode == "r"}
            most = max(most, sum(_registers(tile, threads) for tile in live))
    if most + _OTHER_REGISTERS > registers:
        raise NotRotated(f"its fragments would take {most + _OTHER_REGISTERS} of {registers} registers")


def _is_fragment(root: Var) -> bool:
    return is_buffer(root) and root.scope() == FRAGMENT


def _mode(stmt: Stmt, touched: Sequence[Access], tile: Var) -> str:
    """What the statement does with the tile: "w" if it gives it a value without reading it, else "r"."""
    call = tile_call(stmt)
    if call is not None and op_name(call) == _PRODUCT and call.args[2].source.same_as(tile):
        clears = isinstance(call.args[3], IntImm) and bool(int(call.args[3]))
        return "w" if clears and not any(a.root.same_as(tile) and not a.writes for a in touched) else "r"
    return "r" if any(a.reads for a in touched if a.root.same_as(tile)) else "w"


def _registers(tile: Var, threads: int) -> int:
    return math.prod(int(e) for e in shape_of(tile)) * dtype(dtype_of(tile)).bits // 32 // threads


# ---------------------------------------------------------------- the loop
def skewed(ours: RingLoop, skew: Skew, counter: Var | None, stmts: Sequence[Stmt], kernel: KernelRegion) -> Stmt:
    """The loop of the consumers. stmts: of its body, without the copies; counter: of the ring, where it has one."""
    node, span = ours.found.node, ours.found.node.span
    var, one = node.loop_var, const(1, dtype_of(node.loop_var))
    count = [] if counter is None else [count_one(counter, span)]
    last = node.min + node.extent - one
    begin = _Iteration(ours, skew, stmts, node.min, number_of(ours, node.min, counter))
    this = _Iteration(ours, skew, stmts, var, number_of(ours, var, counter))
    following = _Iteration(ours, skew, stmts, var + one, number_of(ours, var, counter) + const(1, "int32"))
    end = _Iteration(ours, skew, stmts, last, number_of(ours, last, counter))
    body = seq([*this.beside(following), *count])
    loop = For(var, node.min, node.extent - one, node.kind, body, node.thread_binding, None, node.step, span)
    whole = seq([*begin.half(skew.first), loop, *end.half(skew.second), *count])
    prover = Analyzer()
    for block, extent in kernel.blocks:
        prover.bind(block, Range.from_min_extent(0, extent))
    some = tirx.GT(node.extent, const(0, dtype_of(node.extent)))
    return whole if prover.can_prove(some) else IfThenElse(some, whole, None, span)


class _Iteration:
    """The statements of one iteration. number: in the order of the rings."""

    def __init__(self, ours: RingLoop, skew: Skew, stmts: Sequence[Stmt], iteration: Expr, number: Expr) -> None:
        self.ours, self.skew, self.number = ours, skew, number
        self.span = ours.found.node.span
        self.slot, self.phase, self.names = slot_of(number, ours.slots, self.span)
        table = {tile: versions for ring in ours.rings for tile, versions in ring.versions.items()}
        own = with_own_names(list(stmts), {ours.found.node.loop_var: iteration})
        self.stmts = [with_version(s, table, self.slot) for s in own]

    def half(self, half: Half) -> list[Stmt]:
        """One half alone, each wait before the first use, each release behind the last one."""
        bound = [s for s in self.stmts[: half.start] if isinstance(s, Bind)]
        return [*self.names, *bound, *self.part(half.start, half.end)]

    def beside(self, following: _Iteration) -> list[Stmt]:
        """The second half of this iteration with the first half of the following one."""
        first, second, late, free = self.skew.first, self.skew.second, self.skew.late, self.skew.free
        bound = [s for s in self.stmts[: second.start] if isinstance(s, Bind)]
        heads = [*self.waits(second.start, second.head), *following.waits(first.start, first.head)]
        return [
            *self.names, *following.names, *bound, *heads,
            *self.stmts[second.start : second.head], *following.stmts[first.start : first.head],
            *self.part(second.head, late, self.releases(second.start, second.head), before=second.work),
            *following.part(first.head, free, following.releases(first.start, first.head)),
            *self.releases(second.work, late),
            *following.part(free, first.work), *self.part(late, second.tail, before=late), *following.part(first.work, first.end),
            *self.releases(late, second.tail), *self.part(second.tail, second.end),
        ]  # fmt: skip

    def part(self, low: int, high: int, results: Sequence[Stmt] = (), before: int | None = None) -> list[Stmt]:
        """Statements low to high. results: what stands behind the first of them, which waits for the products before it. before: releases
        of statements from there on stand elsewhere."""
        found: list[Stmt] = []
        for k in range(low, high):
            found += [*self.waits(k, k + 1), self.stmts[k]]
            if k == low:
                found += results
            if before is None or k < before:
                found += self.releases(k, k + 1)
        return found if high > low else list(results)

    def waits(self, low: int, high: int) -> list[Stmt]:
        """For the rings that are first used by these statements."""
        return [mbarrier("wait", ring.full, self.slot, self.span, self.phase) for ring in self._rings("first", low, high)]

    def releases(self, low: int, high: int) -> list[Stmt]:
        """Of the rings that are last used by these statements."""
        return [release_slot(self.ours, ring, self.number) for ring in self._rings("last", low, high)]

    def _rings(self, which: str, low: int, high: int) -> list[Ring]:
        return [ring for ring in self.ours.rings if low <= getattr(ring, which) < high]


__all__ = ["Half", "Skew", "is_product", "skew_of", "skewed"]

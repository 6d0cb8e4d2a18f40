"""Which pipelined loops are rotated: the products at the head of the next iteration run beside the last products of this one.

In: the statements of a loop's body at TILE, without the copies that a producer makes. Out: where to cut it, or why not. The body
is H, A, Z: H ends with the first product (or the last of several that follow each other), Z begins with the last one (or the first of
several). H, A, Z, H, A, Z becomes

    H(0);  A(0);  for k but the last: { H(k + 1);  Z(k);  A(k + 1) };  Z(last)

which is right if H(k + 1) and Z(k) may change places: neither writes what the other touches. It pays where A needs what H computes, so
that the matrix units would run dry: they work on H(k + 1) and Z(k) together, and on Z(k) still while A(k + 1) has begun. Nothing is
in flight around the loop: the assembler does not follow groups with different accumulators there, and would take them one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.access import Access, accesses
from ...ir.dialect import FRAGMENT, op_name, tile_call
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Analyzer,
    Bind,
    Call,
    DeclBuffer,
    Evaluate,
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
from .rings import RingLoop, count_one, mbarrier, number_of, release_slot, slot_of

KEY_OFF = "tl.disable_loop_rotation"
_PRODUCT = "tl.tileop.gemm"
_OTHER_REGISTERS = 24  # of a thread, beside its fragments: what the assembler keeps for addresses, loops and scalars


class NotRotated(Exception):
    """Why a loop keeps its order."""


@dataclass(frozen=True)
class Rotation:
    """Positions in the body. head: of H's last product. last: of Z's first. results: the first statement of A that touches what products
    of H write. again: the first one of A that touches what Z writes, or writes what it reads; `last` if none does."""

    head: int
    last: int
    results: int
    again: int


def rotation_of(node: For, stmts: Sequence[Stmt], roots: Mapping[Var, Var], threads: int, registers: int) -> Rotation | None:
    """How to rotate a loop with this body; None where there is nothing to gain. threads: those that share a fragment. registers: of each.
    Raises `NotRotated` with a reason."""
    products = [k for k, stmt in enumerate(stmts) if _product(stmt) is not None]
    if len(products) < 2 or (isinstance(node.extent, IntImm) and int(node.extent) < 2):
        return None
    head, last = _last_of_first(stmts, products), _first_of_last(stmts, products)
    touched = [accesses(stmt, roots) for stmt in stmts]
    written = {a.root for k in products if k <= head for a in touched[k] if a.writes}
    between = range(head + 1, last)
    results = next((k for k in between if any(a.root in written for a in touched[k])), None)
    if results is None:
        return None
    _only_known_statements(node, stmts, head, last)
    final = [a for k in range(last, len(stmts)) for a in touched[k]]
    _may_change_places([a for k in range(head + 1) for a in touched[k]], final)
    _fits([a for k in products if k <= head or k >= last for a in touched[k]], threads, registers)
    return Rotation(head, last, results, next((k for k in between if _disturbs(touched[k], final)), last))


def _last_of_first(stmts: Sequence[Stmt], products: Sequence[int]) -> int:
    """The last of the products at the beginning that follow each other with nothing but names between."""
    last = products[0]
    for k in products[1:]:
        if not all(isinstance(s, Bind) for s in stmts[last + 1 : k]):
            break
        last = k
    return last


def _first_of_last(stmts: Sequence[Stmt], products: Sequence[int]) -> int:
    """The first of the products at the end that follow each other with nothing but names between."""
    first = products[-1]
    for k in reversed(products[1:-1]):
        if not all(isinstance(s, Bind) for s in stmts[k + 1 : first]):
            break
        first = k
    return first


def _product(stmt: Stmt) -> Call | None:
    found = tile_call(stmt)
    return found if found is not None and op_name(found) == _PRODUCT else None


def _only_known_statements(node: For, stmts: Sequence[Stmt], head: int, last: int) -> None:
    """Only statements whose every effect is known move, and only what can be written twice is."""
    held: list[str] = []

    def of_call(node: Call) -> None:
        if op_name(node) == _PRODUCT:
            held.append("it has products in an inner loop or condition")

    if node.step is not None and not (isinstance(node.step, IntImm) and int(node.step) == 1):
        held.append("its step is not one")
    for k, stmt in enumerate(stmts):
        walk(stmt, {(AllocBuffer, DeclBuffer): lambda d: held.append(f"{d.buffer.name} is declared in its body")})
        if tile_call(stmt) is None:
            walk(stmt, {Call: of_call})
            if k <= head or k >= last:
                walk(stmt, {Evaluate: lambda _: held.append("what would move holds an operation on no tile")})
    held += [f"{s.var.name} is read from memory" for s in stmts[:last] if isinstance(s, Bind) and accesses(s.value)]
    if held:
        raise NotRotated(held[0])


def _may_change_places(first: Sequence[Access], final: Sequence[Access]) -> None:
    for ours in first:
        for theirs in final:
            unknown = not is_buffer(ours.root) or not is_buffer(theirs.root)
            if (ours.writes or theirs.writes) and (unknown or ours.root.same_as(theirs.root)):
                raise NotRotated(f"its first products and its last ones both touch {ours.buffer.name}")


def _disturbs(stmt: Sequence[Access], final: Sequence[Access]) -> bool:
    return any((a.writes or f.writes) and a.root.same_as(f.root) for a in stmt for f in final)


def _fits(operands: Sequence[Access], threads: int, registers: int) -> None:
    """Without rotation the first results are dead while the last products run; now all fragments of both live at once."""
    tiles = dict.fromkeys(a.root for a in operands if a.root.scope() == FRAGMENT)
    needed = _OTHER_REGISTERS + sum(math.prod(int(e) for e in shape_of(t)) * dtype(dtype_of(t)).bits // 32 // threads for t in tiles)
    if needed > registers:
        raise NotRotated(f"its fragments would take {needed} of {registers} registers")


# ---------------------------------------------------------------- the loop
def rotated(ours: RingLoop, rotation: Rotation, counter: Var | None, stmts: Sequence[Stmt], kernel: KernelRegion) -> Stmt:
    """The loop of the consumers. stmts: of its body, without the copies; counter: of the ring, where it has one."""
    node, span = ours.found.node, ours.found.node.span
    var, one = node.loop_var, const(1, dtype_of(node.loop_var))
    emit = _Parts(ours, rotation, stmts)
    count = [] if counter is None else [count_one(counter, span)]
    first = emit.slot(node.min, number_of(ours, node.min, counter))
    this = emit.slot(var, number_of(ours, var, counter))
    following = emit.slot(var + one, number_of(ours, var, counter) + const(1, "int32"))
    last = node.min + node.extent - one
    final = emit.slot(last, number_of(ours, last, counter))
    body = [*this.names, *following.names, *emit.waits_of_tail(this)]
    body += [*emit.head(following), *emit.tail(this), *emit.middle(following, this), *count]
    loop = For(var, node.min, node.extent - one, node.kind, seq(body), node.thread_binding, None, node.step, span)
    before = [*first.names, *emit.head(first), *emit.middle(first, None)]
    behind = [*final.names, *emit.waits_of_tail(final), *emit.tail(final), *emit.releases_of_tail(final), *count]
    whole = seq([*before, loop, *behind])
    prover = Analyzer()
    for var, extent in kernel.blocks:
        prover.bind(var, Range.from_min_extent(0, extent))
    some = tirx.GT(node.extent, const(0, dtype_of(node.extent)))
    return whole if prover.can_prove(some) else IfThenElse(some, whole, None, span)


@dataclass(frozen=True)
class _Slot:
    """The slots of one iteration. number: in the order of the ring. names: the statements that name slot and phase."""

    iteration: Expr
    number: Expr
    slot: Var
    phase: Var
    names: list[Stmt]


class _Parts:
    """The parts of a rotated loop: H, A and Z of any iteration. stmts: of the body, without the copies."""

    def __init__(self, ours: RingLoop, rotation: Rotation, stmts: Sequence[Stmt]) -> None:
        self.ours, self.at, self.stmts = ours, rotation, stmts
        self.span = ours.found.node.span
        self.table = {tile: versions for ring in ours.rings for tile, versions in ring.versions.items()}

    def slot(self, iteration: Expr, number: Expr) -> _Slot:
        return _Slot(iteration, number, *slot_of(number, self.ours.slots, self.span))

    def head(self, it: _Slot) -> list[Stmt]:
        """H, with the waits for what it uses. Its slots are released in A, where something waits for its products."""
        own = self._own(it, range(self.at.head + 1))
        return [s for k, stmt in own for s in (*self._waits(it, k, k), stmt)]

    def tail(self, it: _Slot) -> list[Stmt]:
        """Z. Its waits stand before H of the next iteration: the products of both follow each other without a branch."""
        return [stmt for _, stmt in self._own(it, range(self.at.last, len(self.stmts)))]

    def middle(self, it: _Slot, earlier: _Slot | None) -> list[Stmt]:
        """A. earlier: the iteration whose Z is in flight at its beginning and whose slots are released where that is waited for."""
        found: list[Stmt] = []
        for k, stmt in self._own(it, range(self.at.head + 1, self.at.last)):
            if k == self.at.results:
                found += self._releases(it, 0, self.at.head)
            if k == self.at.again and earlier is not None:
                found += self.releases_of_tail(earlier)
            found += [*self._waits(it, k, k), stmt, *self._releases(it, k, k)]
        return [*found, *self.releases_of_tail(earlier)] if earlier is not None and self.at.again == self.at.last else found

    def waits_of_tail(self, it: _Slot) -> list[Stmt]:
        return self._waits(it, self.at.last, len(self.stmts))

    def releases_of_tail(self, it: _Slot) -> list[Stmt]:
        return self._releases(it, self.at.last, len(self.stmts))

    def _own(self, it: _Slot, which: range) -> list[tuple[int, Stmt]]:
        """A copy of some of the statements, with their numbers, for an iteration. Names bound before them are bound again."""
        order = [k for k in range(which.start) if isinstance(self.stmts[k], Bind)] + list(which)
        own = with_own_names([self.stmts[k] for k in order], {self.ours.found.node.loop_var: it.iteration})
        return [(k, with_version(s, self.table, it.slot)) for k, s in zip(order, own, strict=True)]

    def _waits(self, it: _Slot, low: int, high: int) -> list[Stmt]:
        """For the rings that are first used by these statements."""
        return [mbarrier("wait", ring.full, it.slot, self.span, it.phase) for ring in self.ours.rings if low <= ring.first <= high]

    def _releases(self, it: _Slot, low: int, high: int) -> list[Stmt]:
        """Of the rings that are last used by these statements."""
        return [release_slot(self.ours, ring, it.number) for ring in self.ours.rings if low <= ring.last <= high]


# ---------------------------------------------------------------- statements that are written twice
def with_own_names(stmts: Sequence[Stmt], table: Mapping[Var, Expr]) -> list[Stmt]:
    """Copies of consecutive statements, with variables of their own for the names and loops in them. table: values of other variables."""
    own: dict[Var, Var] = {}

    def define(var: Var) -> None:
        own[var] = Var(str(var.name), var.ty)

    for stmt in stmts:
        walk(stmt, {Bind: lambda b: define(b.var), For: lambda f: define(f.loop_var)})

    def bind(node: Bind, _: Descend) -> Stmt:
        return Bind(own[node.var], node.value, node.span)

    def loop(node: For, descend: Descend) -> Stmt:
        body = descend(node.body)
        return For(own[node.loop_var], node.min, node.extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)

    values = {**table, **own}
    return [substitute(rewrite(stmt, {Bind: bind, For: loop}), values) for stmt in stmts]


__all__ = ["KEY_OFF", "NotRotated", "Rotation", "rotated", "rotation_of", "with_own_names"]

"""Which pipelined loops make a product's operand beside the product before: two buffers for it, by turns.

In: the statements of a loop's body at TILE, without the copies that a producer makes: P, G, where G is the only product and takes operands
that P fills: A in a fragment, A or B in a shared tile (for example with weights that it unpacks and scales). Out: which, or why not.
A product reads its operands until it is complete, so with one buffer P(k + 1) waits for G(k). With two, by turns, it waits for G(k - 1):

    for pairs of iterations: { P(k) -> a;  G(k) of a;  P(k + 1) -> b;  G(k + 1) of b };  the last one, if their number is odd

The order of the statements stays, only the buffer is another one in every second iteration, which nothing can tell: P fills it whole
before it reads it, and nothing outside of the loop touches it. The tiles that G(k) has read are released behind G(k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.access import Access, accesses
from ...ir.dialect import FRAGMENT, SHARED_SCOPES, op_name, tile_call
from ...ir.dtypes import dtype
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
    DeclBuffer,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Stmt,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    seq,
    shape_of,
    static_shape,
    tirx,
)  # fmt: skip
from ..analysis.nests import is_nest, read_nest
from ..partition.fragment_homes import overwrites
from ..pipeline.pipeline_copies import is_zero, with_version
from .rings import RingLoop, count_one, mbarrier, release_slot, slot_of
from .rotate_loops import with_own_names

_PRODUCT = "tl.tileop.gemm"
_OTHER_REGISTERS = 40  # of a thread, beside accumulator and operands: addresses, counters, values on their way into an operand


class NotAlternated(Exception):
    """Why a loop keeps one buffer."""


def alternating_operands(
    node: For, stmts: Sequence[Stmt], uses: Mapping[Var, Sequence[Access]], roots: Mapping[Var, Var], threads: int, registers: int
) -> tuple[Var, ...]:
    """The buffers that second ones are to stand beside; none where there is nothing to gain. uses: of each buffer, in the whole kernel.
    threads: those that share a fragment. registers: of each. Raises `NotAlternated` with a reason."""
    product = tile_call(stmts[-1]) if stmts else None
    if product is None or op_name(product) != _PRODUCT or (isinstance(node.extent, IntImm) and int(node.extent) < 2):
        return ()
    if _holds_product(stmts[:-1]):
        return ()
    result = product.args[2].source
    made = [accesses(stmt, roots) for stmt in stmts[:-1]]
    written = {a.root for found in made for a in found if a.writes}
    a, b = (block.source for block in product.args[:2])
    operands = [o for o in dict.fromkeys((a, b)) if o in written and (o.scope() in SHARED_SCOPES or (o.scope() == FRAGMENT and o is a))]
    if not operands or result.scope() != FRAGMENT or result in operands:
        return ()
    if node.step is not None and not (isinstance(node.step, IntImm) and int(node.step) == 1):
        raise NotAlternated("its step is not one")
    inside = accesses(node.body, roots)
    for operand in operands:
        seen = operand in roots or operand in roots.values() or any(a.ranges is None for a in uses[operand])
        if seen or len(uses[operand]) != sum(a.root.same_as(operand) for a in inside):
            raise NotAlternated(f"{operand.name} is used outside of it")
    if any(a.root.same_as(result) for found in made for a in found):
        raise NotAlternated(f"{result.name} is needed in every iteration")
    _may_be_written_twice(stmts[:-1])
    for operand in operands:
        first = next(k for k, found in enumerate(made) if any(a.root.same_as(operand) for a in found))
        if not _fills(stmts[first], operand, made[first], roots):
            raise NotAlternated(f"{operand.name} is not filled whole before it is used")
    fragments = [o for o in operands if o.scope() == FRAGMENT]
    needed = _OTHER_REGISTERS + _registers(result, threads) + 2 * sum(_registers(o, threads) for o in fragments)
    if fragments and needed > registers:
        raise NotAlternated(f"two fragments of {fragments[0].name} would take {needed} of {registers} registers")
    return tuple(operands)


def _holds_product(stmts: Sequence[Stmt]) -> bool:
    found: list[Call] = []
    for stmt in stmts:
        walk(stmt, {Call: lambda c: found.append(c) if op_name(c) == _PRODUCT else None})
    return bool(found)


def _may_be_written_twice(stmts: Sequence[Stmt]) -> None:
    held: list[str] = []
    for stmt in stmts:
        walk(stmt, {(AllocBuffer, DeclBuffer): lambda d: held.append(f"{d.buffer.name} is declared in its body")})
    if held:
        raise NotAlternated(held[0])


def _fills(stmt: Stmt, operand: Var, touched: Sequence[Access], roots: Mapping[Var, Var]) -> bool:
    """Does the statement write the whole buffer, and read nothing of it?"""
    if not all(isinstance(e, int) for e in shape_of(operand)):
        return False
    if is_nest(stmt):
        return overwrites(read_nest(stmt, lambda b: b.same_as(operand), dict(roots)), operand, static_shape(operand))
    if tile_call(stmt) is None:
        return False
    mine = [a for a in touched if a.root.same_as(operand)]
    return all(a.mode == "w" for a in mine) and any(_whole(a, operand) for a in mine)


def _whole(access: Access, operand: Var) -> bool:
    return access.ranges is not None and all(
        is_zero(r.min) and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(access.ranges, static_shape(operand), strict=True)
    )


def _registers(fragment: Var, threads: int) -> int:
    return math.prod(static_shape(fragment)) * dtype(dtype_of(fragment)).bits // 32 // threads


# ---------------------------------------------------------------- the loop
def twin_of(operand: Var) -> Var:
    """The second buffer."""
    alignment = 64 if operand.scope() in SHARED_SCOPES else 16
    return decl_buffer(shape_of(operand), dtype_of(operand), f"{operand.name}_odd", operand.scope(), alignment=alignment, span=operand.span)


def alternated(ours: RingLoop, twins: Mapping[Var, Var], counter: Var, stmts: Sequence[Stmt]) -> Stmt:
    """The loop of the consumers. twins: the second buffer of each operand; counter: of the ring; stmts: of the body, without the copies."""
    node, span = ours.found.node, ours.found.node.span
    emit = _Halves(ours, twins, counter, stmts)
    pair = Var(str(node.loop_var.name), node.loop_var.ty)
    one, two = (const(v, dtype_of(pair)) for v in (1, 2))
    even = node.min + pair * two if not is_zero(node.min) else pair * two
    body = [*emit.half(even, 0), *emit.half(even + one, 1), *emit.releases(1, behind=1), *emit.releases(0), count_one(counter, span)]
    loop = For(pair, const(0, dtype_of(pair)), _floordiv(node.extent, 2), node.kind, seq(body), node.thread_binding, None, None, span)
    last = seq([*emit.half(node.min + node.extent - one, 0), *emit.releases(0), count_one(counter, span)])
    if isinstance(node.extent, IntImm):
        return seq([loop, last]) if int(node.extent) % 2 else loop
    odd = tirx.EQ(tirx.floormod(node.extent, two), one)
    return seq([loop, IfThenElse(tirx.And(tirx.GT(node.extent, const(0, dtype_of(pair))), odd), last, None, span)])


def _floordiv(value: Expr, by: int) -> Expr:
    if isinstance(value, IntImm):
        return const(int(value) // by, dtype_of(value))
    return tirx.floordiv(tirx.max(value, const(0, dtype_of(value))), const(by, dtype_of(value)))


class _Halves:
    """The statements of one iteration, for either buffer."""

    def __init__(self, ours: RingLoop, twins: Mapping[Var, Var], counter: Var, stmts: Sequence[Stmt]) -> None:
        self.ours, self.twins, self.counter, self.stmts = ours, twins, counter, stmts
        self.span = ours.found.node.span
        self.table = {tile: versions for ring in ours.rings for tile, versions in ring.versions.items()}

    def half(self, iteration: Expr, which: int) -> list[Stmt]:
        """P and G of an iteration, with waits, and releases of what P has read last. which: of the twins; the second one counts first."""
        slot, phase, names = slot_of(load(self.counter, [0]), self.ours.slots, self.span)
        own = with_own_names(self.stmts, {self.ours.found.node.loop_var: iteration})
        found = [*([count_one(self.counter, self.span)] if which else []), *names]
        for k, stmt in enumerate(own):
            found += [mbarrier("wait", ring.full, slot, self.span, phase) for ring in self.ours.rings if ring.first == k]
            mine = substitute(stmt, dict(self.twins)) if which else stmt
            found.append(with_version(mine, self.table, slot))
            if k < len(own) - 1:
                found += [release_slot(self.ours, ring, load(self.counter, [0])) for ring in self.ours.rings if ring.last == k]
        return found

    def releases(self, earlier: int, behind: int = 0) -> list[Stmt]:
        """Of the rings that the product reads: of the slot of this iteration, or of the one `earlier`."""
        number = load(self.counter, [0]) - const(earlier, "int32") if earlier else load(self.counter, [0])
        return [release_slot(self.ours, ring, number, behind) for ring in self.ours.rings if ring.last == len(self.stmts) - 1]


__all__ = ["NotAlternated", "alternated", "alternating_operands", "twin_of"]

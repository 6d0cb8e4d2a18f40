"""Which pipelined loops make a product's operand in registers beside the product before: two fragments for it, by turns.

In: the statements of a loop's body at TILE, without the copies that a producer makes: P, G, where G is the only product and takes A from a
fragment that P fills (for example with weights that it unpacks and scales). Out: how to alternate, or why not. A product reads its
registers until it is complete, so with one fragment P(k + 1) has to wait for G(k). With two, by turns, it waits for G(k - 1):

    for pairs of iterations: { P(k) -> a;  G(k) of a;  P(k + 1) -> b;  G(k + 1) of b };  the last one, if their number is odd

The order of the statements stays, only the fragment is another one in every second iteration, which nothing can tell: P fills it whole
before it reads it, and nothing outside of the loop touches it. The tiles that G(k) has read are released behind G(k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..ir.access import Access, accesses
from ..ir.dialect import FRAGMENT, op_name, tile_call
from ..ir.dtypes import dtype
from ..ir.rewrite import substitute, walk
from ..ir.tvm_api import (
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
    static_shape,
    tirx,
)  # fmt: skip
from .fragment_homes import overwrites
from .nests import is_nest, read_nest
from .pipeline_copies import is_zero, with_version
from .rings import RingLoop, count_one, mbarrier, release_slot, slot_of
from .rotate_loops import with_own_names

_PRODUCT = "tl.tileop.gemm"
_OTHER_REGISTERS = 40  # of a thread, beside accumulator and operands: addresses, counters, values on their way into an operand


class NotAlternated(Exception):
    """Why a loop keeps one fragment."""


def alternating_operand(
    node: For, stmts: Sequence[Stmt], uses: Mapping[Var, Sequence[Access]], roots: Mapping[Var, Var], threads: int, registers: int
) -> Var | None:
    """The fragment that a second one is to stand beside; None where there is nothing to gain. uses: of each buffer, in the whole kernel.
    threads: those that share a fragment. registers: of each. Raises `NotAlternated` with a reason."""
    product = tile_call(stmts[-1]) if stmts else None
    if product is None or op_name(product) != _PRODUCT or (isinstance(node.extent, IntImm) and int(node.extent) < 2):
        return None
    left, result = product.args[0].source, product.args[2].source
    if left.scope() != FRAGMENT or result.scope() != FRAGMENT or left.same_as(result):
        return None
    made = [accesses(stmt, roots) for stmt in stmts[:-1]]
    touching = [k for k, found in enumerate(made) if any(a.root.same_as(left) for a in found)]
    if not touching:
        return None
    if node.step is not None and not (isinstance(node.step, IntImm) and int(node.step) == 1):
        raise NotAlternated("its step is not one")
    if left in roots.values() or left in roots or len(uses[left]) != sum(a.root.same_as(left) for a in accesses(node.body, roots)):
        raise NotAlternated(f"{left.name} is used outside of it")
    if any(a.root.same_as(result) for found in made for a in found):
        raise NotAlternated(f"{result.name} is needed in every iteration")
    _may_be_written_twice(stmts[:-1])
    if not _fills(stmts[touching[0]], left, made[touching[0]], roots):
        raise NotAlternated(f"{left.name} is not filled whole before it is used")
    needed = _OTHER_REGISTERS + _registers(result, threads) + 2 * _registers(left, threads)
    if needed > registers:
        raise NotAlternated(f"two fragments of {left.name} would take {needed} of {registers} registers")
    return left


def _may_be_written_twice(stmts: Sequence[Stmt]) -> None:
    held: list[str] = []

    def product(node: Call) -> None:
        if op_name(node) == _PRODUCT:
            held.append("it has several products")

    for stmt in stmts:
        walk(stmt, {(AllocBuffer, DeclBuffer): lambda d: held.append(f"{d.buffer.name} is declared in its body"), Call: product})
    if held:
        raise NotAlternated(held[0])


def _fills(stmt: Stmt, fragment: Var, touched: Sequence[Access], roots: Mapping[Var, Var]) -> bool:
    """Does the statement write the whole fragment, and read nothing of it?"""
    if is_nest(stmt):
        return overwrites(read_nest(stmt, lambda b: b.same_as(fragment), dict(roots)), fragment, static_shape(fragment))
    if tile_call(stmt) is None:
        return False
    mine = [a for a in touched if a.root.same_as(fragment)]
    return all(a.mode == "w" for a in mine) and any(_whole(a, fragment) for a in mine)


def _whole(access: Access, fragment: Var) -> bool:
    return access.ranges is not None and all(
        is_zero(r.min) and isinstance(r.extent, IntImm) and int(r.extent) == e
        for r, e in zip(access.ranges, static_shape(fragment), strict=True)
    )


def _registers(fragment: Var, threads: int) -> int:
    return math.prod(static_shape(fragment)) * dtype(dtype_of(fragment)).bits // 32 // threads


# ---------------------------------------------------------------- the loop
def twin_of(fragment: Var) -> Var:
    """The second fragment."""
    return decl_buffer(static_shape(fragment), dtype_of(fragment), f"{fragment.name}_odd", fragment.scope(), span=fragment.span)


def alternated(ours: RingLoop, twins: tuple[Var, Var], counter: Var, stmts: Sequence[Stmt]) -> Stmt:
    """The loop of the consumers. stmts: of its body, without the copies; counter: of the ring."""
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
    """The statements of one iteration, for either fragment."""

    def __init__(self, ours: RingLoop, twins: tuple[Var, Var], counter: Var, stmts: Sequence[Stmt]) -> None:
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
            mine = substitute(stmt, {self.twins[0]: self.twins[1]}) if which else stmt
            found.append(with_version(mine, self.table, slot))
            if k < len(own) - 1:
                found += [release_slot(self.ours, ring, load(self.counter, [0])) for ring in self.ours.rings if ring.last == k]
        return found

    def releases(self, earlier: int, behind: int = 0) -> list[Stmt]:
        """Of the rings that the product reads: of the slot of this iteration, or of the one `earlier`."""
        number = load(self.counter, [0]) - const(earlier, "int32") if earlier else load(self.counter, [0])
        return [release_slot(self.ours, ring, number, behind) for ring in self.ours.rings if ring.last == len(self.stmts) - 1]


__all__ = ["NotAlternated", "alternated", "alternating_operand", "twin_of"]

"""Which pipelined loops are rotated: the products at the head of the next iteration run beside the last products of this one.

In: the statements of a loop's body at TILE, without the copies that a producer makes. Out: where to cut it, or why not. The body
is H, A, Z: H ends with the first product, Z begins with the last one. H, A, Z, H, A, Z becomes

    H(0);  A(0);  for k but the last: { H(k + 1);  Z(k);  A(k + 1) };  Z(last)

which is right if H(k + 1) and Z(k) may change places: neither writes what the other touches. It pays where A needs what H computes, so
that the matrix units would run dry: they work on H(k + 1) and Z(k) together, and on Z(k) still while A(k + 1) has begun. Nothing is
in flight around the loop: the assembler does not follow groups with different accumulators there, and would take them one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.access import Access, accesses
from ..ir.dialect import FRAGMENT, op_info, op_name, tile_call
from ..ir.dtypes import dtype
from ..ir.rewrite import Descend, rewrite, substitute, walk
from ..ir.tvm_api import AllocBuffer, Bind, Call, DeclBuffer, Evaluate, Expr, For, Stmt, Var, dtype_of, is_buffer, shape_of

KEY_OFF = "tl.disable_loop_rotation"
_PRODUCT = "tl.tileop.gemm"
_OTHER_REGISTERS = 24  # of a thread, beside its fragments: what the assembler keeps for addresses, loops and scalars


class NotRotated(Exception):
    """Why a loop keeps its order."""


@dataclass(frozen=True)
class Rotation:
    """Positions in the body. head: of H's product. last: of Z's first. results: the first statement behind H that needs the results of its
    product. again: the first one that touches what Z's product writes, or writes what it reads; both at most `last`."""

    head: int
    last: int
    results: int
    again: int


def rotation_of(node: For, stmts: Sequence[Stmt], roots: Mapping[Var, Var], threads: int, registers: int) -> Rotation | None:
    """How to rotate a loop with this body; None where there is nothing to gain. threads: those that share a fragment. registers: of each.
    Raises `NotRotated` with a reason."""
    products = [k for k, stmt in enumerate(stmts) if _product(stmt) is not None]
    if len(products) < 2 or products[-1] == products[0] + 1:
        return None
    head, last = products[0], products[-1]
    _whole_statements(node, stmts, head, last)
    touched = [accesses(stmt, roots) for stmt in stmts]
    first = [a for k in range(head + 1) for a in touched[k]]
    final = [a for k in range(last, len(stmts)) for a in touched[k]]
    _may_change_places(first, final)
    written = {a.root for a in touched[head] if a.writes}
    between = range(head + 1, last)
    results = next((k for k in between if any(a.root in written for a in touched[k])), last)
    if results == last:
        return None
    again = next((k for k in between if _disturbs(touched[k], touched[last])), last)
    _fits([*touched[head], *touched[last]], threads, registers)
    return Rotation(head, last, results, again)


def _product(stmt: Stmt) -> Call | None:
    found = tile_call(stmt)
    return found if found is not None and op_name(found) == _PRODUCT else None


def _whole_statements(node: For, stmts: Sequence[Stmt], head: int, last: int) -> None:
    """Only statements whose every effect is known move, and only what can be written twice is."""
    if node.step is not None and not (hasattr(node.step, "value") and int(node.step.value) == 1):
        raise NotRotated("its step is not one")
    held: list[str] = []
    for stmt in stmts:
        if _product(stmt) is None:
            walk(stmt, {Call: lambda c: held.append("it holds products in an inner loop or condition") if op_name(c) == _PRODUCT else None})
        walk(stmt, {AllocBuffer: lambda a: held.append(f"{a.buffer.name} is allocated in it"), DeclBuffer: lambda d: held.append(f"{d.buffer.name} is declared in it")})  # fmt: skip
    for stmt in (*stmts[: head + 1], *stmts[last:]):
        if isinstance(stmt, Bind):
            continue
        calls: list[Call] = []
        walk(stmt, {Call: calls.append})
        if isinstance(stmt, Evaluate) and tile_call(stmt) is None:
            held.append("what would move is no tile operation")
        held += [f"{op_name(c)} would move" for c in calls if (info := op_info(c)) is not None and info.collective and not info.tile]
    held += [f"{stmt.var.name} is read from memory" for stmt in stmts[:last] if isinstance(stmt, Bind) and accesses(stmt.value)]
    if held:
        raise NotRotated(held[0])


def _may_change_places(first: Sequence[Access], final: Sequence[Access]) -> None:
    for ours in first:
        for theirs in final:
            unknown = not is_buffer(ours.root) or not is_buffer(theirs.root)
            if (ours.writes or theirs.writes) and (unknown or ours.root.same_as(theirs.root)):
                raise NotRotated(f"its first products and its last ones both touch {ours.buffer.name}")


def _disturbs(stmt: Sequence[Access], product: Sequence[Access]) -> bool:
    return any((a.writes or p.writes) and a.root.same_as(p.root) for a in stmt for p in product)


def _fits(operands: Sequence[Access], threads: int, registers: int) -> None:
    """Without rotation the first results are dead while the last products run; now all fragments of both live at once."""
    tiles = dict.fromkeys(a.root for a in operands if a.root.scope() == FRAGMENT)
    needed = _OTHER_REGISTERS + sum(math.prod(int(e) for e in shape_of(t)) * dtype(dtype_of(t)).bits // 32 // threads for t in tiles)
    if needed > registers:
        raise NotRotated(f"its fragments would take {needed} of {registers} registers")


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


__all__ = ["KEY_OFF", "NotRotated", "Rotation", "rotation_of", "with_own_names"]

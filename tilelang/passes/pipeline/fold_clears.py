"""A product that finds its accumulator just cleared clears it itself.

In: a TILE program. Out: the same without `T.clear(C)` where a `T.gemm` into C follows, in the same sequence and with nothing in between
that touches C: matrix instructions then begin with a sum of zero for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.access import accesses, view_roots
from ...ir.context import PassContext
from ...ir.dialect import op_name
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import Call, Evaluate, FloatImm, IntImm, PrimFunc, SeqStmt, Stmt, TensorRegion, Var, call, const, seq, shape_of


def fold_clears(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Fold the clears of every sequence."""
    roots = view_roots(func.body)

    def sequence(node: SeqStmt, descend: Descend) -> Stmt:
        return seq([descend(s) for s in _folded(list(node.seq), roots)])

    return func.with_body(rewrite(func.body, {SeqStmt: sequence}))


def _folded(stmts: list[Stmt], roots: Mapping[Var, Var]) -> list[Stmt]:
    gone: set[int] = set()
    found = list(stmts)
    for k, stmt in enumerate(stmts):
        tile = _cleared(stmt)
        if tile is None or tile in roots or tile in roots.values():
            continue
        for j in range(k + 1, len(stmts)):
            if any(a.root.same_as(tile) for a in accesses(found[j], roots)):
                product = _accumulates(found[j], tile)
                if product is not None:
                    found[j] = Evaluate(product, found[j].span)
                    gone.add(k)
                break
    return [s for k, s in enumerate(found) if k not in gone]


def _cleared(stmt: Stmt) -> Var | None:
    """The buffer that the statement fills with zeros, all of it."""
    if not isinstance(stmt, Evaluate) or op_name(stmt.value) != "tl.tileop.fill":
        return None
    block, value = stmt.value.args
    zero = isinstance(value, IntImm | FloatImm) and float(value.value) == 0.0
    return block.source if zero and _is_whole(block) else None


def _accumulates(stmt: Stmt, tile: Var) -> Call | None:
    """The product that adds to the whole of `tile` and reads it nowhere else, made one that clears it."""
    if not isinstance(stmt, Evaluate) or op_name(stmt.value) != "tl.tileop.gemm":
        return None
    a, b, c, clear = stmt.value.args
    if not (c.source.same_as(tile) and _is_whole(c)) or a.source.same_as(tile) or b.source.same_as(tile):
        return None
    if not (isinstance(clear, IntImm) and int(clear) == 0):
        return None
    return call(stmt.value.op, [a, b, c, const(1, str(clear.ty.dtype))], "void", stmt.value.attrs, stmt.value.span)


def _is_whole(block: TensorRegion) -> bool:
    parts = zip(block.region, shape_of(block.source), strict=True)
    return all(isinstance(r.min, IntImm) and int(r.min) == 0 and isinstance(r.extent, IntImm) and int(r.extent) == e for r, e in parts)

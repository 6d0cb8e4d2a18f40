"""Atomic additions to neighbours become one operation of two or four elements.

In: the statements that one thread executes for neighbouring iterations of a nest, as a loop over `lane`. Out: the same as additions of
packs (`tl.atomic` with several values, each element still indivisible on its own), where nothing but the addition's place and value
depends on the lane and the place moves with it by one element; else the loop, unrolled. Global memory takes four elements in one request
(PTX ISA: red, .v4 of sm_90), instead of four requests in each of which the lanes of a warp name every fourth element.
"""

from __future__ import annotations

from ...ir.dialect import GLOBAL, attr, op_name
from ...ir.rewrite import substitute, uses
from ...ir.tvm_api import (
    Bind,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Span,
    Stmt,
    Var,
    call,
    const,
    dtype_of,
    is_expr,
    linear_coefficients,
    region,
    seq,
)  # fmt: skip

_MOST = {"float32": 4, "float16": 2, "bfloat16": 2}  # elements of a pack


def is_update(stmt: Stmt) -> bool:
    """Is the statement an atomic addition to a tensor whose result nobody wants, perhaps under a condition?"""
    found = stmt.then_case if isinstance(stmt, IfThenElse) and stmt.else_case is None else stmt
    return isinstance(found, Evaluate) and _addition(found.value) is not None


def _addition(value: object) -> Call | None:
    """The call, if it adds one value to one element of a tensor in any order."""
    if not isinstance(value, Call) or op_name(value) != "tl.atomic" or attr(value, "kind") != "add" or attr(value, "memory_order"):
        return None
    place = value.args[0]
    return value if len(value.args) == 2 and place.source.scope() == GLOBAL and dtype_of(place) in _MOST else None


def packed(lane: Var, width: int, body: Stmt, span: Span | None) -> Stmt:
    """The loop of `width` iterations over `lane` around `body`, whose update is one for which `is_update` holds."""
    stmts = list(body.seq) if isinstance(body, SeqStmt) else [body]
    values: dict[Var, Expr] = {}
    kept: list[Stmt] = []
    for stmt in stmts[:-1]:
        if not isinstance(stmt, Bind) or not is_expr(stmt.value):
            return _one_by_one(lane, width, body, span)
        if uses(stmt.value, lane) or any(uses(stmt.value, name) for name in values):
            values[stmt.var] = substitute(stmt.value, values)
        else:
            kept.append(stmt)
    update = stmts[-1]
    condition = substitute(update.condition, values) if isinstance(update, IfThenElse) else None
    statement = update.then_case if isinstance(update, IfThenElse) else update
    added = _addition(statement.value) if isinstance(statement, Evaluate) else None
    if added is None or (condition is not None and uses(condition, lane)):
        return _one_by_one(lane, width, body, span)
    place = [substitute(r.min, values) for r in added.args[0].region]
    linear = linear_coefficients(place[-1], [lane])
    if linear is None or linear[0] != [1] or any(uses(i, lane) for i in place[:-1]) or len(added.args[0].source.ty.strides):
        return _one_by_one(lane, width, body, span)
    size = min(width, _MOST[dtype_of(added.args[0])])
    packs: list[Stmt] = []
    for first in range(0, width, size):
        operands = [substitute(substitute(added.args[1], values), {lane: const(first + k, "int32")}) for k in range(size)]
        start = [*place[:-1], substitute(place[-1], {lane: const(first, "int32")})]
        block = region(added.args[0].source, start, [1] * (len(start) - 1) + [size])
        packs.append(Evaluate(call(added.op, [block, *operands], "void", added.attrs, added.span), statement.span))
    result = seq(packs) if condition is None else IfThenElse(condition, seq(packs), None, update.span)
    return seq([*kept, result])


def _one_by_one(lane: Var, width: int, body: Stmt, span: Span | None) -> Stmt:
    return For(lane, 0, width, ForKind.UNROLLED, body, span=span)

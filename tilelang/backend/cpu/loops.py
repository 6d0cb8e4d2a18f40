"""Loops that this backend shapes itself: unrolled vectors, marked so that no later pass makes them serial."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.tvm_api import Expr, For, ForKind, Stmt, Var, const

KEEP = "cpu.keep"  # annotation of loops that a lowering of this backend made VECTORIZED or UNROLLED on purpose


def vector(lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """One vector operation: body(lane) for all lanes at once."""
    if lanes == 1:
        return body(const(0, "int32"))
    lane = Var("lane", "int32")
    return For(lane, 0, lanes, ForKind.VECTORIZED, body(lane), annotations={KEEP: 1})


def vectors(count: int, lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """`count` vector operations, unrolled: body(element) for count * lanes elements."""
    if count == 1:
        return vector(lanes, body)
    v = Var("v", "int32")
    inner = vector(lanes, lambda lane: body(v * const(lanes, "int32") + lane))
    return For(v, 0, count, ForKind.UNROLLED, inner, annotations={KEEP: 1})

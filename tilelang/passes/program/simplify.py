"""Simpler indices, bounds and conditions, and no statements without effect; values computed from data stay as written.

In: any program of loops. Out: the same program. TVM's own simplifier is not used: its rules hold for real numbers, not for
floats (it folds x * 0, x + c - c and x == x, which differ for NaN, infinities and rounded values), nor for integers that
wrap. Here only expressions of loop, block and thread indices and sizes are touched, through `Facts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import ATTR_THREAD_EXTENT, IF_THEN_ELSE, make_call, op_name
from ...ir.kernel import rebuild_body
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import (
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    const,
    is_expr,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from ..analysis.facts import COMPARISONS, Facts, conjuncts, holds_load, negated, sizes_of

_LEAVES = (Var, IntImm)


def simplify(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The program with simpler index arithmetic. Spans of statements stay."""
    body = _Simplifier(func).stmt(func.body)
    return func if body.same_as(func.body) else func.with_body(body)


def is_no_op(stmt: Stmt) -> bool:
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


class _Simplifier:
    """Rewrite rules that share one set of facts; the traversal is in program order."""

    def __init__(self, func: PrimFunc) -> None:
        self.facts = Facts(sizes_of(func))
        self.rules = {
            SeqStmt: self.sequence, For: self.loop, IfThenElse: self.branch, While: self.repeat, AttrStmt: self.attribute,
            BufferStore: self.store, TensorLoad: self.load, TensorRegion: self.region, Bind: self.bind, tirx.Select: self.select,
            Call: self.call,
        }  # fmt: skip

    def stmt(self, node: Any) -> Any:
        return rewrite(node, self.rules)

    def sequence(self, node: SeqStmt, descend: Descend) -> Stmt:
        stmts = [descend(child) for child in node.seq]
        kept = [s for s in stmts if not is_no_op(s)]
        if len(kept) == len(stmts) and all(a.same_as(b) for a, b in zip(stmts, node.seq, strict=True)):
            return node
        return seq(kept)

    def loop(self, node: For, descend: Descend) -> Stmt:
        low, extent = (e if type(e) in _LEAVES else self.index(descend(e)) for e in (node.min, node.extent))
        if isinstance(extent, IntImm) and int(extent) <= 0:
            return seq([])
        self.facts.bind_range(node.loop_var, low, extent)
        body = descend(node.body)
        if is_no_op(body):
            return body
        if body.same_as(node.body) and low.same_as(node.min) and extent.same_as(node.extent):
            return node
        return For(node.loop_var, low, extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)

    def branch(self, node: IfThenElse, descend: Descend) -> Stmt:
        condition = self.condition(descend(node.condition))
        if isinstance(condition, IntImm):
            if int(condition):
                return descend(node.then_case)
            return descend(node.else_case) if node.else_case is not None else seq([])
        with self.facts.assuming(_lasting(conjuncts(condition))):
            then = descend(node.then_case)
        otherwise = node.else_case
        if otherwise is not None:
            with self.facts.assuming(_lasting(negated(condition))):
                otherwise = descend(otherwise)
        return IfThenElse(condition, then, otherwise, node.span)

    def repeat(self, node: While, descend: Descend) -> Stmt:
        condition = self.condition(descend(node.condition))
        return seq([]) if isinstance(condition, IntImm) and not int(condition) else While(condition, descend(node.body), node.span)

    def attribute(self, node: AttrStmt, descend: Descend) -> Stmt:
        if node.attr_key == ATTR_THREAD_EXTENT:
            self.facts.bind_range(node.node.var, 0, node.value)
        body = descend(node.body)
        return node if body.same_as(node.body) else rebuild_body(node, body)

    def bind(self, node: Bind, descend: Descend) -> Stmt:
        value = self.index(descend(node.value)) if is_expr(node.value) else node.value
        if is_expr(value):
            self.facts.bind_value(node.var, value)
        return node if value.same_as(node.value) else Bind(node.var, value, node.span)

    def store(self, node: BufferStore, descend: Descend) -> Stmt:
        indices, value = self.indices(node.indices, descend), descend(node.value)
        if indices is None and value.same_as(node.value):
            return node
        return store(node.buffer, value, indices if indices is not None else list(node.indices), node.span)

    # ---------------------------------------------------------------- expressions
    def load(self, node: TensorLoad, descend: Descend) -> Expr:
        indices = self.indices(node.indices, descend)
        return node if indices is None else load(node.source, indices, node.span)

    def region(self, node: TensorRegion, descend: Descend) -> Expr:
        mins = self.indices([r.min for r in node.region], descend)
        return node if mins is None else region(node.source, mins, [r.extent for r in node.region])

    def indices(self, indices: Sequence[Expr], descend: Descend) -> list[Expr] | None:
        """Simplified indices, or None if all stay."""
        given = list(indices)
        new = [i if type(i) in _LEAVES else self.index(descend(i)) for i in given]
        return None if all(a.same_as(b) for a, b in zip(new, given, strict=True)) else new

    def index(self, expr: Expr) -> Expr:
        return expr if isinstance(expr, tirx.Ramp | tirx.Broadcast) else self.facts.simplify(expr)

    def select(self, node: Any, descend: Descend) -> Expr:
        condition = self.condition(descend(node.condition))
        if isinstance(condition, IntImm):
            return descend(node.true_value if int(condition) else node.false_value)
        return tirx.Select(condition, descend(node.true_value), descend(node.false_value), node.span)

    def call(self, node: Call, descend: Descend) -> Expr:
        if op_name(node) == "tl.cp_async" and len(node.args) > 2:
            return self.chunk(node, descend)
        if op_name(node) != IF_THEN_ELSE:
            return descend.children(node)
        condition = self.condition(descend(node.args[0]))
        if isinstance(condition, IntImm):
            return descend(node.args[1] if int(condition) else node.args[2])
        with self.facts.assuming(_lasting(conjuncts(condition))):
            chosen = descend(node.args[1])
        with self.facts.assuming(_lasting(negated(condition))):
            other = descend(node.args[2])
        return Call(node.op, [condition, chosen, other], attrs=node.attrs, ret_ty=node.ty, span=node.span)

    def chunk(self, node: Call, descend: Descend) -> Expr:
        """An asynchronous copy with a condition, which goes where it is known to hold."""
        operands, condition = [descend(a) for a in node.args[:2]], self.condition(descend(node.args[2]))
        always = isinstance(condition, IntImm) and int(condition)
        return make_call("tl.cp_async", operands if always else [*operands, condition], span=node.span)

    def condition(self, expr: Expr) -> Expr:
        """Known comparisons become constants, and connectives with constants disappear."""
        if isinstance(expr, tirx.And | tirx.Or):
            a, b = self.condition(expr.a), self.condition(expr.b)
            absorbing = int(isinstance(expr, tirx.Or))
            for one, other in ((a, b), (b, a)):
                if isinstance(one, IntImm):
                    return one if int(one) == absorbing else other
            return expr if a.same_as(expr.a) and b.same_as(expr.b) else type(expr)(a, b)
        if isinstance(expr, tirx.Not):
            inner = self.condition(expr.a)
            if isinstance(inner, IntImm):
                return const(not int(inner), "bool")
            return expr if inner.same_as(expr.a) else tirx.Not(inner)
        if isinstance(expr, COMPARISONS) and not holds_load(expr):
            return self.facts.simplify(expr)
        return expr


def _lasting(conditions: Sequence[Expr]) -> list[Expr]:
    """Those that stay true whatever is written in between."""
    return [c for c in conditions if not holds_load(c)]

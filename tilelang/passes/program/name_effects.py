"""Calls with effects leave expressions: each becomes a statement of its own, executed once, in Python's order.

In: a TILE program in which an atomic, a random number, a shuffle or an external function may stand anywhere in an expression.
Out: the same program in which such a call is the whole value of an `Evaluate` or a `Bind`. What uses its result uses the name:
no later pass can fold the call away (x * 0), copy it (an index and the guard of that index) or move it past another effect.
A call that happens under a condition (`if_then_else`, `and`, `or`) stands in an `IfThenElse`, its result in a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import IF_THEN_ELSE, VAR, op_name
from ...ir.effects import effects_in, has_effect
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, uses_memory
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Span,
    Stmt,
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    is_expr,
    load,
    seq,
    store,
    tirx,
)  # fmt: skip


def name_effects(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass. Kernel regions only: on the host every statement is executed as it stands."""

    def region(kernel: KernelRegion) -> Stmt:
        if not effects_in(kernel.body):
            return kernel.to_stmt()
        return kernel.with_body(_Statements().home(kernel.body)).to_stmt()

    return func.with_body(map_kernels(func.body, region))


class _Statements:
    """One traversal of the statements of a kernel. allocs: variables of the innermost home, the kernel or an iteration."""

    def __init__(self) -> None:
        self.allocs: list[Stmt] = []

    def home(self, body: Stmt) -> Stmt:
        """A body at whose top variables may be allocated."""
        outer, self.allocs = self.allocs, []
        body = self.run(body)
        body, self.allocs = seq([*self.allocs, body]) if self.allocs else body, outer
        return body

    def run(self, stmt: Stmt) -> Stmt:
        return rewrite(stmt, {
            For: self.loop, While: self.repeat, IfThenElse: self.branch, BufferStore: self.store, (Bind, Evaluate): self.whole,
            AssertStmt: self.check,
        })  # fmt: skip

    def variable(self, dtype: str) -> Var:
        cell = decl_buffer((1,), dtype, "chosen", VAR)
        self.allocs += [AllocBuffer(cell), store(cell, const(0, dtype), [0])]
        return cell

    def loop(self, node: For, descend: Descend) -> Stmt:
        at = _Expressions(self, node.span)
        low, extent = at.values([node.min, node.extent])
        inner = isinstance(node.body, For) and node.body.kind == ForKind.PARALLEL
        body = self.home(node.body) if node.kind == ForKind.PARALLEL and not inner else descend(node.body)
        loop = For(node.loop_var, low, extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)
        return at.before(loop)

    def repeat(self, node: While, descend: Descend) -> Stmt:
        body = descend(node.body)
        if not effects_in(node.condition):
            return While(node.condition, body, node.span)
        at = _Expressions(self, node.span)
        (condition,) = at.values([node.condition])
        stop = IfThenElse(tirx.Not(condition), Evaluate(tirx.break_loop(), node.span), None, node.span)
        return While(const(1, "bool"), seq([at.before(stop), body]), node.span)

    def branch(self, node: IfThenElse, descend: Descend) -> Stmt:
        at = _Expressions(self, node.span)
        (condition,) = at.values([node.condition])
        otherwise = descend(node.else_case) if node.else_case is not None else None
        return at.before(IfThenElse(condition, descend(node.then_case), otherwise, node.span))

    def store(self, node: BufferStore, descend: Descend) -> Stmt:
        at = _Expressions(self, node.span)
        value, *indices = at.values([node.value, *node.indices])
        return at.before(store(node.buffer, value, indices, node.span))

    def whole(self, node: Any, descend: Descend) -> Stmt:
        """A statement whose value may itself be a call with an effect: only what stands inside of it has to leave."""
        at = _Expressions(self, node.span)
        if not is_expr(node.value):
            return node
        if isinstance(node.value, Call) and has_effect(node.value):
            value: Any = at.operands(node.value)
        else:
            (value,) = at.values([node.value])
        return at.before(Bind(node.var, value, node.span) if isinstance(node, Bind) else Evaluate(value, node.span))

    def check(self, node: AssertStmt, descend: Descend) -> Stmt:
        at = _Expressions(self, node.span)
        (condition,) = at.values([node.condition])
        return at.before(AssertStmt(condition, node.error_kind, node.message_parts, node.span))


class _Expressions:
    """The expressions of one statement, in order of evaluation. stmts: what has to happen before the statement;
    left: effects still to come; known: the names of the calls made so far (one call object is one evaluation)."""

    def __init__(self, statements: _Statements, span: Span | None) -> None:
        self.statements = statements
        self.span = span
        self.stmts: list[Stmt] = []
        self.left = 0
        self.known: list[tuple[Call, Var]] = []

    def before(self, stmt: Stmt) -> Stmt:
        return seq([*self.stmts, stmt]) if self.stmts else stmt

    def values(self, exprs: list[Any]) -> list[Any]:
        """The expressions without effects; if there were any, `stmts` has them."""
        self.left = sum(len(effects_in(e)) for e in exprs)
        return [self.value(e) for e in exprs] if self.left else exprs

    def operands(self, call: Call) -> Call:
        """A call that stays, with operands without effects."""
        self.left = len(effects_in(call)) - 1
        return self.descend(call) if self.left else call

    def descend(self, node: Any) -> Any:
        return rewrite(node, {Expr: lambda child, descend: descend.children(child) if child.same_as(node) else self.value(child)})

    def value(self, node: Any) -> Any:
        known = next((name for call, name in self.known if call.same_as(node)), None)
        if known is not None:
            self.left -= len(effects_in(node))
            return known
        if not effects_in(node):
            return self.kept(node)
        if isinstance(node, tirx.And | tirx.Or):
            return self.connective(node)
        if isinstance(node, Call) and op_name(node) == IF_THEN_ELSE:
            return self.choice(node)
        inner = self.descend(node)
        if not (isinstance(node, Call) and has_effect(node)):
            return inner
        self.left -= 1
        if dtype_of(node) in ("void", "handle"):
            return inner
        name = self.name(inner)
        self.known.append((node, name))
        return name

    def kept(self, node: Any) -> Any:
        """A value without effects: taken now if a later effect could change the memory that it reads."""
        if not self.left or not is_expr(node) or isinstance(node, Var) or not uses_memory(node) or dtype_of(node) == "handle":
            return node
        return self.name(node)

    def name(self, value: Expr) -> Var:
        name = Var("result", dtype_of(value))
        self.stmts.append(Bind(name, value, self.span))
        return name

    # ---- values of which one side is not evaluated
    def connective(self, node: Any) -> Expr:
        """`a and b`: b only where a holds; `a or b`: b only where it does not."""
        first = self.value(node.a)
        if not effects_in(node.b):
            return type(node)(first, self.value(node.b))
        if isinstance(node, tirx.And):
            return self.chosen("bool", first, lambda: self.value(node.b), lambda: const(0, "bool"))
        return self.chosen("bool", first, lambda: const(1, "bool"), lambda: self.value(node.b))

    def choice(self, node: Call) -> Expr:
        condition, one, other = node.args
        condition = self.value(condition)
        if not effects_in(one) and not effects_in(other) and not self.left:
            return Call(node.op, [condition, one, other], attrs=node.attrs, ret_ty=node.ty, span=node.span)
        return self.chosen(dtype_of(node), condition, lambda: self.value(one), lambda: self.value(other))

    def chosen(self, dtype: str, condition: Expr, one: Callable[[], Expr], other: Callable[[], Expr]) -> Expr:
        cell = self.statements.variable(dtype)
        outer, known = self.stmts, list(self.known)
        sides = []
        for side in (one, other):
            self.stmts, self.known = [], list(known)
            result = side()
            sides.append(self.before(store(cell, result, [0], self.span)))
        self.stmts, self.known = outer, known
        self.stmts.append(IfThenElse(condition, *sides, self.span))
        return self.kept(load(cell, [0]))

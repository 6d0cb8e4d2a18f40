"""Names of values become scalar variables in memory, which LLVM turns back into registers.

In: a program with `Let` expressions and `Bind` statements. Out: the same without `Let`s (except in conditions of `while`,
which are computed again in each turn) and without `Bind`s of floats. TVM's analyser looks through names: a chain of names
that are each used k times costs it k^n steps, and it takes their float arithmetic for exact. A variable stops it.
"""

from __future__ import annotations

from typing import Any

from ...ir.dialect import LOCAL, op_name
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
    Stmt,
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    load,
    seq,
    store,
    tirx,
)  # fmt: skip


def hoist_names(body: Stmt) -> Stmt:
    """The pass, over a statement."""
    return _Names().run(body)


class _Names:
    """variables: what each name is now. in_vector: inside a vector loop, where a variable would need lanes."""

    def __init__(self) -> None:
        self.variables: dict[Var, Expr] = {}
        self.in_vector = False

    def run(self, body: Stmt) -> Stmt:
        return rewrite(body, {
            Bind: self.bind, (BufferStore, Evaluate, AssertStmt): self.leaf, IfThenElse: self.branch, For: self.loop, While: self.repeat,
            Var: self.var,
        })  # fmt: skip

    def var(self, node: Var, descend: Descend) -> Expr:
        return self.variables.get(node, node)

    def bind(self, node: Any, descend: Descend) -> Stmt:
        hoister = _Hoister(self)
        value = hoister.run(node.value)
        if not self.in_vector and is_float_name(node.var):
            return seq([*hoister.stmts, *self.declare(node.var, value)])
        return seq([*hoister.stmts, Bind(node.var, value, node.span)])

    def declare(self, name: Var, value: Expr) -> list[Stmt]:
        """The name as a variable with this value (inside a vector loop: as another name)."""
        dtype = dtype_of(value)
        if self.in_vector:
            fresh = Var(name.name, dtype)
            self.variables[name] = fresh
            return [Bind(fresh, value)]
        cell = decl_buffer((1,), dtype, name.name, LOCAL)
        self.variables[name] = load(cell, [0])
        return [AllocBuffer(cell), store(cell, value, [0])]

    def leaf(self, node: Any, descend: Descend) -> Stmt:
        hoister = _Hoister(self)
        stmt = hoister.run(node)
        return seq([*hoister.stmts, stmt])

    def branch(self, node: IfThenElse, descend: Descend) -> Stmt:
        hoister = _Hoister(self)
        condition = hoister.run(node.condition)
        otherwise = descend(node.else_case) if node.else_case is not None else None
        return seq([*hoister.stmts, IfThenElse(condition, descend(node.then_case), otherwise, node.span)])

    def loop(self, node: For, descend: Descend) -> Stmt:
        hoister = _Hoister(self)
        low, extent = hoister.run(node.min), hoister.run(node.extent)
        before = self.in_vector
        self.in_vector = before or int(node.kind) == ForKind.VECTORIZED
        body = descend(node.body)
        self.in_vector = before
        annotations = dict(node.annotations.items()) if node.annotations else None
        loop = For(node.loop_var, low, extent, node.kind, body, node.thread_binding, annotations, node.step, node.span)
        return seq([*hoister.stmts, loop])

    def repeat(self, node: While, descend: Descend) -> Stmt:
        return While(descend(node.condition), descend(node.body), node.span)


def is_float_name(name: Var) -> bool:
    """Is this the name of a scalar float?"""
    dtype = dtype_of(name)
    return dtype.startswith(("float", "bfloat")) and "x" not in dtype


class _Hoister:
    """Takes the names out of one statement's own expressions. guards: conditions under which the current part runs."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.stmts: list[Stmt] = []
        self.guards: list[Expr] = []

    def run(self, node: Any) -> Any:
        return rewrite(node, {tirx.Let: self.let, Call: self.call, Var: self.names.var})

    def let(self, node: Any, descend: Descend) -> Expr:
        value = descend(node.value)
        if self.guards and uses_memory(value):
            zero = const(0, dtype_of(value))
            for guard in reversed(self.guards):
                value = tirx.if_then_else(guard, value, zero)
        self.stmts += self.names.declare(node.var, value)
        return descend(node.body)

    def call(self, node: Call, descend: Descend) -> Any:
        """The sides of `if_then_else` may read memory that only their condition makes valid."""
        if not op_name(node).endswith(".if_then_else"):
            return descend.children(node)
        condition = descend(node.args[0])
        sides = []
        for guard, side in ((condition, node.args[1]), (tirx.Not(condition), node.args[2])):
            self.guards.append(guard)
            sides.append(descend(side))
            self.guards.pop()
        return tirx.if_then_else(condition, *sides)

"""The slice of a program that its bulk copies need: loops, conditions and names around them, and nothing else.

In: a kernel's body at TILE, and for each pipelined loop the statements that replace its body. Out: a statement with variables of its own.
Raises `NotAhead` where a bound, a condition or a name needs what the kernel computes in memory or which thread is running, and where
a loop may be left early. Pipelined loops inside of while loops are not asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.access import accesses
from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute, uses, walk
from ...ir.tvm_api import AttrStmt, Bind, Call, Expr, For, ForKind, IfThenElse, SeqStmt, Stmt, Var, dtype_of, is_expr, seq
from ..pipeline.pipeline_copies import is_plain, leaves

OfLoop = Callable[[For, Var], Stmt | None]  # (loop, its variable in the slice): what replaces its body, None to slice that


class NotAhead(Exception):
    """Why a statement cannot be executed by a thread that computes nothing else."""


class Slicer:
    """`table`: variables of the program by those of the slice."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
        self.roots = roots
        self.written = {a.root for a in accesses(kernel.body, roots) if a.writes}
        self.threads = {var for var, _ in kernel.threads}
        self.table: dict[Var, Expr] = {}
        self.unknown: dict[Var, str] = {}  # names of the body that the slice cannot compute, with the reason

    def slice(self, stmt: Stmt, of_loop: OfLoop) -> Stmt:
        """The slice of `stmt`. of_loop(loop, variable): what replaces the body of a loop, None to slice it."""
        found = self._slice(stmt, of_loop)
        return seq([]) if found is None else found

    def _slice(self, stmt: Stmt, of_loop: OfLoop) -> Stmt | None:
        if isinstance(stmt, SeqStmt):
            return self._sequence(stmt, of_loop)
        if isinstance(stmt, For):
            return self._loop(stmt, of_loop)
        if isinstance(stmt, IfThenElse):
            cases = [self._slice(case, of_loop) if case is not None else None for case in (stmt.then_case, stmt.else_case)]
            if cases == [None, None]:
                return None
            return IfThenElse(self.ahead(stmt.condition), cases[0] or seq([]), cases[1], stmt.span)
        if isinstance(stmt, AttrStmt):
            return self._slice(stmt.body, of_loop)
        if isinstance(stmt, Bind):
            self._bind(stmt)
        return None

    def _sequence(self, stmt: SeqStmt, of_loop: OfLoop) -> Stmt | None:
        found = [s for s in (self._slice(child, of_loop) for child in stmt.seq) if s is not None]
        return seq(found) if found else None

    def _loop(self, node: For, of_loop: OfLoop) -> Stmt | None:
        var = Var(str(node.loop_var.name), dtype_of(node.loop_var))
        self.table[node.loop_var] = var
        body = of_loop(node, var)
        if body is None:
            body = self._slice(node.body, of_loop)
        if body is None:
            return None
        if leaves(node.body):
            raise NotAhead("a loop around the copies may be left early")
        step = node.step if node.step is None else self.ahead(node.step)
        return For(var, self.ahead(node.min), self.ahead(node.extent), ForKind.SERIAL, body, None, None, step, node.span)

    def _bind(self, node: Bind) -> None:
        """A name stands for its value: what reads memory is cheap to read again."""
        if is_expr(node.value):
            try:
                self.table[node.var] = self.ahead(node.value)
            except NotAhead as error:
                self.unknown[node.var] = str(error)

    def ahead(self, value: Any) -> Any:
        """An expression or region in names of the slice."""
        if not hasattr(value, "ty") and not hasattr(value, "region"):
            return value
        value = substitute(value, self.table)
        for name, reason in self.unknown.items():
            if uses(value, name):
                raise NotAhead(reason)
        for thread in self.threads:
            if uses(value, thread):
                raise NotAhead("what is copied depends on the thread")
        opaque: list[Call] = []
        walk(value, {Call: lambda c: opaque.append(c) if not is_plain(c) else None})
        if opaque:
            raise NotAhead("what is copied depends on a call")
        for access in accesses(value, self.roots):
            if access.reads and (access.root in self.written or access.ranges is None):
                raise NotAhead(f"what is copied depends on {access.buffer.name}, which the kernel writes")
        return value

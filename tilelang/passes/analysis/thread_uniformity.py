"""Uniform control flow of a thread-level program: which statements all threads of the block execute alike.

In: a kernel region at THREADS. Out: `ThreadUniformity`. It is the analysis of `uniformity.py` without the block view: a lowered
tile operator is ordinary code of each thread. What the language itself makes uniform (control flow around tile operators
and around barriers) is taken as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.dialect import ANNOTATION_ALLOC, ATTR_COLLECTIVE, FACT_REPLICATED, op_name
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import AllocBuffer, AttrStmt, Call, Stmt, Var
from .uniformity import BLOCK_VOTE, Uniformity

BLOCK_BARRIERS = ("tl.sync_threads", "tirx.tvm_storage_sync", "tl.sync_grid", BLOCK_VOTE)


class ThreadUniformity(Uniformity):
    """Answers: `diverges(stmt)`, `is_varying(var)`."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
        self.replicated: set[Var] = set()  # registers with the same values in all threads, however they were computed
        walk(kernel.body, {AllocBuffer: self._note_replicated})
        super().__init__(kernel, roots)

    def _note_replicated(self, stmt: AllocBuffer) -> None:
        if FACT_REPLICATED in ((stmt.annotations or {}).get(ANNOTATION_ALLOC) or {}):
            self.replicated.add(stmt.buffer)

    def diverges(self, stmt: Stmt) -> bool:
        """Do threads part at this loop or branch? Never where tile operators or barriers are inside."""
        return self.divergent(stmt) and not _holds_collective(stmt)

    def is_varying(self, var: Var) -> bool:
        """Can this name or memory have another value in another thread?"""
        return var in self.varying or var in self.thread_vars

    # ---------------------------------------------------------------- the block view switched off
    def _visit(self, stmt: Stmt, diverged: bool, loop: Stmt | None) -> None:
        if isinstance(stmt, AttrStmt) and stmt.attr_key == ATTR_COLLECTIVE:
            self._visit(stmt.body, diverged, loop)
        else:
            super()._visit(stmt, diverged, loop)
            self.varying -= self.replicated

    def _note_inner(self, node: Any) -> None:
        """No memory belongs to an iteration: each thread has its own."""

    def _demanded(self, body: Stmt) -> set[Var]:
        return set()

    def _make_private(self, body: Stmt) -> None:
        """Every thread has its own copy already."""


def _holds_collective(stmt: Stmt) -> bool:
    found = False

    def attribute(node: AttrStmt) -> None:
        nonlocal found
        found = found or node.attr_key == ATTR_COLLECTIVE

    def call(node: Call) -> None:
        nonlocal found
        found = found or op_name(node) in BLOCK_BARRIERS

    walk(stmt, {AttrStmt: attribute, Call: call})
    return found

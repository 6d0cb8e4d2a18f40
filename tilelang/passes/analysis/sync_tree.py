"""The control flow that matters to barriers, as a tree: what is uniform is taken apart, what diverges stays whole.

In: a kernel region at THREADS. Out: `Node`s. A leaf is a statement (or a whole divergent one, or a loop in which nothing has
to be synchronised) with its footprints; loops, branches and `T.ws` regions are inner nodes; barriers, commits and waits are
nodes of their own. `emit` writes the tree back, with barriers before and after nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ...ir.dialect import ATTR_REDUCE_SCOPE, ATTR_WS, attr, op_name
from ...ir.kernel import KernelRegion, rebuild_body
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import AttrStmt, Bind, Call, Evaluate, For, IfThenElse, IntImm, SeqStmt, Stmt, Var, While, seq
from .footprints import Footprint, Footprints
from .race_proof import RaceProof
from .thread_uniformity import BLOCK_BARRIERS, ThreadUniformity
from .uniformity import LEAVE

GROUP_THREADS = 128  # threads of one T.ws group
_MBARRIERS = ("tl.mbarrier_wait", "tl.mbarrier_arrive", "tl.mbarrier_expect_tx")
_HINTS = {"ptx_commit_group": "tl.cp_async_commit", "ptx_wait_group": "tl.cp_async_wait"}
_ASYNC = {"tl.cp_async_commit": "commit", "tl.cp_async_wait": "wait"}


@dataclass(eq=False)
class Node:
    """kind: seq, attr, loop, while, if, ws, leaf, barrier, commit, wait, break, continue. touches: of a leaf, or of the condition or
    bounds. declared: variables bound inside a loop. group: linear threads' group ids inside a T.ws region (None: all)."""

    kind: str
    stmt: Stmt | None = None
    children: list[Node] = field(default_factory=list)
    touches: list[Footprint] = field(default_factory=list)
    declared: list[Var] = field(default_factory=list)
    group: frozenset[int] | None = None
    meets: bool = False  # a T.ws region whose groups wait for each other at mbarriers
    runs: bool = False  # a loop with at least one iteration


class TreeBuilder:
    """Builds the tree of one kernel."""

    def __init__(self, kernel: KernelRegion, uniform: ThreadUniformity, prints: Footprints, proof: RaceProof) -> None:
        self.kernel, self.uniform, self.prints, self.proof = kernel, uniform, prints, proof
        self.group: frozenset[int] | None = None
        self.threads = np.arange(kernel.num_threads)

    def build(self, stmt: Stmt) -> Node:
        if isinstance(stmt, SeqStmt):
            return Node("seq", stmt, [self.build(child) for child in stmt.seq])
        if isinstance(stmt, AttrStmt) and stmt.attr_key == ATTR_WS:
            return self._region(stmt)
        if isinstance(stmt, AttrStmt) and stmt.attr_key != ATTR_REDUCE_SCOPE:
            return Node("attr", stmt, [self.build(stmt.body)])
        if isinstance(stmt, IfThenElse) and not self.uniform.diverges(stmt):
            cases = [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
            return Node("if", stmt, [self.build(c) for c in cases], self._touches(stmt.condition), group=self.group)
        if isinstance(stmt, While) and not self.uniform.diverges(stmt):
            body = self.build(stmt.body)
            return Node("while", stmt, [body], self._touches(stmt.condition), _declared(stmt.body), self.group)
        if isinstance(stmt, For) and not self.uniform.diverges(stmt):
            quiet = self._quiet(stmt)
            if quiet is not None:
                return Node("leaf", stmt, [], quiet, group=self.group)
            runs = isinstance(stmt.extent, IntImm) and int(stmt.extent) > 0
            touches = [*self._touches(stmt.min), *self._touches(stmt.extent)]
            return Node("loop", stmt, [self.build(stmt.body)], touches, _declared(stmt.body), self.group, runs=runs)
        return self._leaf(stmt)

    def _region(self, stmt: AttrStmt) -> Node:
        outer = self.group, self.threads
        ids = frozenset(int(i) for i in stmt.node)
        self.group = ids if outer[0] is None else ids & outer[0]
        self.threads = np.array([t for t in outer[1] if t // GROUP_THREADS in self.group], dtype=np.int64)
        node = Node("ws", stmt, [self.build(stmt.body)], group=self.group, meets=calls(stmt.body, _MBARRIERS))
        self.group, self.threads = outer
        return node

    def _touches(self, node: Any) -> list[Footprint]:
        return self.prints.of(node, self.threads)

    def _leaf(self, stmt: Stmt) -> Node:
        name = op_name(stmt.value) if isinstance(stmt, Evaluate) else ""
        if name == "tl.hint":
            name = _HINTS.get(str(attr(stmt.value, "what")), "")
        kind = "leaf"
        if name in LEAVE:
            kind = "break" if name.endswith("break_loop") else "continue"
        elif name in _ASYNC:
            kind = _ASYNC[name]
        elif calls(stmt, BLOCK_BARRIERS):
            kind = "barrier"
        return Node(kind, stmt, [], self._touches(stmt), group=self.group)

    def _quiet(self, loop: For) -> list[Footprint] | None:
        """The accesses of a loop that can stay whole: no synchronisation inside and no two accesses of different threads that meet."""
        if calls(loop, (*BLOCK_BARRIERS, *_ASYNC, *_MBARRIERS, *LEAVE, "tl.cp_async", "tl.hint")) or _holds_region(loop):
            return None
        touches = self._touches(loop)
        return None if any(self.proof.may_race(a, b) for a, b in combinations_with_replacement(touches, 2)) else touches


def calls(stmt: Any, names: tuple[str, ...]) -> bool:
    """Is one of these operators called in it?"""
    found = False

    def visit(call: Call) -> None:
        nonlocal found
        found = found or op_name(call) in names

    walk(stmt, {Call: visit})
    return found


def _holds_region(stmt: Stmt) -> bool:
    found = False

    def visit(node: AttrStmt) -> None:
        nonlocal found
        found = found or node.attr_key == ATTR_WS

    walk(stmt, {AttrStmt: visit})
    return found


def _declared(stmt: Stmt) -> list[Var]:
    found: list[Var] = []
    walk(stmt, {For: lambda loop: found.append(loop.loop_var), Bind: lambda bind: found.append(bind.var)})
    return found


# ---------------------------------------------------------------- back to statements
def emit(node: Node, before: Mapping[Node, list[Stmt]], after: Mapping[Node, list[Stmt]]) -> Stmt:
    """The statement of a tree. before: what is put in front of a node; after: at the end of a loop's body."""
    stmt = _inner(node, before, after)
    return seq([*before[node], stmt]) if node in before else stmt


def _inner(node: Node, before: Mapping[Node, list[Stmt]], after: Mapping[Node, list[Stmt]]) -> Stmt:
    assert node.stmt is not None
    if not node.children:
        return node.stmt
    parts = [emit(child, before, after) for child in node.children]
    if node.kind == "seq":
        return seq(parts)
    if node.kind == "if":
        stmt = node.stmt
        return IfThenElse(stmt.condition, parts[0], parts[1] if len(parts) > 1 else None, stmt.span)
    body = seq([parts[0], *after[node]]) if node in after else parts[0]
    return rebuild_body(node.stmt, body)


def older(bases: tuple[Any, ...], table: Mapping[Var, Any]) -> tuple[Any, ...]:
    """Bases of an access in the variables of a later moment."""
    return tuple(b if b is None or isinstance(b, int) else substitute(b, table) for b in bases)

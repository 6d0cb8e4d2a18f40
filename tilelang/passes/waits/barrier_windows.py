"""What other threads may write to shared memory behind a barrier, before they stop at the next one.

In: a kernel region at THREADS with its barriers; shared buffers may have their places (facts `offset`, `bytes`). Out: `windows`: for each
barrier the shared buffers whose bytes ordinary statements may change between it and the next barrier of the same threads. Who still reads
another buffer when it passes the barrier reads it undisturbed: he stops at the next barrier before anybody gets further.

A barrier ends a window if the same threads meet there: inside of a `T.ws` region all those of the region do. Loads of bulk copies count as
writes where they stand. Where a barrier stands under a condition on threads nothing is known, and the answer is None.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.access import accesses, allocations
from ...ir.dialect import ANNOTATION_ALLOC, ATTR_WS, SHARED_SCOPES, attr, op_name
from ...ir.effects import calls_of
from ...ir.kernel import KernelRegion
from ...ir.rewrite import uses
from ...ir.tvm_api import AttrStmt, Evaluate, For, IfThenElse, SeqStmt, Stmt, Var, While, is_buffer

BARRIER = "tl.sync_threads"
Buffers = frozenset[Var]


def windows(kernel: KernelRegion, roots: Mapping[Var, Var]) -> dict[Stmt, Buffers] | None:
    """By barrier statement; None where barriers may be those of some threads only."""
    found = _Windows(kernel, roots)
    found.before(kernel.body, frozenset())
    if found.divided:
        return None
    same = _overlapping(kernel)
    return {stmt: frozenset(other for buffer in written for other in same.get(buffer, {buffer})) for stmt, written in found.of.items()}


class _Windows:
    """of: the buffers written behind each barrier. divided: does one stand under a condition on threads?"""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
        self.roots, self.threads = roots, [var for var, _ in kernel.threads]
        self.of: dict[Stmt, Buffers] = {}
        self.divided = False

    def before(self, stmt: Stmt, after: Buffers) -> Buffers:
        """What is written from the beginning of `stmt` to the next barrier, if it is `after` from its end on."""
        if isinstance(stmt, SeqStmt):
            for child in reversed(list(stmt.seq)):
                after = self.before(child, after)
            return after
        if not calls_of(stmt, BARRIER):
            return after | self._written(stmt)
        if isinstance(stmt, Evaluate):
            assert op_name(stmt.value) == BARRIER
            self.of[stmt] = self.of.get(stmt, frozenset()) | after
            return after if bool(attr(stmt.value, "narrow", False)) else frozenset()  # other warpgroups do not stop there
        if isinstance(stmt, For | While):
            again = self.before(stmt.body, after)
            return after | self.before(stmt.body, after | again)
        if isinstance(stmt, IfThenElse):
            self.divided = self.divided or any(uses(stmt.condition, thread) for thread in self.threads)
            cases = [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
            begins = [self.before(case, after) for case in cases]
            return frozenset().union(*begins, after if stmt.else_case is None else frozenset())
        assert isinstance(stmt, AttrStmt), f"a barrier inside {type(stmt).__name__}"
        begin = self.before(stmt.body, after)
        # Other threads than those of the region do not stop at its barriers, nor do these stop for them.
        return begin | after | self._written(stmt) if stmt.attr_key == ATTR_WS else begin

    def _written(self, stmt: Stmt) -> Buffers:
        return frozenset(a.root for a in accesses(stmt, self.roots) if a.writes and is_buffer(a.root) and a.root.scope() in SHARED_SCOPES)


def _overlapping(kernel: KernelRegion) -> dict[Var, set[Var]]:
    """For each shared buffer with a place those that have bytes in common with it, itself among them."""
    places: dict[Var, tuple[int, int]] = {}
    for buffer, stmt in allocations(kernel.body).items():
        facts = (stmt.annotations or {}).get(ANNOTATION_ALLOC) or {}
        if buffer.scope() in SHARED_SCOPES and "offset" in facts and "bytes" in facts:
            places[buffer] = int(facts["offset"]), int(facts["offset"]) + int(facts["bytes"])
    return {a: {b for b, (low, high) in places.items() if low < places[a][1] and places[a][0] < high} for a in places}


__all__ = ["windows"]

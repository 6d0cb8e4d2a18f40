"""A second opinion on the plan of shared memory, from the final program and its offsets alone.

In: a kernel region after `plan_shared`. Out: nothing, or an InternalError that names two buffers which have bytes in common
while both are in use, or one that is not aligned or has fewer bytes than elements. It shares no code with the planner: positions come
from a plain walk over the statements, and a buffer is taken to live as long as the outermost loop around its uses, except where every
iteration starts by writing it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InternalError
from ...ir.access import accesses
from ...ir.dialect import ANNOTATION_ALLOC, SHARED_SCOPES
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import AllocBuffer, AttrStmt, For, IfThenElse, SeqStmt, Stmt, Var, While, dtype_of, is_buffer, static_shape


@dataclass
class _Line:
    """Uses in program order: (position, buffer, is it a plain write), and the extent of each loop."""

    roots: Mapping[Var, Var]
    uses: list[tuple[int, Var, bool]] = field(default_factory=list)
    loops: list[tuple[int, int]] = field(default_factory=list)
    position: int = 0

    def take(self, node: Any) -> None:
        self.position += 1
        for access in accesses(node, self.roots):
            if is_buffer(access.root) and access.root.scope() in SHARED_SCOPES:
                self.uses.append((self.position, access.root, access.mode == "w"))


def check_plan(kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
    """Raise InternalError if two buffers that are in use at the same time have bytes in common, or one's place is not its own."""
    places: dict[Var, tuple[int, int]] = {}

    def note(stmt: AllocBuffer) -> None:
        facts = dict(dict(stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
        if "offset" not in facts:
            return
        offset, size = int(facts["offset"]), int(facts["bytes"])
        element = dtype(dtype_of(stmt.buffer))
        least = math.prod(static_shape(stmt.buffer)) * element.lanes * element.bits
        if offset % int(facts["alignment"]) or offset < 0 or size * 8 < least:
            raise InternalError(f"plan of shared memory: {stmt.buffer.name} at {offset} with {size} bytes for {least} bits")
        places[stmt.buffer] = offset, offset + size

    walk(kernel.body, {AllocBuffer: note})
    line = _Line(roots)
    _follow(kernel.body, line)
    lives = {buffer: _life(buffer, line) for buffer in places if any(u[1].same_as(buffer) for u in line.uses)}
    for a, (low_a, high_a) in lives.items():
        for b, (low_b, high_b) in lives.items():
            apart = places[a][1] <= places[b][0] or places[b][1] <= places[a][0]
            if not a.same_as(b) and not apart and low_a <= high_b and low_b <= high_a:
                raise InternalError(f"plan of shared memory: {a.name} at {places[a]} and {b.name} at {places[b]} are in use together")


def _follow(stmt: Stmt, line: _Line) -> None:
    if isinstance(stmt, SeqStmt):
        for child in stmt.seq:
            _follow(child, line)
    elif isinstance(stmt, AttrStmt):
        _follow(stmt.body, line)
    elif isinstance(stmt, IfThenElse):
        line.take(stmt.condition)
        for case in (stmt.then_case, stmt.else_case):
            if case is not None:
                _follow(case, line)
    elif isinstance(stmt, For | While):
        if isinstance(stmt, For):
            line.take(stmt.min)
            line.take(stmt.extent)
        start = line.position + 1
        if isinstance(stmt, While):
            line.take(stmt.condition)
        _follow(stmt.body, line)
        line.loops.append((start, line.position))
    else:
        line.take(stmt)


def _life(buffer: Var, line: _Line) -> tuple[int, int]:
    uses = [(position, writes) for position, root, writes in line.uses if root.same_as(buffer)]
    first, last = uses[0][0], uses[-1][0]
    for low, high in sorted(line.loops, key=lambda loop: loop[1] - loop[0]):
        used = [u for u in uses if low <= u[0] <= high]
        if not used:
            continue
        local = low <= first and last <= high and used[0][1]
        if not local:
            first, last = min(first, low), max(last, high)
    return first, last

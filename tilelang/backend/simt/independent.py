"""Which loops may run all iterations at once: then a loop variable is a leading axis of the arrays.

In: a loop. Out: whether no iteration depends on another one. Shown by the indices: every buffer that the body writes is
accessed at one place per iteration, and different iterations use different places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.access import accesses
from ...ir.dialect import LOCAL, VAR, op_info, op_name
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    Var,
    While,
    ffi,
    linear_coefficients,
)  # fmt: skip

MOST = 1 << 14  # iterations of a nest that are looked at
_PLAIN = (BufferStore, Bind, IfThenElse, SeqStmt, For, Evaluate)


def independent(loop: For, roots: Any, one_of_many: bool) -> bool:
    """May all iterations of `loop` run at once? one_of_many: the loops around it do so already."""
    if not (isinstance(loop.extent, IntImm) and int(loop.extent) > 1 and isinstance(loop.min, IntImm)) or not _plain(loop.body):
        return False
    if int(loop.kind) == ForKind.VECTORIZED:
        return True
    nest, size = _loops(loop), 1
    for inner in nest:
        if not (isinstance(inner.extent, IntImm) and isinstance(inner.min, IntImm)):
            return False
        size *= int(inner.extent)
    if size > MOST:
        return False
    found = accesses(loop.body, roots)
    written = {a.root for a in found if a.writes}
    return all(_apart([a for a in found if a.root == buffer], loop, nest) for buffer in written)


def _plain(body: Stmt) -> bool:
    """Only stores, names, conditions and loops; no calls with effects, no memory of the iteration's own."""
    plain = True

    def bad(_: Any) -> None:
        nonlocal plain
        plain = False

    def call(node: Call) -> None:
        nonlocal plain
        name = op_name(node)
        if op_info(node) is not None and name not in ("tl.hint", "tl.math"):
            plain = False
        if name in ("tirx.break_loop", "tirx.continue_loop", "tirx.tvm_thread_allreduce") or "shuffle" in name or "extern" in name:
            plain = False

    walk(body, {(AllocBuffer, DeclBuffer, While): bad, Call: call})
    return plain


def _loops(loop: For) -> list[For]:
    nest: list[For] = []
    walk(loop, {For: nest.append})
    return nest


def _apart(uses: list[Any], loop: For, nest: list[For]) -> bool:
    """All accesses of a buffer use one index list, whose place differs between iterations of `loop`."""
    first = uses[0]
    if first.ranges is None or any(u.ranges is None or u.buffer != first.buffer for u in uses):
        return False
    mins = [r.min for r in first.ranges]
    for use in uses[1:]:
        if any(not ffi.structural_equal(a.min, b) for a, b in zip(use.ranges, mins, strict=True)):
            return False
    if first.buffer.scope() not in (LOCAL, VAR) and not any(u.writes for u in uses):
        return True
    return _distinct(mins, loop, nest)


def _distinct(mins: list[Any], loop: For, nest: list[For]) -> bool:
    """Are the indices of different iterations of `loop` different, whatever inner loops do?"""
    variables: list[Var] = [n.loop_var for n in nest]
    keys = []
    for index in mins:
        linear = linear_coefficients(index, variables)
        if linear is None:
            continue
        keys.append(linear[0])
    if not keys:
        return False
    grid = np.indices([int(n.extent) for n in nest]).reshape(len(nest), -1)
    places = np.asarray(keys, np.int64) @ grid
    # One row for each (place, iteration of the outer loop): a place with two iterations is shared.
    pairs = np.unique(np.concatenate([places, grid[:1]]), axis=1)
    return np.unique(pairs[:-1], axis=1).shape[1] == pairs.shape[1]

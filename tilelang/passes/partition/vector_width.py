"""How many neighbouring iterations of a nest one thread executes as a vector.

In: a nest. Out: a width, 1 where vectors would not pay or not be right: every access of memory that moves with the innermost
loop variable must be contiguous in it, start at a multiple of the width, and the body must be plain stores.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.access import accesses
from ...ir.dialect import THREAD_SCOPES
from ...ir.effects import has_effect
from ...ir.positions import multiple_of
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    Analyzer,
    Bind,
    BufferStore,
    Call,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    Var,
    dtype_of,
    is_buffer,
    linear_coefficients,
    shape_of,
    tvm,
)  # fmt: skip
from ..analysis.facts import holds_load
from ..analysis.nests import Nest
from ..layouts.coalescing import VECTOR_BITS
from ..program.widen_indices import as_written


def is_plain(nest: Nest) -> bool:
    """Stores, names and conditions only, without calls that do something?"""
    effects: list[Call] = []
    walk(nest.body, {Call: lambda c: effects.append(c) if has_effect(c) else None})
    return not effects and not nest.whole and _plain(nest.body)


def _plain(stmt: Stmt) -> bool:
    if isinstance(stmt, SeqStmt):
        return all(map(_plain, stmt.seq))
    if isinstance(stmt, IfThenElse):
        return _plain(stmt.then_case) and (stmt.else_case is None or _plain(stmt.else_case))
    return isinstance(stmt, Bind | BufferStore) and (not isinstance(stmt, Bind) or not is_buffer(stmt.var))


def vector_width(nest: Nest, private: set[Var]) -> int:
    """The widest vector along the innermost loop. `private`: fragments that live in registers, which do not count."""
    if not nest.loops or not is_plain(nest) or nest.static_extents is None:
        return 1
    inner, extent = nest.vars[-1], nest.static_extents[-1]
    values = _names(nest.body)
    width = 1 << 10
    moving = False
    for access in accesses(nest.body):
        if not is_buffer(access.root) or access.root.scope() in THREAD_SCOPES or access.buffer in private:
            continue
        if access.ranges is None:
            return 1
        indices = [as_written(substitute(r.min, values)) for r in access.ranges]
        found = _contiguous(access.buffer, indices, inner)
        if found is None:
            continue
        moving = True
        width = min(width, math.gcd(found, max(1, VECTOR_BITS // tvm.DataType(dtype_of(access.buffer)).bits)))
    return math.gcd(width, extent) if moving else 1


def _names(body: Stmt) -> dict[Var, Any]:
    values: dict[Var, Any] = {}

    def note(node: Bind) -> None:
        if not holds_load(node.value):
            values[node.var] = substitute(node.value, values)

    walk(body, {Bind: note})
    return values


def _contiguous(buffer: Var, indices: list[Any], inner: Var) -> int | None:
    """A power of two that divides the offset of the element for which `inner` is a multiple of it, if the access moves by
    one element with `inner`; None if it does not move like that."""
    if len(buffer.ty.strides):
        return None
    linear = [linear_coefficients(i, [inner]) for i in indices]
    if linear[-1] is None or linear[-1][0] != [1] or any(found is None or found[0] != [0] for found in linear[:-1]):
        return None
    width = 16
    rest, stride = linear[-1][1], 1
    shape = shape_of(buffer)
    while width > 1 and not multiple_of(rest, width):
        width //= 2
    for extent in reversed(shape[1:]):
        factor = extent if isinstance(extent, int) else _divisor(extent)
        stride = math.gcd(stride * factor, 16)
        width = math.gcd(width, stride)
    return width


def _divisor(extent: Any) -> int:
    """A constant that is known to divide a symbolic extent."""
    if isinstance(extent, IntImm):
        return int(extent)
    known = Analyzer().modular_set(extent)
    return math.gcd(int(known.coeff), int(known.base))

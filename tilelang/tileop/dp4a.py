"""T.dp4a: the dot product of four 8-bit integers added to a 32-bit one, executed by each thread.

In: three element accesses or buffers. Out: a `tl.dp4a` statement.
"""

from __future__ import annotations

from typing import Any

from ..errors import TileValueError
from ..ir.builder import in_kernel
from ..ir.dialect import make_call
from ..ir.expr import convert
from ..ir.tvm_api import Call, Stmt, TensorRegion, load, region, shape_of, store
from .base import LowerContext, TileOperator
from .loops import indices, mins_of
from .operands import operand

_NAMES = {"A": ("int8",), "B": ("int8",), "C": ("int32",)}


def dp4a(A: Any, B: Any, C: Any) -> None:
    """C[0] += A[0]*B[0] + A[1]*B[1] + A[2]*B[2] + A[3]*B[3].

    A, B: int8, the first of four consecutive elements (an element access, or a buffer for its first element). C: int32.
    Raises TileValueError for other element types or fewer than four elements in the last dimension.
    """
    builder = in_kernel("T.dp4a")
    blocks = [_block(value, role, 4 if role != "C" else 1) for value, role in ((A, "A"), (B, "B"), (C, "C"))]
    builder.evaluate(make_call("tl.dp4a", blocks))


def _block(value: Any, role: str, count: int) -> TensorRegion:
    found = operand(value, role, "T.dp4a")
    if found.dtype not in _NAMES[role]:
        raise TileValueError(f"T.dp4a: {found} must have the element type {_NAMES[role][0]}")
    size = shape_of(found.buffer)[-1]
    if isinstance(size, int) and size < count:
        raise TileValueError(f"T.dp4a: {found} has {size} element(s) in its last dimension; {count} consecutive ones are needed")
    return region(found.buffer, found.mins, [1] * (len(found.mins) - 1) + [count])


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """One store: C + the four products in int32."""
    a, b, c = call.args
    total = load(c.source, mins_of(c))
    for k in range(4):
        x, y = (convert(load(m.source, indices(m, {len(m.region) - 1: k})), "int32") for m in (a, b))
        total = total + x * y
    return store(c.source, total, mins_of(c), ctx.span)


DP4A = TileOperator("tl.dp4a", lower)

"""Offsets into large tensors are computed in 64 bits.

In: a program of plain loops. Out: the same, in which an element of a buffer that has, or may have, 2^31 elements or more is
named by 64-bit indices: TVM computes its offset in the type of the indices, and 32 bits would wrap around.
"""

from __future__ import annotations

from typing import Any

from ...ir.context import PassContext
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    BufferStore,
    DeclBuffer,
    Expr,
    IntImm,
    PrimFunc,
    TensorLoad,
    Var,
    const,
    dtype_of,
    is_buffer,
    load,
    shape_of,
    store,
    tirx,
)  # fmt: skip


def widen_offsets(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass (slot "last", after the one that makes plain loops)."""
    wide = {p for p in func.params if is_buffer(p) and _may_be_large(p)}

    def see(stmt: Any) -> None:
        if _may_be_large(stmt.buffer):
            wide.add(stmt.buffer)

    walk(func.body, {(AllocBuffer, DeclBuffer): see})
    if not wide:
        return func

    def read(node: TensorLoad, descend: Descend) -> Expr:
        indices = [descend(i) for i in node.indices]
        return load(node.source, [_wide(i) for i in indices] if node.source in wide else indices, node.span)

    def write(node: BufferStore, descend: Descend) -> Any:
        indices = [descend(i) for i in node.indices]
        return store(node.buffer, descend(node.value), [_wide(i) for i in indices] if node.buffer in wide else indices, node.span)

    return func.with_body(rewrite(func.body, {TensorLoad: read, BufferStore: write}))


def _may_be_large(buffer: Var) -> bool:
    """Can the largest offset exceed 31 bits? A vector of one symbolic extent and unit stride cannot: its index is its offset."""
    shape = shape_of(buffer)
    strides = [int(s) if isinstance(s, IntImm) else s for s in buffer.ty.strides]
    if not all(isinstance(size, int) for size in (*shape, *strides)):
        return len(shape) > 1 or any(not (isinstance(s, int) and s == 1) for s in strides)
    if strides:
        return sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides, strict=True)) >= 1 << 31
    count = 1
    for extent in shape:
        count *= extent
    return count > 1 << 31


def _wide(index: Expr) -> Expr:
    """The index as int64. Ramps stay ramps, so that vectors stay vectors."""
    if isinstance(index, IntImm):
        return const(int(index), "int64")
    if isinstance(index, tirx.Ramp):
        return tirx.Ramp(_wide(index.base), _wide(index.stride), index.lanes)
    if isinstance(index, tirx.Broadcast):
        return tirx.Broadcast(_wide(index.value), index.lanes)
    lanes = dtype_of(index).partition("x")[2]
    wanted = f"int64x{lanes}" if lanes else "int64"
    return index if dtype_of(index) == wanted else tirx.Cast(wanted, index)

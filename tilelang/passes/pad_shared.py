"""Rows of matrix operands in shared memory get 16 bytes of padding, so that a column of 8 rows touches all banks.

In: a TILE program. Out: the same with strides on the shared buffers that `T.gemm` reads, where rows are a multiple of 32 bytes. Buffers
that are seen through a view or by address, or printed, keep the layout that the program can observe. Nothing is padded
where the kernel's buffers would come near the block's limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..ir.access import accesses, allocations, view_roots
from ..ir.context import PassContext
from ..ir.dialect import SHARED_SCOPES, op_info, op_name
from ..ir.dtypes import dtype
from ..ir.kernel import KernelRegion, map_kernels
from ..ir.rewrite import substitute, walk
from ..ir.tvm_api import Call, PrimFunc, TensorRegion, Var, decl_buffer, dtype_of, shape_of
from ..target.limits import shared_bytes

PADDING = 16  # bytes: one row of a matrix of ldmatrix
_ROOM = 0.75  # of the limit, for all shared buffers together; the rest is for tiles that later stages make


def pad_shared(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Pad the rows of matrix operands."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _padded(kernel, ctx, roots).to_stmt()))


def _padded(kernel: KernelRegion, ctx: PassContext, roots: Mapping[Var, Var]) -> KernelRegion:
    shared = [b for b in allocations(kernel.body) if b.scope() in SHARED_SCOPES and all(isinstance(e, int) for e in shape_of(b))]
    operands, plain = _operands(kernel), _plain(kernel, roots)
    table = {b: new for b in shared if b in operands and b in plain and (new := _strided(b)) is not None}
    total = sum(_bytes(table.get(b, b)) for b in shared)
    if not table or total > _ROOM * shared_bytes(ctx.target):
        return kernel
    annotations = {key: _renamed(value, table) for key, value in kernel.annotations.items()}
    return KernelRegion(kernel.blocks, kernel.threads, substitute(kernel.body, table), annotations, kernel.span)


def _operands(kernel: KernelRegion) -> set[Var]:
    """Buffers that products read."""
    found: set[Var] = set()
    walk(kernel.body, {Call: lambda c: found.update(r.source for r in c.args[:2]) if op_name(c) == "tl.tileop.gemm" else None})
    return found


def _plain(kernel: KernelRegion, roots: Mapping[Var, Var]) -> set[Var]:
    """Buffers of which the program can see elements only, not where they are."""
    found = accesses(kernel.body, roots)
    hidden = {a.root for a in found if a.ranges is None} | {a.buffer for a in found if a.ranges is None} | set(roots) | set(roots.values())

    def visit(call: Call) -> None:
        entry = op_info(call)
        if entry is None or not entry.tile:
            hidden.update(a.source for a in call.args if isinstance(a, TensorRegion))

    walk(kernel.body, {Call: visit})
    return {a.root for a in found} - hidden


def _strided(buffer: Var) -> Var | None:
    """The buffer with padded rows; None where its rows need none."""
    shape, element = shape_of(buffer), dtype(dtype_of(buffer))
    row = shape[-1] * element.bits if shape else 0
    if len(shape) < 2 or element.lanes != 1 or element.bits < 8 or row % (2 * PADDING * 8) or len(buffer.ty.strides):
        return None
    strides = [1, shape[-1] + PADDING * 8 // element.bits]
    for extent in reversed(shape[1:-1]):
        strides.append(strides[-1] * extent)
    return decl_buffer(shape, dtype_of(buffer), str(buffer.name), buffer.scope(), strides=strides[::-1], alignment=16, span=buffer.span)


def _bytes(buffer: Var) -> int:
    element = dtype(dtype_of(buffer))
    return elements_of(buffer) * max(element.bits, 8) * element.lanes // 8


def elements_of(buffer: Var) -> int:
    """Elements between the first and the end of the last row of a buffer of constant shape, padding included."""
    shape, strides = shape_of(buffer), [int(s) for s in buffer.ty.strides]
    return math.prod(shape) if not strides else shape[0] * strides[0]


def _renamed(value: Any, table: Mapping[Var, Var]) -> Any:
    """An annotation whose keys may be buffers."""
    if not hasattr(value, "items"):
        return value
    return {table.get(k, k) if isinstance(k, Var) else k: v for k, v in value.items()}

"""Results of products on their way to global memory pass through a tile in shared memory, so that every store is of 16 bytes.

In: a TILE program. Out: the same with `T.copy(C, out)` as two copies, where C is the accumulator of a product and `out` has narrower
elements: a thread holds two neighbours of a row of C, which alone would be stores of 4 bytes. Not where the tile would have to live beside
the others (in a loop, in a thread group), not where they leave no room for it, and not on sm_90a, whose bulk copies store results.
"""

from __future__ import annotations

import math

from ...ir.access import allocations
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, FRAGMENT, GLOBAL, SHARED_DYN, SHARED_SCOPES, attr, op_name, tile_call
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
    Evaluate,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Span,
    Stmt,
    Var,
    call,
    decl_buffer,
    dtype_of,
    location_of_span,
    seq,
    shape_of,
    tvm,
)  # fmt: skip
from ...target.limits import architecture, shared_bytes
from ...tileop.loops import extents_of, tile, wide_dims
from .tma_boxes import ARCHITECTURE as BULK_COPIES

_COPY, _GEMM = "tl.tileop.copy", "tl.tileop.gemm"
_STORE_BITS = 128


def stage_results(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Stage the results of every kernel region."""
    return func.with_body(map_kernels(func.body, lambda kernel: _Kernel(kernel, ctx).run().to_stmt()))


class _Kernel:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.accumulators: set[Var] = set()
        walk(kernel.body, {Call: lambda c: self.accumulators.add(c.args[2].source) if op_name(c) == _GEMM else None})
        shared = [_bytes(b) for b in allocations(kernel.body) if b.scope() in SHARED_SCOPES]
        self.room = -1 if None in shared else shared_bytes(ctx.target) - sum(b for b in shared if b is not None)

    def run(self) -> KernelRegion:
        needed = self.accumulators and architecture(self.ctx.target) != BULK_COPIES
        return self.kernel.with_body(self.stmt(self.kernel.body)) if needed else self.kernel

    def stmt(self, node: Stmt) -> Stmt:
        """Statements that the whole block executes once."""
        if isinstance(node, SeqStmt):
            return seq([self.stmt(child) for child in node.seq])
        if isinstance(node, IfThenElse):
            otherwise = self.stmt(node.else_case) if node.else_case is not None else None
            return IfThenElse(node.condition, self.stmt(node.then_case), otherwise, node.span)
        copied = tile_call(node)
        if copied is None or op_name(copied) != _COPY or not self.pays(copied):
            return node
        return self.staged(copied, node.span)

    def pays(self, copied: Call) -> bool:
        source, target = copied.args[:2]
        extents, bits = extents_of(source), tvm.DataType(dtype_of(target)).bits
        if len(copied.args) > 2 or source.source not in self.accumulators or source.source.scope() != FRAGMENT:
            return False
        if target.source.scope() != GLOBAL or not 8 <= bits <= 16:
            return False
        static = all(isinstance(e, int) for e in (*extents, *extents_of(target)))
        if not static or attr(copied, "prefer_instruction") is not None or len(wide_dims(source)) != 2:
            return False
        last = wide_dims(target)[-1] == len(target.region) - 1 and wide_dims(source)[-1] == len(extents) - 1
        return last and extents[-1] * bits % _STORE_BITS == 0 and math.prod(extents) * bits // 8 <= self.room

    def staged(self, copied: Call, span: Span | None) -> Stmt:
        source, target = copied.args[:2]
        shape = [extents_of(source)[k] for k in wide_dims(source)]
        between = decl_buffer(shape, dtype_of(target), f"{source.source.name}_rows", SHARED_DYN, alignment=16, span=span)
        attrs = dict(copied.attrs or {})
        self.ctx.note(location_of_span(span), "copy", f"through shared memory: stores of {_STORE_BITS // 8} bytes")
        return seq([
            AllocBuffer(between, {ANNOTATION_ALLOC: {}}, span),
            Evaluate(call(copied.op, [source, tile(between)], "void", {}), span),
            Evaluate(call(copied.op, [tile(between), target], "void", attrs), span),
        ])  # fmt: skip


def _bytes(buffer: Var) -> int | None:
    shape = shape_of(buffer)
    if not all(isinstance(e, int) for e in shape):
        return None
    return math.prod(shape) * max(8, tvm.DataType(dtype_of(buffer)).bits) // 8

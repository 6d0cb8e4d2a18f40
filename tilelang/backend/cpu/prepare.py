"""What must happen while the program still has threads: printing learns its thread, random numbers get their state.

In: a LOOPS program with thread variables. Out: the same without `tl.random`; `tl.print` calls end in the three thread
coordinates (attribute `placed`), and a tile that belongs to the block is printed once.
"""

from __future__ import annotations

from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import ATTR_COLLECTIVE, BLOCK_SCOPES, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import AttrStmt, Call, Evaluate, PrimFunc, Stmt, TensorRegion, const, tirx
from .random import lower_random


def prepare_threads(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass (slot "loops", before the threads are removed)."""
    return func.with_body(map_kernels(func.body, _kernel))


def _kernel(kernel: KernelRegion) -> Stmt:
    kernel = lower_random(kernel)
    threads = [tirx.Cast("int32", var) for var, _ in kernel.threads]

    def place(node: Any, descend: Descend) -> Stmt:
        if op_name(node.value) != "tl.print":
            return node
        call: Call = node.value
        attrs = {str(k): v for k, v in (call.attrs or {}).items()}
        once = bool(call.args) and isinstance(call.args[0], TensorRegion) and call.args[0].source.scope() in BLOCK_SCOPES
        at = [const(0, "int32")] * 3 if once else threads
        stmt: Stmt = Evaluate(make_call("tl.print", [*call.args, *at], span=node.span, placed=True, **attrs), node.span)
        return AttrStmt(const(0, "int32"), ATTR_COLLECTIVE, const(1, "int32"), stmt, node.span) if once else stmt

    return kernel.with_body(rewrite(kernel.body, {Evaluate: place})).to_stmt()

"""Bulk loads that the program lets single threads issue: `if thread == 0: T.tma_copy(X, tile, barrier=bar)`.

In: a TILE program. Out: the same; a copy with a barrier that stands under a condition on the thread has the attribute `tma` = "thread":
each thread that arrives executes it as a whole. Every other copy is one of the block.
"""

from __future__ import annotations

from ...ir.context import PassContext
from ...ir.dialect import attr, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import Bind, Call, Evaluate, IfThenElse, PrimFunc, Stmt, Var
from ..analysis.nests import mentions

THREAD = "thread"


def issuing_threads(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Mark the copies of every kernel region."""
    return func.with_body(map_kernels(func.body, lambda kernel: _marked(kernel).to_stmt()))


def _marked(kernel: KernelRegion) -> KernelRegion:
    loads: list[Call] = []
    walk(kernel.body, {Call: lambda call: loads.append(call) if _has_barrier(call) else None})
    if not loads:
        return kernel
    varying: set[Var] = {var for var, _ in kernel.threads}
    walk(kernel.body, {Bind: lambda bind: varying.add(bind.var) if mentions(bind.value, varying) else None})
    around = [False]

    def branch(node: IfThenElse, descend: Descend) -> Stmt:
        around.append(around[-1] or mentions(node.condition, varying))
        result = descend.children(node)
        around.pop()
        return result

    def evaluate(node: Evaluate, descend: Descend) -> Stmt:
        call = node.value
        if not around[-1] or not isinstance(call, Call) or not _has_barrier(call) or attr(call, "tma"):
            return node
        attrs = {**dict(call.attrs or {}), "tma": THREAD}
        return Evaluate(make_call("tl.tileop.copy", list(call.args), span=call.span, **attrs), node.span)

    return kernel.with_body(rewrite(kernel.body, {IfThenElse: branch, Evaluate: evaluate}))


def _has_barrier(call: Call) -> bool:
    return op_name(call) == "tl.tileop.copy" and len(call.args) > 2

"""What ordinary accesses wrote to shared memory becomes visible to warpgroup products before they read it.

In: a THREADS program with its barriers. Out: the same with `tl.fence_proxy_async` in front of barriers, in kernels where a product
reads what other statements than bulk copies wrote. Each writing thread fences before the barrier that the reader waits at
(PTX ISA, "Async proxy").
"""

from __future__ import annotations

from ..ir.access import accesses, view_roots
from ..ir.context import PassContext
from ..ir.dialect import SHARED_SCOPES, make_call, op_name
from ..ir.kernel import KernelRegion, map_kernels
from ..ir.rewrite import Descend, rewrite
from ..ir.tvm_api import Evaluate, PrimFunc, Stmt, Var, seq

_BULK = ("tl.tma_load",)


def fence_proxies(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put fences into every kernel region that needs them."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        found = accesses(kernel.body, roots)
        read = {a.root for a in found if op_name(a.node) == "tl.wgmma" and a.root.scope() in SHARED_SCOPES}
        written: set[Var] = {a.root for a in found if a.writes and op_name(a.node) not in _BULK}
        return (kernel.with_body(_fenced(kernel.body)) if read & written else kernel).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


def _fenced(body: Stmt) -> Stmt:
    def evaluate(node: Evaluate, _: Descend) -> Stmt:
        if op_name(node.value) != "tl.sync_threads":
            return node
        return seq([Evaluate(make_call("tl.fence_proxy_async", [], span=node.span), node.span), node])

    return rewrite(body, {Evaluate: evaluate})

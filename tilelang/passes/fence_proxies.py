"""What ordinary accesses wrote to shared memory becomes visible to warpgroup products before they read it.

In: a THREADS program with its barriers. Out: the same with `tl.fence_proxy_async` in front of barriers, in kernels where a product
reads what other statements than bulk copies wrote. Each writing thread fences before the barrier that the reader waits at
(PTX ISA, "Async proxy").
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.access import accesses, view_roots
from ..ir.context import PassContext
from ..ir.dialect import SHARED_SCOPES, make_call, op_name
from ..ir.kernel import KernelRegion, map_kernels
from ..ir.rewrite import Descend, rewrite
from ..ir.tvm_api import Evaluate, PrimFunc, SeqStmt, Stmt, Var, is_buffer, seq

_BULK, _FENCE = ("tl.tma_load",), "tl.fence_proxy_async"


def fence_proxies(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put fences into every kernel region that needs them."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        found = accesses(kernel.body, roots)
        read = {a.root for a in found if op_name(a.node) == "tl.wgmma" and a.root.scope() in SHARED_SCOPES}
        written: set[Var] = {a.root for a in found if a.writes and op_name(a.node) not in _BULK}
        return (kernel.with_body(_Fences(roots).rewritten(kernel.body)) if read & written else kernel).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


class _Fences:
    """Puts a fence before each barrier, unless one stands there already with no write to shared memory behind it."""

    def __init__(self, roots: Mapping[Var, Var]) -> None:
        self.roots = roots

    def rewritten(self, body: Stmt) -> Stmt:
        return rewrite(body, {SeqStmt: self.sequence, Evaluate: lambda node, _: self.barrier(node, False)})

    def sequence(self, node: SeqStmt, descend: Descend) -> Stmt:
        found: list[Stmt] = []
        fenced = False
        for stmt in node.seq:
            if isinstance(stmt, Evaluate):
                found.append(self.barrier(stmt, fenced))
                fenced = op_name(stmt.value) == _FENCE or (fenced and not self.writes(stmt))
            else:
                found.append(descend(stmt))
                fenced = fenced and not self.writes(stmt)
        return seq(found)

    def barrier(self, node: Evaluate, fenced: bool) -> Stmt:
        if fenced or op_name(node.value) != "tl.sync_threads":
            return node
        return seq([Evaluate(make_call(_FENCE, [], span=node.span), node.span), node])

    def writes(self, stmt: Stmt) -> bool:
        return any(a.writes and (not is_buffer(a.root) or a.root.scope() in SHARED_SCOPES) for a in accesses(stmt, self.roots))

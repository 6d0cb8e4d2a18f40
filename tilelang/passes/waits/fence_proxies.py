"""What ordinary accesses wrote to shared memory becomes visible to warpgroup products before they read it.

In: a THREADS program with its barriers. Out: the same with `tl.fence_proxy_async` in front of barriers, in kernels where a product
reads what other statements than bulk copies wrote. Each writing thread fences before the barrier that the reader waits at
(PTX ISA, "Async proxy"): before block barriers, and before it arrives at an mbarrier for which a part of the block with products waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.access import Access, accesses, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ATTR_WS, SHARED_SCOPES, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import AttrStmt, Evaluate, PrimFunc, SeqStmt, Stmt, Var, is_buffer, seq

_BULK, _FENCE = ("tl.tma_load",), "tl.fence_proxy_async"
_ARRIVALS = ("tl.mbarrier_arrive", "tl.mbarrier_expect_tx")


def fence_proxies(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put fences into every kernel region that needs them."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        found = accesses(kernel.body, roots)
        read = {a.root for a in found if op_name(a.node) == "tl.wgmma" and a.root.scope() in SHARED_SCOPES}
        tiles = read & _written(found)
        return (kernel.with_body(_Fences(kernel, roots, tiles).rewritten(kernel.body)) if tiles else kernel).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


def _written(found: Sequence[Access]) -> set[Var]:
    """What threads themselves write."""
    return {a.root for a in found if a.writes and op_name(a.node) not in _BULK}


class _Fences:
    """Puts a fence before each barrier, unless one stands there already with no write to shared memory behind it.

    tiles: what products read and threads write. awaited: the mbarriers for which threads with products wait. writer: do the threads
    of this part of the block write a tile?"""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var], tiles: set[Var]) -> None:
        self.roots, self.tiles = roots, tiles
        self.awaited: set[Var] = set()
        self.writer = True
        parts: list[Stmt] = []
        walk(kernel.body, {AttrStmt: lambda node: parts.append(node.body) if node.attr_key == ATTR_WS else None})
        for body in parts or [kernel.body]:
            found = accesses(body, roots)
            if any(op_name(a.node) == "tl.wgmma" for a in found):
                self.awaited |= {a.root for a in found if op_name(a.node) == "tl.mbarrier_wait"}

    def rewritten(self, body: Stmt) -> Stmt:
        return rewrite(body, {SeqStmt: self.sequence, Evaluate: lambda node, _: self.barrier(node, False), AttrStmt: self.part})

    def part(self, node: AttrStmt, descend: Descend) -> Stmt:
        if node.attr_key != ATTR_WS:
            return descend.children(node)
        outside, self.writer = self.writer, bool(self.tiles & _written(accesses(node.body, self.roots)))
        result = descend.children(node)
        self.writer = outside
        return result

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
        name = op_name(node.value)
        arrives = name in _ARRIVALS and self.writer and any(a.root in self.awaited for a in accesses(node, self.roots))
        if fenced or not (arrives or name == "tl.sync_threads"):
            return node
        return seq([Evaluate(make_call(_FENCE, [], span=node.span), node.span), node])

    def writes(self, stmt: Stmt) -> bool:
        return any(a.writes and (not is_buffer(a.root) or a.root.scope() in SHARED_SCOPES) for a in accesses(stmt, self.roots))

"""Block barriers exactly where accesses of different threads to shared or global memory conflict.

In: a THREADS program without automatic barriers. Out: the same with `tl.sync_threads` (of the block, or of the threads of a
`T.ws` region with a barrier id and count). A barrier stands at the latest uniform point between the two accesses, outside
of inner loops. Asynchronous copies count from the wait on. The configuration "tl.disable_thread_storage_sync" leaves the
barriers for the user's memory to the user.
"""

from __future__ import annotations

from ...ir.access import allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, FACT_DEMOTED, FACT_SCRATCH
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.tvm_api import PrimFunc, Stmt, Var, location_of_span
from .barrier_planner import BarrierPlanner

KEY_OFF = "tl.disable_thread_storage_sync"


def insert_barriers(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put barriers into every kernel region of `func`."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        planner = BarrierPlanner(kernel, roots, only=_compilers_own(kernel) if ctx.flag(KEY_OFF) else None, sizes=ctx.sizes)
        if not planner.prints.relevant or kernel.num_threads == 1:
            return kernel.to_stmt()
        planner.solve()
        for _, second in planner.unresolved.values():
            at = location_of_span(second.span)
            ctx.note(at, str(second.buffer.name), "different threads meet here where no barrier can stand between them")
        return planner.result().to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


def _compilers_own(kernel: KernelRegion) -> set[Var]:
    """Shared memory that the user does not know of."""
    own: set[Var] = set()
    for buffer, stmt in allocations(kernel.body).items():
        facts = (stmt.annotations or {}).get(ANNOTATION_ALLOC) or {}
        if FACT_SCRATCH in facts or FACT_DEMOTED in facts:
            own.add(buffer)
    return own

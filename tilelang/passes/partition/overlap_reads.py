"""Serial loops that read tensors are unrolled in part, so that the reads of several iterations are on the way together.

In: a THREADS program with all its barriers. Out: the same, with the number of iterations that the device compiler is to unroll
(`tl.unroll_factor`) on innermost serial loops that read global memory into registers and wait for nobody: the compiler moves the reads of
these iterations to the front. A multiprocessor needs some 40 KB on the way to keep the memory of an H200 busy (its 4.5 TB/s times a
latency of about a microsecond, over 132 multiprocessors); with 2048 threads that is 20 bytes of each, with a quarter of them 80. Loops that
have as much in one iteration, loops of few iterations and long bodies stay as they are.
"""

from __future__ import annotations

from ...ir.access import accesses
from ...ir.context import PassContext
from ...ir.dialect import GLOBAL, THREAD_SCOPES, UNROLL_FACTOR
from ...ir.dtypes import dtype
from ...ir.effects import has_effect
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, uses, walk
from ...ir.tvm_api import (
    Bind,
    BufferStore,
    Call,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    PrimFunc,
    Stmt,
    Var,
    While,
    dtype_of,
    is_buffer,
)  # fmt: skip

WANTED = 64  # bytes of a thread on the way
MOST = 8  # iterations
_LONGEST = 256  # statements of an unrolled loop, each as often as its own loops say


def overlap_reads(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Mark the loops of every kernel region."""
    return func.with_body(map_kernels(func.body, lambda kernel: _marked(kernel).to_stmt()))


def _marked(kernel: KernelRegion) -> KernelRegion:
    own = {var for var, _ in kernel.blocks}
    walk(kernel.body, {Bind: lambda bind: own.add(bind.var) if any(uses(bind.value, name) for name in own) else None})

    def loop(node: For, descend: Descend) -> Stmt:
        factor = _factor(node, own)
        if factor < 2:
            return descend.children(node)
        annotations = {**dict(node.annotations or {}), UNROLL_FACTOR: IntImm("int32", factor)}
        return For(node.loop_var, node.min, node.extent, node.kind, node.body, node.thread_binding, annotations, node.step, node.span)

    return kernel.with_body(rewrite(kernel.body, {For: loop}))


def _factor(node: For, own: set[Var]) -> int:
    """How many iterations are to be unrolled; 1 where the loop stays as it is."""
    if node.kind != ForKind.SERIAL or UNROLL_FACTOR in (node.annotations or {}) or not _is_simple(node.body):
        return 1
    size, statements = _measure(node.body, own)
    if not 0 < size < WANTED:
        return 1
    factor = 1
    most = min(MOST, int(node.extent)) if isinstance(node.extent, IntImm) else MOST
    while factor * size < WANTED and 2 * factor <= most and 2 * factor * statements <= _LONGEST:
        factor *= 2
    return factor


def _is_simple(body: Stmt) -> bool:
    """Stores to memory of the thread and control flow of constant length only: nothing that another thread could see, or must do."""
    found: list[object] = []
    serial = (ForKind.UNROLLED, ForKind.VECTORIZED, ForKind.SERIAL)

    def loop(node: For) -> None:
        if node.kind not in serial or not isinstance(node.extent, IntImm):
            found.append(node)

    def stored(node: BufferStore) -> None:
        if node.buffer.scope() not in THREAD_SCOPES:
            found.append(node)

    walk(body, {
        For: loop, BufferStore: stored, While: found.append,
        Call: lambda c: found.append(c) if has_effect(c) else None,
    })  # fmt: skip
    return not found


def _measure(body: Stmt, own: set[Var]) -> tuple[int, int]:
    """Bytes of tensors that one iteration reads, and the number of its statements. own: names that depend on the block; where some reads
    do, the others are shared by the blocks and come from a cache."""
    streamed = shared = statements = 0
    for stmt, times in _leaves(body, 1):
        statements += times
        for access in accesses(stmt):
            if is_buffer(access.root) and access.root.scope() == GLOBAL and access.reads:
                size = dtype(dtype_of(access.buffer)).itemsize * times
                if any(uses(r.min, name) for r in access.ranges or () for name in own):
                    streamed += size
                else:
                    shared += size
    return streamed or shared, statements


def _leaves(stmt: Stmt, times: int) -> list[tuple[Stmt, int]]:
    if isinstance(stmt, For):
        return _leaves(stmt.body, times * int(stmt.extent))
    if isinstance(stmt, IfThenElse):
        cases = [case for case in (stmt.then_case, stmt.else_case) if case is not None]
        return [leaf for case in cases for leaf in _leaves(case, times)]
    children = getattr(stmt, "seq", None)
    if children is not None:
        return [leaf for child in children for leaf in _leaves(child, times)]
    return [(stmt, times)]

"""Kernel regions become loops over the cores: the grid, flattened, is spread over the worker threads.

In: a LOOPS program whose kernel regions no longer use thread variables. Out: a program of plain loops: one PARALLEL loop
over the workers for each kernel region (serial where there is a single block), everything inside serial; storage of a
block is ordinary memory aligned for vector instructions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import GLOBAL, op_name
from ...ir.dtypes import canonical
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
    DeclBuffer,
    Expr,
    For,
    ForKind,
    PrimFunc,
    Stmt,
    Var,
    const,
    decl_buffer,
    dtype_of,
    seq,
    shape_of,
    tirx,
)
from .loops import KEEP
from .workers import TAKE, share_blocks, with_counter

STACK = 1024  # bytes: TVM keeps smaller arrays of constant size on the stack of the thread
ALIGNMENT = 64  # bytes: one AVX-512 vector, one cache line


def spread_grid(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass (slot "last")."""
    body = map_kernels(func.body, _region_loops)
    calls: list[Call] = []
    walk(body, {Call: lambda call: calls.append(call) if op_name(call) == "tirx.call_extern" and str(call.args[0].value) == TAKE else None})
    return func.with_body(block_memory(with_counter(body) if calls else body))


def _region_loops(region: KernelRegion) -> Stmt:
    """One loop over all blocks; x varies fastest. The lines of a kernel that prints come in the order of its blocks."""
    body = allocate_first(rewrite(region.body, {For: _plain_loop}))
    blocks = [(var, extent) for var, extent in region.blocks if not (isinstance(extent, int) and extent == 1)]
    varying = [var for var, _ in blocks]
    fixed = [var for var, _ in (*region.threads, *region.blocks) if var not in varying]
    body = substitute(body, {var: const(0, dtype_of(var)) for var in fixed})
    if not blocks:
        # A loop of one iteration: it is the scope of the block's allocations.
        return For(Var("block", "int32"), 0, 1, ForKind.SERIAL, body, span=region.span)
    extents = [extent for _, extent in blocks]
    static = all(isinstance(extent, int) for extent in extents)
    dtype = dtype_of(blocks[0][0]) if len(blocks) == 1 else "int32" if static and _product(extents) < 1 << 31 else "int64"
    total: Any = _product([max(e, 0) for e in extents]) if static else reduce(tirx.Mul, [_positive(e, dtype) for e in extents])
    if _calls_back(body):
        block = Var("block", dtype)
        return For(block, 0, total, ForKind.SERIAL, seq([*_block_indices(block, blocks), body]), span=region.span)
    return share_blocks(total, dtype, lambda block: [*_block_indices(block, blocks), body], region.span)


def _calls_back(body: Stmt) -> bool:
    """Does the kernel call Python?"""
    calls: list[Call] = []
    walk(body, {Call: lambda call: calls.append(call) if op_name(call) == "tirx.tvm_call_packed" else None})
    return bool(calls)


def allocate_first(body: Stmt) -> Stmt:
    """Tiles are allocated where the block begins, wherever they are used.

    TVM takes what is larger than `STACK` from a pool and gives it back where the scope ends, which `break` may leave early.
    """
    tiles: dict[Var, Stmt] = {}

    def take(node: Any, descend: Descend) -> Stmt:
        extents = shape_of(node.buffer)
        if not all(isinstance(e, int) for e in extents) or _product(extents) * canonical(dtype_of(node.buffer)).bytes < STACK:
            return node
        tiles.setdefault(node.buffer, node)
        return seq([])

    rest = rewrite(body, {AllocBuffer: take})
    return seq([*tiles.values(), rest])


def _block_indices(block: Var, blocks: list[tuple[Var, Any]]) -> list[Stmt]:
    """The grid indices of a linear block number."""
    dtype = dtype_of(block)
    rest: Expr = block
    binds: list[Stmt] = []
    for k, (var, extent) in enumerate(blocks):
        size = const(max(extent, 1), dtype) if isinstance(extent, int) else tirx.Max(_expr(extent, dtype), const(1, dtype))
        index = rest if k == len(blocks) - 1 else tirx.FloorMod(rest, size)
        binds.append(tirx.Bind(var, index if dtype_of(var) == dtype else tirx.Cast(dtype_of(var), index)))
        rest = tirx.FloorDiv(rest, size)
    return binds


def _product(extents: Iterable[Any]) -> int:
    return reduce(lambda a, b: a * b, extents, 1)


def _expr(extent: Any, dtype: str) -> Expr:
    if isinstance(extent, int):
        return const(extent, dtype)
    return extent if str(extent.ty.dtype) == dtype else tirx.Cast(dtype, extent)


def _positive(extent: Any, dtype: str) -> Expr:
    """A grid extent of zero or less launches nothing."""
    return const(max(extent, 0), dtype) if isinstance(extent, int) else tirx.Max(_expr(extent, dtype), const(0, dtype))


def _plain_loop(loop: For, descend: Descend) -> Stmt:
    """Loops inside a block run in order: the workers are taken by the grid; LLVM unrolls and vectorises what pays."""
    kind = int(loop.kind)
    if kind not in (ForKind.UNROLLED, ForKind.VECTORIZED) or KEEP not in (loop.annotations or {}):
        kind = ForKind.SERIAL
    return For(loop.loop_var, loop.min, loop.extent, kind, descend(loop.body), span=loop.span)


def block_memory(body: Stmt) -> Stmt:
    """All scopes of the language are one kind of memory here; what we allocate is aligned for vectors."""
    table: dict[Var, Var] = {}

    def see(stmt: Any) -> None:
        old = stmt.buffer
        if old.scope() != GLOBAL or isinstance(stmt, AllocBuffer):
            strides = list(old.ty.strides) or None
            table[old] = decl_buffer(shape_of(old), dtype_of(old), old.name, GLOBAL, strides=strides, alignment=ALIGNMENT)

    walk(body, {AllocBuffer: see})
    views: list[Any] = []
    walk(body, {DeclBuffer: views.append})
    for view in views:
        old = view.buffer
        if old.scope() != GLOBAL:
            table[old] = decl_buffer(shape_of(old), str(old.ty.dtype), old.name, GLOBAL, strides=list(old.ty.strides) or None)
    return substitute(body, table)

"""Reports buffers that are read although nothing in the program ever writes them.

In: a TILE program. Out: the same program; an `UninitializedReadWarning` for each such buffer (`TileValueError` under
`knobs.strict`) with the line of the first read and the line of the allocation.
"""

from __future__ import annotations

from ...errors import TileValueError, UninitializedReadWarning, warn
from ...ir.access import Access, accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import BARRIER, CLUSTER_BARRIER, DESCRIPTORS, VAR
from ...ir.tvm_api import (
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Span,
    Stmt,
    Var,
    While,
    ffi,
    location_of,
    location_of_span,
)  # fmt: skip
from ...knobs import knobs

_EXEMPT = (VAR, BARRIER, CLUSTER_BARRIER, *DESCRIPTORS)  # start as zero, or are set up by their own operations


def check_initialisation(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Warn about (strict: refuse) reads of memory that no statement writes. Kernel parameters are never reported."""
    owned = {buffer: alloc for buffer, alloc in allocations(func.body).items() if buffer.scope() not in _EXEMPT}
    if not owned:
        return func
    roots = view_roots(func.body)
    touched = accesses(func.body, roots)
    written = {a.root for a in touched if a.writes}
    suspects: dict[Var, Access] = {}
    for access in touched:
        if access.root in owned and access.root not in written:
            suspects.setdefault(access.root, access)
    for buffer, access in suspects.items():
        _report(buffer, access, location_of(owned[buffer]), _reader_span(func.body, access))
    return func


def _report(buffer: Var, access: Access, allocated_at, span: Span | None) -> None:
    name = buffer.name if access.buffer.same_as(buffer) else f"{access.buffer.name} (a view of {buffer.name})"
    shape = ", ".join(str(e) for e in buffer.ty.shape)
    message = f"{name} is read here, but nothing in the kernel ever writes {buffer.name} ({buffer.scope()}, [{shape}] {buffer.ty.dtype})"
    at = location_of_span(span)
    notes = [(allocated_at, f"{buffer.name} is allocated here")] if allocated_at is not None else []
    if knobs.strict:
        raise TileValueError(message, at=at, notes=notes, remedy=f"write {buffer.name} before it is read, e.g. T.clear({buffer.name})")
    warn(message, UninitializedReadWarning, at, notes)


def _reader_span(body: Stmt, access: Access) -> Span | None:
    """Position of the innermost statement with a position around the access."""
    result: list[Span] = []
    stack: list[Span] = []

    def stmt(node, visitor) -> None:
        if result:
            return
        if node.span is not None:
            stack.append(node.span)
        visitor.default_visit(node)
        if node.span is not None:
            stack.pop()

    def leaf(node, visitor) -> None:
        if not result and node.same_as(access.node):
            result.append(stack[-1] if stack else node.span)
            return
        visitor.default_visit(node)

    statements = (AssertStmt, AttrStmt, Bind, BufferStore, Evaluate, For, IfThenElse, While)
    ffi.structural_visit(body, [(statements, stmt), (type(access.node), leaf)])
    return result[0] if result else None

"""Which arrangement every tile in shared memory gets: `ctx.shared_layouts[buffer] = SharedLayout(...)`.

In: a TILE program. Out: the same program. An annotated layout wins. A matrix operand that instructions read by rows of 16 bytes is
swizzled, so that 8 rows touch all banks and its placement is what descriptors of tensor copies and matrices expect; so is a tile
that accumulators go into. An operand that is read element by element, and a tile that a parallel loop reads or writes across
its rows, gets rows of different banks by padding. All others stay row-major, and so does every buffer whose placement the
program can see (through a view, by address), with a note where that costs something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.access import accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, ANNOTATION_PARALLEL, FACT_VERSIONS, FRAGMENT, GLOBAL, SHARED_SCOPES, attr, op_info, op_name
from ...ir.dtypes import dtype
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    BufferStore,
    Call,
    For,
    IntImm,
    PrimFunc,
    Stmt,
    TensorRegion,
    Var,
    dtype_of,
    is_buffer,
    is_expr,
    linear_coefficients,
    location_of,
    shape_of,
    static_shape,
)
from ...layout.index_map import Layout
from ...layout.shared import SharedLayout, from_layout, widest
from ...target.limits import architecture, shared_bytes

_ROOM = 0.75  # of the limit, for all shared buffers with padding together; the rest is for tiles that later stages make
_PERIOD = 32  # bytes: rows of a multiple of it put neighbouring rows into the same banks


def choose_shared_layouts(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Choose a layout for every shared buffer of constant shape."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        ctx.shared_layouts.update(_chosen(kernel, ctx, roots))
        return kernel.to_stmt()

    map_kernels(func.body, of_kernel)
    return func


def _chosen(kernel: KernelRegion, ctx: PassContext, roots: Mapping[Var, Var]) -> dict[Var, SharedLayout]:
    found: dict[Var, SharedLayout] = {}
    seen, reads, boxed, results = _seen(kernel, roots), _operands(kernel), _boxed(kernel, ctx), _results(kernel)
    crossed, sources = _crossed(kernel, roots), _sources(kernel, roots)
    for buffer, stmt in allocations(kernel.body).items():
        if buffer.scope() not in SHARED_SCOPES or not all(isinstance(e, int) for e in shape_of(buffer)):
            continue
        facts = dict(dict(stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
        plain = SharedLayout(shape_of(buffer), storage_bits(buffer), int(facts.get(FACT_VERSIONS, 1)))
        fragment = buffer in results or (buffer in boxed and buffer in sources)
        wanted = _wanted(plain, facts, buffer, reads.get(buffer, ()), True if fragment else boxed.get(buffer))
        if wanted.is_row_major and buffer in crossed and "layout" not in facts and buffer not in boxed and plain.versions == 1:
            wanted = _one_word_more(plain)
        if buffer in seen and not wanted.is_row_major:
            text = f"{buffer.name} stays row-major ({wanted.name} would be used): {seen[buffer]}"
            ctx.note(location_of(stmt), "shared layout", text)
            wanted = plain
        found[buffer] = wanted
    if sum(layout.bytes for layout in found.values()) > _ROOM * shared_bytes(ctx.target):
        asked = {b for b, s in allocations(kernel.body).items() if "layout" in dict(dict(s.annotations or {}).get(ANNOTATION_ALLOC, {}))}
        found = {b: _without_padding(layout) if b not in asked else layout for b, layout in found.items()}
    return found


def _wanted(
    plain: SharedLayout, facts: Mapping[str, Any], buffer: Var, reads: Sequence[bool], stored: bool | None
) -> SharedLayout:  # fmt: skip
    """What is best for a tile of which nobody sees the placement. reads: for each product that reads it, whether a swizzle helps.
    stored: None, or for a tile that bulk copies move, whether they store it: it has no padding then. Also true for a tile that threads
    write or read in the order of a product's fragment."""
    if dtype(dtype_of(buffer)).lanes != 1:
        return plain
    if "layout" in facts and "replicate" not in facts:
        return from_layout(annotated_layout(facts["layout"], plain.tile), plain.shape, plain.bits, plain.versions)
    if stored is not None:  # threads go through it in the order of an accumulator or operand: panels spread that over the banks
        return (widest(plain.shape, plain.bits, plain.versions) if stored or reads else None) or plain
    if not reads:
        return plain
    return _of_operand(plain, any(reads))


def operand_layout(tile: Var, across: bool) -> SharedLayout:
    """The layout of a tile that a lowering makes for an operand of a product. across: the dimension that is summed over is not the
    contiguous one."""
    return _of_operand(SharedLayout(static_shape(tile), storage_bits(tile)), swizzle_helps(dtype_of(tile), across))


def _of_operand(plain: SharedLayout, swizzle: bool) -> SharedLayout:
    found = widest(plain.shape, plain.bits, plain.versions) if swizzle else None
    if found is not None:
        return found
    if len(plain.shape) < 2 or plain.shape[-1] * plain.bits // 8 % _PERIOD:
        return plain
    padding = 16 if swizzle or plain.bits < 32 else _PERIOD  # 4 rows of 8 words, or of 4 double words, in different banks
    return SharedLayout(plain.shape, plain.bits, plain.versions, padding=padding * 8 // plain.bits)


def _one_word_more(plain: SharedLayout) -> SharedLayout:
    """Rows of an odd number of words (of 4 bytes, or elements that are wider): a column touches all banks."""
    word = max(4, plain.bits // 8)
    row = plain.shape[-1] * plain.bits // 8
    if row % (2 * word):
        return plain
    return SharedLayout(plain.shape, plain.bits, padding=word * 8 // plain.bits)


def _without_padding(layout: SharedLayout) -> SharedLayout:
    return SharedLayout(layout.shape, layout.bits, layout.versions) if layout.padding else layout


def storage_bits(buffer: Var) -> int:
    """Bits that an element takes in shared memory: types of less than a byte take one."""
    element = dtype(dtype_of(buffer))
    return max(element.bits, 8) * element.lanes


# ---------------------------------------------------------------- how a tile is used
def _operands(kernel: KernelRegion) -> dict[Var, list[bool]]:
    """For every buffer that products read: for each, whether a swizzle helps."""
    found: dict[Var, list[bool]] = {}

    def visit(call: Call) -> None:
        if op_name(call) != "tl.tileop.gemm":
            return
        for block, across in zip(call.args[:2], (bool(attr(call, "transpose_A")), not attr(call, "transpose_B")), strict=True):
            found.setdefault(block.source, []).append(swizzle_helps(dtype_of(block), across))

    walk(kernel.body, {Call: visit})
    return found


def _crossed(kernel: KernelRegion, roots: Mapping[Var, Var]) -> set[Var]:
    """Tiles of which neighbouring iterations of a parallel loop take elements of different rows."""
    found: set[Var] = set()

    def nest(loop: For) -> None:
        if ANNOTATION_PARALLEL not in (loop.annotations or {}):
            return
        for _ in range(int(loop.annotations[ANNOTATION_PARALLEL]) - 1):
            loop = loop.body
        for access in accesses(loop.body, roots):
            if access.ranges and is_buffer(access.root) and access.root.scope() in SHARED_SCOPES:
                *rows, column = (_moves_with(r.min, loop.loop_var) for r in access.ranges)
                if any(rows) and not column:
                    found.add(access.root)

    def transposed(call: Call) -> None:
        if op_name(call) == "tl.tileop.transpose" and call.args[0].source.scope() in SHARED_SCOPES:
            found.add(call.args[0].source)

    walk(kernel.body, {For: nest, Call: transposed})
    return found


def _moves_with(index: Any, variable: Var) -> bool:
    linear = linear_coefficients(index, [variable])
    return linear is not None and linear[0][0] != 0


def _boxed(kernel: KernelRegion, ctx: PassContext) -> dict[Var, bool]:
    """Tiles that bulk copies may move, with whether they store them (`tma_boxes.py` has the last word on each copy)."""
    found: dict[Var, bool] = {}

    def visit(call: Call) -> None:
        if op_name(call) == "tl.tileop.copy":
            source, target = (block.source for block in call.args[:2])
        elif op_name(call) == "tl.tileop.atomic" and attr(call, "kind") == "add" and dtype_of(call.args[0]) == "float32":
            target, source = (block.source for block in call.args[:2])
        else:
            return
        if source.scope() in SHARED_SCOPES and target.scope() == GLOBAL and dtype_of(source) == dtype_of(target):
            found[source] = True
        elif target.scope() in SHARED_SCOPES and len(call.args) > 2:
            found.setdefault(target, False)

    if architecture(ctx.target) == "sm_90a" and not ctx.flag("tl.disable_tma_lower"):
        walk(kernel.body, {Call: visit})
    return found


def _results(kernel: KernelRegion) -> set[Var]:
    """Tiles into which accumulators of products go."""
    accumulators: set[Var] = set()
    walk(kernel.body, {Call: lambda c: accumulators.add(c.args[2].source) if op_name(c) == "tl.tileop.gemm" else None})
    found: set[Var] = set()

    def copied(call: Call) -> None:
        if op_name(call) == "tl.tileop.copy" and call.args[0].source in accumulators:
            found.add(call.args[1].source)

    def stored(stmt: BufferStore) -> None:
        if stmt.buffer.scope() in SHARED_SCOPES and any(a.root in accumulators for a in accesses(stmt.value)):
            found.add(stmt.buffer)

    if accumulators:
        walk(kernel.body, {Call: copied, BufferStore: stored})
    return found


def _sources(kernel: KernelRegion, roots: Mapping[Var, Var]) -> set[Var]:
    """Tiles from which loops and copies make operands of products in fragments, directly or through other fragments."""
    operands: set[Var] = set()
    steps: list[tuple[set[Var], set[Var]]] = []  # what a loop or copy writes, what it reads

    def note(node: Any) -> None:
        touched = [a for a in accesses(node, roots) if is_buffer(a.root)]
        steps.append(({a.root for a in touched if a.writes}, {a.root for a in touched if a.reads}))

    def operator(call: Call) -> None:
        if op_name(call) == "tl.tileop.gemm":
            operands.update(a.source for a in call.args[:2] if a.source.scope() == FRAGMENT)
        elif op_name(call) == "tl.tileop.copy":
            note(call)

    walk(kernel.body, {Call: operator, For: lambda f: note(f.body) if ANNOTATION_PARALLEL in (f.annotations or {}) else None})
    found: set[Var] = set()
    more = operands
    while more:
        read = {b for written, sources in steps if written & more for b in sources}
        found |= {b for b in read if b.scope() in SHARED_SCOPES}
        more = {b for b in read if b.scope() == FRAGMENT} - operands
        operands |= more
    return found


def swizzle_helps(element: str, across: bool) -> bool:
    """Is a swizzle right for an operand of this type? across: the dimension that is summed over is not the contiguous one. Operands are
    read by rows of 16 bytes, and 16-bit ones across are transposed on the way (PTX ISA: ldmatrix, wgmma); single bytes across
    are read one by one, which costs the same in a swizzle and in padded rows, but copies into padded rows cost more."""
    bits = dtype(element).bits
    return bits in (8, 16) or (bits == 32 and not across)


def _seen(kernel: KernelRegion, roots: Mapping[Var, Var]) -> dict[Var, str]:
    """Buffers of which the program can see where their elements lie, with the reason."""
    found: dict[Var, str] = {root: f"{view.name} is a view of it" for view, root in roots.items()}
    for access in accesses(kernel.body, roots):
        if access.ranges is None:
            found.setdefault(access.root, "the program takes its address, or indexes it by vectors")

    def visit(call: Call) -> None:
        entry = op_info(call)
        if entry is not None and (entry.tile or entry.name == "tl.print"):
            return
        for operand in call.args:
            if isinstance(operand, TensorRegion) and any(not (isinstance(r.extent, IntImm) and int(r.extent) == 1) for r in operand.region):
                found.setdefault(operand.source, f"{op_name(call).removeprefix('tl.')} takes a block of it")

    walk(kernel.body, {Call: visit})
    return found


# ---------------------------------------------------------------- annotations
def annotated_layout(index_map: Any, shape: tuple[int, ...]) -> Layout:
    """The `Layout` that `T.annotate_layout` left in the facts of an allocation of this shape."""
    variables, outputs = list(index_map.initial_indices), list(index_map.final_indices)

    def place(*index: Any) -> tuple[Any, ...]:
        values = dict(zip(variables, index, strict=True))
        of: Callable[[Any], Any] = (
            (lambda e: substitute(e, values)) if any(is_expr(i) for i in index) else (lambda e: evaluate(e, values))
        )  # fmt: skip
        return tuple(of(e) for e in outputs)

    return Layout(shape, place)


__all__ = ["annotated_layout", "choose_shared_layouts", "operand_layout", "storage_bits", "swizzle_helps"]

"""An accumulator to a tensor through small shared tiles and bulk stores, for sm_90a.

In: a copy of a fragment, or of panels of it, to a tensor, where threads hold runs of less than 16 bytes. Out: for each panel of 128 bytes
of columns, in turn: threads write it, converted, to one of two shared tiles, and the first thread stores that by a bulk copy
(`tma.py`), which `defer_bulk_waits` lets run while the next panel is written. Rows leave in whole lines, and no tile of the
fragment's size is needed.
"""

from __future__ import annotations

import math

from ...ir.access import allocations
from ...ir.dialect import FRAGMENT, GLOBAL, SHARED_DYN, SHARED_SCOPES, attr, make_call, op_name
from ...ir.dtypes import dtype
from ...ir.rewrite import walk
from ...ir.tvm_api import Call, IntImm, Stmt, TensorRegion, Var, decl_buffer, dtype_of, region, seq, shape_of
from ...layout import LayoutError
from ...layout.fragment import Fragment
from ...layout.shared import SharedLayout
from ...passes.layouts.choose_shared_layouts import storage_bits
from ...passes.pipeline.tma_boxes import MAX_EXTENT, STRIDE_BYTES, tma_reason
from ...target.limits import shared_bytes
from ...tileop.base import LowerContext, Lowering, OtherKind
from ...tileop.loops import extents_of, mins_of, nest, offset, read, tile, wide_dims, write
from .gemm import is_whole
from .tma import TMA_STORE

PANEL = 128  # bytes of a row of a shared tile
# Bytes of shared memory left for barriers, and where other operators than these stand in the kernel for what they may need.
_BARRIERS, _OTHERS = 2 * 1024, 16 * 1024
_PLAIN = ("tl.tileop.copy", "tl.tileop.fill", "tl.tileop.gemm")


def _accepts(call: Call, ctx: LowerContext) -> str | None:
    source, target = call.args[:2]
    if source.source.scope() != FRAGMENT or target.source.scope() != GLOBAL or len(call.args) > 2:
        return OtherKind("no copy of a fragment to a tensor")
    if ctx.per_thread or ctx.kernel is None:
        return "the copy belongs to one thread"
    if attr(call, "disable_tma"):
        return "the program turns bulk copies off"
    plan = ctx.passes.fragments.get(source.source)
    size = dtype(dtype_of(target)).bytes
    if plan is None or not _is_panels(source, PANEL // size):
        return f"no fragment, and no panels of {PANEL} bytes of one"
    if _run(plan.layout) * size >= STRIDE_BYTES:
        return f"threads hold runs of {STRIDE_BYTES} bytes and more"
    rows, columns = extents_of(source)[-2:] if len(source.region) > 1 else (1, 1)
    if columns * size % PANEL or rows % 8 or rows > MAX_EXTENT or [extents_of(target)[d] for d in wide_dims(target)] != [rows, columns]:
        return f"{rows} x {columns} elements are no panels of {PANEL} bytes"
    if _tiles(rows, ctx) == 0:
        return "shared memory is full"
    stage = _stage(target, rows, ctx)
    return tma_reason(_panel_store(stage, target, 0, ctx), ctx.kernel, ctx.passes, call)


def _is_panels(source: TensorRegion, width: int) -> bool:
    """Is it a whole fragment, or all rows of some panels of one?"""
    if is_whole(source):
        return True
    *rows, columns = source.region
    if len(rows) != 1 or not isinstance(columns.min, IntImm) or int(columns.min) % width or int(columns.extent) % width:
        return False
    return isinstance(rows[0].min, IntImm) and int(rows[0].min) == 0 and int(rows[0].extent) == shape_of(source.source)[0]


def _run(layout: Fragment) -> int:
    """Neighbours of a row that a thread holds."""
    shape, count = layout.shape, 1
    try:
        first = layout.forward([0] * len(shape))[0]
        while count < shape[-1] and layout.forward([0] * (len(shape) - 1) + [count])[0] == first:
            count += 1
    except LayoutError:
        return shape[-1]
    return count


def _tiles(rows: int, ctx: LowerContext) -> int:
    """How many shared tiles there is room for, up to two."""
    assert ctx.kernel is not None
    used = 0
    for buffer in allocations(ctx.kernel.body):
        if buffer.scope() in SHARED_SCOPES:
            layout, shape = ctx.passes.shared_layouts.get(buffer), shape_of(buffer)
            if not all(isinstance(e, int) for e in shape):
                return 0
            used += layout.bytes if layout is not None else math.prod(shape) * storage_bits(buffer) // 8
    others: list[Call] = []
    walk(ctx.kernel.body, {Call: lambda c: others.append(c) if op_name(c).startswith("tl.tileop.") and op_name(c) not in _PLAIN else None})
    room = shared_bytes(ctx.passes.target) - (_OTHERS if others else _BARRIERS) - used
    return max(0, min(2, room // (rows * PANEL)))


def _stage(target: TensorRegion, rows: int, ctx: LowerContext) -> Var:
    """A shared tile of one panel."""
    element = dtype_of(target)
    stage = decl_buffer((rows, PANEL // dtype(element).bytes), element, f"{target.source.name}_stage", SHARED_DYN, span=ctx.span)
    ctx.passes.shared_layouts[stage] = SharedLayout(tuple(shape_of(stage)), storage_bits(stage), swizzle=PANEL)
    return stage


def _stages(target: TensorRegion, rows: int, panels: int, ctx: LowerContext) -> list[Var]:
    """The shared tiles of panels of this form, in turn: all such copies of a kernel use the same ones."""
    assert ctx.kernel is not None
    found = ctx.passes.stages.setdefault((ctx.kernel.threads[0][0], target.source, rows), [])
    fresh = [_stage(target, rows, ctx) for _ in range(len(found), min(_tiles(rows, ctx), panels))]
    ctx.temporaries.extend(fresh)
    found.extend(fresh)
    return found


def _panel_store(stage: Var, target: TensorRegion, panel: int, ctx: LowerContext) -> Call:
    """The copy of a shared tile to its place in the tensor."""
    width = shape_of(stage)[1]
    mins, extents = mins_of(target), extents_of(target)
    mins[-1], extents[-1] = offset(mins[-1], panel * width), width
    return make_call("tl.tileop.copy", [tile(stage), region(target.source, mins, extents)], span=ctx.span)


def _lower(call: Call, ctx: LowerContext) -> Stmt:
    source, target = call.args[:2]
    rows, columns = extents_of(source)[-2:]
    width = PANEL // dtype(dtype_of(target)).bytes
    panels = columns // width
    low = int(source.region[-1].min) // width  # the first panel
    stages = _stages(target, rows, low + panels, ctx)
    result: list[Stmt] = []
    lead = len(source.region) - 2
    for panel in range(panels):
        stage = stages[(low + panel) % len(stages)]
        block = region(source.source, [0] * (lead + 1) + [(low + panel) * width], [1] * lead + [rows, width])
        result.append(nest([rows, width], lambda v, s=stage, b=block: [write(tile(s), v, read(b, v), ctx)], ctx))
        result.append(TMA_STORE.lower(_panel_store(stage, target, panel, ctx), ctx))
    return seq(result)


STAGED_STORE = Lowering("staged tma_store", "tl.tileop.copy", _accepts, _lower)

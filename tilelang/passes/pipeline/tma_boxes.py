"""Can a copy between a tensor and a shared tile be made by bulk tensor copies (TMA), and of which boxes?

In: a `tl.tileop.copy` call. Out: `tma_reason`: why not, or None; `boxes_of`: the boxes, each dense in shared memory.

A box is a block of a tensor of up to five dimensions. Its rows stand one after the other in shared memory, permuted by the swizzle of
the tile's layout; what is outside of the tensor is zeros there, and is not written on the way back. The rules are those of
`cuTensorMapEncodeTiled` (CUDA driver API) and of cp.async.bulk.tensor (PTX ISA): unit stride of the last dimension, other strides
multiples of 16 bytes, at most 256 elements of a box along a dimension, the innermost one a multiple of 16 bytes and with a swizzle no wider
than it, addresses in shared memory multiples of 128 bytes (of 8 rows with a swizzle). The end of a row is kept in pieces of 16 bytes only
(seen on an H200: a store beyond 28 bytes wrote 32), so that rows have to end at a multiple of 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.access import accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, FACT_VERSIONS, GLOBAL, SHARED_SCOPES, attr, make_call, op_name
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.positions import multiple_of
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    Bind,
    Call,
    Expr,
    For,
    IntImm,
    Stmt,
    TensorRegion,
    Var,
    const,
    dtype_of,
    is_buffer,
    is_expr,
    shape_of,
)  # fmt: skip
from ...layout.shared import PERIOD_ROWS, SharedLayout, from_layout, widest
from ...target.limits import architecture
from ...tileop.loops import extents_of, mins_of, wide_dims
from ..analysis.facts import Facts
from ..layouts.choose_shared_layouts import annotated_layout, storage_bits

ARCHITECTURE = "sm_90a"
KEY_OFF = "tl.disable_tma_lower"
PANELS = "panels"  # attribute of copies that store a result panel by panel
MAX_RANK, MAX_EXTENT = 5, 256
STRIDE_BYTES = 16  # divides strides and rows of the tensor and the rows of a box
SHARED_BYTES = 128  # divides the address of a box in shared memory


@dataclass(frozen=True)
class Boxes:
    """The boxes of a copy. tensor, shared: extents of one of them by dimension of either block. counts: how many along each
    dimension of the tensor's block that the copy runs over (`dims`, with `places` the matching dimensions of the shared block)."""

    tensor: tuple[int, ...]
    shared: tuple[int, ...]
    dims: tuple[int, ...]
    places: tuple[int, ...]
    counts: tuple[int, ...]


def sides(call: Call) -> tuple[TensorRegion, TensorRegion, bool] | None:
    """(block of the tensor, block of the shared tile, is it a load?) of a copy between the two; None for any other."""
    source, target = call.args[0], call.args[1]
    if source.source.scope() == GLOBAL and target.source.scope() in SHARED_SCOPES:
        return source, target, True
    if target.source.scope() == GLOBAL and source.source.scope() in SHARED_SCOPES:
        return target, source, False
    return None


def bytes_of_copy(call: Call) -> int:
    """Bytes that a load counts on its barrier: all of the tile's, also where the tensor ends."""
    return math.prod(extents_of(call.args[1])) * dtype(dtype_of(call.args[1])).bytes


def tma_reason(call: Call, kernel: KernelRegion, ctx: PassContext, replaced: Call | None = None) -> str | None:
    """Why a copy cannot be made by bulk tensor copies; None if it can, whatever layout the tile may still get. replaced: the statement
    of the kernel that the copy is a part of, if it is none itself."""
    if architecture(ctx.target) != ARCHITECTURE:
        return f"{architecture(ctx.target)} has no bulk copies ({ARCHITECTURE} has)"
    if ctx.flag(KEY_OFF) or attr(call, "disable_tma"):
        return "the program turns bulk copies off"
    if sides(call) is None:
        return "only copies between a tensor and shared memory can be bulk copies"
    return _form_reason(call, kernel, ctx) or _use_reason(call, kernel, ctx, replaced)


def slot_reason(call: Call) -> str | None:
    """Why the slots of a ring, one tile after the other, cannot be filled by a copy that `tma_reason` accepts."""
    tile = call.args[1].source
    size = math.prod(int(e) for e in shape_of(tile)) * storage_bits(tile) // 8
    return f"slots of {size} bytes are no multiples of {SHARED_BYTES}" if size % SHARED_BYTES else None


def reduce_reason(call: Call, kernel: KernelRegion, ctx: PassContext) -> str | None:
    """Why a `tl.tileop.atomic` of a tile cannot be made by bulk copies that add; None if it can."""
    target = call.args[0]
    if attr(call, "kind") != "add" or attr(call, "memory_order") not in (None, "relaxed"):
        return "only relaxed additions can be bulk copies"
    if dtype_of(target) != "float32":
        return f"bulk copies add float32, not {dtype_of(target)}"
    if architecture(ctx.target) != ARCHITECTURE:
        return f"{architecture(ctx.target)} has no bulk copies ({ARCHITECTURE} has)"
    if ctx.flag(KEY_OFF):
        return "the program turns bulk copies off"
    copied = added_copy(call)
    found, roots = sides(copied), view_roots(kernel.body)
    if found is None or found[2]:
        return "only a shared tile can be added to a tensor by bulk copies"
    if target.source in roots or target.source in roots.values():
        return f"{target.source.name} is, or has, a view made in the kernel"
    for access in accesses(kernel.body, roots):
        if access.root.same_as(target.source) and not _is_addition(access.node):
            return f"the kernel also {'writes' if access.writes else 'reads'} {target.source.name}"
    return _form_reason(copied, kernel, ctx)


def added_copy(call: Call) -> Call:
    """The copy whose boxes an atomic addition of a tile has."""
    target, source = call.args[:2]
    return make_call("tl.tileop.copy", [source, target], span=call.span)


def _is_addition(node: Any) -> bool:
    """Additions by threads and by bulk copies may meet."""
    return (op_name(node) == "tl.tileop.atomic" and attr(node, "kind") == "add") or (op_name(node) == "tl.tma_store" and attr(node, "add"))


def boxed_tiles(kernel: KernelRegion) -> set[Var]:
    """Shared buffers that bulk copies move, after they were lowered."""
    return _operands(kernel.body, 0)


def boxed_tensors(body: Stmt) -> set[Var]:
    """Tensors that bulk copies move, after they were lowered."""
    return _operands(body, 1)


def _operands(body: Stmt, which: int) -> set[Var]:
    found: set[Var] = set()

    def visit(call: Call) -> None:
        if op_name(call) in ("tl.tma_load", "tl.tma_store"):
            found.add(call.args[which].source)

    walk(body, {Call: visit})
    return found


# ---------------------------------------------------------------- reasons
def _form_reason(call: Call, kernel: KernelRegion, ctx: PassContext) -> str | None:
    """What is wrong with the copy itself."""
    found = sides(call)
    assert found is not None
    tensor, tile, is_load = found
    if dtype_of(tensor) != dtype_of(tile):
        return f"the copy converts {dtype_of(call.args[0])} to {dtype_of(call.args[1])}"
    element = dtype(dtype_of(tensor))
    if element.lanes != 1 or element.bytes not in (1, 2, 4, 8) or (element.bits < 8 and element != "bool"):
        return f"elements of {element} are no bulk copies' elements"
    return (
        _values_reason(tensor, tile, is_load, kernel)
        or _tensor_reason(tensor, element.bytes)
        or _tile_reason(tensor, tile, element.bytes, kernel, ctx)
        or _corner_reason(tensor, element.bytes, is_load, _facts(kernel, ctx))
    )


def _values_reason(tensor: TensorRegion, tile: TensorRegion, is_load: bool, kernel: KernelRegion) -> str | None:
    """Outside of the tensor a bulk copy reads zeros."""
    if not is_load:
        return None
    for key, buffer in (("safe_value", tensor.source), ("padding", tile.source)):
        if any(is_buffer(v) and v.same_as(buffer) for v in dict(kernel.annotations.get(key, {}))):
            return f"{buffer.name} has a value of its own outside of the tensor"
    return None


def _use_reason(call: Call, kernel: KernelRegion, ctx: PassContext, replaced: Call | None) -> str | None:
    """Bulk copies are ordered with other accesses to a tensor only where one kernel ends and the next begins."""
    found = sides(call)
    assert found is not None
    tensor, is_load, roots = found[0].source, found[2], view_roots(kernel.body)
    if tensor in roots or tensor in roots.values():
        return f"{tensor.name} is, or has, a view made in the kernel"
    own = "" if replaced is None else str(replaced)
    for access in accesses(kernel.body, roots):
        if access.root.same_as(tensor) and own and (str(access.node) == own or _are_panels(access.node, replaced)):
            continue
        if access.root.same_as(tensor) and not (not access.writes if is_load else _is_store(access.node, call, kernel, ctx)):
            return f"the kernel also {'writes' if access.writes else 'reads'} {tensor.name}"
    return None


def _are_panels(node: Any, replaced: Call | None) -> bool:
    """Are both panels of a result that is stored later, which all get the same lowering?"""
    return replaced is not None and op_name(node) == "tl.tileop.copy" and bool(attr(node, PANELS)) and bool(attr(replaced, PANELS))


def _is_store(node: Any, call: Call, kernel: KernelRegion, ctx: PassContext) -> bool:
    """Is this access to the tensor a bulk store too?"""
    found = sides(node) if op_name(node) == "tl.tileop.copy" else None
    if found is None or found[2]:
        return op_name(node) == "tl.tma_store"
    return node.same_as(call) or (not attr(node, "disable_tma") and _form_reason(node, kernel, ctx) is None)


def _tensor_reason(tensor: TensorRegion, size: int) -> str | None:
    buffer, rank = tensor.source, len(tensor.region)
    if not 1 <= rank <= MAX_RANK:
        return f"{buffer.name} has {rank} dimensions; bulk copies take 1 to {MAX_RANK}"
    strides = strides_of(buffer)
    if not (isinstance(strides[-1], int) and strides[-1] == 1):
        return f"the last dimension of {buffer.name} is not contiguous"
    row = shape_of(buffer)[-1]
    if isinstance(row, int) and row * size % STRIDE_BYTES:
        return f"rows of {buffer.name} end after {row * size} bytes, which is no multiple of {STRIDE_BYTES}"
    for stride in strides[:-1]:
        if isinstance(stride, int) and (stride < 1 or stride * size % STRIDE_BYTES):
            return f"a stride of {buffer.name} is {stride * size} bytes, which is no multiple of {STRIDE_BYTES}"
    return None


def strides_of(buffer: Var) -> list[Any]:
    """Steps in elements by dimension, ints where constant."""
    if len(buffer.ty.strides):
        return [int(s) if isinstance(s, IntImm) else s for s in buffer.ty.strides]
    found: list[Any] = [1]
    for extent in reversed(shape_of(buffer)[1:]):
        found.append(extent * found[-1] if isinstance(extent, int) else found[-1] * extent)
    return found[::-1]


def _tile_reason(tensor: TensorRegion, tile: TensorRegion, size: int, kernel: KernelRegion, ctx: PassContext) -> str | None:
    name, extents = tile.source.name, extents_of(tile)
    if not all(isinstance(e, int) for e in (*extents, *extents_of(tensor), *shape_of(tile.source))):
        return "the tile's extents are not constant"
    if not wide_dims(tile) or wide_dims(tile)[-1] != len(extents) - 1 or wide_dims(tensor)[-1] != len(tensor.region) - 1:
        return "the innermost dimension is not copied"
    if extents[-1] * size % STRIDE_BYTES:
        return f"rows of {extents[-1] * size} bytes are no multiple of {STRIDE_BYTES}"
    if tile.source in view_roots(kernel.body):
        return f"{name} is a view"
    if not _is_dense(tile):
        return f"the copy is not of whole rows of {name}"
    for layout in _layouts(tile.source, kernel, ctx):
        if layout.padding or layout.given is not None:
            return f"{name} lies in memory {layout.name}"
        if not _starts_well(tile, layout, size):
            return f"the copy does not begin at a multiple of {layout.alignment if layout.swizzle else SHARED_BYTES} bytes of {name}"
        if _boxes(tensor, tile, layout) is None:
            return f"{name} is not made of boxes of at most {MAX_EXTENT} elements along a dimension"
    return None


def _layouts(buffer: Var, kernel: KernelRegion, ctx: PassContext) -> list[SharedLayout]:
    """The layouts that the tile has or, before layouts are chosen, may get."""
    if buffer in ctx.shared_layouts:
        return [ctx.shared_layouts[buffer]]
    stmt = allocations(kernel.body).get(buffer)
    facts: Mapping[str, Any] = {} if stmt is None else dict(dict(stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
    plain = SharedLayout(tuple(shape_of(buffer)), storage_bits(buffer), int(facts.get(FACT_VERSIONS, 1)))
    if "layout" in facts:
        return [plain, from_layout(annotated_layout(facts["layout"], plain.tile), plain.shape, plain.bits, plain.versions)]
    best = widest(plain.shape, plain.bits, plain.versions)
    return [plain] if best is None else [plain, best]


def _is_dense(tile: TensorRegion) -> bool:
    """In a row-major tile, is the block one run of memory?"""
    rest = list(zip(extents_of(tile), shape_of(tile.source), strict=True))
    while rest and rest[-1][0] == rest[-1][1]:
        rest.pop()
    return all(extent == 1 for extent, _ in rest[:-1])


def _starts_well(tile: TensorRegion, layout: SharedLayout, size: int) -> bool:
    """Does the block begin at an address that a box may have?"""
    if layout.swizzle:
        return multiple_of(tile.region[-2].min, PERIOD_ROWS)
    first: Expr = const(0, "int32")
    for low, stride in zip(mins_of(tile), strides_of(tile.source), strict=True):
        first = first + low * const(stride * size, dtype_of(low))
    return multiple_of(first, SHARED_BYTES)


def _corner_reason(tensor: TensorRegion, size: int, is_load: bool, facts: Facts) -> str | None:
    """A box begins at a multiple of 16 bytes of a row, one that is stored not before the tensor (CUDA programming guide, tensor copies)."""
    name = tensor.source.name
    if not facts.multiple_of(tensor.region[-1].min, STRIDE_BYTES // size):
        return f"the block may begin inside of {STRIDE_BYTES} bytes of a row of {name}"
    if not is_load and any(facts.bounds(low)[0] < 0 for low in mins_of(tensor)):
        return f"the block may begin before {name}"
    return None


def _facts(kernel: KernelRegion, ctx: PassContext) -> Facts:
    """What is known of the kernel's variables."""
    facts = Facts(ctx.sizes)
    for var, extent in (*kernel.blocks, *kernel.threads):
        facts.bind_range(var, 0, extent)
    walk(kernel.body, {For: lambda loop: facts.bind_range(loop.loop_var, loop.min, loop.extent),
                       Bind: lambda bind: facts.bind_value(bind.var, bind.value) if is_expr(bind.value) else None})  # fmt: skip
    return facts


# ---------------------------------------------------------------- boxes
def boxes_of(call: Call, layout: SharedLayout | None) -> Boxes:
    """The boxes of a copy that `tma_reason` accepts. layout: of the tile, None for a row-major one."""
    found = sides(call)
    assert found is not None
    tensor, tile, _ = found
    boxes = _boxes(tensor, tile, row_major(tile.source) if layout is None else layout)
    assert boxes is not None
    return boxes


def row_major(tile: Var) -> SharedLayout:
    """The layout of a tile that has no other."""
    return SharedLayout(tuple(shape_of(tile)), storage_bits(tile))


def part_of_boxes(boxes: Boxes, layout: SharedLayout, ranks: int) -> tuple[Boxes, int, int] | None:
    """What one of `ranks` blocks loads of a tile that they share: its boxes, the dimension of the tensor along which the parts lie one
    after the other, and elements from part to part. None if the tile has no such parts."""
    for k, (dim, count) in enumerate(zip(boxes.dims, boxes.counts, strict=True)):
        if count % ranks == 0:
            counts = (*boxes.counts[:k], count // ranks, *boxes.counts[k + 1 :])
            return replace(boxes, counts=counts), dim, boxes.tensor[dim] * (count // ranks)
    wide = [k for k, dim in enumerate(boxes.dims) if boxes.tensor[dim] > 1]
    k, size = wide[0], layout.bits // 8
    dim, place = boxes.dims[k], boxes.places[k]
    rows, rest = divmod(boxes.tensor[dim], ranks)
    inner = math.prod(boxes.tensor) // boxes.tensor[dim] * size
    if rest or boxes.counts[k] > 1 or len(wide) < 2 or (rows % PERIOD_ROWS if layout.swizzle else rows * inner % SHARED_BYTES):
        return None
    tensor, shared = (tuple(rows if d == at else e for d, e in enumerate(box)) for box, at in ((boxes.tensor, dim), (boxes.shared, place)))
    return replace(boxes, tensor=tensor, shared=shared), dim, rows


def _boxes(tensor: TensorRegion, tile: TensorRegion, layout: SharedLayout) -> Boxes | None:
    """The largest boxes of equal size; None if there are none."""
    dims, places = wide_dims(tensor), wide_dims(tile)
    extents, size = [extents_of(tensor)[d] for d in dims], layout.bits // 8
    box = [1] * len(extents)
    row = layout.columns if layout.swizzle else extents[-1]
    box[-1] = row if layout.swizzle or row <= MAX_EXTENT else _part(row, size, SHARED_BYTES)
    if box[-1] == 0:
        return None
    for k in reversed(range(len(extents) - 1)):  # outwards, as long as the box is one run of memory
        if layout.swizzle and places[k] != len(tile.region) - 2:
            break
        if not layout.swizzle and box[k + 1] != extents[k + 1]:
            break
        multiple = layout.alignment if layout.swizzle else SHARED_BYTES
        box[k] = extents[k] if extents[k] <= MAX_EXTENT else _part(extents[k], math.prod(box) * size, multiple) or 1
    counts = tuple(e // b for e, b in zip(extents, box, strict=True))
    if math.prod(counts) > 1 and math.prod(box) * size % SHARED_BYTES:
        return None
    of_tensor, of_tile = [1] * len(tensor.region), [1] * len(tile.region)
    for d, p, extent in zip(dims, places, box, strict=True):
        of_tensor[d] = of_tile[p] = extent
    return Boxes(tuple(of_tensor), tuple(of_tile), tuple(dims), tuple(places), counts)


def _part(extent: int, unit: int, multiple: int) -> int:
    """The largest part of a dimension that a box may have, in whole parts, whose bytes are a multiple; 0 if there is none."""
    return max((n for n in range(1, MAX_EXTENT + 1) if extent % n == 0 and n * unit % multiple == 0), default=0)

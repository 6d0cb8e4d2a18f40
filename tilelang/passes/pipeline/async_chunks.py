"""Can a copy from global to shared memory be made of asynchronous copies of 4, 8 or 16 bytes?

In: a `tl.tileop.copy` call. Out: the number of elements of a chunk, or the reason why not. A chunk lies in one row of both
tensors, starts at a multiple of its size, and is inside the source or outside as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.dialect import GLOBAL, SHARED_SCOPES
from ...ir.kernel import KernelRegion
from ...ir.positions import multiple_of
from ...ir.tvm_api import Call, IntImm, TensorRegion, Var, dtype_of, is_buffer, shape_of, tvm
from ...layout.shared import SharedLayout
from ...tileop.loops import extents_of, wide_dims

_BYTES = (16, 8, 4)


def chunk_elements(call: Call, kernel: KernelRegion | None, layouts: Mapping[Any, SharedLayout] | None = None) -> int | str:
    """Elements of one asynchronous chunk of this copy, or why it has none. layouts: of shared buffers, where they are chosen."""
    source, target = call.args[0], call.args[1]
    if source.source.scope() != GLOBAL or target.source.scope() not in SHARED_SCOPES or len(call.args) > 2:
        return "only a copy from global to shared memory can be asynchronous"
    if dtype_of(source) != dtype_of(target):
        return f"the copy converts {dtype_of(source)} to {dtype_of(target)}"
    if kernel is not None and _is_key(kernel.annotations.get("safe_value", {}), source.source):
        return f"{source.source.name} has a safe value of its own"
    if kernel is not None and _is_key(kernel.annotations.get("padding", {}), target.source):
        return f"{target.source.name} has a padding value of its own"
    extents = extents_of(target)
    if not all(isinstance(e, int) for e in (*extents, *extents_of(source))):
        return "the tile's extents are not constant"
    if not wide_dims(target) or wide_dims(target)[-1] != len(extents) - 1 or wide_dims(source)[-1] != len(source.region) - 1:
        return "the innermost dimension is not copied"
    bits, layout = tvm.DataType(dtype_of(source)).bits, (layouts or {}).get(target.source)
    for size in _BYTES:
        count = size * 8 // bits
        whole = count * bits == size * 8 and all(_in_chunks(block, count) for block in (source, target))
        if whole and (layout is None or layout.keeps(count)):
            return count
    return "rows are not made of aligned chunks of 4 bytes or more"


def _is_key(values: Mapping[Any, Any], buffer: Var) -> bool:
    return any(is_buffer(v) and v.same_as(buffer) for v in dict(values))


def _in_chunks(block: TensorRegion, count: int) -> bool:
    """Does every row start and end at a multiple of `count` elements from the start of the buffer?"""
    buffer, last = block.source, block.region[-1]
    shape = shape_of(buffer)
    if int(last.extent) % count or not multiple_of(last.min, count):
        return False
    if len(buffer.ty.strides):
        strides = list(buffer.ty.strides)
        if not (isinstance(strides[-1], IntImm) and int(strides[-1]) == 1 and all(multiple_of(s, count) for s in strides[:-1])):
            return False
    return multiple_of(shape[-1], count)

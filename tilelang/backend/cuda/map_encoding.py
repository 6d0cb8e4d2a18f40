"""Tensor maps on the host: the driver's `cuTensorMapEncodeTiled` fills one in for each launch.

In: the `TensorMap`s of a kernel. Out: statements of the host function, the condition under which a tensor has no map, and LLVM's text of
the call through an address. What the driver takes stands in an area of the frame, in 64-bit words: extents, strides in bytes (both
innermost first, the first stride left out), then as pairs of 32-bit numbers the box and the steps inside it, which are 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.tvm_api import Expr, Stmt, const, shape_of, tirx
from ...passes.pipeline.tma_boxes import STRIDE_BYTES, strides_of
from .bulk import TensorMap

MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
AREA_WORDS = 15
_STRIDES, _BOX, _STEPS = 5, 9, 12  # words of the area
_ENCODE = "tilelang_encode"
# Values of cuda.h. Zeros are zeros in every type of a size, so that an unsigned one stands for all.
_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}  # CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32, 64
_FLOAT32 = 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32: sums need to know it
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE_NONE, 32B, 64B, 128B
_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B

HELPER = f"""define i32 @{_ENCODE}(i64 %encode, ptr %map, i32 %type, i32 %rank, i64 %address, ptr %area, i32 %swizzle)
    alwaysinline nounwind {{
  %driver = inttoptr i64 %encode to ptr
  %tensor = inttoptr i64 %address to ptr
  %strides = getelementptr i64, ptr %area, i64 {_STRIDES}
  %box = getelementptr i64, ptr %area, i64 {_BOX}
  %steps = getelementptr i64, ptr %area, i64 {_STEPS}
  %status = call i32 %driver(ptr %map, i32 %type, i32 %rank, ptr %tensor, ptr %area, ptr %strides, ptr %box, ptr %steps, i32 0,
                             i32 %swizzle, i32 {_PROMOTION}, i32 0)
  ret i32 %status
}}
"""


def fill_area(found: TensorMap, store_word: Callable[[int, Expr], Stmt]) -> list[Stmt]:
    """Stores into the area. store_word: of a word of the area."""
    extents, strides = list(reversed(shape_of(found.tensor))), list(reversed(strides_of(found.tensor)))[1:]
    words = {k: _int64(extent) for k, extent in enumerate(extents)}
    words |= {_STRIDES + k: _int64(stride) * const(found.size, "int64") for k, stride in enumerate(strides)}
    box = [*reversed(found.box), 1][: len(found.box) + len(found.box) % 2]
    words |= {_BOX + k: const(box[2 * k] | box[2 * k + 1] << 32, "int64") for k in range(len(box) // 2)}
    words |= {_STEPS + k: const(1 | 1 << 32, "int64") for k in range(len(box) // 2)}
    return [store_word(word, value) for word, value in words.items()]


def encode(found: TensorMap, driver: Expr, place: Expr, address: Expr, area: Expr) -> Expr:
    """The call that writes the map to `place`; its value is the driver's status."""
    numbers = const(_FLOAT32 if found.adds else _TYPES[found.size], "int32"), const(len(found.box), "int32")
    return tirx.call_extern("int32", _ENCODE, driver, place, *numbers, address, area, const(_SWIZZLES[found.swizzle], "int32"))


def has_no_map(found: TensorMap) -> list[Expr]:
    """Conditions, one of which holds for a tensor that bulk copies cannot move: no elements, or strides or rows that are no multiples of 16
    bytes."""
    extents, strides = shape_of(found.tensor), strides_of(found.tensor)
    tests: list[Expr] = [_int64(e) < const(1, "int64") for e in (*extents, *strides) if not isinstance(e, int)]
    for step in (extents[-1], *strides):
        if not isinstance(step, int):
            rest = tirx.bitwise_and(_int64(step) * const(found.size, "int64"), const(STRIDE_BYTES - 1, "int64"))
            tests.append(tirx.NE(rest, const(0, "int64")))
    return tests


def distinct(maps: Sequence[TensorMap]) -> list[TensorMap]:
    """One map for each tensor."""
    return list({m.tensor: m for m in maps}.values())


def _int64(value: Any) -> Expr:
    return const(value, "int64") if isinstance(value, int) else tirx.Cast("int64", value)

"""`tilelang.intrinsics` under its newer name."""

from ...intrinsics import (
    INT4TensorCoreIntrinEmitter,
    INT4TensorCoreIntrinEmitterWithLadderTransform,
    TensorCoreIntrinEmitter,
    TensorCoreIntrinEmitterWithLadderTransform,
    get_swizzle_layout,
    make_mma_swizzle_layout,
)

__all__ = [
    "INT4TensorCoreIntrinEmitter",
    "INT4TensorCoreIntrinEmitterWithLadderTransform",
    "TensorCoreIntrinEmitter",
    "TensorCoreIntrinEmitterWithLadderTransform",
    "get_swizzle_layout",
    "make_mma_swizzle_layout",
]

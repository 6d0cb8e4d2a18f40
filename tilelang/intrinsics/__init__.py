"""Layout helpers and matrix-instruction emitters of hand-written GPU kernels."""

from ..layout import get_swizzle_layout, make_mma_swizzle_layout
from .mma_macro_generator import (
    INT4TensorCoreIntrinEmitter,
    INT4TensorCoreIntrinEmitterWithLadderTransform,
    TensorCoreIntrinEmitter,
    TensorCoreIntrinEmitterWithLadderTransform,
)

__all__ = [
    "INT4TensorCoreIntrinEmitter",
    "INT4TensorCoreIntrinEmitterWithLadderTransform",
    "TensorCoreIntrinEmitter",
    "TensorCoreIntrinEmitterWithLadderTransform",
    "get_swizzle_layout",
    "make_mma_swizzle_layout",
]

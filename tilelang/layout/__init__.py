"""Layouts of tiles, as exact integer arithmetic: strided layouts, swizzles, fragments. Nothing here knows the compiler."""

from .algebra import LayoutError, StridedLayout, Swizzle
from .fragment import (
    Conflict,
    Fragment,
    make_fully_replicated_layout_fragment,
    make_gemm_fragment_8x8,
    make_gemm_fragment_8x8_transposed,
)
from .index_map import Layout
from .swizzle import (
    bank_conflicts,
    get_swizzle_layout,
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_mma_swizzle_layout,
    make_padded_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_tcgen05mma_swizzled_layout,
    make_volta_swizzled_layout,
    make_wgmma_swizzled_layout,
    transactions,
)

__all__ = [
    "Conflict",
    "Fragment",
    "Layout",
    "LayoutError",
    "StridedLayout",
    "Swizzle",
    "bank_conflicts",
    "get_swizzle_layout",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_mma_swizzle_layout",
    "make_padded_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "transactions",
]

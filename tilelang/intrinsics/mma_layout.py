"""`from tilelang.intrinsics.mma_layout import make_mma_swizzle_layout`."""

from ..layout import get_swizzle_layout, make_mma_swizzle_layout

__all__ = ["get_swizzle_layout", "make_mma_swizzle_layout"]

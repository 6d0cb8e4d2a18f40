"""Packing of small integers on the host, and the device-side conversions of packed values that programs import."""

from .packing import general_compress, interleave_weight

__all__ = ["general_compress", "interleave_weight"]

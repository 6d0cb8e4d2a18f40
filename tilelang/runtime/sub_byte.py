"""Tensors of elements of less than 8 bits, as callers have them.

In: what was passed for such a parameter: an array of the ml_dtypes type (a byte for each element), or, for types of 4 bits, a
packed one: int8, uint8 or torch's float4_e2m1fn_x2, half as long in the last dimension, element 2k in the low half of byte
k. Out: an array with a byte for each element, which is what compiled code takes, and how to bring it back after the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import TileTypeError
from ..ir.dtype_table import info, numpy_type
from .arrays import ArrayInfo, array_info, is_torch, torch_module

_PACKED = ("int8", "uint8", "float4_e2m1fn_x2")


def storage(dtype: str) -> str:
    """The type of the byte that holds one element."""
    return "int8" if dtype.startswith("int") else "uint8"


def opened(name: str, dtype: str, value: Any) -> tuple[Any, Callable[[], None] | None]:
    """`value` with a byte for each element, and for a packed one the function that stores it back. An array that is neither
    comes back as it is: the check of its type refuses it."""
    given = array_info(value, name)
    if given.dtype not in _PACKED or info(dtype).bits != 4 or not given.shape:
        return value, None
    if given.device != "cpu":
        raise TileTypeError(
            f"{name}: a packed {dtype} tensor on {given.device}: compiled code has a byte for each element",
            remedy="declare it as uint8 with half the columns, and unpack with `& 15` and `>> 4`",
        )
    packed = _bytes(value, given)
    wide = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.uint8)
    wide[..., 0::2], wide[..., 1::2] = packed & 15, packed >> 4
    if dtype == "int4":  # with the sign in all bits
        wide = ((wide ^ 8) - np.uint8(8)).astype(np.uint8)

    def store() -> None:
        packed[...] = (wide[..., 0::2] & 15) | (wide[..., 1::2] << 4)

    return wide.view(numpy_type(dtype)), store


def _bytes(value: Any, given: ArrayInfo) -> np.ndarray:
    """The caller's memory as uint8, without a copy."""
    if isinstance(value, np.ndarray):
        return value.view(np.uint8)
    if is_torch(value):
        return value.detach().view(torch_module().uint8).numpy()
    return np.from_dlpack(given.keep).view(np.uint8)

"""Small integers packed into bytes. In: NumPy int8 arrays of values below 2**bits. Out: packed NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError


def general_compress(lowprecision_weight: np.ndarray, source_bits: int = 4, storage_dtype: Any = np.int8) -> np.ndarray:
    """Pack values of `source_bits` bits along the last axis into bytes, the first value in the lowest bits.

    (..., n) values give (..., n * source_bits / 8) bytes, viewed as `storage_dtype`.
    """
    if source_bits not in (1, 2, 4, 8):
        raise TileValueError(f"values of {source_bits} bits", remedy="1, 2, 4 or 8 bits fill bytes")
    each = 8 // source_bits
    values = np.asarray(lowprecision_weight)
    if values.ndim == 0 or values.shape[-1] % each:
        raise TileValueError(f"shape {values.shape}: the last axis does not fill whole bytes of {each} values")
    mask = (1 << source_bits) - 1
    groups = (values.astype(np.int64) & mask).reshape(*values.shape[:-1], -1, each)
    packed = (groups << (source_bits * np.arange(each))).sum(-1).astype(np.uint8)
    return packed.view(storage_dtype)


def interleave_weight(qweight: np.ndarray, nbits: int = 4, target_dtype: str = "float16") -> np.ndarray:
    """Reorder the packed values inside each 32-bit word for conversions that take every (word / target bits)-th value at once.

    Value k of a word moves so that values 0, 2, 4, ... (for 16-bit targets) can be masked out of one word in turn.
    """
    if nbits not in (1, 2, 4):
        raise TileValueError(f"values of {nbits} bits", remedy="1, 2 or 4")
    if str(target_dtype) not in ("float16", "int8"):
        raise TileTypeError(f"interleaving for {target_dtype}", remedy="float16 or int8")
    step = 16 if str(target_dtype) == "float16" else 8
    words = np.ascontiguousarray(qweight).view(np.uint32).astype(np.uint64)
    groups, count = 32 // step, step // nbits
    mask = np.uint64((1 << nbits) - 1)
    result = np.zeros_like(words)
    for k in range(count * groups):
        source = np.uint64(nbits * k)
        place = np.uint64((k % groups) * step + (k // groups) * nbits)
        result |= ((words >> source) & mask) << place
    return result.astype(np.uint32).view(qweight.dtype)

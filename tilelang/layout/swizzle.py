"""Swizzled layouts of shared-memory tiles, and what a warp's access to them costs.

Shared memory has 32 banks of 4 bytes. A swizzle XORs the number of a 16-byte chunk inside its row group with the row,
so that both rows and columns of a tile spread over all banks. In: a buffer (anything with `.shape` and `.dtype`).
Out: a `Layout`. The costs count transactions exactly, from the byte address of each lane.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .algebra import LayoutError
from .banks import BANKS, NOBODY, WARP, WIDTHS, WORD, passes
from .index_map import Layout, as_shape

CHUNK_BITS = 128  # the unit of a swizzle: the widest access of one thread
SWIZZLE_BYTES = (128, 64, 32)


def bits_of(dtype: Any) -> int:
    """Bits of one element of a type given by its name, e.g. "float16", "float8_e4m3fn", "int8x4", "bool"."""
    match = re.fullmatch(r"([a-z]+)(\d*)(_[a-z0-9]+?)?(?:x(\d+))?", str(dtype))
    if match is None:
        raise LayoutError(f"element type {dtype!r} has no size")
    if match[1] in ("bool", "handle"):
        return 8 if match[1] == "bool" else 64
    return int(match[2] or 32) * int(match[4] or 1)


def _tile(buffer: Any) -> tuple[tuple[int, ...], int, int]:
    """(shape, elements per chunk, bits of an element) of a buffer with at least two constant dimensions."""
    shape, bits = as_shape(buffer.shape), bits_of(buffer.dtype)
    name = getattr(buffer, "name", "buffer")
    if len(shape) < 2 or not all(isinstance(e, int) for e in shape):
        raise LayoutError(f"{name} of shape {shape}: a swizzled layout needs two or more constant dimensions")
    if bits > CHUNK_BITS or CHUNK_BITS % bits:
        raise LayoutError(f"{name}: elements of {bits} bits do not fill chunks of {CHUNK_BITS} bits")
    return shape, CHUNK_BITS // bits, bits


def xor_chunk(row: Any, col: Any, chunk: int, swizzle_bytes: int) -> Any:
    """Place of column `col` inside its group of `swizzle_bytes` bytes: the chunk number is XORed with the row.

    chunk: elements in 16 bytes. With 128 bytes all 8 rows of a group differ, with 64 pairs of rows, with 32 fours.
    """
    chunks = swizzle_bytes // 16
    rows = 8 // chunks
    moved = (col // chunk % chunks) ^ (row % 8 // rows if rows > 1 else row % 8)
    return moved * chunk + col % chunk


def _bank_swizzled(buffer: Any, swizzle_bytes: int) -> Layout:
    """Output coordinates (..., column block, row block, offset): blocks of 8 rows by `swizzle_bytes`."""
    shape, chunk, bits = _tile(buffer)
    width = swizzle_bytes * 8 // bits
    if shape[-1] % width:
        raise LayoutError(f"rows of {shape[-1]} elements of {bits} bits are no multiple of {swizzle_bytes} bytes")

    def forward(*index: Any) -> list[Any]:
        *lead, i, j = index
        return [*lead, j // width, i // 8, i % 8 * width + xor_chunk(i, j, chunk, swizzle_bytes)]

    return Layout(shape, forward)


def make_full_bank_swizzled_layout(buffer: Any) -> Layout:
    """128-byte swizzle; rows must be a multiple of 128 bytes."""
    return _bank_swizzled(buffer, 128)


def make_half_bank_swizzled_layout(buffer: Any) -> Layout:
    """64-byte swizzle; rows must be a multiple of 64 bytes."""
    return _bank_swizzled(buffer, 64)


def make_quarter_bank_swizzled_layout(buffer: Any) -> Layout:
    """32-byte swizzle; rows must be a multiple of 32 bytes."""
    return _bank_swizzled(buffer, 32)


def make_linear_layout(buffer: Any) -> Layout:
    """Row-major, one output coordinate."""
    return _padded(as_shape(buffer.shape), 0)


def make_padded_layout(buffer: Any) -> Layout:
    """Row-major with 16 bytes of padding after each row whose length is a multiple of 32 bytes."""
    shape, chunk, bits = _tile(buffer)
    return _padded(shape, chunk if shape[-1] * bits % (2 * CHUNK_BITS) == 0 else 0)


def _padded(shape: tuple[Any, ...], padding: int) -> Layout:
    def forward(*index: Any) -> Any:
        flat: Any = 0
        for x, extent in zip(index[:-1], shape[:-1], strict=True):
            flat = flat * extent + x
        return flat * (shape[-1] + padding) + index[-1]

    return Layout(shape, forward)


def make_swizzled_layout(buffer: Any, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The widest swizzle that the rows of the last two dimensions allow; leading dimensions are kept.

    Rows of a multiple of 128 bytes: 128-byte swizzle; of 64 bytes: 64-byte swizzle; else rows are padded, or, without
    `allow_pad`, swizzled by 32 bytes where that divides and left linear where not. `k_major` says which operand
    dimension is contiguous; the placement is the same for both.
    """
    shape, _, bits = _tile(buffer)
    fitting = [b for b in SWIZZLE_BYTES if shape[-1] * bits % (b * 8) == 0]
    if fitting and (fitting[0] > 32 or not allow_pad):
        return _bank_swizzled(buffer, fitting[0])
    return make_padded_layout(buffer) if allow_pad else make_linear_layout(buffer)


def make_wgmma_swizzled_layout(buffer: Any, continuity: int | None = None, k_major: bool = True) -> Layout:
    """The widest bank swizzle whose rows divide the tile's rows, or `continuity` elements of them; linear if none does.
    Operands of warpgroup matrix instructions are never padded. `k_major` does not change the placement."""
    shape, _, bits = _tile(buffer)
    run = shape[-1] if continuity is None else math.gcd(continuity, shape[-1])
    fitting = [b for b in SWIZZLE_BYTES if run * bits % (b * 8) == 0]
    return _bank_swizzled(buffer, fitting[0]) if fitting else make_linear_layout(buffer)


def make_tcgen05mma_swizzled_layout(buffer: Any, continuity: int | None = None, k_major: bool = True) -> Layout:
    """As `make_wgmma_swizzled_layout`: both instructions read the same placements."""
    return make_wgmma_swizzled_layout(buffer, continuity, k_major)


def make_volta_swizzled_layout(buffer: Any, is_a: bool = True, k_inner: bool = True) -> Layout:
    """As `make_swizzled_layout`; accepted for programs that were written for that architecture."""
    return make_swizzled_layout(buffer)


def get_swizzle_layout(row: Any, col: Any, row_size: int, dtype: Any, swizzle_bytes: int | None = None) -> tuple[Any, Any]:
    """(row, column) after the XOR swizzle of a tile with rows of `row_size` elements of `dtype`.

    swizzle_bytes: 128, 64 or 32; by default the widest that divides the row (the row is left alone if none does).
    """
    bits = bits_of(dtype)
    fitting = [b for b in SWIZZLE_BYTES if row_size * bits % (b * 8) == 0]
    if swizzle_bytes is not None and swizzle_bytes not in fitting:
        raise LayoutError(f"swizzle of {swizzle_bytes} bytes for rows of {row_size * bits / 8:g} bytes: expected one of {fitting}")
    if not fitting:
        return row, col
    width = (swizzle_bytes or fitting[0]) * 8 // bits
    return row, col // width * width + xor_chunk(row, col, CHUNK_BITS // bits, swizzle_bytes or fitting[0])


def make_mma_swizzle_layout(shared_buf: Any, is_smooth: bool = False) -> Layout:
    """The swizzle that `ldmatrix` reads without bank conflicts, same shape as the tile; the identity when `is_smooth`
    or when rows are no multiple of 64 bytes."""
    shape, _, bits = _tile(shared_buf)
    if is_smooth or shape[-1] * bits % 512:
        return Layout(shape, lambda *index: list(index))
    return Layout(shape, lambda *index: [*index[:-2], *get_swizzle_layout(index[-2], index[-1], shape[-1], shared_buf.dtype)])


# ---------------------------------------------------------------- costs
def transactions(addresses: Sequence[int], width: int) -> int:
    """Shared-memory transactions of one warp access: `addresses` in bytes, one a lane, each lane moves `width` bytes. The rule
    is that of `banks.py`."""
    if width not in WIDTHS:
        raise LayoutError(f"access of {width} bytes a lane: expected 1, 2, 4, 8 or 16")
    for address in addresses:
        if address % width:
            raise LayoutError(f"address {address} is not aligned to an access of {width} bytes")
    rows = np.full((-(-len(addresses) // WARP), WARP), NOBODY)
    rows.reshape(-1)[: len(addresses)] = addresses
    return int(passes(rows, width)[0].sum())


def bank_conflicts(layout: Layout, bits: int, access: Callable[[int], Sequence[int]], vector: int = 1, lanes: int = 32) -> int:
    """Transactions of a warp beyond one for each part that is served at once. Lane l moves `vector` elements of `bits`
    bits that start at element `access(l)` of `layout`; they must be contiguous there."""
    width = vector * bits // 8
    if width * 8 != vector * bits:
        raise LayoutError(f"{vector} elements of {bits} bits are no whole number of bytes")
    offsets = layout.offsets()
    addresses = []
    for lane in range(lanes):
        *lead, j = access(lane)
        run = [int(offsets[(*lead, j + k)]) for k in range(vector)]
        if run != list(range(run[0], run[0] + vector)):
            raise LayoutError(f"lane {lane}: {vector} elements at {(*lead, j)} are not contiguous")
        addresses.append(run[0] * bits // 8)
    return transactions(addresses, width) - max(1, -(-lanes * width // (BANKS * WORD)))

"""Matrix products of a warpgroup (wgmma, sm_90a): one frozen record for each, and how shared memory holds their operands.

In the program a product is `tl.wgmma` (C, A, B, keep) with the attribute `name` of a record. C, and A where it is in registers, are
the thread's registers in the order of the record's `Fragment`s. An operand in shared memory is a region that begins at the matrix's
first byte, and a `Matrix` (attributes a_matrix, b_matrix), which says where the elements lie: the fields of the hardware's descriptor.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": register fragments, canonical layouts, strides, swizzling modes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...layout.fragment import Fragment

M, WARPGROUP, WARP_ROWS = 64, 128, 16
ATOM_ROWS = 8  # rows of a group inside which 16-byte chunks are permuted
CHUNK = 16  # bytes
SWIZZLES = (0, 32, 64, 128)
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
_PRODUCTS = {  # accumulator: pairs of operand types
    "f32": {("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))},
    "f16": {("f16", "f16"), *((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))},
    "s32": {(a, b) for a in ("s8", "u8") for b in ("s8", "u8")},
}  # fmt: skip


def swizzled_address(address: Any, swizzle: int) -> Any:
    """The byte where the hardware puts byte `address` of shared memory under a swizzle of so many bytes (0: none): the number of
    the 16-byte chunk is XORed with the number of the 128-byte line. Bulk tensor copies and wgmma share this rule."""
    return address ^ ((address >> 3) & (swizzle - CHUNK)) if swizzle else address


@dataclass(frozen=True)
class Matrix:
    """An operand of `rows` (m of A, n of B) by k elements in shared memory.

    major: "k" if neighbours along k are neighbours in memory, else "mn". leading, stride: the descriptor's byte offsets. With a swizzle:
    stride leads from 8 lines (rows, or k for "mn") to the next 8; leading, for "mn" only, from `swizzle` bytes along the rows to the next.
    Without one memory holds blocks of 8 lines of 16 bytes: leading steps along k, stride along the rows.
    """

    major: str
    swizzle: int
    leading: int
    stride: int

    @property
    def text(self) -> str:
        return f"{self.major}:{self.swizzle}:{self.leading}:{self.stride}"

    @classmethod
    def parse(cls, text: str) -> Matrix:
        major, *numbers = text.split(":")
        return cls(major, *(int(n) for n in numbers))

    def offsets(self, rows: Any, k: Any, size: int) -> Any:
        """Bytes from the matrix's first byte to elements (rows, k) of `size` bytes, before the swizzle."""
        lines, inner = (rows, k) if self.major == "k" else (k, rows)
        width = self.swizzle or CHUNK
        along, inside = inner * size // width, inner * size % width
        group, line = lines // ATOM_ROWS, lines % ATOM_ROWS
        if self.swizzle:
            return group * self.stride + along * self.leading + line * width + inside
        k_step, row_step = (along, group) if self.major == "k" else (group, along)
        return row_step * self.stride + k_step * self.leading + line * width + inside

    def addresses(self, start: int, rows: Any, k: Any, size: int) -> Any:
        """Byte addresses in shared memory (which begins at a multiple of 1024) of elements (rows, k) of a matrix at `start`."""
        return swizzled_address(start + self.offsets(rows, k, size), self.swizzle)


@dataclass(frozen=True)
class Product:
    """C (64, n) += A (64, k) B (k, n). types: PTX names of the elements of C, A, B. k spans 32 bytes."""

    n: int
    types: tuple[str, str, str]

    @property
    def name(self) -> str:
        return f"wgmma.mma_async.sync.aligned.m{M}n{self.n}k{self.k}.{'.'.join(self.types)}"

    @property
    def k(self) -> int:
        return 256 // _BITS[self.types[1]]

    @functools.cached_property
    def accumulator(self) -> Fragment:
        """C: (row, column) to (thread of the warpgroup, register)."""
        return Fragment((M, self.n), lambda i, j: (i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2))

    @functools.cached_property
    def left(self) -> Fragment:
        """A in registers: (row, k) to (thread of the warpgroup, element); 32 bits hold neighbours along k."""
        e = 32 // _BITS[self.types[1]]
        return Fragment((M, self.k), lambda i, j: (i // 16 * 32 + i % 8 * 4 + j // e % 4, (i % 16 // 8 + j // (4 * e) * 2) * e + j % e))

    def transposes(self) -> bool:
        """May operands in shared memory be "mn"-major?"""
        return _BITS[self.types[1]] == 16

    def model(self, c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """c + a @ b. Sums of floats are formed in float64 and rounded once; tf32 operands lose their low 13 bits."""
        wide = np.int64 if self.types[0] == "s32" else np.float64
        with np.errstate(all="ignore"):
            left, right = (_read(m, t).astype(wide) for m, t in ((a, self.types[1]), (b, self.types[2])))
            return (c.astype(wide) + left @ right).astype(c.dtype)


def _read(values: np.ndarray, ptx: str) -> np.ndarray:
    if ptx != "tf32":
        return values
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _widths(accumulator: str) -> range | tuple[int, ...]:
    """The n that exist."""
    return (8, 16, 24, *range(32, 257, 16)) if accumulator == "s32" else range(8, 257, 8)


@functools.cache
def product(name: str) -> Product | None:
    """The record of this name, or None if there is no such instruction."""
    match = re.fullmatch(rf"wgmma\.mma_async\.sync\.aligned\.m{M}n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)", name)
    if match is None:
        return None
    n, k, types = int(match[1]), int(match[2]), (match[3], match[4], match[5])
    if types[1:] not in _PRODUCTS.get(types[0], ()) or n not in _widths(types[0]):
        return None
    found = Product(n, types)
    return found if found.k == k else None


_PTX = {
    "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2", "int8": "s8",
    "uint8": "u8", "float32": "f32", "int32": "s32", "tf32": "tf32",
}  # fmt: skip


def product_of(n: int, c: str, a: str, b: str) -> Product | None:
    """The product with n columns for element types by their names in the language; operands "tf32": float32 of which the instruction
    reads the upper 19 bits."""
    types = tuple(_PTX.get(t, "") for t in (c, a, b))
    if types[1:] not in _PRODUCTS.get(types[0], ()) or n not in _widths(types[0]):
        return None
    return Product(n, (types[0], types[1], types[2]))

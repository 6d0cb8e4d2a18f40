"""Bits of two lanes in one word: the printed text, run by the processor, gives every lane what it gives alone."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

from . import on_host
from .on_host import aligned

COLUMNS = 64
# Bits of an element as an expression of the byte b that two neighbours share, a half-word h of its own, and its column j.
EXPRESSIONS = {
    "masked": lambda b, h, j: T.cast((b >> (j % 2 * 4)) & 15, "uint16") | T.uint16(0x4300),
    "byte": lambda b, h, j: T.cast(b >> T.cast(j % 2 * 4, "uint8"), "uint16") ^ T.uint16(0x3F00),
    "overflowing byte": lambda b, h, j: T.cast(b << T.cast(j % 2 * 4, "uint8"), "uint16") | T.uint16(0x100),
    "shifted": lambda b, h, j: (T.cast(b & 8, "uint16") << T.uint16(12)) | ((T.cast((b >> (j % 2 * 4)) & 7, "uint16")) << T.uint16(6)),
    "out of the top": lambda b, h, j: (h << T.uint16(5)) | (h >> T.uint16(3)),
    "right of a sum": lambda b, h, j: ((h + T.uint16(40000)) >> T.uint16(2)) & T.uint16(0x3FFF),
    "right of wide bits": lambda b, h, j: T.cast((T.cast(h, "int32") << 3) >> 5, "uint16") & T.uint16(0x7F7F),
    "negative": lambda b, h, j: T.cast(T.cast(h, "int16"), "uint16") & T.cast(T.cast(b, "int32") - 300, "uint16"),
    "shift of its own": lambda b, h, j: (h >> T.cast(j % 4, "uint16")) & T.uint16(0x0F7F),
    "one for all": lambda b, h, j: h ^ T.cast(T.cast(77, "int32") << 6, "uint16"),
}


def made(name):
    of = EXPRESSIONS[name]

    @T.prim_func
    def main(B: T.Tensor((COLUMNS // 2,), "uint8"), H: T.Tensor((COLUMNS,), "uint16"), O: T.Tensor((COLUMNS,), "bfloat16")):
        with T.Kernel(1, threads=8):
            for j in T.Parallel(COLUMNS):
                O[j] = T.reinterpret(of(B[j // 2], H[j], j), "bfloat16") * T.bfloat16(1)

    return main


def expected(name, b, h):
    j = np.arange(COLUMNS)
    b = np.repeat(b, 2)
    wide, half = b.astype(np.int64), h.astype(np.int64)
    nibble = wide >> j % 2 * 4
    bits = {
        "masked": nibble & 15 | 0x4300,
        "byte": nibble ^ 0x3F00,
        "overflowing byte": (wide << j % 2 * 4) & 255 | 0x100,
        "shifted": (wide & 8) << 12 | (nibble & 7) << 6,
        "out of the top": half << 5 & 0xFFFF | half >> 3,
        "right of a sum": ((half + 40000 & 0xFFFF) >> 2) & 0x3FFF,
        "right of wide bits": half << 3 >> 5 & 0x7F7F,
        "negative": half & (wide - 300 & 0xFFFF),
        "shift of its own": half >> j % 4 & 0x0F7F,
        "one for all": half ^ (77 << 6 & 0xFFFF),
    }[name]
    return bits.astype(np.uint16)


@pytest.mark.skipif(on_host.COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_it_computes(name):
    rng = np.random.default_rng(3)
    b, h = rng.integers(0, 256, COLUMNS // 2, dtype=np.uint8), rng.integers(0, 1 << 16, COLUMNS, dtype=np.uint16)
    out = aligned(np.zeros(COLUMNS, ml_dtypes.bfloat16))
    on_host.run(made(name), aligned(b), aligned(h), out)
    want = expected(name, b, h).view(ml_dtypes.bfloat16).astype(np.float32)
    got = out.astype(np.float32)
    np.testing.assert_array_equal(got, want)


def test_masks_and_unions_are_of_words():
    text = tilelang.compile(made("masked"), target="cuda -arch=sm_80").get_kernel_source()
    assert "& 0x000f000fu) | 0x43004300u)" in text and "lane += 2" in text

"""Records of warpgroup products: layouts are one-to-one, memory layouts are those of the PTX ISA, names."""

from __future__ import annotations

import numpy as np
import pytest

from tilelang.backend.gpu.wgmma import M, Matrix, Product, product, swizzled_address


@pytest.mark.parametrize("types", [("f32", "f16", "f16"), ("f32", "tf32", "tf32"), ("s32", "s8", "u8"), ("f32", "e4m3", "e5m2")])
def test_register_layouts_are_one_to_one(types: tuple[str, str, str]) -> None:
    record = Product(24, types)
    for layout, columns in ((record.accumulator, 24), (record.left, record.k)):
        i, j = np.indices((M, columns))
        thread, register = layout.forward((i, j))
        assert thread.max() == 127
        pairs = {(int(t), int(r)) for t, r in zip(thread.ravel(), np.asarray(register).ravel(), strict=True)}
        assert len(pairs) == M * columns == 128 * (max(r for _, r in pairs) + 1)


def test_the_accumulator_is_the_next_products_left_operand() -> None:
    """16 columns of float32 results, packed in pairs, are the A operand of a 16-bit product with k = 16."""
    result, left = Product(16, ("f32", "f16", "f16")).accumulator, Product(8, ("f32", "f16", "f16")).left
    i, j = np.indices((M, 16))
    for one, two in zip(result.forward((i, j)), left.forward((i, j)), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("swizzle", "pattern"), [(128, [0, 1, 2, 3, 4, 5, 6, 7]), (64, [0, 0, 1, 1, 2, 2, 3, 3]), (32, [0] * 4 + [1] * 4)])
def test_swizzle_permutes_chunks_of_lines(swizzle: int, pattern: list[int]) -> None:
    """pattern: where chunk 0 of each row of 8 is found, for rows of `swizzle` bytes."""
    for row, chunk in enumerate(pattern):
        assert swizzled_address(row * swizzle, swizzle) == row * swizzle + 16 * chunk
    everything = swizzled_address(np.arange(2048), swizzle)
    assert len(np.unique(everything)) == 2048
    np.testing.assert_array_equal(everything // swizzle, np.arange(2048) // swizzle)


def test_operands_in_memory() -> None:
    """(row, k) of the canonical layouts of the PTX ISA, 16-bit elements; T = 8 elements = 16 bytes."""
    t = 8
    cases = {
        Matrix("k", 128, 16, 1024): lambda r, k: (r % 8) * 8 * t + r // 8 * 512 + k,
        Matrix("k", 32, 16, 256): lambda r, k: (r % 8) * 2 * t + r // 8 * 128 + k,
        Matrix("k", 0, 2048, 128): lambda r, k: (r % 8) * t + r // 8 * 64 + k % t + k // t * 1024,
        Matrix("mn", 128, 8192, 1024): lambda r, k: r % (8 * t) + r // (8 * t) * 4096 + (k % 8) * 8 * t + k // 8 * 512,
        Matrix("mn", 0, 512, 2048): lambda r, k: r % t + r // t * 1024 + (k % 8) * t + k // 8 * 256,
    }
    rows, k = np.indices((128, 16))
    for matrix, expected in cases.items():
        np.testing.assert_array_equal(matrix.offsets(rows, k, 2), 2 * expected(rows, k), err_msg=matrix.text)
        assert Matrix.parse(matrix.text) == matrix


def test_names() -> None:
    record = Product(128, ("f32", "bf16", "bf16"))
    assert record.name == "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"
    assert product(record.name) == record
    for wrong in ("n12k16.f32.f16.f16", "n264k16.f32.f16.f16", "n8k8.f32.f16.f16", "n8k16.f16.bf16.bf16", "n40k32.s32.s8.s8"):
        assert product("wgmma.mma_async.sync.aligned.m64" + wrong) is None


def test_model_of_tf32_drops_low_bits() -> None:
    record = Product(8, ("f32", "tf32", "tf32"))
    a, b = np.full((16, 8), 1 + 2.0**-12, np.float32), np.ones((8, 8), np.float32)
    np.testing.assert_array_equal(record.model(np.zeros((16, 8), np.float32), a, b), np.full((16, 8), 8, np.float32))

"""Shared layouts: the hardware's arrangement, written down here a second time from its description; sizes; recognition."""

import itertools

import numpy as np
import pytest

from tilelang.layout import Layout, LayoutError, make_padded_layout, make_swizzled_layout
from tilelang.layout.shared import SharedLayout, fits, from_layout, widest
from tilelang.layout.swizzle import transactions


def hardware_byte(row, byte, rows, swizzle):
    """Byte address of byte `byte` of row `row` in a tile of panels: the tensor map's swizzle as an operation on address bits,
    bits 4.. ^= bits 7.. (as many as the mode swizzles), for a panel that begins at a multiple of its period."""
    panel, inside = divmod(byte, swizzle)
    address = row * swizzle + inside
    bits = {128: 3, 64: 2, 32: 1}[swizzle]
    return panel * rows * swizzle + (address ^ ((address >> 7) & ((1 << bits) - 1)) << 4)


@pytest.mark.parametrize("swizzle", [128, 64, 32])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("panels", [1, 3])
def test_panels_are_the_hardware_s(swizzle, bits, panels):
    rows, columns = 24, panels * swizzle * 8 // bits
    layout = SharedLayout((rows, columns), bits, swizzle=swizzle)
    for row, column in itertools.product(range(rows), range(columns)):
        assert layout.offset(row, column) * bits // 8 == hardware_byte(row, column * bits // 8, rows, swizzle)
    assert layout.alignment == 8 * swizzle and layout.bytes == rows * panels * swizzle


def test_leading_dimensions_and_versions_are_outermost():
    tile = SharedLayout((16, 128), 16, swizzle=128).offsets()
    batch = SharedLayout((2, 3, 16, 128), 16, swizzle=128).offsets()
    np.testing.assert_array_equal(batch, tile + 2048 * np.arange(6).reshape(2, 3, 1, 1))
    versions = SharedLayout((3 * 16, 128), 16, versions=3, swizzle=128).offsets()
    np.testing.assert_array_equal(versions.reshape(3, 16, 128), tile + 2048 * np.arange(3).reshape(3, 1, 1))
    odd = Layout((6, 5), lambda i, j: j * 7 + i)
    copies = SharedLayout((12, 5), 8, versions=2, given=odd)
    np.testing.assert_array_equal(copies.offsets().reshape(2, 6, 5), odd.offsets() + 34 * np.arange(2).reshape(2, 1, 1))
    assert copies.elements == 2 * 34  # 4 * 7 + 5 is the last place


def test_sizes_names_and_what_is_asked_for():
    plain = SharedLayout((4, 6), 16)
    assert plain.is_row_major and plain.elements == 24 and plain.alignment == 16
    padded = SharedLayout((4, 64), 16, padding=8)
    assert padded.elements == 4 * 72 and padded.name == "rows padded by 16 bytes" and padded.offset(2, 3) == 147
    assert "128-byte swizzle" in SharedLayout((8, 64), 16, swizzle=128).alignment_reason
    assert SharedLayout((), 32).offset() == 0 and SharedLayout((7,), 32).offset(5) == 5


@pytest.mark.parametrize(
    ("shape", "bits", "versions", "expected"),
    [((64, 64), 16, 1, 128), ((64, 96), 16, 1, 64), ((64, 16), 16, 1, 32), ((128, 64), 8, 1, 64), ((12, 64), 16, 1, None),
     ((64, 24), 16, 1, None), ((64,), 16, 1, None), ((36, 64), 16, 3, None), ((48, 64), 16, 3, 128), ((3, 8, 32), 32, 1, 128)],
)  # fmt: skip
def test_widest_swizzle(shape, bits, versions, expected):
    found = widest(shape, bits, versions)
    assert (found.swizzle if found else None) == expected


def test_refusals():
    with pytest.raises(LayoutError, match="panels of 128 bytes"):
        SharedLayout((8, 48), 16, swizzle=128)
    with pytest.raises(LayoutError, match="2 versions"):
        SharedLayout((7, 8), 16, versions=2)
    with pytest.raises(LayoutError, match="1 indices"):
        SharedLayout((8, 8), 16).offset(0)
    assert not fits((8, 8), 256, 128)


class Tile:
    def __init__(self, *shape, dtype="float16"):
        self.shape, self.dtype, self.name = shape, dtype, "tile"


def test_layouts_of_the_user_are_recognised():
    assert from_layout(make_swizzled_layout(Tile(64, 64)), (64, 64), 16).swizzle == 128
    assert from_layout(make_swizzled_layout(Tile(64, 32)), (128, 32), 16, versions=2) == SharedLayout((128, 32), 16, 2, 64)
    assert from_layout(make_padded_layout(Tile(64, 64)), (64, 64), 16).padding == 8
    assert from_layout(Layout((8, 4), lambda i, j: [i, j]), (8, 4), 16).is_row_major
    assert from_layout(Layout((6,), lambda i: i), (6,), 16).is_row_major
    other = Layout((8, 4), lambda i, j: j * 8 + i)
    assert from_layout(other, (8, 4), 16).given is other
    almost = Layout((64, 64), lambda i, j: i * 64 + (j // 8 ^ (i + 1) % 8) * 8 + j % 8)
    assert from_layout(almost, (64, 64), 16).given is almost


@pytest.mark.parametrize(("bits", "count", "expected"), [(16, 8, True), (16, 16, False), (8, 16, True), (8, 8, True), (32, 8, False)])
def test_vectors_of_a_swizzle_are_at_most_a_chunk(bits, count, expected):
    assert SharedLayout((8, 1024 // bits), bits, swizzle=128).keeps(count) is expected


def test_vectors_of_other_layouts():
    assert SharedLayout((3, 24), 16).keeps(8) and not SharedLayout((3, 12), 16).keeps(8)
    assert not SharedLayout((3, 24), 16, padding=4).keeps(8)
    pairs = SharedLayout((4, 4), 16, given=Layout((4, 4), lambda i, j: (j // 2 * 4 + i) * 2 + j % 2))
    assert pairs.keeps(2) and not pairs.keeps(4)
    assert not SharedLayout((10, 4), 16, versions=2, given=Layout((5, 4), lambda i, j: i * 5 + j)).keeps(2)


@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_rows_and_columns_of_chunks_touch_all_banks(swizzle):
    layout = SharedLayout((32, swizzle // 2), 16, swizzle=swizzle)
    for first, chunk in itertools.product(range(0, 32, 8), range(swizzle // 16)):
        assert transactions([layout.offset(first + r, chunk * 8) * 2 for r in range(8)], 16) == 1
    chunks = [layout.offset(*divmod(k * 8, swizzle // 2)) * 2 for k in range(8)]
    assert transactions(chunks, 16) == 1

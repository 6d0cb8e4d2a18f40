"""Swizzled layouts bit by bit, and their costs against a direct model of the banks."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import (
    Layout,
    LayoutError,
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
from tilelang.layout.swizzle import bits_of


def buffer(*shape, dtype="float16"):
    return SimpleNamespace(shape=shape, dtype=dtype, name="B")


@pytest.mark.parametrize(
    ("name", "bits"),
    [("float16", 16), ("bfloat16", 16), ("float8_e4m3fn", 8), ("float4_e2m1fn", 4), ("int4", 4), ("uint1", 1), ("bool", 8),
     ("int8x4", 32), ("float64", 64), ("handle", 64), ("float8_e8m0fnu", 8), ("float4_e2m1fnx2", 8)],
)  # fmt: skip
def test_bits(name, bits):
    assert bits_of(name) == bits


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 64), ("float32", 32), ("float16", 16), ("int8", 8), ("int4", 4)])
@pytest.mark.parametrize(
    ("make", "chunks"), [(make_full_bank_swizzled_layout, 8), (make_half_bank_swizzled_layout, 4), (make_quarter_bank_swizzled_layout, 2)]
)
def test_bank_swizzles(dtype, bits, make, chunks):
    v = 128 // bits
    width = chunks * v
    layout = make(buffer(16, 2 * width, dtype=dtype))
    for i, j in itertools.product(range(16), range(2 * width)):
        chunk = (j // v % chunks) ^ {8: i % 8, 4: i % 8 // 2, 2: i % 8 // 4}[chunks]
        assert layout(i, j) == (j // width, i // 8, i % 8 * width + chunk * v + j % v)
    assert layout.get_output_shape() == (2, 2, 8 * width)
    assert layout.collision() is None


def test_make_swizzled_layout_chooses_the_widest():
    assert make_swizzled_layout(buffer(64, 64)).is_equal(make_full_bank_swizzled_layout(buffer(64, 64)))
    assert make_swizzled_layout(buffer(64, 96)).is_equal(make_half_bank_swizzled_layout(buffer(64, 96)))
    assert make_swizzled_layout(buffer(64, 48)).is_equal(Layout((64, 48), lambda i, j: i * 56 + j))
    assert make_swizzled_layout(buffer(64, 40)).is_equal(Layout((64, 40), lambda i, j: i * 40 + j))
    assert make_swizzled_layout(buffer(64, 48), allow_pad=False).is_equal(make_quarter_bank_swizzled_layout(buffer(64, 48)))
    assert make_swizzled_layout(buffer(64, 40), allow_pad=False).is_equal(make_linear_layout(buffer(64, 40)))
    assert make_padded_layout(buffer(8, 64, dtype="float32"))(1, 0) == (68,)


def test_matrix_operands_are_never_padded():
    for make in (make_wgmma_swizzled_layout, make_tcgen05mma_swizzled_layout):
        assert make(buffer(64, 64)).is_equal(make_full_bank_swizzled_layout(buffer(64, 64)))
        assert make(buffer(64, 48)).is_equal(make_quarter_bank_swizzled_layout(buffer(64, 48)))
        assert make(buffer(64, 40)).is_equal(make_linear_layout(buffer(64, 40)))
        assert make(buffer(64, 128), continuity=32).is_equal(make_half_bank_swizzled_layout(buffer(64, 128)))
    assert make_volta_swizzled_layout(buffer(64, 64)).is_equal(make_swizzled_layout(buffer(64, 64)))


def test_leading_dimensions_are_kept():
    deep, flat = make_swizzled_layout(buffer(3, 16, 64)), make_swizzled_layout(buffer(16, 64))
    assert all(deep(b, i, j) == (b, *flat(i, j)) for b, i, j in itertools.product(range(3), range(16), range(64)))


@given(
    st.sampled_from([8, 16, 24, 40, 64]),
    st.sampled_from([16, 32, 40, 64, 96, 128]),
    st.sampled_from(["int8", "float16", "float32", "float64"]),
    st.booleans(),
)
def test_never_two_elements_in_one_place(rows, cols, dtype, pad):
    assert make_swizzled_layout(buffer(rows, cols, dtype=dtype), allow_pad=pad).collision() is None
    assert make_mma_swizzle_layout(buffer(rows, cols, dtype=dtype)).collision() is None


def test_mma_swizzle():
    layout = make_mma_swizzle_layout(buffer(32, 64))
    assert layout.get_output_shape() == (32, 64)
    for i, j in itertools.product(range(32), range(64)):
        assert layout(i, j) == (i, ((j // 8) ^ (i % 8)) * 8 + j % 8) == get_swizzle_layout(i, j, 64, "float16")
    for same in (make_mma_swizzle_layout(buffer(32, 64), is_smooth=True), make_mma_swizzle_layout(buffer(32, 40))):
        assert all(same(i, j) == (i, j) for i, j in itertools.product(range(32), range(40)))
    assert get_swizzle_layout(3, 9, 64, "float16", swizzle_bytes=64) == (3, 1)
    with pytest.raises(LayoutError, match="swizzle of 128 bytes"):
        get_swizzle_layout(0, 0, 32, "float16", swizzle_bytes=128)


def test_errors():
    with pytest.raises(LayoutError, match="no multiple of 128 bytes"):
        make_full_bank_swizzled_layout(buffer(8, 40))
    with pytest.raises(LayoutError, match="two or more"):
        make_swizzled_layout(buffer(64))


# ---------------------------------------------------------------- costs
def model(addresses, width):
    """Serve the lanes part by part; in each transaction every bank gives one word."""
    parts = {16: 4, 8: 2}.get(width, 1)
    per = 32 // parts
    total = 0
    for start in range(0, len(addresses), per):
        wanted = {}
        for a in addresses[start : start + per]:
            for word in range(a // 4, (a + width - 1) // 4 + 1):
                wanted.setdefault(word % 32, set()).add(word)
        total += max(len(words) for words in wanted.values())
    return total


@given(st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.integers(0, 400), min_size=1, max_size=32))
def test_transactions_match_the_model(width, slots):
    addresses = [s * width for s in slots]
    assert transactions(addresses, width) == model(addresses, width)


def test_transactions_known():
    assert transactions([4 * lane for lane in range(32)], 4) == 1
    assert transactions([0] * 32, 4) == 1
    assert transactions([128 * lane for lane in range(32)], 4) == 32
    assert transactions([8 * lane for lane in range(32)], 4) == 2
    assert transactions([16 * lane for lane in range(32)], 16) == 4
    with pytest.raises(LayoutError, match="aligned"):
        transactions([2], 4)


def test_full_swizzle_has_no_conflicts_by_rows_and_columns():
    """Eight lanes read 16 bytes of eight rows of one column of chunks: eightfold conflict without, none with swizzle."""
    tile = buffer(32, 64)

    def column(lane):
        return (lane, 16)

    assert bank_conflicts(make_linear_layout(tile), 16, column, vector=8) == 28
    assert bank_conflicts(make_full_bank_swizzled_layout(tile), 16, column, vector=8) == 0
    assert bank_conflicts(make_padded_layout(tile), 16, column, vector=8) == 0
    assert bank_conflicts(make_full_bank_swizzled_layout(tile), 16, lambda lane: (lane // 8, lane % 8 * 8), vector=8) == 0
    assert bank_conflicts(make_half_bank_swizzled_layout(tile), 16, column, vector=8) == 0
    with pytest.raises(LayoutError, match="not contiguous"):
        bank_conflicts(Layout((32, 64), lambda i, j: j * 32 + i), 16, column, vector=8)

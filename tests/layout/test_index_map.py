"""Function layouts: each property against a plain enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import Layout, LayoutError
from tilelang.layout.recognise import BitMatrix, recognise, recognise_bits

from .test_algebra import layouts


def points(shape):
    return itertools.product(*map(range, shape))


TRANSPOSE = Layout((4, 6), lambda i, j: [j, i])
BLOCKED = Layout((8, 12), lambda i, j: [i // 4, j // 3, i % 4 * 3 + j % 3])
XORED = Layout((8, 8), lambda i, j: [i, j ^ i])


@pytest.mark.parametrize("layout", [TRANSPOSE, BLOCKED, XORED])
def test_inverse_undoes(layout):
    inverse = layout.inverse()
    assert inverse.get_input_shape() == layout.get_output_shape()
    for p in points(layout.shape):
        assert inverse(*layout(*p)) == p
    assert inverse.inverse().is_equal(layout)


def test_inverse_of_what_is_no_bijection():
    with pytest.raises(LayoutError, match="no bijection"):
        Layout((4, 4), lambda i, j: [i + j]).inverse()
    with pytest.raises(LayoutError, match="no bijection"):
        Layout((4,), lambda i: [i * 2]).inverse()


def test_collision_names_two_elements():
    assert TRANSPOSE.collision() is None
    assert Layout((3, 4), lambda i, j: i * 1000 + j * 7).collision() is None
    assert Layout((3, 4), lambda i, j: i * 1000 + j // 3 * 7).collision() == ((0, 0), (0, 1))
    assert Layout((3, 4), lambda i, j: i * 3 + j).collision() == ((0, 3), (1, 0))


def test_output_shape_and_offsets():
    assert BLOCKED.get_output_shape() == (2, 4, 12)
    for i, j in points((8, 12)):
        a, b, c = BLOCKED(i, j)
        assert BLOCKED.offsets()[i, j] == BLOCKED.linear(i, j) == (a * 4 + b) * 12 + c


def test_repeat_and_expand():
    twice = TRANSPOSE.repeat(1, 3)
    assert twice.shape == (4, 18)
    assert all(twice(i, j) == (j // 6, j % 6, i) for i, j in points((4, 18)))
    assert TRANSPOSE.repeat(-1, 3).is_equal(twice)
    deep = TRANSPOSE.expand((2, 5))
    assert all(deep(a, b, i, j) == (a, b, j, i) for a, b, i, j in points((2, 5, 4, 6)))
    with pytest.raises(LayoutError):
        TRANSPOSE.repeat(2, 2)


def test_reshape_keeps_memory():
    flat = BLOCKED.reshape(96)
    assert all(flat(i * 12 + j) == BLOCKED(i, j) for i, j in points((8, 12)))
    with pytest.raises(LayoutError, match="reshape"):
        BLOCKED.reshape((8, 11))


@pytest.mark.parametrize(("num", "den"), [(2, 1), (4, 2), (1, 2), (1, 4), (3, 2)])
def test_reshape_to_other_element_size(num, den):
    """New element n covers the bytes of the old ones: counted in units, one old element = num, one new one = den."""
    old = Layout((4, 16), lambda i, j: [j // 8, i * 8 + j % 8])
    new = old.reshape((64 * num // den,), num, den)
    for n in range(64 * num // den):
        unit = n * den
        i, j = divmod(unit // num, 16)
        block, place = old(i, j)
        assert new(n) == (block, (place * num + unit % num) // den)
    assert new.collision() is None


def test_reshape_refuses_to_tear_elements():
    with pytest.raises(LayoutError, match="separates"):
        TRANSPOSE.reshape((12,), 1, 2)


def test_equality_is_of_places():
    assert TRANSPOSE.is_equal(Layout((4, 6), lambda a, b: (b, a)))
    assert not TRANSPOSE.is_equal(Layout((4, 6), lambda a, b: (a, b)))
    assert not TRANSPOSE.is_equal(Layout((6, 4), lambda a, b: (b, a)))


def test_errors():
    with pytest.raises(LayoutError, match="positive"):
        Layout((4, 0), lambda i, j: i)
    with pytest.raises(LayoutError, match="function"):
        Layout((4,), 3)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="negative"):
        Layout((4,), lambda i: i - 2).get_output_shape()
    with pytest.raises(LayoutError, match="1 indices"):
        TRANSPOSE(1)


@given(layouts())
def test_recognise_finds_every_strided_layout(layout):
    found = recognise(layout.table())
    if found is not None:
        assert np.array_equal(found.table(), layout.table())
    if all(len([1 for e, _ in dim if e > 1]) <= 1 for dim in layout.dims):
        assert found is not None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_recognise_never_invents(offsets):
    found = recognise(np.array(offsets))
    assert found is None or found.table().tolist() == offsets


def test_recognise_digits_and_swizzles():
    i = np.arange(24)
    found = recognise(i % 4 + i // 4 % 3 * 100 + i // 12 * 7)
    assert found is not None
    assert found.dims == (((2, 7), (3, 100), (4, 1)),)
    assert recognise(i ^ 3) is None
    assert recognise(i + 1) is None


@given(st.lists(st.integers(0, 63), min_size=1, max_size=6))
def test_bit_matrix_is_the_xor_of_its_columns(columns):
    matrix = BitMatrix(tuple(columns))
    size = 1 << len(columns)

    def image(x):
        out = 0
        for k, column in enumerate(columns):
            out ^= column if x >> k & 1 else 0
        return out

    values = [image(x) for x in range(size)]
    assert [matrix(x) for x in range(size)] == values
    assert recognise_bits(np.array(values)) == matrix
    back = matrix.inverse()
    if sorted(values) == list(range(size)):
        assert back is not None
        assert [back(y) for y in values] == list(range(size))
    else:
        assert back is None


def test_bit_matrix_is_not_invented():
    assert recognise_bits(np.arange(6)) is None
    assert recognise_bits(np.array([0, 1, 2, 4])) is None
    assert recognise_bits(np.array([1, 0])) is None


def test_inverse_by_table_where_there_is_no_formula():
    order = [3, 0, 4, 1, 2]
    layout = Layout((5,), lambda i: np.array(order)[i])
    assert [layout.inverse()(y) for y in range(5)] == [(1,), (3,), (4,), (0,), (2,)]
    with pytest.raises(LayoutError, match="no formula"):
        layout.inverse()(object())

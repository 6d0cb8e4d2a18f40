"""Every operation of the layout algebra against its definition, by enumeration over generated layouts."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.layout.algebra import LayoutError, StridedLayout, Swizzle, ravel, unravel

EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 6, 8])


@st.composite
def layouts(draw, max_size=300):
    iterator = st.tuples(EXTENTS, st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 16, 24]))
    dims = draw(st.lists(st.lists(iterator, min_size=1, max_size=3), min_size=1, max_size=3))
    layout = StridedLayout(tuple(tuple(dim) for dim in dims))
    return layout if layout.size <= max_size else StridedLayout((tuple(dims[0][:2]),))


@st.composite
def dense_layouts(draw):
    """Permuted dense iterators, grouped into dimensions: bijections onto 0..size-1."""
    extents = draw(st.lists(EXTENTS, min_size=1, max_size=4))
    order = draw(st.permutations(range(len(extents))))
    strides, step = [0] * len(extents), 1
    for k in order:
        strides[k], step = step, step * extents[k]
    cut = draw(st.integers(0, len(extents)))
    iters = list(zip(extents, strides, strict=True))
    return StridedLayout(tuple(tuple(part) for part in (iters[:cut], iters[cut:]) if part))


def evaluate(layout, flat):
    """The definition: write the flat index in mixed radix, sum digit times stride, swizzle bit by bit."""
    offset = 0
    for extent, stride in reversed(list(layout.iterators())):
        offset += flat % extent * stride
        flat //= extent
    if layout.swizzle:
        s = layout.swizzle
        for bit in range(s.bits):
            if offset_bit(offset, s.base + s.shift + bit):
                offset ^= 1 << (s.base + bit)
    return offset


def offset_bit(value, k):
    return value >> k & 1


def values(layout):
    return [evaluate(layout, x) for x in range(layout.size)]


@given(layouts())
def test_call_and_table_follow_the_definition(layout):
    expected = values(layout)
    points = itertools.product(*map(range, layout.shape))
    assert [layout(*p) for p in points] == expected
    assert layout.table().reshape(-1).tolist() == expected
    assert layout.cosize == max(expected) + 1
    assert layout.is_injective() == (len(set(expected)) == len(expected))


@given(layouts())
def test_coalesce_keeps_the_function(layout):
    assert values(layout.coalesce()) == values(layout)
    assert len(list(layout.coalesce().iterators())) <= max(1, sum(e > 1 for e, _ in layout.iterators()))


@given(layouts(), st.data())
def test_reshape_keeps_the_function_or_refuses(layout, data):
    first = data.draw(st.sampled_from([d for d in range(1, layout.size + 1) if layout.size % d == 0]))
    try:
        other = layout.reshape((first, layout.size // first))
    except LayoutError:
        return
    assert other.shape == (first, layout.size // first)
    assert values(other) == values(layout)


@given(layouts(), layouts(max_size=100))
@settings(max_examples=300)
def test_compose_is_composition_or_refuses(outer, inner):
    try:
        both = outer.compose(inner)
    except LayoutError:
        return
    assert both.shape == inner.shape
    assert values(both) == [evaluate(outer, y) for y in values(inner)]


@given(dense_layouts(), dense_layouts())
def test_compose_of_dense_layouts(outer, inner):
    try:
        both = outer.compose(inner)
    except LayoutError:
        return
    assert values(both) == [evaluate(outer, y) for y in values(inner)]


def test_compose_known():
    transposed = StridedLayout.column_major((4, 6)).compose(StridedLayout.row_major((8, 3)))
    assert values(transposed) == [(x % 6) * 4 + x // 6 for x in range(24)]
    with pytest.raises(LayoutError, match="reaches"):
        StridedLayout.row_major((4,)).compose(StridedLayout.row_major((5,)))


@given(dense_layouts())
def test_inverse_undoes(layout):
    inverse = layout.inverse()
    assert [evaluate(inverse, y) for y in values(layout)] == list(range(layout.size))
    for flat, y in enumerate(values(layout)):
        assert layout.coords_of(y) == unravel(flat, layout.shape)


@given(layouts(max_size=60))
def test_inverse_refuses_what_is_no_bijection(layout):
    if sorted(values(layout)) != list(range(layout.size)):
        with pytest.raises(LayoutError):
            layout.inverse()
    else:
        assert [evaluate(layout.inverse(), y) for y in values(layout)] == list(range(layout.size))


@given(layouts(max_size=40), st.sampled_from([24, 48, 64, 96, 120, 192]))
def test_complement_fills_the_range_exactly_once(layout, size):
    try:
        rest = layout.complement(size)
    except LayoutError:
        return
    sums = sorted(a + b for a in values(layout) for b in values(rest))
    assert sums == list(range(size))


def test_complement_known():
    assert values(StridedLayout.of((4, 2), (2, 16)).complement(64)) == [0, 1, 8, 9, 32, 33, 40, 41]
    with pytest.raises(LayoutError):
        StridedLayout.of((4, 4), (1, 2)).complement(64)


@given(layouts(max_size=40), st.data())
def test_product_places_copies_side_by_side(block, data):
    reps = [data.draw(st.sampled_from([1, 2, 3])) for _ in block.dims]
    grid = StridedLayout.column_major(reps)
    whole = block.product(grid)
    assert whole.shape == tuple(r * n for r, n in zip(reps, block.shape, strict=True))
    for point in itertools.product(*map(range, whole.shape)):
        which = [x // n for x, n in zip(point, block.shape, strict=True)]
        inside = [x % n for x, n in zip(point, block.shape, strict=True)]
        assert whole(*point) == block(*inside) + grid(*which) * block.cosize


@given(layouts(max_size=120), st.data())
def test_split_separates_block_and_place(layout, data):
    tile = [data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])) for n in layout.shape]
    try:
        parts = layout.split(tile)
    except LayoutError:
        return
    for point in itertools.product(*map(range, layout.shape)):
        outer = [x // t for x, t in zip(point, tile, strict=True)]
        inner = [x % t for x, t in zip(point, tile, strict=True)]
        assert parts(*outer, *inner) == layout(*point)


@given(layouts(), st.sampled_from([None, Swizzle(1, 2, 2), Swizzle(2, 1, 3), Swizzle(3, 3, 3)]), st.sampled_from([None, 2, 4, 5]))
def test_vector_width_is_the_largest(layout, swizzle, limit):
    layout = StridedLayout(layout.dims, swizzle)
    row = layout.shape[-1]
    expected = 1
    offsets = values(layout)
    for v in range(1, min(row, limit or row) + 1):
        groups = [offsets[k : k + v] for k in range(0, len(offsets), v)]
        if row % v == 0 and all(g[0] % v == 0 and g == list(range(g[0], g[0] + v)) for g in groups):
            expected = v
    assert layout.vector_width(limit) == expected


@given(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2))
def test_swizzle_is_an_involution_and_a_bijection_of_each_block(bits, base, more):
    swizzle = Swizzle(bits, base, bits + more)
    span = 1 << (bits + base + bits + more)
    assert sorted(swizzle(x) for x in range(span)) == list(range(span))
    assert all(swizzle(swizzle(x)) == x for x in range(2 * span))
    layout = StridedLayout(StridedLayout.row_major((span,)).dims, swizzle)
    assert all(layout.coords_of(layout(x)) == (x,) for x in range(span))


def test_swizzle_needs_disjoint_bits():
    with pytest.raises(LayoutError):
        Swizzle(3, 0, 2)


@given(st.lists(EXTENTS, min_size=1, max_size=4))
def test_ravel_and_unravel_agree_with_numpy(shape):
    for flat in range(math.prod(shape)):
        coords = unravel(flat, shape)
        assert coords == np.unravel_index(flat, shape)
        assert ravel(coords, shape) == flat


def test_symbolic_evaluation_matches_integers():
    """Any object with the integer operators will do: here one that records the formula."""

    class Formula:
        def __init__(self, text):
            self.text = text

    def operator(symbol):
        return lambda self, other: Formula(f"({self.text}{symbol}{getattr(other, 'text', other)})")

    def reflected(symbol):
        return lambda self, other: Formula(f"({other}{symbol}{self.text})")

    for name, symbol in {"add": "+", "mul": "*", "floordiv": "//", "mod": "%", "xor": "^"}.items():
        setattr(Formula, f"__{name}__", operator(symbol))
        setattr(Formula, f"__r{name}__", reflected(symbol))
    layout = StridedLayout((((2, 32), (4, 1)), ((8, 4),)), Swizzle(2, 0, 3))
    formula = layout(Formula("i"), Formula("j")).text
    for i, j in itertools.product(range(8), range(8)):
        assert eval(formula, {"i": i, "j": j}) == layout(i, j)

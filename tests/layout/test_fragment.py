"""Fragments against the relation they stand for, written out element by element."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import (
    Conflict,
    Fragment,
    LayoutError,
    StridedLayout,
    make_fully_replicated_layout_fragment,
    make_gemm_fragment_8x8,
    make_gemm_fragment_8x8_transposed,
)


def points(shape):
    return itertools.product(*map(range, shape))


def relation(fragment):
    """{(element, thread, register)} by calling the fragment's function on integers."""
    return {(p, *fragment(*p, rep)) for p in points(fragment.shape) for rep in range(fragment.replicate_size)}


@st.composite
def fragments(draw):
    """Iterators of a tile dealt out to threads and registers, with extra copies on threads: any extents."""
    extents = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=2, max_size=4))
    copies = draw(st.sampled_from([1, 2, 3]))
    kinds = [draw(st.booleans()) for _ in extents]
    thread, register = 1, 1
    places = []
    for extent, on_thread in zip(extents, kinds, strict=True):
        places.append((thread, 0) if on_thread else (0, register))
        thread, register = (thread * extent, register) if on_thread else (thread, register * extent)
    cut = draw(st.integers(1, len(extents) - 1))
    its = list(zip(extents, places, strict=True))
    dims = [its[:cut], its[cut:]]
    threads = StridedLayout((*(tuple((e, t) for e, (t, _) in d) for d in dims), ((copies, thread),)))
    registers = StridedLayout((*(tuple((e, r) for e, (_, r) in d) for d in dims), ((copies, 0),)))
    return Fragment(threads.shape[:-1], lambda i, j, rep: (threads(i, j, rep), registers(i, j, rep)), replicate=copies)


@given(fragments())
def test_owners_inverse_and_sizes(fragment):
    facts = relation(fragment)
    held = {}
    for element, thread, register in facts:
        held.setdefault((thread, register), set()).add(element)
    assert all(len(elements) == 1 for elements in held.values())
    assert fragment.get_thread_size() == 1 + max(t for _, t, _ in facts)
    assert fragment.get_register_size() == 1 + max(r for _, _, r in facts)
    for p in points(fragment.shape):
        assert fragment.owners(p) == sorted((t, r) for e, t, r in facts if e == p)
    inverse = fragment.inverse()
    for (thread, register), flat in np.ndenumerate(inverse):
        assert (flat >= 0) == ((thread, register) in held)
        if flat >= 0:
            assert held[thread, register] == {np.unravel_index(flat, fragment.shape)}
            assert fragment.coords_of(thread, register) == np.unravel_index(flat, fragment.shape)
    fragment.check(fragment.get_thread_size())


@given(fragments(), st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2])), st.booleans(), st.booleans())
def test_repeat(fragment, factors, on_thread, last_fastest):
    whole = fragment.repeat(factors, on_thread, last_fastest)
    assert whole.shape == tuple(e * f for e, f in zip(fragment.shape, factors, strict=True))
    for i, j in points(whole.shape):
        bi, bj = i // fragment.shape[0], j // fragment.shape[1]
        number = bi * factors[1] + bj if last_fastest else bj * factors[0] + bi
        for rep in range(fragment.replicate_size):
            thread, register = fragment(i % fragment.shape[0], j % fragment.shape[1], rep)
            if on_thread:
                thread += number * fragment.get_thread_size()
            else:
                register += number * fragment.get_register_size()
            assert whole(i, j, rep) == (thread, register)
    whole.check()


@given(fragments(), st.sampled_from([1, 2, 3]))
def test_replicate_and_condense(fragment, copies):
    more = fragment.replicate(copies)
    assert more.replicate_size == copies * fragment.replicate_size
    size = fragment.get_thread_size()
    assert relation(more) == {(e, t + k * size, r) for e, t, r in relation(fragment) for k in range(copies)}
    again = more.condense_rep_var()
    assert relation(again) == relation(more)
    assert again.replicate_size <= more.replicate_size


@pytest.mark.parametrize("copy", [lambda rep: rep % 2, lambda rep: rep // 3])
def test_condense_drops_copies_that_coincide(copy):
    fragment = Fragment((4,), lambda i, rep: (copy(rep) * 4 + i, 0), replicate=6)
    small = fragment.condense_rep_var()
    assert small.replicate_size == 2
    assert relation(small) == relation(fragment)
    assert Fragment((4,), lambda i: (i, 0), replicate=5).condense_rep_var().replicate_size == 1


@given(fragments(), fragments())
def test_join_is_the_larger_or_a_real_conflict(a, b):
    if a.shape != b.shape:
        return
    joined = a.join(b)

    def threads(f, p):
        return {t for t, _ in f.owners(p)}

    if isinstance(joined, Conflict):
        assert any(not threads(b, p) <= threads(a, p) for p in points(a.shape))
        assert any(not threads(a, p) <= threads(b, p) for p in points(a.shape))
        first = next(p for p in points(a.shape) if not threads(b, p) <= threads(a, p))
        assert joined.element == first
        assert (set(joined.first), set(joined.second)) == (threads(a, first), threads(b, first))
    else:
        assert joined is a or joined is b
        assert all(threads(f, p) <= threads(joined, p) for f in (a, b) for p in points(a.shape))


def test_join_of_replicated_and_spread():
    spread = Fragment((8,), lambda i: (i, 0))
    everywhere = make_fully_replicated_layout_fragment(type("B", (), {"shape": (8,)}), 8)
    assert spread.join(everywhere) is everywhere
    assert everywhere.join(spread) is everywhere
    assert str(spread.join(Fragment((8,), lambda i: (7 - i, 0)))) == "element (0,) is wanted on threads [0] and on threads [7]"


def test_shared_register_is_reported():
    with pytest.raises(LayoutError, match=r"elements \(\d, \d\) and \(\d, \d\) share register 0 of thread 0"):
        Fragment((4, 4), lambda i, j: (j, i // 2)).check()
    with pytest.raises(LayoutError, match="uses 8 threads, the block has 4"):
        Fragment((8,), lambda i: (i, 0)).check(4)


def test_automatic_register_numbers():
    fragment = Fragment((4, 6), forward_thread_fn=lambda i, j: j % 3)
    for t in range(3):
        mine = [(i, j) for i, j in points((4, 6)) if j % 3 == t]
        assert [fragment(i, j) for i, j in mine] == [(t, n) for n in range(8)]
    odd = Fragment((5,), forward_thread_fn=lambda i: i * i % 5)
    assert [odd(i) for i in range(5)] == [(0, 0), (1, 0), (4, 0), (4, 1), (1, 1)]


def test_separate_functions_and_copies():
    fragment = Fragment((4,), forward_thread_fn=lambda i, rep: rep * 4 + i, replicate=2, forward_index_fn=lambda i: [i // 2, i % 2])
    assert fragment.owners((3,)) == [(3, 3), (7, 3)]
    assert fragment.map_forward_thread([3], 1) == 7
    assert fragment.map_forward_index([3]) == 3


def test_atoms():
    plain, turned = make_gemm_fragment_8x8(), make_gemm_fragment_8x8_transposed()
    assert plain.get_thread_size() == turned.get_thread_size() == 32
    assert plain(3, 5) == turned(5, 3) == (14, 1)
    assert plain.is_equal(Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2)))
    assert not plain.is_equal(turned)
    strided = plain.strided()
    assert strided is not None
    assert all((strided[0](i, j, 0), strided[1](i, j, 0)) == plain(i, j) for i, j in points((8, 8)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (((4,),), "expected one of"),
        (((4,), lambda i: i), "must return"),
        (((4,), lambda i: (i, 0), None, 0), "positive"),
        (((4, 0), lambda i, j: (i, j)), "positive"),
    ],
)
def test_errors(arguments, text):
    with pytest.raises(LayoutError, match=text):
        Fragment(*arguments).check()
    with pytest.raises(LayoutError, match="has thread -1"):
        Fragment((2,), lambda i: (i - 1, 0)).check()

"""Packing: buffers that must lie apart do, alignments hold, and the bytes are close to those of an exact search."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.passes.memory import memory_plan
from tilelang.passes.memory.memory_plan import extent, pack


def apart_of(spans):
    """Buffers whose lives meet."""
    n = range(len(spans))
    return [{j for j in n if j != i and spans[i][0] <= spans[j][1] and spans[j][0] <= spans[i][1]} for i in n]


@st.composite
def problems(draw, most):
    """(sizes, alignments, who lies apart) of buffers with random lives."""
    n = draw(st.integers(1, most))
    sizes = [draw(st.integers(1, 200)) for _ in range(n)]
    alignments = [draw(st.sampled_from((1, 8, 16, 128))) for _ in range(n)]
    spans = [sorted(draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))) for _ in range(n)]
    return sizes, alignments, apart_of(spans)


def exact(sizes, alignments, apart):
    """The least bytes of all packings: offsets grow from buffer to buffer in some order, so that each may lie at the first aligned place
    above the earlier ones that it meets."""
    best = None

    def grow(left, placed, total):
        nonlocal best
        if best is not None and total >= best:
            return
        if not left:
            best = total
            return
        for i in left:
            floor = max([0, *(o + sizes[j] for j, o in placed.items() if j in apart[i])])
            offset = -(-floor // alignments[i]) * alignments[i]
            grow(left - {i}, {**placed, i: offset}, max(total, offset + sizes[i]))

    grow(frozenset(range(len(sizes))), {}, 0)
    return best


def check_legal(problem, offsets):
    sizes, alignments, apart = problem
    for i, j in itertools.combinations(range(len(sizes)), 2):
        assert j not in apart[i] or offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
    assert all(o >= 0 and o % a == 0 for o, a in zip(offsets, alignments, strict=True))


@settings(deadline=None)
@given(problems(5))
def test_few_buffers_are_packed_exactly(problem):
    found = pack(*problem)
    check_legal(problem, found)
    assert extent(found, problem[0]) == exact(*problem)


@settings(deadline=None, max_examples=150)
@given(problems(6))
def test_the_search_for_many_is_within_five_percent(problem):
    before, memory_plan._EXHAUSTIVE = memory_plan._EXHAUSTIVE, 0
    try:
        found = pack(*problem)
    finally:
        memory_plan._EXHAUSTIVE = before
    check_legal(problem, found)
    assert extent(found, problem[0]) <= 1.05 * exact(*problem)


@settings(deadline=None, max_examples=30)
@given(problems(40))
def test_many_buffers_lie_apart(problem):
    check_legal(problem, pack(*problem))


def test_the_bound_ends_the_search():
    sizes = [64] * 40
    apart = apart_of([(k, k + 1) for k in range(40)])
    found = pack(sizes, [16] * 40, apart, bound=128)
    assert extent(found, sizes) == 128

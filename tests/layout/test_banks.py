"""The rule of bank conflicts: against its definition in words, on patterns with known costs, and the lanes that it names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout.banks import NOBODY, WIDTHS, collision, passes, phases_of


def by_definition(addresses, width):
    """(passes, phases with a lane): phases one by one, words of each bank as sets."""
    phases = max(1, width // 4)
    total, active = 0, 0
    for phase in range(phases):
        banks = {}
        for address in addresses[phase * 32 // phases : (phase + 1) * 32 // phases]:
            for byte in range(width) if address >= 0 else ():
                word = (address + byte) // 4
                banks.setdefault(word % 32, set()).add(word)
        total += max((len(words) for words in banks.values()), default=0)
        active += bool(banks)
    return total, active


@given(st.sampled_from(WIDTHS), st.lists(st.lists(st.integers(-1, 300), min_size=32, max_size=32), min_size=1, max_size=4))
def test_passes_follow_the_definition(width, elements):
    addresses = np.array([[e * width if e >= 0 else NOBODY for e in row] for row in elements])
    found, active = passes(addresses, width)
    assert list(zip(found.tolist(), active.tolist(), strict=True)) == [by_definition(row.tolist(), width) for row in addresses]


@given(st.sampled_from(WIDTHS), st.lists(st.integers(-1, 300), min_size=32, max_size=32))
def test_colliding_lanes_want_different_words_of_one_bank(width, elements):
    addresses = np.array([e * width if e >= 0 else NOBODY for e in elements])
    bank, lanes = collision(addresses, width)
    words = [next(w for w in range(addresses[lane] // 4, (addresses[lane] + width - 1) // 4 + 1) if w % 32 == bank) for lane in lanes]
    assert len(set(words)) == len(lanes)
    worst = max(by_definition([a if k * phases_of(width) // 32 == p else NOBODY for k, a in enumerate(addresses)], width)[0]
                for p in range(phases_of(width)))  # fmt: skip
    assert len(lanes) == worst


@pytest.mark.parametrize(
    ("stride", "width", "expected"),
    [(4, 4, (1, 1)), (8, 4, (2, 1)), (128, 4, (32, 1)), (132, 4, (1, 1)), (0, 4, (1, 1)), (2, 2, (1, 1)), (8, 8, (2, 2)), (16, 8, (4, 2)),
     (16, 16, (4, 4)), (128, 16, (32, 4)), (144, 16, (4, 4)), (80, 16, (4, 4))],
)  # fmt: skip
def test_known_strides(stride, width, expected):
    found, active = passes(np.arange(32)[None] * stride, width)
    assert (int(found[0]), int(active[0])) == expected

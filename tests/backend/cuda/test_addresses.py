"""Offsets in parts: their sum is the offset, and each part changes as rarely as it can."""

import numpy as np
import pytest

from tilelang.backend.cuda.addresses import FIXED, LOOP, MIXED, UNROLLED, parts, rate
from tilelang.ir.evaluate import evaluate
from tilelang.ir.tvm_api import Var, const, tirx
from tilelang.passes.analysis.facts import Facts

T, K, U = Var("t", "int32"), Var("k", "int32"), Var("u", "int32")
RATES = {K: LOOP, U: UNROLLED}


def facts(extent=64):
    found = Facts()
    for var in (T, K, U):
        found.bind_range(var, 0, extent)
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (T % 8, FIXED), (K * 2 + T, LOOP), (U * 3 + 1, UNROLLED), (const(5, "int32"), UNROLLED), (tirx.BitwiseXor(T % 8, U), MIXED),
        (K + U, MIXED),
    ],
)  # fmt: skip
def test_rates(value, expected):
    assert rate(value, RATES) == expected


@pytest.mark.parametrize(
    ("offset", "count"),
    [
        ((T // 8 + U * 16 + (K + 2) % 3 * 128) * 72 + T % 8 * 8, 3), ((K - 1) * 64 + T, 3), (T * 4 + 7, 2), (T * 4, 1), (U * 4 + 7, 1),
        (tirx.BitwiseXor(T % 8, U) * 8 + U * 512 + T * 64, 3),
    ],
)  # fmt: skip
def test_the_parts_sum_to_the_offset(offset, count):
    found = parts(offset, RATES, facts(), small=False)
    assert len(found) == count
    points = dict(zip((T, K, U), np.random.default_rng(0).integers(0, 64, (3, 50)), strict=True))
    total = sum(np.broadcast_to(evaluate(part, points), 50) for part in found)
    np.testing.assert_array_equal(total, evaluate(offset, points))
    rates = [rate(part, RATES) for part in found]
    assert rates == sorted(rates)


def test_small_memory_needs_no_bounds():
    offset = tirx.BitwiseXor(T % 8, U) * 8 + U * 512 + T * 64
    assert len(parts(offset, RATES, facts(), small=True)) == 3


def test_a_part_that_may_leave_32_bits_stays_with_the_others():
    offset = (T * 65536 - K * 65536) * 1 + U
    assert len(parts(offset, RATES, facts(1 << 16), small=False)) == 1

"""Index arithmetic is exact, except that a divisor may be 0."""

import pytest

from tilelang.ir.positions import multiple_of, same, simplified, surely
from tilelang.ir.tvm_api import IntImm, Var, const, tirx
from tilelang.passes.partition.vector_width import _divisor

k, n = Var("k", "int32"), Var("n", "int32")
FOUR = const(4, "int32")


@pytest.mark.parametrize("divide", [tirx.FloorDiv, tirx.Div])
def test_a_divisor_that_may_be_zero_is_not_cancelled(divide):
    """k * n // n is 0 where n is 0."""
    assert simplified(divide(k * 4, FOUR)).same_as(k) and same(divide(k * 4, FOUR), k)
    quotient = divide(k * n, n)
    assert simplified(quotient).same_as(quotient) and not same(quotient, k) and same(quotient, divide(k * n, n))
    assert not surely(tirx.EQ(quotient, k))
    assert not surely(tirx.EQ(tirx.FloorDiv(n, n), const(1, "int32")))


def test_sums_are_exact():
    assert surely(k + 1 > k) and same(k * 2, k + k) and not same(k, n) and not surely(k * n >= 0)
    assert isinstance(simplified(k - k), IntImm) and simplified(7) == 7
    assert same(3, 3) and not same(3, k) and not same(k, Var("k", "int64"))


def test_multiples():
    assert multiple_of(k * 8 + 16, 8) and not multiple_of(k * 8 + 4, 8) and multiple_of(24, 8) and not multiple_of(const(4, "int32"), 8)


@pytest.mark.parametrize(("extent", "divisor"), [(n * 6, 6), (n * 6 + 4, 2), (n * 2 + 1, 1), (n, 1), (const(12, "int32"), 12)])
def test_what_divides_an_extent(extent, divisor):
    """2 n + 1 is of the form 2 k + 1: the 1 counts."""
    assert _divisor(extent) == divisor

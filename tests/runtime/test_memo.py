"""Call arguments as keys: equal exactly for equal calls."""

import numpy as np
import pytest

from tilelang.errors import TileTypeError
from tilelang.runtime.memo import bind, freeze


def factory(m, n, block=32, *, dtype="float32"):
    return m, n, block, dtype


def key(*args, **named):
    return freeze(bind(factory, args, named))


def test_spellings_of_one_call():
    assert key(1, 2) == key(1, n=2) == key(n=2, m=1) == key(1, 2, 32) == key(1, 2, block=32, dtype="float32")


@pytest.mark.parametrize(
    "value, same",
    [([1, 2], [1, 2]), ({"a": [1]}, {"a": [1]}), ({1, 2}, {2, 1}), (np.arange(3), np.arange(3)), (float("nan"), float("nan"))],
)
def test_by_value(value, same):
    assert freeze(value) == freeze(same)
    assert hash(freeze(value)) == hash(freeze(same))


DIFFERENT = [
    1,
    1.0,
    True,
    0.0,
    -0.0,
    "1",
    (1,),
    [1],
    {1},
    {1: 1},
    None,
    np.int32(1),
    np.arange(2),
    np.arange(2.0),
    [[1], 2],
    [1, [2]],
    int,
    float,
]


@pytest.mark.parametrize("k", range(len(DIFFERENT)))
def test_different_values_have_different_keys(k):
    assert [j for j, other in enumerate(DIFFERENT) if freeze(other) == freeze(DIFFERENT[k])] == [k]


def test_unhashable_objects_equal_only_themselves():
    class Odd:
        __hash__ = None

        def __eq__(self, other):
            raise RuntimeError("must not be asked")

    odd = Odd()
    assert freeze(odd) == freeze(odd)
    assert freeze(odd) != freeze(Odd())


def test_a_call_that_does_not_fit():
    with pytest.raises(TileTypeError, match="factory: missing a required argument: 'n'"):
        bind(factory, (1,), {})

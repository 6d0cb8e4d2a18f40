"""Asynchronous copies whose groups the program counts itself: the data is there after `T.ptx_wait_group`, no later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import SimtError


def two_tiles(left: int, columns: int = 32) -> Any:
    """Two groups in flight; the first tile is read after a wait that leaves `left` groups open, the second at the end."""

    @T.prim_func
    def main(A: T.Tensor((2, 32, columns), "float16"), O: T.Tensor((2, 32, columns), "float16")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((32, columns), "float16")
            r = T.alloc_shared((32, columns), "float16")
            T.async_copy(A[0, 0:32, 0:columns], s)
            T.async_copy(A[1, 0:32, 0:columns], r)
            T.ptx_wait_group(left)
            T.copy(s, O[0, 0:32, 0:columns])
            T.ptx_wait_group(0)
            T.copy(r, O[1, 0:32, 0:columns])

    return main


def filled(columns: int) -> tuple[np.ndarray, np.ndarray]:
    a = np.random.default_rng(0).standard_normal((2, 32, columns)).astype(np.float16)
    return a, np.full_like(a, np.nan)


@pytest.mark.parametrize("left", [0, 1])
def test_copies_land_at_the_wait(left: int) -> None:
    a, o = filled(32)
    tilelang.compile(two_tiles(left), target="simt")(a, o)
    np.testing.assert_array_equal(o, a)


def test_a_read_before_the_wait_is_reported() -> None:
    with pytest.raises(SimtError, match="asynchronous copy has not landed"):
        tilelang.compile(two_tiles(2), target="simt")(*filled(32))

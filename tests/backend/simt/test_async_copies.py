"""Asynchronous copies whose groups the program counts itself: the data is there after `T.ptx_wait_group`, no later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import SimtError


def two_tiles(left: int) -> Any:
    """Two groups in flight; the first tile is read after a wait that leaves `left` groups open, the second at the end."""

    @T.prim_func
    def main(A: T.Tensor((2, 32, 32), "float16"), O: T.Tensor((2, 32, 32), "float16")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((32, 32), "float16")
            r = T.alloc_shared((32, 32), "float16")
            T.async_copy(A[0, 0:32, 0:32], s)
            T.async_copy(A[1, 0:32, 0:32], r)
            T.ptx_wait_group(left)
            T.copy(s, O[0, 0:32, 0:32])
            T.ptx_wait_group(0)
            T.copy(r, O[1, 0:32, 0:32])

    return main


def filled() -> tuple[np.ndarray, np.ndarray]:
    a = np.random.default_rng(0).standard_normal((2, 32, 32)).astype(np.float16)
    return a, np.full_like(a, np.nan)


@pytest.mark.parametrize("left", [0, 1])
def test_copies_land_at_the_wait(left: int) -> None:
    a, o = filled()
    tilelang.compile(two_tiles(left), target="simt")(a, o)
    np.testing.assert_array_equal(o, a)


def test_a_read_before_the_wait_is_reported() -> None:
    with pytest.raises(SimtError, match="asynchronous copy has not landed"):
        tilelang.compile(two_tiles(2), target="simt")(*filled())


def test_a_copy_by_loops_counts_as_a_group() -> None:
    """The second tile's rows are no whole chunks, so that it is copied at once; the wait must still let the first land."""

    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 33), "float16"), O: T.Tensor((32, 65), "float16")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((32, 32), "float16")
            r = T.alloc_shared((32, 33), "float16")
            T.async_copy(A, s)
            T.async_copy(B, r)
            T.ptx_wait_group(1)
            T.copy(s, O[0:32, 0:32])
            T.copy(r, O[0:32, 32:65])

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, n)).astype(np.float16) for n in (32, 33))
    o = np.full((32, 65), np.nan, np.float16)
    tilelang.compile(main, target="simt")(a, b, o)
    np.testing.assert_array_equal(o, np.hstack([a, b]))

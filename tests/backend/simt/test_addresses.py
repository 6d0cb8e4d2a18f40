"""Tensors at addresses that the program computes, which may differ between blocks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import SimtError


def table() -> Any:
    @T.prim_func
    def main(P: T.Tensor((3,), T.ptr), O: T.Tensor((3, 8), "float32")):
        with T.Kernel(3, threads=8) as b:
            x = T.get_thread_binding()
            src = T.make_tensor_from_addr(P[b], (8,), "float32")
            O[b, x] = src[7 - x] * 2.0
            src[x] = T.Cast("float32", b)

    return main


def arrays() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    tiles = [np.arange(8, dtype=np.float32) + 100 * k for k in range(3)]
    return tiles, np.array([t.ctypes.data for t in tiles], np.int64), np.full((3, 8), np.nan, np.float32)


def test_a_table_of_addresses() -> None:
    tiles, addresses, o = arrays()
    before = np.stack(tiles)
    tilelang.compile(table(), target="simt", pass_configs={"tl.disable_thread_storage_sync": True})(addresses, o)
    np.testing.assert_array_equal(o, before[:, ::-1] * 2)
    np.testing.assert_array_equal(np.stack(tiles), np.repeat(np.arange(3, dtype=np.float32)[:, None], 8, 1))


def test_an_address_and_an_offset() -> None:
    @T.prim_func
    def main(P: T.int64, O: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            x = T.get_thread_binding()
            src = T.make_tensor_from_addr(P + 16, (4,), "float32")
            O[x] = src[x % 4]

    tile, o = np.arange(8, dtype=np.float32), np.full(8, np.nan, np.float32)
    tilelang.compile(main, target="simt")(tile.ctypes.data, o)
    np.testing.assert_array_equal(o, np.tile(tile[4:], 2))


def test_a_null_address_is_reported() -> None:
    tiles, addresses, o = arrays()
    addresses[1] = 0
    with pytest.raises(SimtError, match="src stands at addresses that are null"):
        tilelang.compile(table(), target="simt")(addresses, o)
    assert tiles[0][1] == 1

"""Bank conflicts and sectors of accesses whose numbers are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def counted(stride: int, dtype: str) -> Any:
    @T.prim_func
    def main(X: T.Tensor((32 * 32,), dtype), Y: T.Tensor((32,), dtype)):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32 * 33,), dtype)
            tx = T.get_thread_binding()
            s[tx * stride] = X[tx * stride % 1024]
            Y[tx] = s[tx * stride]

    return main


@pytest.mark.parametrize(
    ("stride", "dtype", "conflicts", "sectors"),
    [
        (1, "float32", 0, 4), (2, "float32", 1, 8), (32, "float32", 31, 32), (33, "float32", 0, 32),
        (1, "float16", 0, 2), (2, "float64", 2, 16),
    ],
)  # fmt: skip
def test_known_patterns(stride: int, dtype: str, conflicts: int, sectors: int) -> None:
    kernel = tilelang.compile(counted(stride, dtype), target="simt", pass_configs={"tl.simt_counters": True})
    kernel(np.zeros(1024, dtype), np.zeros(32, dtype))
    rows = kernel.artifact.entry.counters.rows()
    store = next(count for site, count in rows if site.buffer == "s" and site.what == "write")
    load = next(count for site, count in rows if site.buffer == "X")
    assert store.conflicts == conflicts
    assert load.sectors == sectors

"""Arrays that NumPy does not export itself: direct calls through views, for arguments and for outputs that the kernel makes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileTypeError, TileValueError
from tilelang.runtime.kernel import JITKernel

BF16 = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def kernel() -> JITKernel:
    """(A of n, -A of n, 2 * A of n rows and 1 column) with the outputs returned in the other order."""
    n = T.dynamic("n")

    @T.prim_func
    def main(N: T.Tensor((n,), "bfloat16"), A: T.Tensor((n,), "bfloat16"), D: T.Tensor((n, 1), "bfloat16")):
        with T.Kernel(n) as b:
            N[b] = -A[b]
            D[b, 0] = A[b] + A[b]

    return tilelang.compile(main, out_idx=[2, 0], target="cpu")


def test_outputs_are_fresh_arrays_in_the_order_of_out_idx(kernel: JITKernel) -> None:
    kept = []
    for n in (3, 5, 3, 3):  # the first call is checked argument by argument, the others are direct
        a = np.arange(1, n + 1).astype(BF16)
        doubled, negative = kernel(a)
        assert type(doubled) is np.ndarray and doubled.dtype == BF16 and doubled.shape == (n, 1)
        np.testing.assert_array_equal(doubled[:, 0].astype(np.float32), 2 * np.arange(1, n + 1))
        np.testing.assert_array_equal(negative.astype(np.float32), -np.arange(1, n + 1))
        kept += [doubled, negative]
    assert len({array.ctypes.data for array in kept}) == len(kept)


def test_direct_calls_still_refuse_what_does_not_fit(kernel: JITKernel) -> None:
    a = np.ones(4, BF16)
    kernel(a), kernel(a)
    with pytest.raises(TileTypeError, match="expected dtype bfloat16, got float16"):
        kernel(np.ones(4, np.float16))
    with pytest.raises(TileValueError, match="contiguous"):
        kernel(np.ones(8, BF16)[::2])
    doubled, _ = kernel(np.zeros(0, BF16))
    assert doubled.shape == (0, 1)
    read_only = np.ones(4, BF16)
    read_only.flags.writeable = False
    np.testing.assert_array_equal(kernel(read_only)[1].astype(np.float32), -1)

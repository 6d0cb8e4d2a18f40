"""Whole programs compared with NumPy: combinations of features whose parts are tested elsewhere."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def test_table_of_addresses():
    @T.prim_func
    def main(P: T.Tensor((3,), T.ptr), O: T.Tensor((3, 8), "float32")):
        with T.Kernel(3, threads=8) as b:
            source = T.make_tensor_from_addr(P[b], (8,), "float32")
            for i in T.Parallel(8):
                O[b, i] = source[7 - i] * 2.0

    rows = [np.arange(8, dtype=np.float32) + k for k in range(3)]
    out = np.zeros((3, 8), np.float32)
    tilelang.compile(main, target="cpu")(np.array([r.ctypes.data for r in rows]), out)
    assert np.array_equal(out, np.stack(rows)[:, ::-1] * 2)


def test_symbols_inside_extents_only():
    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def main(
        A: T.Tensor((m + n + 3 * k,), "int8"), B: T.Tensor((m,), "int8"), C: T.Tensor((m + 2 * n,), "int8"), O: T.Tensor((3,), "int32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=1):
            O[0] = n
            O[1] = k
            O[2] = A.shape[0]

    kernel = tilelang.compile(main, target="cpu")
    a, b, c = (np.zeros(size, np.int8) for size in (5 + 7 + 12, 5, 19))
    out = np.zeros(3, np.int32)
    kernel(a, b, c, out)
    assert out.tolist() == [7, 4, 24]
    with pytest.raises(ValueError, match=r"C\.shape\[0\] is 18.*no size n gives that"):
        kernel(a, b, c[:18].copy(), out)
    with pytest.raises(ValueError, match=r"C\.shape\[0\] is 3.*no size n gives that"):
        kernel(a, b, c[:3].copy(), out)


def test_assertion_on_the_host_between_guarded_accesses():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        half = n // 2
        assert half < n
        with T.Kernel(T.ceildiv(half, 16), threads=16) as b:
            i = b * 16 + T.get_thread_binding()
            if i < half:
                B[i] = A[n - 1 - i]

    a, b = np.arange(51, dtype=np.float32), np.zeros(51, np.float32)
    tilelang.compile(main, target="cpu")(a, b)
    assert np.array_equal(b, np.where(np.arange(51) < 25, a[::-1], 0))

"""Results of products that pass through shared memory on their way to global memory, in the emulator."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values

STAGED = "through shared memory: stores of 16 bytes"


def product(M, N, out="float16", tile=(64, 64), again=1, taken=True):
    m, n = tile

    @T.prim_func
    def main(A: T.Tensor((M, 32), "float16"), B: T.Tensor((32, N), "float16"), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(N, n), T.ceildiv(M, m), threads=128) as (bx, by):
            a = T.alloc_shared((m, 32), "float16")
            b = T.alloc_shared((32, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A[by * m, 0], a)
            T.copy(B[0, bx * n], b)
            T.gemm(a, b, c, clear_accum=True)
            if again > 1:
                for _ in T.serial(again):
                    T.copy(c, C[by * m, bx * n])
            elif taken:
                T.copy(c, C[by * m, bx * n])
            else:
                for i, j in T.Parallel(m, n):
                    C[by * m + i, bx * n + j] = c[i, j]

    return main


def check(program, M, N, out="float16"):
    a, b = values((M, 32), "float16"), values((32, N), "float16")
    c = np.full((M, N), 77, numpy_type(out))
    notes = run(program, a, b, c, target="simt -arch=sm_90")
    np.testing.assert_array_equal(c.astype(np.float64), (a.astype(np.float64) @ b.astype(np.float64)).astype(c.dtype).astype(np.float64))
    return STAGED in notes.get("copy", [])


@pytest.mark.parametrize(("M", "N"), [(64, 64), (128, 64), (100, 72), (33, 70)])
def test_whole_and_ragged_tiles(M, N):
    assert check(product(M, N), M, N)


@pytest.mark.parametrize("tile", [(32, 64), (64, 24), (16, 8)])
def test_tiles(tile):
    assert check(product(64, 48, tile=tile), 64, 48)


def test_bfloat16():
    assert check(product(64, 64, "bfloat16"), 64, 64, "bfloat16")


def test_where_it_does_not_pay():
    assert not check(product(64, 64, "float32"), 64, 64, "float32")  # pairs of float32 fill sectors
    assert not check(product(64, 64, again=2), 64, 64)  # in a loop the tile would live beside the others
    assert not check(product(64, 64, taken=False), 64, 64)  # no copy
    assert not check(product(64, 64, tile=(64, 12)), 64, 64)  # rows of 24 bytes


def test_no_room():
    @T.prim_func
    def main(A: T.Tensor((128, 512), "float16"), C: T.Tensor((128, 128), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 512), "float16")
            b = T.alloc_shared((128, 384), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(A, a)
            T.copy(A[0, 0], b)
            T.gemm(a[:, 0:384], b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    a, c = values((128, 512), "float16"), np.zeros((128, 128), np.float16)
    assert STAGED not in run(main, a, c, target="simt -arch=sm_90").get("copy", [])
    x = a[:, :384].astype(np.float64)
    np.testing.assert_array_equal(c, (x @ x.T).astype(np.float16))

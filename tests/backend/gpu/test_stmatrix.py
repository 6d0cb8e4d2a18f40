"""Fragments stored by stmatrix: where the matrices lie, what arrives on the emulator, and what declines."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.gpu.stmatrix import Matrices, matrices_of
from tilelang.backend.gpu.warpgroup_gemm import WarpgroupGrid
from tilelang.backend.gpu.wgmma import product_of
from tilelang.ir.dtype_table import numpy_type
from tilelang.layout.fragment import Fragment

TARGET = "simt -arch=sm_90a"
SQUARE = ((0, 0), (8, 0), (0, 8), (8, 8))


def grid(rows, columns, n):
    product = product_of(n, "float32", "float16", "float16")
    assert product is not None
    return WarpgroupGrid(rows, columns, 1, 1, product)


@pytest.mark.parametrize(("rows", "columns", "outer"), [(2, 1, (64, 0)), (1, 2, (0, 32)), (3, 1, (64, 0))])
def test_accumulators_are_matrices(rows, columns, outer):
    layout = grid(rows, columns, 32).accumulator((64 * rows, 32 * columns))
    assert matrices_of(layout, 128 * rows * columns) == Matrices((outer, (16, 0)), ((0, 0), (0, 16)), SQUARE)


def test_operands_in_registers_are_matrices():
    layout = grid(2, 1, 32).left((128, 48))
    assert matrices_of(layout, 256) == Matrices(((64, 0), (16, 0)), ((0, 0), (0, 16), (0, 32)), SQUARE)


def test_every_element_is_where_its_matrix_says():
    layout = grid(2, 1, 32).accumulator((128, 32))
    found = matrices_of(layout, 256)
    assert found is not None
    for i in range(128):
        for j in range(32):
            thread, register = layout.forward([i, j])
            w, lane, g, m, e = thread // 32, thread % 32, register // 8, register // 2 % 4, register % 2
            corner = [found.warp[0][k] * (w // 4) + found.warp[1][k] * (w % 4) + found.step[g][k] + found.matrix[m][k] for k in (0, 1)]
            assert (i, j) == (corner[0] + lane // 4, corner[1] + lane % 4 * 2 + e)


def test_rows_of_a_thread_are_none():
    assert matrices_of(Fragment((128, 8), lambda i, j: (i, j)), 128) is None
    assert matrices_of(Fragment((64, 32), lambda i, j: (i * 2 + j // 16, j % 16)), 128) is None


def through_shared(m, n, dtype, threads, policy, swizzled=True):
    """C = A B as `dtype`, through a shared tile."""
    rows = n if swizzled else n + 4

    @T.prim_func
    def main(A: T.Tensor((m, 32), "float16"), B: T.Tensor((32, n), "float16"), C: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, 32), "float16")
            b = T.alloc_shared((32, n), "float16")
            o = T.alloc_shared((m, rows), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True, policy=policy)
            T.copy(c, o[0:m, 0:n])
            for i, j in T.Parallel(m, n):
                C[i, j] = o[i, j]

    return main


def run(program, m, n, dtype):
    kernel = tilelang.compile(program, target=TARGET)
    rng = np.random.default_rng(m + n)
    a, b = (rng.integers(-3, 4, s).astype("float16") for s in ((m, 32), (32, n)))
    c = np.zeros((m, n), kernel_type(dtype))
    kernel(a, b, c)
    np.testing.assert_array_equal(c.astype("f8"), a.astype("f8") @ b.astype("f8"))
    return [n.text for n in kernel.artifact.notes if n.subject == "copy"]


def kernel_type(dtype):
    return np.dtype(numpy_type(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("m", "n", "threads", "policy"), [
    (64, 64, 128, T.GemmWarpPolicy.FullRow),
    (128, 32, 256, T.GemmWarpPolicy.FullRow),
    (64, 128, 256, T.GemmWarpPolicy.FullCol),
    (128, 128, 128, T.GemmWarpPolicy.FullRow),  # two tiles of rows
])  # fmt: skip
def test_results(m, n, threads, policy, dtype):
    assert "stmatrix" in run(through_shared(m, n, dtype, threads, policy), m, n, dtype)


def test_other_types_decline():
    found = run(through_shared(64, 64, "float32", 128, T.GemmWarpPolicy.FullRow), 64, 64, "float32")
    assert "stmatrix declined: float32 to float32 is no copy of 16-bit elements" in found


def test_rows_of_no_whole_chunks_decline():
    found = run(through_shared(64, 64, "float16", 128, T.GemmWarpPolicy.FullRow, swizzled=False), 64, 64, "float16")
    assert "stmatrix declined: rows of the tile are no whole chunks of 16 bytes" in found


def test_ampere_has_none():
    kernel = tilelang.compile(through_shared(64, 64, "float16", 128, T.GemmWarpPolicy.FullRow), target="simt -arch=sm_80")
    assert "stmatrix declined: sm_80 has no stmatrix (sm_90 has)" in [n.text for n in kernel.artifact.notes]

"""Grouped GEMM: row groups of different sizes, each with its own weights, in one launch.

The grid has room for the worst case; a block walks over the group sizes to find its group and rows, or nothing to do.
"""

import numpy as np

import tilelang
import tilelang.language as T


def grouped_gemm(groups, total, N, K, block_M=32, block_N=64, block_K=64, dtype="float16"):
    max_tiles = total // block_M + groups

    @T.prim_func
    def kernel(
        X: T.Tensor((total, K), dtype),
        W: T.Tensor((groups, K, N), dtype),
        sizes: T.Tensor((groups,), "int32"),
        Y: T.Tensor((total, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), max_tiles, threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), dtype)
            w = T.alloc_shared((block_K, block_N), dtype)
            y = T.alloc_fragment((block_M, block_N), "float32")
            group = T.alloc_var("int32", -1)
            first = T.alloc_var("int32", 0)  # first row of this tile
            end = T.alloc_var("int32", 0)  # end of this tile's group
            tiles_before = T.alloc_var("int32", 0)
            rows_before = T.alloc_var("int32", 0)

            for g in T.serial(groups):
                tiles = T.ceildiv(sizes[g], block_M)
                if by >= tiles_before and by < tiles_before + tiles:
                    group = g
                    first = rows_before + (by - tiles_before) * block_M
                    end = rows_before + sizes[g]
                tiles_before += tiles
                rows_before += sizes[g]

            if group >= 0:
                T.clear(y)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(X[first : first + block_M, k * block_K : (k + 1) * block_K], x)
                    T.copy(W[group, k * block_K : (k + 1) * block_K, bx * block_N : (bx + 1) * block_N], w)
                    T.gemm(x, w, y)
                for i, j in T.Parallel(block_M, block_N):
                    if first + i < end:
                        Y[first + i, bx * block_N + j] = y[i, j]

    return kernel


def reference(x, w, sizes):
    parts = np.split(x.astype(np.float64), np.cumsum(sizes)[:-1])
    return np.concatenate([rows @ weights for rows, weights in zip(parts, w.astype(np.float64), strict=True)])


def main(target="cpu"):
    groups, total, N, K = 4, 300, 96, 128
    rng = np.random.default_rng(0)
    x = rng.standard_normal((total, K)).astype(np.float16)
    w = rng.standard_normal((groups, K, N)).astype(np.float16)
    kernel = tilelang.compile(grouped_gemm(groups, total, N, K), out_idx=[-1], target=target)
    for sizes in np.array([[150, 0, 33, 117], [1, 64, 235, 0]], np.int32):
        np.testing.assert_allclose(kernel(x, w, sizes), reference(x, w, sizes), rtol=2e-3, atol=2e-2)
        print(f"grouped GEMM with groups of {sizes.tolist()} rows: agrees with NumPy")


if __name__ == "__main__":
    main()

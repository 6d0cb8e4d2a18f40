"""Rows divided by their root mean square, with a weight; the number of rows is known only at the call."""

import numpy as np

import tilelang
import tilelang.language as T


def rmsnorm(N, block_M=1, eps=1e-5, dtype="float32", threads=128):
    M = T.symbolic("M")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as by:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")

            T.copy(X[by * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                Y[by * block_M + i, j] = x[i, j] * scale[i] * weight[j]

    return kernel


def reference(x, weight, eps=1e-5):
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps) * weight


def main(target="cpu"):
    N = 768
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(N, dtype=np.float32)
    kernel = tilelang.compile(rmsnorm(N), out_idx=[-1], target=target)
    for M in (1, 33, 512):  # one compiled kernel for every number of rows
        x = 2 * rng.standard_normal((M, N), dtype=np.float32)
        np.testing.assert_allclose(kernel(x, weight), reference(x, weight), rtol=1e-4, atol=1e-5)
        print(f"root mean square normalisation {M} x {N}: agrees with NumPy")


if __name__ == "__main__":
    main()

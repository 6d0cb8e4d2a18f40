"""Row softmax in two ways: rows of any length in two passes, and rows that fit into registers, read once.

The first of the two passes keeps a running maximum and rescales the running sum whenever the maximum grows,
so a row never has to fit into memory at once.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


def softmax(M, N, block_M=16, block_N=256, dtype="float32"):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as by:
            x = T.alloc_fragment((block_M, block_N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_max_new = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            block_sum = T.alloc_fragment((block_M,), "float32")

            T.fill(row_max, -T.infinity("float32"))
            T.clear(row_sum)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                # Columns past the end of the row must not win the maximum.
                for i, j in T.Parallel(block_M, block_N):
                    inside = by * block_M + i < M and k * block_N + j < N
                    x[i, j] = T.if_then_else(inside, X[by * block_M + i, k * block_N + j], -1e30)
                T.copy(row_max, row_max_new)
                T.reduce_max(x, row_max_new, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2((x[i, j] - row_max_new[i]) * LOG2E)
                T.reduce_sum(x, block_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * T.exp2((row_max[i] - row_max_new[i]) * LOG2E) + block_sum[i]
                    row_max[i] = row_max_new[i]

            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[by * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2((x[i, j] - row_max[i]) * LOG2E) / row_sum[i]
                T.copy(x, Y[by * block_M, k * block_N])

    return kernel


def row_softmax(M, N, block_M=1, dtype="float32", threads=128):
    """Whole rows in registers."""

    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as by:
            x = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(X[by * block_M, 0], x)
            T.reduce_max(x, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp2(x[i, j] * LOG2E - row_max[i] * LOG2E)
            T.reduce_sum(x, row_sum, dim=1)
            for i in T.Parallel(block_M):
                row_sum[i] = 1.0 / row_sum[i]
            for i, j in T.Parallel(block_M, N):
                Y[by * block_M + i, j] = x[i, j] * row_sum[i]

    return kernel


def reference(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main(target="cpu"):
    M, N = 250, 1000
    x = 4 * np.random.default_rng(0).standard_normal((M, N), dtype=np.float32)
    for name, program in {"two passes": softmax(M, N), "rows in registers": row_softmax(M, N)}.items():
        y = tilelang.compile(program, out_idx=[1], target=target)(x)
        np.testing.assert_allclose(y, reference(x), rtol=1e-4, atol=1e-7)
        print(f"softmax {M} x {N}, {name}: agrees with NumPy")


if __name__ == "__main__":
    main()

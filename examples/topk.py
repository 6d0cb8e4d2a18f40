"""The k largest of every row with their columns, as a router of experts needs them: take the maximum, mask it, repeat."""

import numpy as np

import tilelang
import tilelang.language as T


def topk(M, N, k, block_M=32):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), values: T.Tensor((M, k), "float32"), indices: T.Tensor((M, k), "int32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as by:
            x = T.alloc_fragment((block_M, N), "float32")
            column = T.alloc_fragment((block_M, N), "int32")
            largest = T.alloc_fragment((block_M,), "float32")
            where = T.alloc_fragment((block_M,), "int32")

            T.copy(X[by * block_M, 0], x)
            for n in T.serial(k):
                T.reduce_max(x, largest, dim=1)
                for i, j in T.Parallel(block_M, N):
                    column[i, j] = T.if_then_else(x[i, j] == largest[i], j, N)
                T.reduce_min(column, where, dim=1)  # of equal values the first one
                for i, j in T.Parallel(block_M, N):
                    if j == where[i]:
                        x[i, j] = -T.infinity("float32")
                for i in T.Parallel(block_M):
                    if by * block_M + i < M:
                        values[by * block_M + i, n] = largest[i]
                        indices[by * block_M + i, n] = where[i]

    return kernel


def main(target="cpu"):
    M, N, k = 500, 64, 6
    # Coarse values: ties occur, and the first column must win.
    x = np.round(8 * np.random.default_rng(0).standard_normal((M, N))).astype(np.float32)
    values, indices = tilelang.compile(topk(M, N, k), out_idx=[1, 2], target=target)(x)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=1))
    print(f"top {k} of {M} rows of {N}: agrees with NumPy")


if __name__ == "__main__":
    main()

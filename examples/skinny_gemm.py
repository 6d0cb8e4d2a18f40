"""Products with up to 16 rows, as in decoding: the weights are read once, and the time is that of reading them.

`skinny_gemm` takes weights of either order. Where blocks take whole rows of them, each begins at another place along K: else blocks that
run side by side would all read the same columns, which a few channels of memory have to deliver. `skinny_gemm_split_k` divides K among
blocks, which add their parts to C by atomics. `skinny_gemm_int4` unpacks weights of 4 bits, two a byte, in registers, as the rows of the
product C^T = W X^T.
"""

import numpy as np

import tilelang
import tilelang.language as T


def skinny_gemm(M, N, K, transposed=True, block_N=32, block_K=256, stages=8, threads=256, dtype="float16"):
    """C = X W^T, W (N, K) (transposed), or C = X W, W (K, N); M is at most 16."""
    rows, steps = 16, K // block_K

    @T.prim_func
    def kernel(X: T.Tensor((M, K), dtype), W: T.Tensor((N, K) if transposed else (K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as b:
            x = T.alloc_shared((rows, block_K), dtype)
            w = T.alloc_shared((block_N, block_K) if transposed else (block_K, block_N), dtype)
            c = T.alloc_fragment((rows, block_N), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=stages):
                k = (step + (b if transposed else 0)) % steps * block_K
                T.copy(X[0, k], x)
                if transposed:
                    T.copy(W[b * block_N, k], w)
                else:
                    T.copy(W[k, b * block_N], w)
                T.gemm(x, w, c, transpose_B=transposed)
            T.copy(c, C[0, b * block_N])

    return kernel


def skinny_gemm_split_k(M, N, K, splits=4, transposed=True, block_N=64, block_K=128, stages=5, threads=128, dtype="float16"):
    """C += X W^T or X W, C in float32 and zero at the beginning: each block takes one of `splits` parts of K."""
    rows, steps = 16, K // block_K // splits

    @T.prim_func
    def kernel(X: T.Tensor((M, K), dtype), W: T.Tensor((N, K) if transposed else (K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), splits, threads=threads) as (b, part):
            x = T.alloc_shared((rows, block_K), dtype)
            w = T.alloc_shared((block_N, block_K) if transposed else (block_K, block_N), dtype)
            c = T.alloc_fragment((rows, block_N), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=stages):
                k = (part * steps + step) * block_K
                T.copy(X[0, k], x)
                if transposed:
                    T.copy(W[b * block_N, k], w)
                else:
                    T.copy(W[k, b * block_N], w)
                T.gemm(x, w, c, transpose_B=transposed)
            for i, j in T.Parallel(rows, block_N):
                T.atomic_add(C[i, b * block_N + j], c[i, j])

    return kernel


def skinny_gemm_int4(M, N, K, group=128, block_N=32, block_K=512, stages=6, threads=256, dtype="float16"):
    """C = X W^T, W (N, K) in two numbers of 4 bits a byte (the even column low), each less 8 and times the scale of its row and group of
    columns; M is at most 16, and block_K a multiple of `group`."""
    rows, steps, groups = 16, K // block_K, block_K // group

    @T.prim_func
    def kernel(
        X: T.Tensor((M, K), dtype),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((K // group, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as b:
            x = T.alloc_shared((rows, block_K), dtype)
            p = T.alloc_shared((block_N, block_K // 2), "uint8")
            s = T.alloc_shared((groups, block_N), dtype)
            w = T.alloc_fragment((block_N, block_K), dtype)
            c = T.alloc_fragment((block_N, rows), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=stages):
                k = (step + b) % steps
                T.copy(X[0, k * block_K], x)
                T.copy(packed[b * block_N, k * (block_K // 2)], p)
                T.copy(scales[k * groups, b * block_N], s)
                for i, j in T.Parallel(block_N, block_K):
                    nibble = (p[i, j // 2] >> (j % 2 * 4)) & 15
                    w[i, j] = (T.cast(nibble, dtype) - T.cast(8, dtype)) * s[j // group, i]
                T.gemm(w, x, c, transpose_B=True)
            for i, j in T.Parallel(block_N, rows):
                if j < M:
                    C[j, b * block_N + i] = c[i, j]

    return kernel


def main(target="cpu"):
    M, N, K, group = 13, 128, 1024, 128
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((M, K)).astype(np.float16), rng.standard_normal((N, K)).astype(np.float16)
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    for transposed in (True, False):
        weights = w if transposed else w.T.copy()
        c = tilelang.compile(skinny_gemm(M, N, K, transposed), out_idx=[-1], target=target)(x, weights)
        np.testing.assert_allclose(c, expected, rtol=1e-3, atol=2e-2)  # rounded once, to 11 bits
        c = np.zeros((M, N), np.float32)
        tilelang.compile(skinny_gemm_split_k(M, N, K, 2, transposed), target=target)(x, weights, c)
        np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)
    packed, scales = rng.integers(0, 256, (N, K // 2), dtype=np.uint8), rng.uniform(0.05, 0.2, (K // group, N)).astype(np.float16)
    c = tilelang.compile(skinny_gemm_int4(M, N, K, group), out_idx=[-1], target=target)(x, packed, scales)
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(N, K).astype(np.float64) - 8
    expected = x.astype(np.float64) @ (numbers * np.repeat(scales.astype(np.float64), group, axis=0).T).T
    np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-2)  # a weight is rounded once, too
    print(f"product of {M} rows and {N} x {K} weights of 16 or 4 bits: agrees with NumPy")


if __name__ == "__main__":
    main()

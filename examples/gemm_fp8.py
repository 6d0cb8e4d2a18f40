"""GEMM of float8 with a scale for each block: C = sum over k of (A_k B_k^T) * scale_A * scale_B, in two levels of sums.

A (M, K) has a scale for each row and each 128 along k, B (N, K) one for each block of 128 x 128. The products of 128 along k are summed by
the matrix units, which keep fewer bits than float32 has while they sum products of float8; the results, scaled, are added to a second
accumulator in float32 by the threads.
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

BLOCK = 128  # of the scales


def gemm_fp8(M, N, K, block_M=128, block_N=128, num_stages=4, threads=256, dtype="float8_e4m3fn", out_dtype="bfloat16", panel=8):
    """N and K multiples of 128; block_N divides 128. panel: blocks of rows that run next to each other."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype),
        scale_A: T.Tensor((K // BLOCK, M), "float32"),
        B: T.Tensor((N, K), dtype),
        scale_B: T.Tensor((N // BLOCK, K // BLOCK), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, BLOCK), dtype)
            b = T.alloc_shared((block_N, BLOCK), dtype)
            rows = T.alloc_shared((block_M,), "float32")
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")

            T.use_swizzle(panel)
            T.clear(total)
            for k in T.Pipelined(K // BLOCK, num_stages=num_stages):
                T.copy(A[by * block_M, k * BLOCK], a)
                T.copy(B[bx * block_N, k * BLOCK], b)
                T.copy(scale_A[k, by * block_M], rows)
                T.gemm(a, b, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] += part[i, j] * (rows[i] * scale_B[bx * block_N // BLOCK, k])
            T.copy(total, C[by * block_M, bx * block_N])

    return kernel


def reference(a, scale_a, b, scale_b):
    left = a.astype(np.float64) * np.repeat(scale_a, BLOCK, axis=0).T
    right = b.astype(np.float64) * np.repeat(np.repeat(scale_b, BLOCK, axis=0), BLOCK, axis=1)
    return left @ right.T


def main(target="cpu"):
    M, N, K = 100, 128, 384
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, K)).astype(ml_dtypes.float8_e4m3fn) for rows in (M, N))
    scale_a = rng.uniform(0.5, 2, (K // BLOCK, M)).astype(np.float32)
    scale_b = rng.uniform(0.5, 2, (N // BLOCK, K // BLOCK)).astype(np.float32)
    program = gemm_fp8(M, N, K, block_M=64, block_N=64, threads=128, out_dtype="float32")
    c = tilelang.compile(program, out_idx=[-1], target=target)(a, scale_a, b, scale_b)
    # Products of float8 are exact in float32; few of their sums are. The tensor cores of a GPU keep 13 bits behind the leading one of
    # the largest addend of a sum (arXiv:2412.19437, section 3.3.2), so there an error counts beside the sum of the magnitudes.
    wanted, size = reference(a, scale_a, b, scale_b), reference(*map(np.abs, (a, scale_a, b, scale_b)))
    assert (np.abs(c - wanted) <= (2**-12 if target == "cuda" else 1e-5) * size).all()
    print(f"float8 GEMM {M} x {N} x {K} with scales of blocks: agrees with NumPy")


if __name__ == "__main__":
    main()

"""C = A B, or A times the transpose of B, in any element type; accumulation in float32.

The same text is a loop of vector instructions on the CPU, `mma.sync` on GPUs from sm_80 on, and a warp-specialised kernel with TMA and
`wgmma` on Hopper: tiles, stages and threads are the program's, the mapping is the compiler's.
"""

import numpy as np

import tilelang
import tilelang.language as T


def gemm(
    M, N, K, transpose_B=False, block_M=128, block_N=256, block_K=64, stages=4, threads=256, panel=8, dtype="float16", out_dtype=None
):  # fmt: skip
    """A is (M, K), B (K, N) or, with transpose_B, (N, K). panel: so many rows of tiles are walked together, 0 for the grid's own order.
    out_dtype: of C, that of A and B by default."""
    out_dtype = out_dtype or dtype
    tile_B = (block_N, block_K) if transpose_B else (block_K, block_N)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), B: T.Tensor((N, K) if transpose_B else (K, N), dtype), C: T.Tensor((M, N), out_dtype)
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(tile_B, dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            if panel:
                T.use_swizzle(panel)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return kernel


def main(target="cpu"):
    M, N, K = 200, 328, 136
    rng = np.random.default_rng(0)
    for transpose_B in (False, True):
        a = rng.standard_normal((M, K)).astype(np.float16)
        b = rng.standard_normal((N, K) if transpose_B else (K, N)).astype(np.float16)
        program = gemm(M, N, K, transpose_B, 64, 128, 64, stages=2, threads=128)
        c = tilelang.compile(program, out_idx=[-1], target=target)(a, b)
        expected = a.astype(np.float64) @ (b.T if transpose_B else b).astype(np.float64)
        np.testing.assert_allclose(c, expected, rtol=2e-3, atol=2e-2)
        print(f"GEMM {M} x {N} x {K}{', B transposed' if transpose_B else ''}: agrees with NumPy")


if __name__ == "__main__":
    main()

"""The first program: C = relu(A @ B), checked against NumPy and timed.

python examples/quickstart.py
"""

import time

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1], target="cpu")
def matmul_relu(M=1024, N=1024, K=1024, block_M=64, block_N=128, block_K=128, dtype="float32"):
    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return kernel


def best_of(run, repeats=10):
    """Shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    M = N = K = 1024
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K), dtype=np.float32)
    B = rng.standard_normal((K, N), dtype=np.float32)

    start = time.perf_counter()
    kernel = matmul_relu(M, N, K)
    print(f"compiled in {time.perf_counter() - start:.2f} s")

    C = kernel(A, B)
    expected = np.maximum(A.astype(np.float64) @ B.astype(np.float64), 0)
    np.testing.assert_allclose(C, expected, rtol=1e-4, atol=1e-3)
    print(f"C = relu(A @ B) agrees with NumPy, largest difference {np.abs(C - expected).max():.1e}")

    ours, numpy = best_of(lambda: kernel(A, B)), best_of(lambda: np.maximum(A @ B, 0))
    work = 2 * M * N * K / 1e9
    print(f"{M} x {N} x {K} float32: {1e3 * ours:.1f} ms, {work / ours:.0f} GFLOP/s (NumPy: {1e3 * numpy:.1f} ms)")


if __name__ == "__main__":
    main()

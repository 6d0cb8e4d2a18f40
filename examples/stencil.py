"""Heat equation: steps of a 5-point stencil. A tile and its halo are copied from one row and column before the block.

Outside of the plate the copy gives zeros, which is this problem's boundary; no index is checked by hand.
"""

import numpy as np

import tilelang
import tilelang.language as T


def heat_step(M, N, rate, block_M=32, block_N=64, dtype="float32"):
    @T.prim_func
    def kernel(U: T.Tensor((M, N), dtype), V: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            u = T.alloc_shared((block_M + 2, block_N + 2), dtype)
            v = T.alloc_fragment((block_M, block_N), dtype)
            T.copy(U[by * block_M - 1, bx * block_N - 1], u)
            for i, j in T.Parallel(block_M, block_N):
                around = u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]
                v[i, j] = u[i + 1, j + 1] + rate * (around - 4 * u[i + 1, j + 1])
            T.copy(v, V[by * block_M, bx * block_N])

    return kernel


def reference(u, rate, steps):
    u = u.astype(np.float64)
    for _ in range(steps):
        p = np.pad(u, 1)
        u = u + rate * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)
    return u


def main(target="cpu"):
    M, N, rate, steps = 200, 300, 0.2, 50
    start = np.zeros((M, N), np.float32)
    start[80:120, 100:200] = 100
    step = tilelang.compile(heat_step(M, N, rate), target=target)
    u, v = start.copy(), np.empty_like(start)
    for _ in range(steps):
        step(u, v)
        u, v = v, u
    np.testing.assert_allclose(u, reference(start, rate, steps), rtol=1e-4, atol=1e-3)
    print(f"heat equation, {steps} steps on {M} x {N}: agrees with NumPy")


if __name__ == "__main__":
    main()

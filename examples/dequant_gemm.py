"""GEMM with int4 weights: two nibbles a byte, a scale and a zero point for each group of 32, unpacked tile by tile."""

import numpy as np

import tilelang
import tilelang.language as T


def dequant_gemm(M, N, K, group=32, block_M=32, block_N=64, block_K=64, dtype="float16"):
    @T.prim_func
    def kernel(
        X: T.Tensor((M, K), dtype),
        packed: T.Tensor((N, K // 2), "uint8"),
        scale: T.Tensor((N, K // group), dtype),
        zero: T.Tensor((N, K // group), "uint8"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), dtype)
            bytes_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            weight = T.alloc_shared((block_N, block_K), dtype)
            y = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(y)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(packed[bx * block_N, k * (block_K // 2)], bytes_shared)
                for i, j in T.Parallel(block_N, block_K):
                    nibble = (bytes_shared[i, j // 2] >> (j % 2 * 4)) & 15
                    row, column = bx * block_N + i, (k * block_K + j) // group
                    steps = T.cast(nibble, "int32") - T.cast(zero[row, column], "int32")
                    weight[i, j] = T.cast(steps, dtype) * scale[row, column]
                T.gemm(x, weight, y, transpose_B=True)
            T.copy(y, Y[by * block_M, bx * block_N])

    return kernel


def reference(x, packed, scale, zero, group=32):
    steps = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1).astype(np.float64)
    weight = (steps - np.repeat(zero.astype(np.float64), group, axis=1)) * np.repeat(scale.astype(np.float64), group, axis=1)
    return x.astype(np.float64) @ weight.T


def main(target="cpu"):
    M, N, K = 100, 192, 256
    rng = np.random.default_rng(0)
    x = rng.standard_normal((M, K)).astype(np.float16)
    packed = rng.integers(0, 256, (N, K // 2), dtype=np.uint8)
    scale = rng.uniform(0.05, 0.2, (N, K // 32)).astype(np.float16)
    zero = rng.integers(6, 10, (N, K // 32), dtype=np.uint8)
    y = tilelang.compile(dequant_gemm(M, N, K), out_idx=[-1], target=target)(x, packed, scale, zero)
    # A weight is rounded to half precision once: half a unit in its 11th bit.
    np.testing.assert_allclose(y, reference(x, packed, scale, zero), rtol=2e-3, atol=2e-2)
    print(f"int4 GEMM {M} x {N} x {K}: agrees with NumPy")


if __name__ == "__main__":
    main()

"""GEMM with weights of 4 bits and activations of 16: C = X W^T, W unpacked in registers, where the product takes it.

W (N, K) has two weights a byte, the one of the even k in the low half; X and C are bfloat16, sums are float32. A weight is worth

    int4       (q - 8) * scale               q = 0 ... 15
    int4_zero  (q - zero) * scale
    fp4        value of e2m1 * scale         0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives

with a scale (and a zero point) for each group of `group` neighbours along k: (K / group, N). The product is written the other way round,
C^T = W X^T, because the operand of a product that may come from registers is its left one.
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

FORMATS = ("int4", "int4_zero", "fp4")


def dequantize_gemm_w4a16(M, N, K, fmt="int4", group=128, block_M=256, block_N=128, block_K=64, num_stages=4, threads=256):
    """N a multiple of block_N, K of group, group of block_K."""
    zero_rows = K // group if fmt == "int4_zero" else 1

    @T.macro
    def weight(packed, scale, zero, i, j):
        nibble = (packed[i, j // 2] >> (j % 2 * 4)) & 15
        if fmt == "int4":
            return (T.cast(nibble, "bfloat16") - 8) * scale[i]
        if fmt == "int4_zero":
            return (T.cast(nibble, "bfloat16") - zero[i]) * scale[i]
        # Sign, and exponent and mantissa where bfloat16 has them: the value times 2^-126, also of the subnormal 0.5.
        sign, rest = T.cast(nibble & 8, "uint16") << T.uint16(12), T.cast(nibble & 7, "uint16") << T.uint16(6)
        return T.reinterpret(sign | rest, "bfloat16") * T.bfloat16(2.0**126) * scale[i]

    @T.prim_func
    def kernel(
        X: T.Tensor((M, K), "bfloat16"),
        W: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((K // group, N), "bfloat16"),
        zeros: T.Tensor((zero_rows, N), "bfloat16"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "bfloat16")
            packed = T.alloc_shared((block_N, block_K // 2), "uint8")
            scale = T.alloc_shared((block_N,), "bfloat16")
            zero = T.alloc_shared((block_N,), "bfloat16") if fmt == "int4_zero" else None
            w = T.alloc_fragment((block_N, block_K), "bfloat16")
            y = T.alloc_fragment((block_N, block_M), "float32")
            out = T.alloc_shared((block_M, block_N), "bfloat16")

            T.clear(y)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * (block_K // 2)], packed)
                T.copy(scales[k * block_K // group, bx * block_N], scale)
                if fmt == "int4_zero":
                    T.copy(zeros[k * block_K // group, bx * block_N], zero)
                for i, j in T.Parallel(block_N, block_K):
                    w[i, j] = weight(packed, scale, zero, i, j)
                T.gemm(w, x, y, transpose_B=True)
            for i, j in T.Parallel(block_N, block_M):
                out[j, i] = y[i, j]
            T.copy(out, C[by * block_M, bx * block_N])

    return kernel


def weights(packed, scales, zeros, fmt, group=128):
    """W in float64, each weight rounded to bfloat16 as the program does."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)
    scale = np.repeat(scales, group, axis=0).T.astype(np.float64)
    if fmt == "fp4":
        value = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    else:
        value = nibbles - (8.0 if fmt == "int4" else np.repeat(zeros, group, axis=0).T.astype(np.float64))
    return (value * scale).astype(ml_dtypes.bfloat16).astype(np.float64)


def arguments(M, N, K, fmt, group=128, seed=0):
    """X, packed W, scales, zeros: random."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((M, K)).astype(ml_dtypes.bfloat16)
    packed = rng.integers(0, 256, (N, K // 2), dtype=np.uint8)
    scales = rng.uniform(0.05, 0.2, (K // group, N)).astype(ml_dtypes.bfloat16)
    zeros = rng.integers(5, 11, (K // group if fmt == "int4_zero" else 1, N)).astype(ml_dtypes.bfloat16)
    return x, packed, scales, zeros


def main(target="cpu"):
    M, N, K, group = 48, 128, 256, 64
    for fmt in FORMATS:
        x, packed, scales, zeros = arguments(M, N, K, fmt, group)
        program = dequantize_gemm_w4a16(M, N, K, fmt, group, block_M=64, block_N=64, threads=128)
        c = tilelang.compile(program, out_idx=[-1], target=target)(x, packed, scales, zeros)
        expected = x.astype(np.float64) @ weights(packed, scales, zeros, fmt, group).T
        # One rounding of the result to 8 bits; sums of K products in float32.
        np.testing.assert_allclose(np.asarray(c).astype(np.float64), expected, rtol=2.0**-8, atol=1e-3)
        print(f"{fmt} GEMM {M} x {N} x {K}: agrees with NumPy")


if __name__ == "__main__":
    main()

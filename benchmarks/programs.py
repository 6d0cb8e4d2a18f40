"""Programs whose compilation and calls the benchmarks time. Each function traces its program anew."""

from __future__ import annotations

import tilelang.language as T


def elementwise(M: int = 1024, N: int = 1024, dtype: str = "float32"):
    """C = A * 2 + B on tiles of 64 x 64."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            for i, j in T.Parallel(64, 64):
                C[by * 64 + i, bx * 64 + j] = A[by * 64 + i, bx * 64 + j] * 2.0 + B[by * 64 + i, bx * 64 + j]

    return main


def gemm(M: int = 1024, N: int = 1024, K: int = 1024, dtype: str = "float16"):
    """C = A @ B with a staged loop over K and float32 accumulation."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            a = T.alloc_shared((128, 32), dtype)
            b = T.alloc_shared((32, 128), dtype)
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[by * 128, k * 32], a)
                T.copy(B[k * 32, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main


def attention(B: int = 1, H: int = 8, S: int = 1024, D: int = 64, dtype: str = "float16", BM: int = 64, BN: int = 64):
    """Causal flash attention forward (batch, heads, sequence, features) with the log-sum-exp of each row."""
    scale = 1.4426950408889634 / D**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), dtype), K: T.Tensor((B, H, S, D), dtype), V: T.Tensor((B, H, S, D), dtype),
        O: T.Tensor((B, H, S, D), dtype), L: T.Tensor((B, H, S), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(S, BM), H, B, threads=128) as (bx, by, bz):
            q = T.alloc_shared((BM, D), dtype)
            k = T.alloc_shared((BN, D), dtype)
            v = T.alloc_shared((BN, D), dtype)
            s = T.alloc_fragment((BM, BN), "float32")
            p = T.alloc_fragment((BM, BN), dtype)
            o = T.alloc_fragment((BM, D), "float32")
            high = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            alpha = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bz, by, bx * BM, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(high, -T.infinity("float32"))
            for n in T.Pipelined(T.ceildiv(T.min((bx + 1) * BM, S), BN), num_stages=2):
                T.copy(K[bz, by, n * BN, 0], k)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.if_then_else(n * BN + j <= bx * BM + i and n * BN + j < S, 0.0, -1e30)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(V[bz, by, n * BN, 0], v)
                T.copy(high, before)
                T.reduce_max(s, high, dim=1, clear=False)
                for i in T.Parallel(BM):
                    alpha[i] = T.exp2((before[i] - high[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.exp2((s[i, j] - high[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * alpha[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    o[i, j] *= alpha[i]
                T.copy(s, p)
                T.gemm(p, v, o)
            for i, j in T.Parallel(BM, D):
                o[i, j] /= total[i]
            for i in T.Parallel(BM):
                total[i] = high[i] * (scale / 1.4426950408889634) + T.log(total[i])
            T.copy(o, O[bz, by, bx * BM, 0])
            T.copy(total, L[bz, by, bx * BM])

    return main


PROGRAMS = {
    "elementwise": elementwise,
    "gemm": gemm,
    "attention": attention,
    "attention ragged": lambda: attention(1, 2, 150, 64),
}

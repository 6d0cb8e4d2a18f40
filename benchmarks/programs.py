"""Programs whose compilation and calls the benchmarks time. Each function traces its program anew."""

import tilelang.language as T


def elementwise(M: int = 1024, N: int = 1024, dtype: str = "float32"):
    """C = A * 2 + B on tiles of 64 x 64."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            for i, j in T.Parallel(64, 64):
                C[by * 64 + i, bx * 64 + j] = A[by * 64 + i, bx * 64 + j] * 2.0 + B[by * 64 + i, bx * 64 + j]

    return main


def gemm(M: int = 1024, N: int = 1024, K: int = 1024, dtype: str = "float16", block: tuple[int, int, int] = (128, 128, 32)):
    """C = A @ B with a staged loop over K and float32 accumulation; block: tile of M, N, K."""
    BM, BN, BK = (min(tile, extent) for tile, extent in zip(block, (M, N, K), strict=True))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            a = T.alloc_shared((BM, BK), dtype)
            b = T.alloc_shared((BK, BN), dtype)
            c = T.alloc_fragment((BM, BN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], a)
                T.copy(B[k * BK, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * BM, bx * BN])

    return main


def softmax(M: int, N: int, BM: int = 1):
    """Softmax of each row, float32."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            high = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            T.reduce_max(x, high, dim=1)
            for i, j in T.Parallel(BM, N):
                x[i, j] = T.exp(x[i, j] - high[i])
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(BM):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = x[i, j] * total[i]

    return main


def layernorm(M: int, N: int, BM: int = 1):
    """Layer normalisation of each row with weight and bias, float32."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            square = T.alloc_fragment((BM, N), "float32")
            mean = T.alloc_fragment((BM,), "float32")
            scale = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(BM):
                mean[i] = mean[i] / N
            for i, j in T.Parallel(BM, N):
                square[i, j] = (x[i, j] - mean[i]) * (x[i, j] - mean[i])
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(BM):
                scale[i] = T.rsqrt(scale[i] / N + 1e-5)
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = (x[i, j] - mean[i]) * scale[i] * W[j] + B[j]

    return main


def rmsnorm(M: int, N: int, BM: int = 1):
    """Division of each row by its root mean square, with weight, float32."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            square = T.alloc_fragment((BM, N), "float32")
            scale = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            for i, j in T.Parallel(BM, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(BM):
                scale[i] = T.rsqrt(scale[i] / N + 1e-5)
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = x[i, j] * scale[i] * W[j]

    return main


def attention(B: int, H: int, S: int, D: int, causal: bool, BM: int = 128, BN: int = 128):
    """Flash attention forward (batch, heads, sequence, features) in float32; S is a multiple of BM and BN."""
    scale = 1.0 / D**0.5 * 1.4426950408889634

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), "float32"), K: T.Tensor((B, H, S, D), "float32"), V: T.Tensor((B, H, S, D), "float32"),
        O: T.Tensor((B, H, S, D), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(S, BM), H, B) as (bx, by, bz):
            q = T.alloc_shared((BM, D), "float32")
            k = T.alloc_shared((BN, D), "float32")
            v = T.alloc_shared((BN, D), "float32")
            s = T.alloc_fragment((BM, BN), "float32")
            o = T.alloc_fragment((BM, D), "float32")
            high = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bz, by, bx * BM, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(high, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv((bx + 1) * BM, BN) if causal else T.ceildiv(S, BN), num_stages=2):
                T.copy(K[bz, by, step * BN, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                if causal:
                    for i, j in T.Parallel(BM, BN):
                        s[i, j] = T.if_then_else(bx * BM + i >= step * BN + j, s[i, j], -T.infinity("float32"))
                T.copy(high, before)
                T.reduce_max(s, high, dim=1, clear=False)
                for i in T.Parallel(BM):
                    before[i] = T.exp2((before[i] - high[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.exp2((s[i, j] - high[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * before[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    o[i, j] = o[i, j] * before[i]
                T.copy(V[bz, by, step * BN, 0], v)
                T.gemm(s, v, o)
            for i, j in T.Parallel(BM, D):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, O[bz, by, bx * BM, 0])

    return main


def attention_lse(B: int = 1, H: int = 8, S: int = 1024, D: int = 64, dtype: str = "float16", BM: int = 64, BN: int = 64):
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
    "attention": attention_lse,
    "attention ragged": lambda: attention_lse(1, 2, 150, 64),
}

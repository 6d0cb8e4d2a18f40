"""Programs whose compilation and calls the benchmarks time, those of `examples/` where there is one. Each function traces its program
anew."""

import importlib.util
from pathlib import Path
from typing import Any

import tilelang.language as T

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def elementwise(M: int = 1024, N: int = 1024, dtype: str = "float32"):
    """C = A * 2 + B on tiles of 64 x 64."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            for i, j in T.Parallel(64, 64):
                C[by * 64 + i, bx * 64 + j] = A[by * 64 + i, bx * 64 + j] * 2.0 + B[by * 64 + i, bx * 64 + j]

    return main


def example(name: str) -> Any:
    """The module `examples/<name>.py`, read anew."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gemm(M: int = 1024, N: int = 1024, K: int = 1024, dtype: str = "float16", block: tuple[int, int, int] = (128, 128, 32)):
    """C = A @ B, C in float32; block: tile of M, N, K."""
    BM, BN, BK = (min(tile, extent) for tile, extent in zip(block, (M, N, K), strict=True))
    return example("gemm").gemm(M, N, K, False, BM, BN, BK, stages=2, threads=128, dtype=dtype, out_dtype="float32")


def softmax(M: int, N: int):
    """Softmax of each row, float32."""
    return example("softmax").row_softmax(M, N)


def layernorm(N: int):
    """Layer normalisation of each row with weight and bias, float32."""
    return example("layernorm").layernorm(N, block_M=1)


def rmsnorm(N: int):
    """Division of each row by its root mean square, with weight, float32."""
    return example("rmsnorm").rmsnorm(N)


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

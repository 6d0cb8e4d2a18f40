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


def attention(B: int, H: int, S: int, D: int, causal: bool, block: tuple[int, int] = (128, 128), dtype: str = "float32"):
    """Attention forward (batch, heads, sequence, features); block: tile of queries and of keys."""
    return example("flash_attention").flash_attention(B, H, H, S, S, D, causal, *block, dtype)


PROGRAMS = {
    "elementwise": elementwise,
    "gemm": gemm,
    "attention": lambda: attention(1, 8, 1024, 64, True, (64, 64), "float16"),
    "attention ragged": lambda: attention(1, 2, 150, 64, True, (64, 64), "float16"),
}

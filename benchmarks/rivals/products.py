"""Rows of matrix products: 16-bit GEMM in two layouts, float8, a few rows (M = 16), one row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from . import triton_sides
from .tile_programs import FAST, tile_sides
from .torch_sides import torch_side
from .triton_sides import tiles
from .work import OURS, WHEEL, Config, Operands, Part, Row, Side, values

TYPES = {"bf16": ("bfloat16", torch.bfloat16, 1.5e-2), "fp16": ("float16", torch.float16, 3e-3)}
SHAPES = {"1024": (1024,) * 3, "2048": (2048,) * 3, "4096": (4096,) * 3, "8192": (8192,) * 3, "4096x14336x4096": (4096, 14336, 4096)}


def tile(M: int, N: int, K: int, stages: int, threads: int = 256, **more: int) -> Config:
    return {"block_M": M, "block_N": N, "block_K": K, "stages": stages, "threads": threads, **more}


LARGE = (tile(128, 256, 64, 4), tile(128, 256, 64, 3), tile(256, 128, 64, 4), tile(128, 128, 64, 6))
# A store beside the next tile's products: some 1 % of these products, which a run of them is worth a longer compilation.
DEFERRED = {"pass_configs": {**FAST, "tl.disable_deferred_store": False}}
SMALL = tuple(tile(*t, 128, panel=0) for t in ((64, 128, 64, 8), (64, 128, 128, 4), (64, 128, 64, 6), (128, 128, 64, 4)))
WHEEL_SMALL = (tile(64, 128, 64, 4, 128), tile(128, 128, 64, 4, 128))
TRITON_LARGE = (
    tiles("gemm_descriptors", 128, 256, 64, 3, 8, persistent=True), tiles("gemm_descriptors", 128, 256, 64, 3, 8),
    tiles("gemm_descriptors", 128, 256, 64, 3, 4, specialize=True), tiles("gemm_pointers", 128, 256, 64, 3, 8),
    tiles("gemm_descriptors", 128, 128, 64, 4, 8),
)  # fmt: skip
TRITON_SMALL = (
    tiles("gemm_pointers", 64, 128, 64, 4, 4), tiles("gemm_descriptors", 64, 128, 128, 3, 4),
    tiles("gemm_pointers", 64, 64, 128, 4, 4), tiles("gemm_descriptors", 128, 128, 64, 4, 4),
)  # fmt: skip


def _reference(transposed: bool):
    def expected(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        a, b = (t.double() for t in inputs[:2])
        return (Part(a @ (b.T if transposed else b)),)

    return expected


def gemm_rows() -> Iterator[Row]:
    for name, (dtype, kind, tolerance) in TYPES.items():
        for transposed in (True, False):
            for shape, (M, N, K) in SHAPES.items():
                small = shape == "1024"

                def make(M: int = M, N: int = N, K: int = K, kind: torch.dtype = kind, transposed: bool = transposed) -> Operands:
                    b = values(*((N, K) if transposed else (K, N)), dtype=kind)
                    return Operands((values(M, K, dtype=kind), b), (torch.empty(M, N, device="cuda", dtype=kind),))

                def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, transposed: bool = transposed) -> None:
                    torch.mm(a, b.T if transposed else b, out=c)

                sizes = {"M": M, "N": N, "K": K, "transpose_B": transposed, "dtype": dtype}
                sides = {
                    **tile_sides(
                        "examples/gemm",
                        "gemm",
                        sizes,
                        SMALL if small else tuple({**config, **DEFERRED} for config in LARGE),
                        WHEEL_SMALL if small else LARGE[:2],
                    ),
                    "cuBLAS": torch_side(product),
                    "Triton": triton_sides.gemm(transposed, TRITON_SMALL if small else TRITON_LARGE),
                }
                label = f"gemm {name} {shape} {'NT' if transposed else 'NN'}"
                yield Row(label, "gemm", 2.0 * M * N * K, "TFLOP/s", make, _reference(transposed), tolerance, sides)


def float8_rows() -> Iterator[Row]:
    M = N = K = 8192
    kind, one = torch.float8_e4m3fn, {}

    def make() -> Operands:
        return Operands((values(M, K, dtype=kind), values(N, K, dtype=kind)), (torch.empty(M, N, device="cuda", dtype=torch.bfloat16),))

    def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        scale = one.setdefault("scale", torch.ones((), device="cuda"))
        return torch.ops.aten._scaled_mm(a, b.T, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    sizes = {"M": M, "N": N, "K": K, "transpose_B": True, "dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
    ours = (tile(256, 128, 128, 4, panel=0), tile(128, 256, 128, 4), tile(256, 128, 128, 4), tile(128, 256, 128, 4, panel=0))
    ours = tuple({**config, **DEFERRED} for config in ours)
    sides = {
        **tile_sides("examples/gemm", "gemm", sizes, ours, (tile(256, 128, 128, 3), tile(128, 256, 128, 3))),
        "cuBLAS": torch_side(product),
        "Triton": triton_sides.gemm(
            True, (tiles("gemm_descriptors", 128, 256, 128, 3, 8), tiles("gemm_descriptors", 128, 256, 128, 3, 8, persistent=True))
        ),
    }
    # Fast accumulation keeps 14 bits of a sum: a part in 2^10 of its largest terms is lost over 8192 of them.
    yield Row("gemm fp8 8192 NT", "gemm fp8", 2.0 * M * N * K, "TFLOP/s", make, _reference(True), 3e-2, sides)


def skinny_rows() -> Iterator[Row]:
    """Bandwidth of the weights W (N, K): bytes of one call over its time. Kernels of this package start while those before them end
    (programmatic dependent launch); "ours, plain" is without that."""
    N = K = 4096

    def operands(*rows: int) -> Operands:
        return Operands((values(*rows, K), values(N, K)), (torch.empty(*rows, N, device="cuda", dtype=torch.bfloat16),))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        return (Part(inputs[0].double() @ inputs[1].double().T),)

    sizes = {"N": N, "K": K, "dtype": "bfloat16"}
    tried = ((32, 256, 8, 256), (32, 256, 4, 256), (32, 128, 8, 256))
    names = ("block_N", "block_K", "stages", "threads")
    configs: tuple[Config, ...] = tuple(dict(zip(names, t, strict=True)) for t in tried)
    wheel: tuple[Config, ...] = tuple(dict(zip(names, t, strict=True)) for t in ((32, 512, 2, 128), (32, 256, 3, 128)))
    triton = (tiles("gemm_pointers", 16, *t) for t in ((32, 256, 4, 4), (32, 128, 5, 2), (32, 512, 2, 4)))
    sides = {
        **_with_plain(tile_sides("examples/skinny_gemm", "skinny_gemm", {"M": 16, **sizes}, configs, wheel)),
        "cuBLAS": torch_side(lambda x, w, y: torch.mm(x, w.T, out=y)),
        "Triton": triton_sides.gemm(True, triton),
    }
    work = 2.0 * (N * K + 16 * K + 16 * N)
    yield Row("gemm bf16 16x4096x4096 NT", "skinny", work, "GB/s", lambda: operands(16), reference, 1.5e-2, sides)
    threads: tuple[Config, ...] = ({"rows": 1, "threads": 256}, {"rows": 2, "threads": 512}, {"rows": 2, "threads": 256})
    vector = {
        **_with_plain(tile_sides("examples/gemv", "gemv", sizes, threads)),
        "cuBLAS": torch_side(lambda x, w, y: torch.mv(w, x, out=y)),
        "Triton": triton_sides.gemv(tiles("gemv", 1, *t) for t in ((8, 1024, 3, 4), (4, 1024, 3, 4), (16, 512, 3, 4))),
    }
    yield Row("gemm bf16 1x4096x4096 NT", "skinny", 2.0 * (N * K + K + N), "GB/s", operands, reference, 1.5e-2, vector)


def _with_plain(sides: dict[str, Side]) -> dict[str, Side]:
    """The sides, and ours once more with launches that wait for the kernel before."""
    plain = tuple({**config, "pass_configs": {**FAST, "tl.disable_dependent_launch": True}} for config in sides[OURS].configs)
    return {OURS: sides[OURS], f"{OURS}, plain": replace(sides[OURS], configs=plain), WHEEL: sides[WHEEL]}

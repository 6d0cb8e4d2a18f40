"""Rows of products with weights of 4 bits: many rows (FLOP over time), and 16 rows (bytes of packed weights over time)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .tile_programs import tile_sides
from .work import Config, Operands, Part, Row, Side, values

N = K = 4096
GROUP = 128
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
WHEEL_TILES: tuple[Config, ...] = ({"block_M": 256, "block_N": 128, "block_K": 64, "num_stages": 4, "threads": 256},)
TILES: tuple[Config, ...] = ({}, *WHEEL_TILES)  # the example's own first


def few_tiles(*tried: tuple[int, int, int, int]) -> tuple[Config, ...]:
    return tuple(dict(zip(("block_N", "block_K", "stages", "threads"), t, strict=True)) for t in tried)


FEW_TILES = few_tiles((32, 512, 6, 256), (32, 512, 4, 256), (32, 256, 8, 256))
WHEEL_FEW_TILES = few_tiles((32, 256, 4, 128), (64, 256, 3, 256))  # its warps take whole tiles of 16 x 8


def weights(inputs: tuple[torch.Tensor, ...], fmt: str) -> torch.Tensor:
    """W (N, K) in bfloat16 from packed bytes (the even k in the low half) and the scale of each group: as the program rounds it."""
    _, packed, scales, _ = inputs
    nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(packed.shape[0], -1)
    table = (
        torch.tensor((*E2M1, *(-v for v in E2M1)), device=packed.device) if fmt == "fp4" else torch.arange(-8.0, 8.0, device=packed.device)
    )
    return (table[nibbles.long()] * scales.float().repeat_interleave(GROUP, 0).T).to(torch.bfloat16)


def _row(name: str, M: int, fmt: str, family: str, work: float, unit: str, programs: dict[str, Side]) -> Row:
    def make() -> Operands:
        packed = torch.randint(0, 256, (N, K // 2), device="cuda", dtype=torch.uint8)
        scales = (torch.rand(K // GROUP, N, device="cuda") * 0.15 + 0.05).to(torch.bfloat16)
        zeros = torch.zeros(1, N, device="cuda", dtype=torch.bfloat16)
        return Operands((values(M, K), packed, scales, zeros), (torch.empty(M, N, device="cuda", dtype=torch.bfloat16),))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        return (Part(inputs[0].double() @ weights(inputs, fmt).double().T),)

    def unpacked(_: Any, operands: Operands) -> Callable[[], Any]:
        """cuBLAS on weights that were unpacked before: as many FLOP, four times the bytes."""
        right = weights(operands.inputs, fmt).T
        return lambda: torch.mm(operands.inputs[0], right, out=operands.outputs[0])

    sides = {**programs, "cuBLAS bf16": Side(lambda config: None, unpacked)}
    return Row(name, family, work, unit, make, reference, 1.5e-2, sides)


def rows() -> Iterator[Row]:
    for fmt in ("int4", "fp4"):
        sizes = {"M": 4096, "N": N, "K": K, "fmt": fmt, "group": GROUP}
        sides = tile_sides("examples/dequantize_gemm_w4a16", "dequantize_gemm_w4a16", sizes, TILES, WHEEL_TILES)
        yield _row(f"w4a16 {fmt} 4096", 4096, fmt, "w4a16", 2.0 * 4096 * N * K, "TFLOP/s", sides)
    sizes = {"M": 16, "N": N, "K": K, "group": GROUP, "dtype": "bfloat16"}
    sides = tile_sides("examples/skinny_gemm", "skinny_gemm_int4", sizes, FEW_TILES, WHEEL_FEW_TILES, order=(0, 1, 2))
    yield _row("w4a16 int4 16x4096x4096", 16, "int4", "w4a16 skinny", 0.5 * N * K, "GB/s", sides)

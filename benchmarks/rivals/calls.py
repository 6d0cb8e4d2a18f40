"""Rows of the host: the time of one call with three tensors, and the time from a program to its first result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from . import attention_rows, products, triton_sides
from .tile_programs import tile_sides
from .torch_sides import torch_side
from .work import OURS, TRITON, WHEEL, Operands, Part, Row

SIZE = 32


def host_rows() -> Iterator[Row]:
    def make() -> Operands:
        x, y, z = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(3))
        return Operands((x, y), (z,))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        return (Part(2 * inputs[0].double() + inputs[1].double()),)

    def add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
        torch.add(y, x, alpha=2, out=z)

    sides = {
        **tile_sides("benchmarks/programs", "elementwise", {"M": SIZE, "N": SIZE}, ({"pass_configs": {}},)),
        "torch": torch_side(add),
        TRITON: triton_sides.add(),
    }
    yield Row("host call, 3 tensors", "host call", 0.0, "us", make, reference, 1e-5, sides, clock="host")


def compile_rows() -> Iterator[Row]:
    """The product and the attention of other rows, compiled anew in a warm process without any cache."""
    gemm = next(row for row in products.gemm_rows() if row.name == "gemm bf16 4096 NT")
    attention = next(row for row in attention_rows.forward_rows() if row.name == "attention bf16 D128 S2048 causal")
    for name, row in (("GEMM", gemm), ("attention", attention)):
        sides = {label: side for label, side in row.sides.items() if label in (OURS, WHEEL, TRITON)}
        yield replace(row, name=f"compile {name}", family=f"compile {name}", work=0.0, unit="s", sides=sides, clock="compile")

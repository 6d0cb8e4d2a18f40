"""Passes over the rows of a 4096 x 8192 bfloat16 matrix: bytes read and written over time, beside a copy of the same matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from . import triton_sides
from .tile_programs import tile_sides
from .torch_sides import torch_side
from .work import Config, Operands, Part, Row, values

M, N, EPS = 4096, 8192, 1e-5
COPY = "copy"
THREADS: tuple[Config, ...] = tuple({"threads": t} for t in (256, 512, 1024, 128))


def _copy(x: torch.Tensor, *others: torch.Tensor) -> None:
    others[-1].copy_(x)


def _row(name: str, vectors: int, program: tuple[str, str], sizes: dict[str, Any], run: Callable[..., torch.Tensor]) -> Row:
    """vectors: how many vectors of N elements come after the matrix. run: torch's operator, which also gives the expected values."""

    def make() -> Operands:
        return Operands((values(M, N), *(values(N) for _ in range(vectors))), (torch.empty(M, N, device="cuda", dtype=torch.bfloat16),))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        return (Part(run(*(t.double() for t in inputs))),)

    sides = {
        **tile_sides(*program, {"N": N, "block_M": 1, "dtype": "bfloat16", **sizes}, THREADS),
        "torch": torch_side(lambda *args: run(*args[:-1])),
        "Triton": triton_sides.rows(name, None if name == "softmax" else EPS),
        COPY: torch_side(_copy, checked=False),
    }
    work = 2.0 * (2 * M * N + vectors * N)
    return Row(f"{name} {M}x{N} bf16", "rows", work, "GB/s", make, reference, 1.5e-2, sides, against=(COPY,))


def rows() -> Iterator[Row]:
    yield _row("softmax", 0, ("examples/softmax", "row_softmax"), {"M": M}, lambda x: torch.softmax(x, 1))
    yield _row("layernorm", 2, ("examples/layernorm", "layernorm"), {"eps": EPS}, lambda x, w, b: F.layer_norm(x, (N,), w, b, EPS))
    yield _row("rmsnorm", 1, ("examples/rmsnorm", "rmsnorm"), {"eps": EPS}, lambda x, w: F.rms_norm(x, (N,), w, EPS))

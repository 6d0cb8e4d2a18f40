"""Rows of decoding with multi-head latent attention: 128 query heads on one key of 512 + 64 numbers, whose first 512 are the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .tile_programs import tile_sides
from .work import WHEEL, Config, Operands, Part, Row, Side, values

HEADS, DIM, ROPE = 128, 512, 64
SCALE = (DIM + ROPE) ** -0.5
ROLES: Config = {"program": ("examples/mla_decode_roles", "mla_decode_roles")}  # says itself what each warpgroup does
TILES: tuple[Config, ...] = ({"stages": 2, "threads": 256}, {"stages": 1, "threads": 256})


def _products(_: Any, operands: Operands) -> Callable[[], Any]:
    """Two batched products with a softmax between; queries and keys are joined before."""
    q, q_rope, kv, k_rope, _ = operands.inputs
    query, key = torch.cat([q, q_rope], 2), torch.cat([kv, k_rope], 2)

    def call() -> torch.Tensor:
        return torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)) * SCALE, 2), kv)

    return call


def _row(batch: int, length: int) -> Row:
    checked = (0, batch - 1)

    def make() -> Operands:
        shapes = ((batch, HEADS, DIM), (batch, HEADS, ROPE), (batch, length, DIM), (batch, length, ROPE))
        lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        return Operands((*(values(*s) for s in shapes), lengths), (torch.empty(*shapes[0], device="cuda", dtype=torch.bfloat16),))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        parts = []
        for b in checked:
            q, q_rope, kv, k_rope = (t[b].double() for t in inputs[:4])
            parts.append(Part(((q @ kv.T + q_rope @ k_rope.T) * SCALE).softmax(1) @ kv, 0, b))
        return tuple(parts)

    sizes = {"batch": batch, "heads": HEADS, "seq": length, "dtype": "bfloat16"}
    sides = {
        **tile_sides("examples/mla_decode", "mla_decode", sizes, (ROLES, *TILES), TILES),
        "bmm, softmax, bmm": Side(lambda config: None, _products),
    }
    work = 2.0 * HEADS * (2 * DIM + ROPE) * batch * length
    return Row(f"mla decode b{batch} ctx{length}", "mla decode", work, "TFLOP/s", make, reference, 5e-2, sides, against=(WHEEL,))


def rows() -> Iterator[Row]:
    yield _row(128, 4096)
    yield _row(132, 8192)

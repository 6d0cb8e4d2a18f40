"""The table: every row by name, and what each family of rows should reach."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from . import attention_rows, calls, latent, products, quantised, row_passes
from .work import Row


@dataclass(frozen=True)
class Goal:
    """mean, least: geometric mean and smallest of the ratios to the best rival. value: in the row's unit, reached by every row."""

    mean: float | None = None
    least: float | None = None
    value: float | None = None

    def __str__(self) -> str:
        parts = (("mean >=", self.mean), ("none below", self.least), ("each at", self.value))
        return ", ".join(f"{text} {number:g}" for text, number in parts if number is not None)


GOALS = {
    "gemm": Goal(mean=1.0, least=0.95),
    "gemm fp8": Goal(least=1.0),
    "skinny": Goal(value=2700),
    "attention D128": Goal(mean=1.12, least=1.0),
    "attention D64": Goal(mean=1.12, least=1.0),
    "attention backward": Goal(mean=0.97),
    "mla decode": Goal(least=1.15),
    "w4a16": Goal(value=600),
    "w4a16 skinny": Goal(value=800),
    "rows": Goal(least=0.95),
    "host call": Goal(value=2),
    "compile GEMM": Goal(value=0.5),
    "compile attention": Goal(value=0.8),
}


@functools.cache
def table() -> dict[str, Row]:
    """Rows by name, in the order of the printed table."""
    kinds: tuple[Iterable[Row], ...] = (
        products.gemm_rows(), products.float8_rows(), products.skinny_rows(), attention_rows.forward_rows(),
        attention_rows.backward_rows(), latent.rows(), quantised.rows(), row_passes.rows(), calls.host_rows(), calls.compile_rows(),
    )  # fmt: skip
    found = {row.name: row for rows in kinds for row in rows}
    assert all(row.family in GOALS for row in found.values())
    return found


# One row of each kind: a first look in half a minute.
QUICK = (
    "gemm bf16 1024 NT", "gemm bf16 4096 NT", "gemm fp16 8192 NN", "gemm fp8 8192 NT", "gemm bf16 16x4096x4096 NT",
    "gemm bf16 1x4096x4096 NT", "attention bf16 D128 S4096 full", "attention fp16 D128 S4096 causal", "attention fp16 D64 S4096 full",
    "attention backward bf16 D128 S4096 causal", "mla decode b128 ctx4096", "w4a16 int4 4096",
    "w4a16 fp4 4096", "w4a16 int4 16x4096x4096", "softmax 4096x8192 bf16", "layernorm 4096x8192 bf16", "rmsnorm 4096x8192 bf16",
    "host call, 3 tensors", "compile GEMM", "compile attention",
)  # fmt: skip

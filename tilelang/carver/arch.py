"""Machines as templates see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CUDA:
    """Facts of an NVIDIA GPU by which tile sizes are chosen; those of compute capability 9.0. Sizes in bytes."""

    target: Any = "cuda"
    sm_count: int = 132
    smem_cap: int = 227 << 10
    reg_cap: int = 65536
    max_threads: int = 1024
    warp_size: int = 32


__all__ = ["CUDA"]

"""A recommended schedule as a record."""

from __future__ import annotations

from dataclasses import dataclass

from .rasterization import NoRasterization


@dataclass(frozen=True)
class Hint:
    """block, warp: tile sizes (M, N). rstep: tile sizes of the reduction. pipeline_stage: buffers in flight."""

    block: list[int]
    warp: list[int]
    rstep: list[int]
    pipeline_stage: int
    rasterization_plan: NoRasterization


__all__ = ["Hint", "NoRasterization"]

"""Tile operators: one file each with its language functions, its checks and its portable meaning."""

from __future__ import annotations

from .atomic import ATOMIC
from .base import TileOperator
from .copy import COPY
from .dp4a import DP4A
from .fill import FILL
from .gemm import GEMM
from .im2col import IM2COL
from .reduce import REDUCE
from .reducer import FINALIZE, INIT, UPDATE
from .scan import SCAN
from .transpose import TRANSPOSE

TILE_OPS: tuple[TileOperator, ...] = (COPY, FILL, GEMM, REDUCE, SCAN, ATOMIC, TRANSPOSE, IM2COL, INIT, UPDATE, FINALIZE, DP4A)

__all__ = ["TILE_OPS", "TileOperator"]

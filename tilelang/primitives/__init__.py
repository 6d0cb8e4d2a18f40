"""`import tilelang.primitives as P`: the name that programs import. `T.gemm` is the primitive that works everywhere."""

from __future__ import annotations

from typing import Any

from ..errors import TileNotSupportedError


def gemm(*_: Any, **__: Any) -> Any:
    """Would emit a register-level matrix product; TileNotSupportedError."""
    raise TileNotSupportedError("tilelang.primitives.gemm", remedy="use T.gemm, which takes the same operands")


__all__ = ["gemm"]

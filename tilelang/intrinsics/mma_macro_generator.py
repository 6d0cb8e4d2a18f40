"""Emitters of warp matrix instructions: names that programs import; each says that it needs a GPU backend."""

from __future__ import annotations

from typing import Any

from ..errors import TileNotSupportedError


class TensorCoreIntrinEmitter:
    """Would emit `ldmatrix` and `mma` instructions for a warp tile. Making one raises TileNotSupportedError."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TileNotSupportedError(
            f"{type(self).__name__} emits instructions of CUDA tensor cores, which no backend of this version has",
            remedy="T.gemm multiplies tiles on every target",
        )


class TensorCoreIntrinEmitterWithLadderTransform(TensorCoreIntrinEmitter):
    """The same for operands stored in transformed order."""


class INT4TensorCoreIntrinEmitter(TensorCoreIntrinEmitter):
    """The same for 4-bit integers."""


class INT4TensorCoreIntrinEmitterWithLadderTransform(TensorCoreIntrinEmitter):
    """The same for 4-bit integers stored in transformed order."""

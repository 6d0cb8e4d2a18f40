"""Hooks on the generated CUDA text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import TileNotSupportedError


def register_cuda_postproc(func: Callable[[str, Any], str], override: bool = True) -> None:
    """func(code, target) -> code would be applied to generated CUDA text. There is no CUDA backend in this version."""
    raise TileNotSupportedError("a callback on generated CUDA text", remedy="there is no CUDA backend in this version")


def register_cuda_postproc_callback(func: Any = None, *, override: bool = True) -> Any:
    """`register_cuda_postproc` as a decorator, with or without arguments."""

    def decorate(function: Callable[[str, Any], str]) -> Callable[[str, Any], str]:
        register_cuda_postproc(function, override)
        return function

    return decorate if func is None or isinstance(func, bool) else decorate(func)

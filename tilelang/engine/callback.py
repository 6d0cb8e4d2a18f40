"""Hooks on the generated CUDA text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backend.cuda import hooks
from ..errors import TileValueError


def register_cuda_postproc(func: Callable[[str, Any], str], override: bool = True) -> None:
    """func(code, target) -> code is applied to the CUDA text of every program compiled from here on. override: False refuses to
    replace a function that is registered already (TileValueError)."""
    if not override and hooks.key():
        raise TileValueError("a callback on generated CUDA text is registered already", remedy="pass override=True to replace it")
    hooks.register(func)


def register_cuda_postproc_callback(func: Any = None, *, override: bool = True) -> Any:
    """`register_cuda_postproc` as a decorator, with or without arguments."""

    def decorate(function: Callable[[str, Any], str]) -> Callable[[str, Any], str]:
        register_cuda_postproc(function, override)
        return function

    return decorate if func is None or isinstance(func, bool) else decorate(func)

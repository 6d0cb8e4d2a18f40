"""The kernel cache: `tilelang.cache.clear_cache()`, where it is and whether it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .knobs import knobs
from .runtime.api import cached, clear_cache


def enable_cache() -> None:
    """Keep compiled kernels, in memory and on disk (the default)."""
    knobs.set(disable_cache=False)


def disable_cache() -> None:
    """Compile always and keep nothing, for the rest of the process."""
    knobs.set(disable_cache=True)


def is_cache_enabled() -> bool:
    return not knobs.disable_cache


def set_cache_dir(path: Any) -> None:
    """Folder of compiled kernels for the rest of the process."""
    knobs.set(cache_dir=Path(path))


def get_cache_dir() -> str:
    return str(knobs.cache_dir)


__all__ = ["cached", "clear_cache", "disable_cache", "enable_cache", "get_cache_dir", "is_cache_enabled", "set_cache_dir"]

"""The user's function over the generated CUDA text, applied before it is compiled. In: `register(func)`. Out: `apply(text, target)`, and
a `key` for caches: what a function makes of a text is unknown, so that nothing made with one is ever reused."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

_registered: list[tuple[Callable[[str, Any], str], str]] = []


def register(func: Callable[[str, Any], str]) -> None:
    """func(text, target) -> text; replaces the one before."""
    _registered[:] = [(func, uuid.uuid4().hex)]


def forget() -> None:
    _registered.clear()


def apply(text: str, target: Any) -> str:
    for func, _ in _registered:
        text = func(text, target)
    return text


def key() -> str:
    return "".join(name for _, name in _registered)

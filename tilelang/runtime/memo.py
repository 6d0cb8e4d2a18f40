"""Call arguments as dictionary keys: by value, also for lists and dicts. In: positional and keyword arguments of a Python
function. Out: a hashable key, the same for all spellings of one call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import TileTypeError


@functools.lru_cache(maxsize=1024)
def python_signature(fn: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(fn)


def bind(fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name, defaults filled in. A call that does not fit raises TileTypeError (a TypeError)."""
    try:
        bound = python_signature(fn).bind(*args, **named)
    except TypeError as error:
        raise TileTypeError(f"{getattr(fn, '__name__', fn)}: {error}", remedy=f"its parameters are {python_signature(fn)}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def freeze(value: Any) -> Any:
    """A hashable stand-in: equal for equal values of the same type. 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, Mapping):
        return (type(value), tuple((freeze(k), freeze(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return (type(value), tuple(freeze(v) for v in value))
    if isinstance(value, set | frozenset):
        return (type(value), frozenset(freeze(v) for v in value))
    if isinstance(value, float):
        return (type(value), value.hex())
    if isinstance(value, np.ndarray):
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return (type(value), value)


class _Identity:
    """An unhashable object of unknown meaning, kept alive and equal only to itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

"""A decorator for functions that have a better name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(
    method_name: str, new_method_name: str = "", phaseout_version: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Warn at each call that `method_name` should be written as `new_method_name`."""
    text = f"{method_name} is deprecated" + (f", use {new_method_name}" if new_method_name else "")
    text += f"; it goes away in {phaseout_version}" if phaseout_version else ""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def call(*args: Any, **named: Any) -> Any:
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return fn(*args, **named)

        return call

    return decorate

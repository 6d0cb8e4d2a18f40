"""Inputs that the user supplies for tuning: `with set_autotune_inputs(a, b): factory(M, N)`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_local = threading.local()


@contextlib.contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:
    """Tuning inside the block runs on these tensors. Takes them one by one or as a single list."""
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else list(tensors)
    before = get_autotune_inputs()
    _local.inputs = given
    try:
        yield
    finally:
        _local.inputs = before


def get_autotune_inputs() -> list[Any] | None:
    """The tensors of the innermost `set_autotune_inputs`, or None."""
    return getattr(_local, "inputs", None)

"""What compiled kernels call back: the line printer. Registered with TVM at the first compilation, not at import."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ...ir.tvm_api import tvm
from .effects import PRINT


@functools.cache
def register_callbacks() -> None:
    """Make the callbacks known to TVM (once in a process)."""
    tvm.register_global_func(PRINT, print_line, override=True)


def print_line(message: str, buffer: str, dtype: str, *values: Any) -> None:
    """One line of `T.print`: message, block, thread, then buffer and flat index, element type, value."""
    place, rest = [int(v) for v in values[:6]], values[6:]
    parts = [f"msg={message!r}"] if message else []
    parts += [f"block=({place[0]}, {place[1]}, {place[2]})", f"thread=({place[3]}, {place[4]}, {place[5]})"]
    if buffer:
        parts.append(f"buffer={buffer}, index={int(rest[1])}")
    if dtype:
        value = bool(rest[0]) if dtype == "bool" else rest[0]
        parts.append(f"dtype={dtype} value={value}")
    sys.stdout.write(" ".join(parts) + "\n")

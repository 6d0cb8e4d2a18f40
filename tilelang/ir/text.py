"""An exact text of a program, for cache keys: equal texts mean equal programs.

In: a program at any level. Out: its text without positions and paths, with every bit of its float constants (TVM's printer
rounds them and hides the sign of zero). Names count: two programs that differ only in names have different texts.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from .rewrite import walk
from .tvm_api import AttrStmt, FloatImm, For, PrimFunc

_POSITIONS = ("tl.source",)  # function attributes that say where, not what


def canonical_text(func: PrimFunc) -> str:
    """The text of `func`. Payloads of NaNs do not count; everything else is exact."""
    for key in _POSITIONS:
        if func.attrs is not None and key in func.attrs:
            func = func.without_attr(key)
    floats: list[str] = []

    def constant(node: FloatImm) -> None:
        floats.append(float_text(node.value))

    def loop(node: For) -> None:
        if node.annotations:
            _inner_floats(node.annotations, floats)

    def attribute(node: AttrStmt) -> None:
        if hasattr(node.node, "values"):
            _inner_floats(node.node, floats)

    walk(func.body, {FloatImm: constant, For: loop, AttrStmt: attribute})
    return f"{func.script()}\n{' '.join(floats)}"


def float_text(value: float) -> str:
    """All 64 bits of a float; one spelling for NaN."""
    return "nan" if math.isnan(value) else struct.pack(">d", value).hex()


def _inner_floats(value: Any, out: list[str]) -> None:
    """Floats inside the maps and lists of annotations."""
    if isinstance(value, float):
        out.append(float_text(value))
    elif isinstance(value, FloatImm):
        out.append(float_text(value.value))
    elif hasattr(value, "items"):
        for item in value.values():
            _inner_floats(item, out)
    elif isinstance(value, list | tuple) or type(value).__name__ in ("Array", "List"):
        for item in value:
            _inner_floats(item, out)
    elif hasattr(value, "ty"):
        walk(value, {FloatImm: lambda node: out.append(float_text(node.value))})

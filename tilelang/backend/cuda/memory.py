"""Where the buffers of a kernel are: variable, register array, shared bytes, global pointer; and how an element is addressed.

In: declarations as the printer meets them. Out: C++ lvalues and addresses. Elements are laid out row-major, or by the
buffer's strides; offsets that may leave 32 bits are computed in 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import GLOBAL, LOCAL, VAR
from ...ir.tvm_api import Expr, IntImm, Var, const, dtype_of, shape_of, tirx
from ...passes.program.widen_indices import widened
from .cpp_types import bytes_of

_INT32_ELEMENTS = 1 << 31


@dataclass(frozen=True)
class Place:
    """A declared buffer. name: C++ name of the pointer, array or variable. scalar: a plain variable of one element. aligned:
    does it begin at a multiple of 16 bytes?"""

    name: str
    dtype: str
    scope: str
    scalar: bool = False
    aligned: bool = False


def is_scalar_buffer(buffer: Var) -> bool:
    """Is it one element of a single thread, which becomes a plain variable?"""
    return buffer.scope() in (VAR, LOCAL) and all(isinstance(e, int) and e == 1 for e in shape_of(buffer))


def element_count(buffer: Var) -> int | None:
    """Elements of a buffer of constant shape, else None."""
    total = 1
    for extent in shape_of(buffer):
        if not isinstance(extent, int):
            return None
        total *= extent
    return total


def offset_of(buffer: Var, indices: Sequence[Expr]) -> Expr:
    """Offset of an element from the first one, in elements."""
    shape = shape_of(buffer)
    strides = [int(s) if isinstance(s, IntImm) else s for s in buffer.ty.strides] if len(buffer.ty.strides) else None
    wide = _is_wide(buffer, shape, strides)
    if strides is not None:
        total = _zero(wide)
        for index, stride in zip(indices, strides, strict=True):
            total = _add(total, _times(_index(index, wide), stride, wide))
        return total
    total = None
    for index, extent in zip(indices, shape, strict=True):
        step = _index(index, wide and len(shape) > 1)
        total = step if total is None else _add(_times(total, extent, wide), step)
    return const(0, "int32") if total is None else total


def _is_wide(buffer: Var, shape: Sequence[Any], strides: Sequence[Any] | None) -> bool:
    """May offsets leave 32 bits? Only tensors in global memory are that large."""
    if buffer.scope() != GLOBAL:
        return False
    if strides is not None:
        if not all(isinstance(e, int) for e in (*shape, *strides)):
            return True
        return sum(abs(s) * max(e - 1, 0) for s, e in zip(strides, shape, strict=True)) * bytes_of(dtype_of(buffer)) >= _INT32_ELEMENTS
    count = element_count(buffer)
    return len(shape) > 1 and (count is None or count >= _INT32_ELEMENTS)


def _zero(wide: bool) -> Expr:
    return const(0, "int64" if wide else "int32")


def _index(index: Expr, wide: bool) -> Expr:
    dtype = str(index.ty.dtype)
    if wide and dtype not in ("int64", "uint64"):
        return const(int(index), "int64") if isinstance(index, IntImm) else tirx.Cast("int64", index)
    return index


def _match(value: Any, like: Expr) -> Expr:
    dtype = str(like.ty.dtype)
    if isinstance(value, int | IntImm):
        return const(int(value), dtype)
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def _times(value: Expr, factor: Any, wide: bool) -> Expr:
    factor = int(factor) if isinstance(factor, int | IntImm) else widened(factor) if wide else factor
    if isinstance(factor, int):
        if isinstance(value, IntImm):
            return const(int(value) * factor, str(value.ty.dtype))
        if isinstance(value, tirx.Mul) and isinstance(value.b, IntImm) and abs(int(value.b) * factor) < _INT32_ELEMENTS:
            value, factor = value.a, int(value.b) * factor
        return value if factor == 1 else const(0, str(value.ty.dtype)) if factor == 0 else tirx.Mul(value, _match(factor, value))
    if isinstance(value, IntImm) and int(value) in (0, 1):
        return factor if int(value) else const(0, str(factor.ty.dtype))
    value, factor = _widest(value, factor)
    return tirx.Mul(value, factor)


def _add(a: Expr, b: Expr) -> Expr:
    if isinstance(a, IntImm) and int(a) == 0:
        return b
    if isinstance(b, IntImm) and int(b) == 0:
        return a
    a, b = _widest(a, b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return const(int(a) + int(b), str(a.ty.dtype))
    return tirx.Add(a, b)


def _widest(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    one, two = str(a.ty.dtype), str(b.ty.dtype)
    if one == two:
        return a, b
    wide = "int64" if "64" in one + two else "int32"
    return (_match(a, const(0, wide)) if one != wide else a), (_match(b, const(0, wide)) if two != wide else b)

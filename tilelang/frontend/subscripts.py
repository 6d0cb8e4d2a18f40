"""Square brackets on buffers and regions: element accesses, blocks, and blocks of blocks.

In: a buffer or region and what stood between the brackets. Out: a `TensorLoad` for full indices, a `TensorRegion` for
slices. Raises `TileIndexError` for a wrong number of indices, naming buffer, rank and shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import TileIndexError, TileTypeError
from ..ir.dtype_table import info
from ..ir.expr import as_extent, binary, convert, type_of
from ..ir.positions import simplified
from ..ir.tvm_api import IntImm, TensorRegion, Var, load, region, tirx
from .trace import Trace

_MAY_BE_NEGATIVE = (tirx.Sub, tirx.Add, tirx.Mul)


class Access(NamedTuple):
    """One access: first element and extent for each dimension; sliced: dimensions that a slice kept."""

    buffer: Var
    mins: tuple[Any, ...]
    extents: tuple[Any, ...]
    sliced: tuple[int, ...]


def access_buffer(trace: Trace, buffer: Var, index: Any) -> Access:
    """The access that `buffer[index]` means."""
    facts = trace.facts(buffer)
    assert facts is not None
    shape = facts.shape
    parts = _parts(buffer.name, index, len(shape), shape)
    mins, extents, sliced = [], [], []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        where = f"index {axis} of {buffer.name}"
        if isinstance(part, slice):
            lo, extent = _slice(trace, part, size, where)
            sliced.append(axis)
        else:
            lo, extent = _position(trace, part, size, where), 1
        mins.append(lo)
        extents.append(extent)
    return Access(buffer, tuple(mins), tuple(extents), tuple(sliced))


def access_region(trace: Trace, block: TensorRegion, sliced: tuple[int, ...] | None, index: Any) -> Access:
    """The access that `block[index]` means; sliced: the dimensions of the buffer that the block has, if known."""
    mins = [_plain(r.min) for r in block.region]
    extents = [_plain(r.extent) for r in block.region]
    count = len(index) if isinstance(index, tuple) else 1
    if sliced is None or (count != len(sliced) and count == len(mins)):
        wide = tuple(k for k, e in enumerate(extents) if not (isinstance(e, int) and e == 1))
        sliced = tuple(range(len(mins))) if count == len(mins) else wide
    name = f"a block of {block.source.name}"
    parts = _parts(name, index, len(sliced), tuple(extents[k] for k in sliced))
    kept = []
    for axis, part in zip(sliced, parts, strict=True):
        where = f"index of {name}"
        if isinstance(part, slice):
            offset, extent = _slice(trace, part, extents[axis], where)
            kept.append(axis)
        else:
            offset, extent = _position(trace, part, extents[axis], where), 1
        mins[axis], extents[axis] = binary("+", mins[axis], offset), extent
    fixed = [k for k, e in enumerate(extents) if k not in sliced and not (isinstance(e, int) and e == 1)]
    return Access(block.source, tuple(mins), tuple(extents), (*fixed, *kept))


def value_of(access: Access) -> Any:
    """The element, or the region if a slice is among the indices."""
    if not access.sliced:
        return load(access.buffer, [_typed(m) for m in access.mins])
    mins, extents = [], []
    for lo, extent in zip(access.mins, access.extents, strict=True):
        wide = any(not isinstance(v, int) and type_of(v) == "int64" for v in (lo, extent))
        mins.append(convert(lo, "int64") if wide else _typed(lo))
        extents.append(convert(extent, "int64") if wide else _typed(extent))
    return region(access.buffer, mins, extents)


def stored_type(dtype: str, indices: Sequence[Any]) -> str:
    """The type of what an access stores: an element, or as many as a vector index such as `T.Ramp(i, 1, 4)` has lanes."""
    lanes = max((info(type_of(i)).lanes for i in indices if not isinstance(i, int)), default=1)
    return dtype if lanes == 1 or info(dtype).lanes > 1 else f"{dtype}x{lanes}"


def _typed(value: Any) -> Any:
    if isinstance(value, int):
        return IntImm("int32" if -(1 << 31) <= value < 1 << 31 else "int64", value)
    return value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, IntImm) else value


def _parts(name: str, index: Any, rank: int, shape: tuple[Any, ...]) -> list[Any]:
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(p is Ellipsis for p in parts):
        at = next(k for k, p in enumerate(parts) if p is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (rank - len(parts) + 1)
    if len(parts) != rank:
        dims = "(" + ", ".join(str(e) for e in shape) + ("," if rank == 1 else "") + ")"
        raise TileIndexError(
            f"{name} has {rank} dimension{'' if rank == 1 else 's'}, shape {dims}, but {len(parts)} "
            f"{'index was' if len(parts) == 1 else 'indices were'} given",
            remedy="give one index or slice for each dimension",
        )
    return parts


def _integer(part: Any, where: str) -> Any:
    """An index as an int or an int32/int64 expression."""
    if isinstance(part, bool):
        return int(part)
    value = as_extent(part, where) if not _is_bool(part) else convert(part, "int32")
    if isinstance(value, int):
        return value
    kind = type_of(value)
    if "x" in kind or kind in ("int32", "int64"):
        return value
    return convert(value, "int64" if kind in ("uint32", "uint64") else "int32")


def _is_bool(part: Any) -> bool:
    return hasattr(part, "ty") and not isinstance(part, (Var, TensorRegion)) and type_of(part) == "bool"


def _position(trace: Trace, part: Any, size: Any, where: str) -> Any:
    """A single index; one that is provably negative counts from the end."""
    value = _integer(part, where)
    if isinstance(value, int):
        if value >= 0:
            return value
        if isinstance(size, int) and value < -size:
            raise TileIndexError(f"{where} is {value}, but the extent is {size}", remedy=f"indices run from {-size} to {size - 1}")
        return binary("+", size, value)
    if isinstance(value, _MAY_BE_NEGATIVE) and "x" not in type_of(value) and int(trace.analyzer.const_int_bound(value).max_value) < 0:
        return binary("+", size, value)
    return value


def _slice(trace: Trace, part: slice, size: Any, where: str) -> tuple[Any, Any]:
    """(first, extent) of a slice."""
    if part.step is not None and not (isinstance(part.step, int) and part.step == 1):
        raise TileIndexError(
            f"{where} is a slice with step {part.step}", remedy="blocks are dense: slice with step 1, or loop over the elements"
        )
    lo = 0 if part.start is None else _position(trace, part.start, size, where)
    hi = size if part.stop is None else _position(trace, part.stop, size, where)
    if isinstance(lo, int) and lo == 0:
        extent = hi
    elif isinstance(lo, int) and isinstance(hi, int):
        extent = hi - lo
    else:
        extent = _plain(simplified(convert(binary("-", hi, lo), "int64" if _wide(hi, lo) else "int32"), trace.analyzer))
    if isinstance(extent, int) and extent < 0:
        raise TileIndexError(f"{where}: the slice from {lo} to {hi} is empty", remedy="the end of a slice must not lie before its start")
    return lo, extent


def _wide(*values: Any) -> bool:
    return any(not isinstance(v, int) and type_of(v) == "int64" for v in values)


def check_indexable(value: Any) -> None:
    """An error for square brackets on a scalar of the language."""
    raise TileTypeError(
        f"{type(value).__name__} value of type {type_of(value)} is no buffer: it has no elements to index",
        remedy="only buffers, blocks of them and variables made by T.alloc_var are indexed",
    )

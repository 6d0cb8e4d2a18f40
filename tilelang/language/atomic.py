"""Atomic updates of global and shared memory, by element or by tile.

In: an element access (or the corner of a tile) and a value. Out: a `tl.atomic` call for an element; a whole tile goes to
the tile operator. With `return_prev` the call is a value, the element before the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.builder import in_kernel
from ..ir.dialect import GLOBAL, SHARED_SCOPES, make_call
from ..ir.dtype_table import info
from ..ir.tvm_api import Expr, TensorLoad, TensorRegion, dtype_of, load, region, tirx
from ..tileop.atomic import is_tile_update, tile_atomic
from ..tileop.operands import Operand, operand

MEMORY_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def atomic_add(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, use_tma: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """dst += value, indivisibly. dst: an element of a global or shared buffer, or a tile with a tile as value.

    value is converted to dst's type. memory_order: relaxed (default), consume, acquire, release, acq_rel, seq_cst.
    return_prev: return the element before the update (elements only). use_tma, annotations: hints.
    """
    return _update("T.atomic_add", "add", dst, value, memory_order, return_prev)


def atomic_max(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst = max(dst, value), indivisibly; arguments as `atomic_add`."""
    return _update("T.atomic_max", "max", dst, value, memory_order, return_prev)


def atomic_min(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst = min(dst, value), indivisibly; arguments as `atomic_add`."""
    return _update("T.atomic_min", "min", dst, value, memory_order, return_prev)


def atomic_or(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst |= value, indivisibly, on integers; arguments as `atomic_add`."""
    return _update("T.atomic_or", "or", dst, value, memory_order, return_prev)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Expr:
    """The element `src`, read indivisibly. memory_order: relaxed, consume, acquire or seq_cst."""
    what = "T.atomic_load"
    in_kernel(what)
    _order(what, memory_order, ("release", "acq_rel"))
    place = _element(src, "src", what)
    return make_call("tl.atomic", [place.region], place.dtype, kind="load", memory_order=memory_order)


def atomic_store(dst: Any, value: Any, memory_order: str = "seq_cst") -> None:
    """Write the element `dst` indivisibly. memory_order: relaxed, release or seq_cst."""
    what = "T.atomic_store"
    builder = in_kernel(what)
    _order(what, memory_order, ("consume", "acquire", "acq_rel"))
    place = _element(dst, "dst", what)
    operands = [place.region, ex.convert(value, place.dtype)]
    builder.evaluate(make_call("tl.atomic", operands, place.dtype, builder.span(), kind="store", memory_order=memory_order))


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> Any:
    """Add two consecutive elements (float16, bfloat16 or float32) to the two that begin at `dst`.

    dst, value: element accesses or slices naming the first of them; value may also be a vector of 2 lanes.
    return_prev: return the elements before the update, as a vector.
    """
    return _packed("T.atomic_addx2", 2, ("float16", "bfloat16", "float32"), dst, value, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> Any:
    """Add four consecutive float32 elements to the four that begin at `dst`; arguments as `atomic_addx2`."""
    return _packed("T.atomic_addx4", 4, ("float32",), dst, value, return_prev)


def _order(what: str, order: Any, unsuitable: tuple[str, ...] = ()) -> None:
    allowed = [o for o in MEMORY_ORDERS if o not in unsuitable]
    if order is not None and order not in allowed:
        raise TileValueError(f"{what}: memory order {order!r}; possible are {', '.join(allowed)}")


def _element(value: Any, role: str, what: str) -> Operand:
    """One element of global or shared memory."""
    found = operand(value, role, what, scopes=(GLOBAL, *SHARED_SCOPES))
    if any(not isinstance(e, int) or e != 1 for e in found.extents):
        raise TileValueError(f"{what}: {found} is no single element", remedy="index one element, e.g. A[i, j]")
    return found


def _update(what: str, kind: str, dst: Any, value: Any, memory_order: str | None, return_prev: bool) -> Any:
    builder = in_kernel(what)
    _order(what, memory_order)
    if is_tile_update(dst, value):
        return tile_atomic(what, kind, dst, value, memory_order, return_prev)
    place = _element(dst, "dst", what)
    if kind == "or" and info(place.dtype).kind not in ("int", "uint", "bool"):
        raise TileTypeError(f"{what}: {place} holds {place.dtype}; integers are needed")
    update = make_call(
        "tl.atomic", [place.region, ex.convert(value, place.dtype)], place.dtype, builder.span(), kind=kind, memory_order=memory_order
    )
    if return_prev:
        return update
    builder.evaluate(update)
    return None


def _packed(what: str, count: int, types: tuple[str, ...], dst: Any, value: Any, return_prev: bool) -> Any:
    builder = in_kernel(what)
    place = operand(dst, "dst", what, scopes=(GLOBAL, *SHARED_SCOPES))
    if place.dtype not in types:
        raise TileTypeError(f"{what}: {place} holds {place.dtype}; possible are {', '.join(types)}")
    target = region(place.buffer, place.mins, [1] * (len(place.mins) - 1) + [count])
    values = [ex.convert(v, place.dtype) for v in _consecutive(what, value, count)]
    kind = f"{place.dtype}x{count}" if return_prev else "void"
    update = make_call("tl.atomic", [target, *values], kind, builder.span(), kind="add")
    if return_prev:
        return update
    builder.evaluate(update)
    return None


def _consecutive(what: str, value: Any, count: int) -> list[Expr]:
    """The `count` elements that begin where `value` points, or the lanes of a vector value."""
    if isinstance(value, TensorLoad) and info(dtype_of(value)).lanes == 1:
        found, mins = value.source, list(value.indices)
    elif isinstance(value, TensorRegion):
        found, mins = value.source, [r.min for r in value.region]
    else:
        vector = ex.as_expr(value)
        if info(ex.type_of(vector)).lanes != count:
            raise TileTypeError(f"{what}: {value} is neither {count} consecutive elements nor a vector of {count} lanes")
        return [tirx.Shuffle([vector], [k]) for k in range(count)]
    return [load(found, [*mins[:-1], ex.binary("+", mins[-1], k)]) for k in range(count)]

"""Programs written for single threads: block and warp barriers, shuffles, votes, positions of threads.

In: values of each thread. Out: operators of the dialect that are executed by a whole warp (32 threads) or block together.
A warp is 32 threads of consecutive linear id x + extent_x * (y + extent_y * z).
"""

from __future__ import annotations

from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.builder import in_kernel
from ..ir.dialect import make_call
from ..ir.dtype_table import info
from ..ir.tvm_api import Expr, IntImm
from .kernel import get_thread_bindings, get_thread_extents

WARP = 32
FULL_MASK = 0xFFFFFFFF


# ---------------------------------------------------------------- barriers
def _statement(name: str, what: str, *values: Any) -> None:
    builder = in_kernel(what)
    builder.evaluate(make_call(name, [ex.convert(v, "int32") for v in values], span=builder.span()))


def sync_threads(barrier_id: Any = None, arrive_count: Any = None) -> None:
    """Wait for all threads of the block. With a barrier id (and the number of arriving threads): only those that name it."""
    if barrier_id is None and arrive_count is not None:
        raise TileTypeError("T.sync_threads: arrive_count without barrier_id")
    _statement("tl.sync_threads", "T.sync_threads", *(v for v in (barrier_id, arrive_count) if v is not None))


def sync_thread_partial(barrier_id: Any, arrive_count: Any = None) -> None:
    """The older name of `sync_threads(barrier_id)`."""
    sync_threads(barrier_id, arrive_count)


def sync_warp(mask: Any = None) -> None:
    """Wait for the threads of the warp that `mask` names (default: all)."""
    builder = in_kernel("T.sync_warp")
    values = [] if mask is None else [ex.convert(mask, "uint32")]
    builder.evaluate(make_call("tl.sync_warp", values, span=builder.span()))


def sync_grid() -> None:
    """Wait for all blocks of the launch (cooperative launch on a GPU)."""
    _statement("tl.sync_grid", "T.sync_grid")


def sync_global() -> None:
    """The older name of `sync_grid`."""
    _statement("tl.sync_grid", "T.sync_global")


def tvm_storage_sync(scope: str) -> None:
    """TVM's barrier: "shared" is `sync_threads`, "warp" is `sync_warp`, "global" is `sync_grid`."""
    barriers = {"shared": sync_threads, "shared.dyn": sync_threads, "warp": sync_warp, "global": sync_grid}
    if scope not in barriers:
        raise TileValueError(f"T.tvm_storage_sync: scope {scope!r}; possible are 'shared', 'warp', 'global'")
    barriers[scope]()


# ---------------------------------------------------------------- shuffles
def _shuffle(what: str, mode: str, value: Any, lane: Any, width: Any, mask: Any) -> Expr:
    in_kernel(what)
    found = ex.as_expr(value)
    facts = info(ex.type_of(found))
    if facts.kind == "handle" or facts.lanes != 1:
        raise TileTypeError(f"{what} of {facts.name}; a scalar number is needed")
    if not (isinstance(width, (int, IntImm)) and int(width) in (1, 2, 4, 8, 16, 32)):
        raise TileValueError(f"{what}: width {width}; it is a power of two up to {WARP}")
    operands = [found, ex.convert(lane, "int32"), ex.convert(int(width), "int32"), ex.convert(mask, "uint32")]
    return make_call("tl.shfl", operands, str(facts.name), mode=mode)


def shfl_sync(value: Any, srcLane: Any, width: int = WARP, mask: Any = FULL_MASK) -> Expr:
    """The value of lane `srcLane` of the thread's group of `width` lanes."""
    return _shuffle("T.shfl_sync", "idx", value, srcLane, width, mask)


def shfl_xor(value: Any, delta: Any, width: int = WARP, mask: Any = FULL_MASK) -> Expr:
    """The value of the lane whose number is this one's xor `delta`; the own value if that leaves the group of `width` lanes."""
    return _shuffle("T.shfl_xor", "xor", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: int = WARP, mask: Any = FULL_MASK) -> Expr:
    """The value of the lane `delta` above; the own value if that leaves the group of `width` lanes."""
    return _shuffle("T.shfl_down", "down", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: int = WARP, mask: Any = FULL_MASK) -> Expr:
    """The value of the lane `delta` below; the own value if that leaves the group of `width` lanes."""
    return _shuffle("T.shfl_up", "up", value, delta, width, mask)


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: int, warp_size: int = WARP) -> Expr:
    """TVM's operand order of `shfl_sync`."""
    return _shuffle("T.tvm_warp_shuffle", "idx", value, warp_id, width, mask)


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: int, warp_size: int = WARP) -> Expr:
    """TVM's operand order of `shfl_up`."""
    return _shuffle("T.tvm_warp_shuffle_up", "up", value, offset, width, mask)


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: int, warp_size: int = WARP) -> Expr:
    """TVM's operand order of `shfl_down`."""
    return _shuffle("T.tvm_warp_shuffle_down", "down", value, offset, width, mask)


def tvm_warp_activemask() -> Expr:
    """Mask of the lanes that execute this, uint32."""
    return ex.convert(activemask(), "uint32")


# ---------------------------------------------------------------- votes
def _predicate(what: str, value: Any) -> Expr:
    found = ex.as_expr(value)
    if info(ex.type_of(found)).kind not in ("bool", "int", "uint") or info(ex.type_of(found)).lanes != 1:
        raise TileTypeError(f"{what}: the predicate is {ex.type_of(found)}; an integer or bool is needed", remedy="compare it, e.g. x > 0")
    return ex.as_expr(ex.truth(found))


def _vote(what: str, kind: str, dtype: str, value: Any, mask: Any, compare: bool = False) -> Expr:
    """A vote of the lanes in `mask`; the order (mask, value) is accepted when the mask is the constant of the two."""
    in_kernel(what)
    if mask is not None and isinstance(value, int) and not isinstance(value, bool) and not isinstance(mask, int):
        value, mask = mask, value
    operand = _matched(what, value) if compare else _predicate(what, value)
    return make_call("tl.vote", [operand, ex.convert(FULL_MASK if mask is None else mask, "uint32")], dtype, kind=kind)


def _matched(what: str, value: Any) -> Expr:
    found = ex.as_expr(value)
    if info(ex.type_of(found)).bits not in (32, 64) or info(ex.type_of(found)).lanes != 1:
        raise TileTypeError(f"{what} of {ex.type_of(found)}; a value of 32 or 64 bits is needed", remedy="cast it first")
    return found


def any_sync(predicate: Any, mask: Any = None) -> Expr:
    """1 if the predicate (integer or bool) holds in some lane of the warp, else 0; int32."""
    return _vote("T.any_sync", "any", "int32", predicate, mask)


def all_sync(predicate: Any, mask: Any = None) -> Expr:
    """1 if the predicate (integer or bool) holds in all lanes of the warp, else 0; int32."""
    return _vote("T.all_sync", "all", "int32", predicate, mask)


def ballot_sync(predicate: Any, mask: Any = None) -> Expr:
    """Bit k is the predicate of lane k; uint64, so that warps of 64 lanes fit."""
    return _vote("T.ballot_sync", "ballot", "uint64", predicate, mask)


def ballot(predicate: Any) -> Expr:
    """`ballot_sync` over the whole warp."""
    return _vote("T.ballot", "ballot", "uint64", predicate, None)


def activemask() -> Expr:
    """Bit k is set if lane k executes this; uint64."""
    in_kernel("T.activemask")
    return make_call("tl.vote", [], "uint64", kind="activemask")


def match_any_sync(value: Any, mask: Any = None) -> Expr:
    """Mask of the lanes that hold the same value (32 or 64 bits); uint32."""
    return _vote("T.match_any_sync", "match_any", "uint32", value, mask, compare=True)


def match_all_sync(value: Any, mask: Any = None) -> Expr:
    """The mask if all its lanes hold the same value (32 or 64 bits), else 0; uint32."""
    return _vote("T.match_all_sync", "match_all", "uint32", value, mask, compare=True)


def _block_vote(what: str, kind: str, predicate: Any) -> Expr:
    in_kernel(what)
    return make_call("tl.block_vote", [_predicate(what, predicate)], "int32", kind=kind)


def syncthreads_count(predicate: Any) -> Expr:
    """Block barrier; the number of threads in which the predicate (integer or bool) holds, int32."""
    return _block_vote("T.syncthreads_count", "count", predicate)


def syncthreads_and(predicate: Any) -> Expr:
    """Block barrier; 1 if the predicate holds in all threads, else 0."""
    return _block_vote("T.syncthreads_and", "and", predicate)


def syncthreads_or(predicate: Any) -> Expr:
    """Block barrier; 1 if the predicate holds in some thread, else 0."""
    return _block_vote("T.syncthreads_or", "or", predicate)


# ---------------------------------------------------------------- warp reductions
def _warp_reduce(kind: str, value: Any) -> Expr:
    what = f"T.warp_reduce_{kind}"
    in_kernel(what)
    found = ex.as_expr(value)
    facts = info(ex.type_of(found))
    if facts.lanes != 1 or facts.kind == "handle" or (kind.startswith("bit") and facts.kind == "float"):
        raise TileTypeError(f"{what} of {facts.name}")
    return make_call("tl.warp_reduce", [found], str(facts.name), kind=kind)


def warp_reduce_sum(value: Any) -> Expr:
    """The sum over the warp, in every lane, in the value's type."""
    return _warp_reduce("sum", value)


def warp_reduce_max(value: Any) -> Expr:
    """The maximum over the warp, in every lane."""
    return _warp_reduce("max", value)


def warp_reduce_min(value: Any) -> Expr:
    """The minimum over the warp, in every lane."""
    return _warp_reduce("min", value)


def warp_reduce_bitand(value: Any) -> Expr:
    """The bitwise and over the warp, in every lane; integers."""
    return _warp_reduce("bitand", value)


def warp_reduce_bitor(value: Any) -> Expr:
    """The bitwise or over the warp, in every lane; integers."""
    return _warp_reduce("bitor", value)


def warp_reduce_bitxor(value: Any) -> Expr:
    """The bitwise exclusive or over the warp, in every lane; integers."""
    return _warp_reduce("bitxor", value)


# ---------------------------------------------------------------- positions
def _linear_id() -> Any:
    """x + extent_x * (y + extent_y * z)."""
    total: Any = 0
    stride = 1
    for binding, extent in zip(get_thread_bindings(), get_thread_extents(), strict=True):
        if extent != 1:
            total = ex.binary("+", total, ex.binary("*", binding, stride))
        stride *= extent
    return ex.as_expr(total)


def _positive(what: str, value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        raise TileValueError(f"{what} is {value!r}; a positive int is needed")
    return value


def get_lane_idx(warp_size: int | None = None) -> Expr:
    """The thread's number in its warp."""
    return ex.binary("%", _linear_id(), _positive("T.get_lane_idx: warp_size", warp_size or WARP))


def get_warp_idx(warp_size: int | None = None) -> Expr:
    """The number of the thread's warp in the block."""
    return ex.binary("//", _linear_id(), _positive("T.get_warp_idx: warp_size", warp_size or WARP))


def get_warp_idx_sync(warp_size: int | None = None) -> Expr:
    """`get_warp_idx`, known to be equal in all lanes of the warp."""
    return get_warp_idx(warp_size)


def get_warp_group_idx(warp_size: int | None = None, warps_per_group: int | None = None) -> Expr:
    """The number of the thread's group of warps (default 4 warps, 128 threads)."""
    size = _positive("T.get_warp_group_idx: warp_size", warp_size or WARP)
    return ex.binary("//", _linear_id(), size * _positive("T.get_warp_group_idx: warps_per_group", warps_per_group or 4))


def shuffle_elect(thread_extent: int) -> Expr:
    """True in one thread of each `thread_extent` consecutive ones; 0 means in one thread of the block."""
    if not isinstance(thread_extent, int) or thread_extent < 0:
        raise TileValueError(f"T.shuffle_elect: extent {thread_extent!r}; it is an int, 0 or more")
    place = _linear_id() if thread_extent == 0 else ex.binary("%", _linear_id(), thread_extent)
    return ex.binary("==", place, 0)

"""mbarriers, fences, register hints: synchronisation between groups of threads of a block.

In: barrier buffers, their elements, or the small integers of the older form. Out: statements of the dialect. An operand
`bar` is a buffer made by `T.alloc_barrier` (its element 0), an element `bar[i]`, an integer id (constant or computed) of a
barrier declared by `T.create_list_of_mbarrier`, or the result of `T.get_mbarrier`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TileRuntimeError, TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.builder import in_kernel
from ..ir.dialect import BARRIER, CLUSTER_BARRIER, make_call
from ..ir.tvm_api import Expr, IntImm, TensorLoad, TensorRegion, Var, is_buffer, load, region, shape_of
from .allocate import alloc_barrier

_LIST = "mbarriers"  # fact of the kernel frame: the buffer that the ids of the older form count in


def create_list_of_mbarrier(*arrive_counts: Any) -> None:
    """Declare barriers 0, 1, ... with these arrive counts; also given as one list."""
    builder = in_kernel("T.create_list_of_mbarrier")
    counts = list(arrive_counts[0]) if len(arrive_counts) == 1 and isinstance(arrive_counts[0], Sequence) else list(arrive_counts)
    frame = builder.kernel
    assert frame is not None
    if _LIST in frame.facts:
        raise TileRuntimeError("T.create_list_of_mbarrier twice in one kernel", remedy="declare all barriers in one call")
    frame.facts[_LIST] = alloc_barrier(counts)


def get_mbarrier(index: Any) -> Expr:
    """The barrier with this id, as an operand of the barrier functions."""
    return load(_list("T.get_mbarrier"), [ex.convert(index, "int32")])


def _list(what: str) -> Var:
    frame = in_kernel(what).kernel
    assert frame is not None
    if _LIST not in frame.facts:
        raise TileRuntimeError(f"{what}: no barriers are declared", remedy="call T.create_list_of_mbarrier(...) first")
    return frame.facts[_LIST]


def _barrier(value: Any, what: str) -> TensorRegion:
    """The barrier that an operand names, as a block of one element."""
    if isinstance(value, Var) and is_buffer(value) and value.scope() in (BARRIER, CLUSTER_BARRIER):
        return region(value, [0], [1])
    if isinstance(value, (TensorLoad, TensorRegion)) and value.source.scope() in (BARRIER, CLUSTER_BARRIER):
        index = value.indices[0] if isinstance(value, TensorLoad) else value.region[0].min
        return region(value.source, [index], [1])
    if isinstance(value, Var) and is_buffer(value) and value.scope() != "local.var":
        raise TileTypeError(f"{what}: {value.name} is in scope {value.scope()!r} and no barrier", remedy="make it by T.alloc_barrier")
    barriers = _list(what)
    index = ex.as_extent(value, f"{what}: barrier id")
    count = shape_of(barriers)[0]
    if isinstance(index, int) and not 0 <= index < count:
        raise TileValueError(f"{what}: barrier id {index}; the declared ones are 0 to {count - 1}")
    return region(barriers, [index], [1])


def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase of this parity (0 or 1) of the barrier has completed."""
    builder = in_kernel("T.mbarrier_wait_parity")
    if isinstance(parity, (int, IntImm)) and int(parity) not in (0, 1):
        raise TileValueError(f"T.mbarrier_wait_parity: parity {parity}; it is 0 or 1")
    operands = [_barrier(mbarrier, "T.mbarrier_wait_parity"), ex.convert(parity, "int32")]
    builder.evaluate(make_call("tl.mbarrier_wait", operands, span=builder.span()))


def barrier_wait(barrier: Any, parity: Any = 0) -> None:
    """The same as `mbarrier_wait_parity`."""
    mbarrier_wait_parity(barrier, parity)


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """Arrive at the barrier. cta_id: the block of the cluster that owns it (GPUs with clusters)."""
    builder = in_kernel("T.mbarrier_arrive")
    rank = [] if cta_id is None else [ex.convert(cta_id, "int32")]
    builder.evaluate(make_call("tl.mbarrier_arrive", [_barrier(mbarrier, "T.mbarrier_arrive"), *rank], span=builder.span()))


def barrier_arrive(barrier: Any, cta_id: Any = None) -> None:
    """The same as `mbarrier_arrive`."""
    mbarrier_arrive(barrier, cta_id)


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """Let the running phase also wait for `tx` bytes of bulk copies."""
    _expect("T.mbarrier_expect_tx", mbarrier, tx, False)


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`mbarrier_expect_tx`, then arrive."""
    _expect("T.mbarrier_arrive_expect_tx", mbarrier, tx, True)


def _expect(what: str, mbarrier: Any, tx: Any, arrive: bool) -> None:
    builder = in_kernel(what)
    operands = [_barrier(mbarrier, what), ex.convert(tx, "int32")]
    builder.evaluate(make_call("tl.mbarrier_expect_tx", operands, span=builder.span(), arrive=arrive))


# ---------------------------------------------------------------- hints: no effect on results
def _hint(what: str, *values: Any) -> None:
    builder = in_kernel(f"T.{what}")
    builder.evaluate(make_call("tl.hint", [ex.as_expr(v) for v in values], span=builder.span(), what=what))


def set_max_nreg(reg_count: int, is_inc: int) -> None:
    """Registers per thread from here on, for warp-specialised kernels (GPU hint). is_inc: 1 raises, 0 lowers the number."""
    _hint("set_max_nreg", reg_count, is_inc)


def inc_max_nreg(reg_count: int) -> None:
    """`set_max_nreg(reg_count, 1)`."""
    set_max_nreg(reg_count, 1)


def dec_max_nreg(reg_count: int) -> None:
    """`set_max_nreg(reg_count, 0)`."""
    set_max_nreg(reg_count, 0)


def no_set_max_nreg() -> None:
    """Leave the registers per thread alone in a warp-specialised kernel (GPU hint)."""
    _hint("no_set_max_nreg")


def disable_warp_group_reg_alloc() -> None:
    """The newer name of `no_set_max_nreg`."""
    _hint("no_set_max_nreg")


def annotate_producer_reg_dealloc(reg_count: int = 24) -> None:
    """Registers per thread that producer groups keep (GPU hint)."""
    _hint("annotate_producer_reg_dealloc", reg_count)


def annotate_consumer_reg_alloc(reg_count: int = 240) -> None:
    """Registers per thread that consumer groups get (GPU hint)."""
    _hint("annotate_consumer_reg_alloc", reg_count)


def fence_proxy_async() -> None:
    """Order ordinary shared-memory writes before later bulk copies and wgmma (implied where copies are synchronous)."""
    _hint("fence_proxy_async")


def tma_store_arrive(*args: Any) -> None:
    """Close the group of bulk stores issued so far (implied where copies are synchronous)."""
    _hint("tma_store_arrive")


def tma_store_wait(count: int = 0, read: bool = True, *args: Any) -> None:
    """Wait until at most `count` groups of bulk stores are open (implied where copies are synchronous)."""
    _hint("tma_store_wait", int(count), int(bool(read)))


def warpgroup_arrive() -> None:
    """Begin a group of wgmma operations (implied elsewhere)."""
    _hint("warpgroup_arrive")


def warpgroup_commit_batch() -> None:
    """Close the group of wgmma operations issued so far."""
    _hint("warpgroup_commit_batch")


def warpgroup_wait(num_mma: int = 0) -> None:
    """Wait until at most `num_mma` wgmma groups are in flight."""
    _hint("warpgroup_wait", num_mma)


def warpgroup_fence_operand(*args: Any) -> None:
    """Keep the compiler from moving uses of an accumulator across wgmma operations."""
    _hint("warpgroup_fence_operand")


def wait_wgmma(num_inflight: int = 0) -> None:
    """Wait until at most `num_inflight` wgmma groups are in flight (after `T.gemm(..., wg_wait=-1)`)."""
    _hint("wait_wgmma", num_inflight)


def ptx_commit_group() -> None:
    """Close the group of asynchronous copies issued so far."""
    _hint("ptx_commit_group")


def ptx_wait_group(num: int = 0) -> None:
    """Wait until at most `num` groups of asynchronous copies are open."""
    _hint("ptx_wait_group", num)


def pdl_trigger() -> None:
    """Let the next kernel of the stream begin before this one has ended (programmatic dependent launch). A hint: kernels for sm_90 and
    later do so by themselves, as early as they can."""
    _hint("pdl_trigger")


def pdl_sync() -> None:
    """Wait until the kernels before this one have ended and what they wrote is visible. A hint: kernels that may begin earlier (sm_90 and
    later) wait by themselves before their first access to a tensor."""
    _hint("pdl_sync")

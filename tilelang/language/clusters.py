"""Clusters: blocks of one launch that run at the same time and can signal each other (`T.Kernel(..., cluster_dims=)`).

In: the kernel that is being written. Out: the block's number in its cluster, as an expression of its indices, so that it has a meaning on
every target; statements of the cluster's barrier. In a kernel without clusters a block is alone: its number is 0, and the barrier is
that of the block. With clusters the barrier exists on GPUs from sm_90 on (PTX ISA, "barrier.cluster"); elsewhere blocks run one after
the other, and a program that synchronises them is refused at its line.
"""

from __future__ import annotations

from typing import Any

from ..ir import expr as ex
from ..ir.builder import Builder, in_kernel
from ..ir.dialect import KERNEL_CLUSTER, make_call
from ..ir.tvm_api import Expr, const, dtype_of, tirx
from .barriers import mbarrier_arrive


def _cluster(what: str) -> tuple[Builder, list[tuple[Any, int]]]:
    """(index of the block, blocks of a cluster) for every dimension along which clusters have several."""
    builder = in_kernel(what)
    assert builder.kernel is not None
    launch = builder.kernel.facts["launch"]
    dims = launch.annotations.get(KERNEL_CLUSTER, ())
    return builder, [(var, size) for var, size in zip(launch.blocks, dims, strict=False) if size > 1]


def block_rank_in_cluster() -> Expr:
    """The number of the block in its cluster, int32: x + dims_x * (y + dims_y * z), of its place in the cluster. 0 without clusters."""
    _, dims = _cluster("T.block_rank_in_cluster")
    rank: Any = const(0, "int32")
    for index, size in reversed(dims):
        rank = rank * const(size, "int32") + ex.convert(tirx.floormod(index, const(size, dtype_of(index))), "int32")
    return rank


def cluster_arrive() -> None:
    """Arrive at the barrier of the cluster: what the thread has done to shared memory comes before what others do after `cluster_wait`."""
    _arrive("T.cluster_arrive", False)


def cluster_arrive_relaxed() -> None:
    """`cluster_arrive` that orders no memory."""
    _arrive("T.cluster_arrive_relaxed", True)


def _arrive(what: str, relaxed: bool) -> None:
    builder, dims = _cluster(what)
    if dims:
        builder.evaluate(make_call("tl.cluster_arrive", [], span=builder.span(), relaxed=relaxed))


def cluster_wait() -> None:
    """Wait until all threads of the cluster have arrived."""
    builder, dims = _cluster("T.cluster_wait")
    builder.evaluate(make_call("tl.cluster_wait" if dims else "tl.sync_threads", [], span=builder.span()))


def cluster_sync() -> None:
    """`cluster_arrive`, then `cluster_wait`."""
    cluster_arrive()
    cluster_wait()


def ptx_arrive_cluster_barrier(barrier: Any, cta_id: Any) -> None:
    """Arrive at the mbarrier at the place of `barrier` in block `cta_id` of the cluster. The same as `mbarrier_arrive(barrier, cta_id)`."""
    mbarrier_arrive(barrier, cta_id)

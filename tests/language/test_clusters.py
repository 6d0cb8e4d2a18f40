"""Clusters in the language: ranks on every target, the cluster's barrier and barriers of other blocks, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import SimtError, TileNotSupportedError, TileValueError


def ranks(dims, sync=False):
    @T.prim_func
    def main(A: T.Tensor((2, 4), "int32")):
        with T.Kernel(4, 2, threads=32, cluster_dims=dims) as (bx, by):
            if sync:
                T.cluster_sync()
            if T.get_thread_binding() == 0:
                A[by, bx] = T.block_rank_in_cluster()

    return main


@pytest.mark.parametrize("target", ["cpu", "simt -arch=sm_80", "simt -arch=sm_90a"])
@pytest.mark.parametrize(("dims", "wanted"), [
    (None, [[0, 0, 0, 0], [0, 0, 0, 0]]), (2, [[0, 1, 0, 1]] * 2), ((2, 2), [[0, 1, 0, 1], [2, 3, 2, 3]]), ((1, 2), [[0] * 4, [1] * 4]),
])  # fmt: skip
def test_ranks(target, dims, wanted):
    got = np.full((2, 4), -1, np.int32)
    tilelang.compile(ranks(dims), target=target)(got)
    assert got.tolist() == wanted


@pytest.mark.parametrize("target", ["cpu", "simt -arch=sm_80"])
def test_without_clusters_the_barrier_is_the_blocks(target):
    got = np.full((2, 4), -1, np.int32)
    tilelang.compile(ranks(None, sync=True), target=target)(got)
    assert not got.any()


def test_a_cluster_that_waits_needs_a_machine_with_clusters():
    with pytest.raises(TileNotSupportedError, match=r"T.cluster_arrive exists on GPUs only"):
        tilelang.compile(ranks(2, sync=True), target="cpu")
    with pytest.raises(TileNotSupportedError, match=r"T.cluster_arrive needs clusters, which simt -arch=sm_80 does not have"):
        tilelang.compile(ranks(2, sync=True), target="simt -arch=sm_80")


def neighbours(waits=True, ordered=True, syncs=True):
    """Each block adds one to what its neighbour has written, after the neighbour's 64 threads have signalled."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            bar = T.alloc_cluster_barrier([64]) if syncs else T.alloc_barrier([64])
            other = 1 - T.block_rank_in_cluster()
            t = T.get_thread_binding()
            A[bx, t] = 1.0
            T.ptx_arrive_cluster_barrier(bar, other)
            if waits:
                T.barrier_wait(bar, 0)
            if ordered:
                T.cluster_arrive_relaxed()
                T.cluster_wait()
            A[bx, t] = A[bx, t] + 1.0

    return main


@pytest.mark.parametrize("seed", range(5))
def test_blocks_signal_each_other(seed):
    got = np.zeros((4, 64), np.float32)
    tilelang.compile(neighbours(), target="simt", pass_configs={"tl.simt_seed": seed})(got)
    assert (got == 2).all()


@pytest.mark.parametrize(("fault", "report"), [
    ({"waits": False, "ordered": False}, "of the cluster ends, and none of its warps has waited for an arrival at bar|which has ended"),
    ({"syncs": False}, "which may not have initialised it yet"),
])  # fmt: skip
def test_signals_too_early_and_too_late(fault, report):
    with pytest.raises(SimtError, match=report):
        tilelang.compile(neighbours(**fault), target="simt")(np.zeros((4, 64), np.float32))


def shared_tile(mask=3, announced=True):
    """Block 0 loads a tile for both blocks of a cluster."""

    @T.prim_func
    def main(A: T.Tensor((2, 16, 64), "float32"), B: T.Tensor((4, 16, 64), "float32")):
        with T.Kernel(4, cluster_dims=2, threads=128) as bx:
            bar = T.alloc_cluster_barrier([1])
            tile = T.alloc_shared((16, 64), "float32")
            if T.get_thread_binding() == 0:
                if T.block_rank_in_cluster() == 1 and announced:
                    T.mbarrier_expect_tx(bar, 16 * 64 * 4)
                if T.block_rank_in_cluster() == 0:
                    T.tma_copy(A[bx // 2, :, :], tile, barrier=bar, cluster_mask=mask)
                T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)
            T.copy(tile, B[bx, :, :])
            T.cluster_sync()

    return main


def test_a_tile_for_all_blocks_of_the_cluster():
    a, b = np.random.default_rng(3).standard_normal((2, 16, 64)).astype(np.float32), np.zeros((4, 16, 64), np.float32)
    tilelang.compile(shared_tile(), target="simt")(a, b)
    assert (b == np.repeat(a, 2, 0)).all()
    with pytest.raises(SimtError, match=r"where nobody has written|has not landed|bytes"):
        tilelang.compile(shared_tile(announced=False), target="simt")(a, b)
    with pytest.raises(TileNotSupportedError, match="a copy to other blocks of the cluster without bulk copies"):
        tilelang.compile(shared_tile(), target="simt -arch=sm_90")
    with pytest.raises(TileValueError, match="cluster_mask=4 names no blocks of a cluster of 2"):
        shared_tile(4)


def test_half_of_the_cluster_arrives():
    @T.prim_func
    def main(A: T.Tensor((2,), "float32")):
        with T.Kernel(2, cluster_dims=2, threads=32) as bx:
            if bx == 0:
                T.cluster_sync()
            else:
                T.cluster_arrive()
                T.cluster_wait()
                T.cluster_wait()
            A[bx] = 1.0

    with pytest.raises(SimtError, match="waits at the barrier of the cluster without having arrived"):
        tilelang.compile(main, target="simt")(np.zeros(2, np.float32))


@pytest.mark.parametrize(("grid", "dims", "message"), [
    ((3,), 2, "grid extent 0 is 3, no multiple of the 2 blocks of a cluster"), ((16,), 16, "a cluster of 16 blocks; it has at most 8"),
    ((4,), (1, 2), r"cluster_dims \[1, 2, 1\] of a grid with 1 dimensions"), ((4,), 0, "cluster_dims must be positive"),
])  # fmt: skip
def test_refused(grid, dims, message):
    with pytest.raises(TileValueError, match=message):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(*grid, cluster_dims=dims):
                A[0] = 1.0


def test_a_grid_that_the_call_knows():
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("m"),), "float32")):
        with T.Kernel(A.shape[0], cluster_dims=2, threads=32) as bx:
            T.cluster_sync()
            A[bx] = 1.0

    kernel = tilelang.compile(main, target="simt")
    got = np.zeros(4, np.float32)
    kernel(got)
    assert (got == 1).all()
    with pytest.raises(TileValueError, match="no multiple of the 2 blocks of a cluster"):
        kernel(np.zeros(3, np.float32))

"""Clusters as CUDA: attributes, multicast loads, arrivals at other blocks, grids that the call knows."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tests.passes.roles.test_clusters import gemm
from tilelang.backend.cuda import toolchain

from . import recorder as stub


@pytest.fixture
def recorder(monkeypatch):
    return stub.install(monkeypatch)


def text(program, arch="sm_90a"):
    return tilelang.compile(program, target=f"cuda -arch={arch}").get_kernel_source()


def test_the_text_of_a_kernel_whose_blocks_share_tiles():
    source = text(gemm(128, 256, 128, cluster=(1, 2)))
    body = source[source.index("__global__") :]
    assert "void __cluster_dims__(1, 2, 1) __launch_bounds__(256, 1)" in body
    assert body.count("tl::tma_multicast(") == 1 and body.count("tl::tma_load(") == 1
    assert "tl::mbarrier_arrive(&a_b_empty[" in body and "% 3], tx % 32);" in body
    order = ("mbarrier_init", "fence_barrier_init", "cluster_arrive_relaxed", "cluster_wait", "mbarrier_wait")
    start = [body.index(part) for part in order]
    assert start == sorted(start) and "__syncthreads" not in body


@pytest.mark.skipif(not toolchain.available(), reason="no compiler for CUDA")
def test_the_assembler_takes_it():
    kernel = tilelang.compile(gemm(128, 256, 128, cluster=(1, 2)), target="cuda -arch=sm_90a")
    ((_, cubin),) = kernel.artifact.entry.cubins.items()
    ((_, report),) = cubin.reports.items()
    assert report.spill_stores == report.spill_loads == report.local == 0


def test_before_sm_90_blocks_run_on_their_own():
    assert "__cluster_dims__" not in text(gemm(128, 256, 128, cluster=(1, 2)), "sm_80")


def test_a_grid_that_the_call_knows(recorder):
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("m"), 32), "float32")):
        with T.Kernel(A.shape[0], cluster_dims=2, threads=32) as bx:
            T.cluster_sync()
            A[bx, T.get_thread_binding()] = 1.0

    kernel = stub.kernel_on_cpu(main, target="cuda -arch=sm_90a")
    kernel(np.zeros((4, 32), np.float32))
    assert recorder.launches[-1].grid == (4, 1, 1)
    with pytest.raises(ValueError, match="extent 0 of the grid is no multiple of the 2 blocks of a cluster"):
        kernel(np.zeros((3, 32), np.float32))
    assert len(recorder.launches) == 1

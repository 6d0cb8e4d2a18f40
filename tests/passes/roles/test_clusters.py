"""Clusters: which kernels get them, what their blocks share, and that the emulated kernel computes what a serial one does."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import ANNOTATION_ALLOC, CLUSTER_BARRIER, KERNEL_CLUSTER, attr, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import AllocBuffer, Call
from tilelang.passes.roles import specialize_warps as passes
from tilelang.passes.roles.clusters import KEY_OFF, SUBJECT
from tilelang.passes.roles.specialize_warps import specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")


def gemm(m, n, k, block=(64, 128, 64), stages=3, threads=128, transposed=False, cluster=None, panel=0):
    bm, bn, bk = block

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((n, k) if transposed else (k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads, cluster_dims=cluster) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bn, bk) if transposed else (bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            if panel:
                T.use_swizzle(panel)
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[by * bm, i * bk], a)
                if transposed:
                    T.copy(B[bx * bn, i * bk], b)
                else:
                    T.copy(B[i * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_B=transposed)
            T.copy(c, C[by * bm, bx * bn])

    return main


def notes(program, config=None):
    ctx = context(HOPPER, config or {})
    specialize_warps(program, ctx)
    return [n.text for n in ctx.notes if n.subject == SUBJECT]


def kernel_of(program, stage=None):
    func = specialize_warps(program, context(HOPPER, {})) if stage is None else lower_to(program, HOPPER, {}, stage)
    found = []
    map_kernels(func.body, lambda kernel: (found.append(kernel), kernel.to_stmt())[1])
    return found[0]


def calls(kernel, name):
    found = []
    walk(kernel.body, {Call: lambda c: found.append(c) if op_name(c) == name else None})
    return found


def check(program, m, n, k, transposed=False, seed=0):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k) if transposed else (k, n)))
    wide = b.astype(np.float64)
    got = np.full((m, n), np.nan, np.float32)
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(a, b, got)
    assert np.allclose(got, a.astype(np.float64) @ (wide.T if transposed else wide), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- what is chosen
@pytest.fixture
def few(monkeypatch):
    """Blocks visit several tiles."""
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 3)


def large(m=512, n=512, k=128, **options):
    return gemm(m, n, k, **{"block": (128, 256, 64), "threads": 256, **options})


def test_pairs_share_the_wider_tile(few):
    assert notes(large()) == ["2 blocks along dimension 1 of the grid fetch b together"]
    kernel = kernel_of(large())
    assert list(kernel.annotations[KERNEL_CLUSTER]) == [2, 1, 1]  # of the small grid, whose blocks come in pairs
    shared = {str(c.args[1].source.name): int(attr(c, "ranks", 1)) for c in calls(kernel, "tl.tileop.copy") if len(c.args) > 2}
    assert shared == {"a": 1, "b": 2}
    counts = {}
    walk(kernel.body, {AllocBuffer: lambda s: counts.update({str(s.buffer.name): s}) if s.buffer.scope() == CLUSTER_BARRIER else None})
    facts = {name: [int(c) for c in s.annotations[ANNOTATION_ALLOC]["arrive_counts"]] for name, s in counts.items()}
    assert facts == {"a_b_full": [1] * 3, "a_b_empty": [16] * 3}  # eight warps of each of the two blocks


def test_the_other_dimension(few):
    assert notes(large(block=(256, 64, 64))) == ["2 blocks along dimension 0 of the grid fetch a together"]


def test_parts_of_a_shared_tile():
    """A tile of one box is cut into rows, one of two panels into panels; each block loads one part for both."""
    for transposed, box in ((True, [64, 64]), (False, [64, 64])):
        loads = calls(kernel_of(gemm(128, 256, 128, transposed=transposed, cluster=(1, 2)), "lower_tile_ops"), "tl.tma_load")
        shared = [c for c in loads if len(c.args) > 3]
        assert len(loads) == 2 and len(shared) == 1
        assert int(shared[0].args[3]) == 3 and [int(r.extent) for r in shared[0].args[1].region] == box


def test_the_program_asks():
    assert notes(gemm(256, 256, 128, cluster=(2, 1, 1))) == ["2 blocks along dimension 0 of the grid fetch a together"]
    assert notes(gemm(256, 512, 128, cluster=4)) == ["4 blocks along dimension 0 of the grid fetch a together"]
    assert list(kernel_of(gemm(256, 512, 128, cluster=4)).annotations[KERNEL_CLUSTER]) == [4, 1, 1]
    told = ["no tile is shared: the blocks of a cluster stand along several dimensions of the grid"]
    assert notes(gemm(256, 256, 128, cluster=(2, 2))) == told
    kernel = kernel_of(gemm(256, 256, 128, cluster=(2, 2)))
    assert list(kernel.annotations[KERNEL_CLUSTER]) == [2, 2, 1]
    assert all("ranks" not in (c.attrs or {}) for c in calls(kernel, "tl.tileop.copy"))


# ---------------------------------------------------------------- what declines
def test_an_odd_grid(few):
    told = ["no tile is shared: extent 5 of dimension 1 of the grid is no constant multiple of 2"]
    assert notes(large(640)) == told and KERNEL_CLUSTER not in kernel_of(large(640)).annotations


def test_switched_off(few):
    assert notes(large(), {KEY_OFF: True}) == []


def test_where_all_blocks_run_at_once():
    assert notes(large()) == [] and notes(gemm(256, 256, 128)) == []


def test_loops_that_do_other_work_keep_their_blocks(few):
    @T.prim_func
    def main(A: T.Tensor((1024, 64), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((1024, 64), "float32")):
        with T.Kernel(8, threads=256) as bx:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((128, 64), "float32")
            p = T.alloc_fragment((128, 64), "float16")
            c = T.alloc_fragment((128, 64), "float32")
            T.copy(A[bx * 128, 0], a)
            T.clear(c)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(B[i * 64, 0], b)
                T.clear(s)
                T.gemm(a, b, s, transpose_B=True)
                T.copy(s, p)
                T.gemm(p, b, c)
            T.copy(c, C[bx * 128, 0])

    assert notes(main) == []


def test_iterations_that_depend_on_the_block():
    """The blocks of a cluster have to run the same number of iterations."""

    @T.prim_func
    def main(A: T.Tensor((256, 256), "float16"), B: T.Tensor((256, 128), "float16"), C: T.Tensor((256, 128), "float32")):
        with T.Kernel(4, threads=128, cluster_dims=2) as by:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            T.clear(c)
            count = by + 1
            for i in T.Pipelined(count, num_stages=2):
                T.copy(A[by * 64, i * 64], a)
                T.copy(B[i * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, 0])

    assert notes(main) == ["no tile is shared: the number of iterations may depend on dimension 0 of the grid"]
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((256, 256), (256, 128)))
    got = np.zeros((256, 128), np.float32)
    tilelang.compile(main, target="simt -arch=sm_90a")(a, b, got)
    mask = np.arange(256)[None, :] // 64 <= np.arange(256)[:, None] // 64
    assert np.allclose(got, (a.astype(np.float64) * mask) @ b.astype(np.float64), rtol=1e-4, atol=1e-3)


# ---------------------------------------------------------------- what it computes
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("shape", "stages"), [((128, 256, 256), 3), ((100, 136, 72), 2), ((256, 72, 8), 4)])
def test_products(shape, stages, transposed):
    program = gemm(*shape, stages=stages, transposed=transposed, cluster=(1, 2))
    assert "together" in notes(program)[0]
    check(program, *shape, transposed=transposed)


@pytest.mark.parametrize(("cluster", "transposed"), [((2, 1), False), ((4, 1), False), ((4, 1), True), ((1, 4), True), ((2, 2), False)])
def test_clusters_that_the_program_asks_for(cluster, transposed):
    check(gemm(256, 512, 136, cluster=cluster, transposed=transposed), 256, 512, 136, transposed)


@pytest.mark.parametrize("panel", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_clusters_visit_many_tiles(monkeypatch, seed, panel):
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 5)
    program = gemm(510, 200, 96, block=(128, 128, 32), threads=256, panel=panel)
    assert "together" in notes(program)[0] and list(kernel_of(program).annotations[KERNEL_CLUSTER]) == [2, 1, 1]
    assert int(kernel_of(program).blocks[0][1]) == 4
    check(program, 510, 200, 96, seed=seed)


def test_a_tile_without_parts_is_loaded_by_the_first_block():
    """Eight rows cannot be halved: the swizzle repeats after eight."""

    @T.prim_func
    def main(A: T.Tensor((256, 32), "float16"), B: T.Tensor((8, 32), "float16"), C: T.Tensor((256, 8), "float32")):
        with T.Kernel(4, threads=128, cluster_dims=2) as by:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((8, 32), "float16")
            c = T.alloc_fragment((64, 8), "float32")
            T.clear(c)
            for i in T.Pipelined(1, num_stages=2):
                T.copy(A[by * 64, i * 32], a)
                T.copy(B[0, i * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * 64, 0])

    assert "fetch b together" in notes(main)[0]
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((256, 32), (8, 32)))
    got = np.zeros((256, 8), np.float32)
    tilelang.compile(main, target="simt -arch=sm_90a")(a, b, got)
    assert np.allclose(got, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-4, atol=1e-3)


def test_what_is_fetched_once_a_tile_is_each_blocks_own(monkeypatch):
    """The tile of D is the same for both blocks of a cluster; its slots are not looked at across them."""
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 5)

    @T.prim_func
    def main(
        A: T.Tensor((512, 96), "float16"),
        B: T.Tensor((96, 256), "float16"),
        D: T.Tensor((512, 128), "float16"),
        C: T.Tensor((512, 256), "float32"),
    ):
        with T.Kernel(2, 4, threads=256) as (bx, by):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((32, 128), "float16")
            d = T.alloc_shared((128, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(D[by * 128, 0], d)
            T.clear(c)
            for i in T.Pipelined(3, num_stages=2):
                T.copy(A[by * 128, i * 32], a)
                T.copy(B[i * 32, bx * 128], b)
                T.gemm(a, b, c)
            for y, x in T.Parallel(128, 128):
                c[y, x] += d[y, x]
            T.copy(c, C[by * 128, bx * 128])

    assert "fetch a together" in notes(main)[0]
    rng = np.random.default_rng(1)
    a, b, d = (rng.standard_normal(shape).astype(np.float16) for shape in ((512, 96), (96, 256), (512, 128)))
    for seed in range(2):
        got = np.full((512, 256), np.nan, np.float32)
        tilelang.compile(main, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(a, b, d, got)
        assert np.allclose(got, a.astype(np.float64) @ b.astype(np.float64) + np.tile(d.astype(np.float64), (1, 2)), rtol=1e-4, atol=1e-3)

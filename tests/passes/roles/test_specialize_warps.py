"""Warp roles: which kernels get them, what the producer's slice holds, and that the emulated kernel computes what a serial one does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import ATTR_WS, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import AttrStmt, Call, For
from tilelang.passes.roles import specialize_warps as passes
from tilelang.passes.roles.specialize_warps import SUBJECT, specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")


def gemm(m, n, k, block=(64, 64, 32), stages=3, threads=128, transposed=False, dtype="float16"):
    bm, bn, bk = block

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((n, k) if transposed else (k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if transposed else (bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
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


def regions(program):
    """The kernel region after the pass, and its parts by the groups that execute them."""
    found = []
    map_kernels(specialize_warps(program, context(HOPPER, {})).body, lambda kernel: (found.append(kernel), kernel.to_stmt())[1])
    parts = {}
    walk(found[0].body, {AttrStmt: lambda a: parts.update({tuple(int(g) for g in a.node): a}) if a.attr_key == ATTR_WS else None})
    return found[0], parts


def names(stmt):
    found = []
    walk(stmt, {Call: lambda c: found.append(op_name(c))})
    return found


def run(program, *arrays, seed=0):
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(*arrays)


def product(rng, m, n, k, transposed, dtype="float16"):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a = rng.standard_normal((m, k)).astype(kind)
    b = rng.standard_normal((n, k) if transposed else (k, n)).astype(kind)
    wide = b.astype(np.float64)
    return a, b, a.astype(np.float64) @ (wide.T if transposed else wide)


# ---------------------------------------------------------------- what the pass makes
def test_two_roles():
    kernel, parts = regions(gemm(128, 128, 128))
    assert kernel.num_threads == 256
    assert set(parts) == {(0,), (1,)}
    consumer, producer = names(parts[0,]), names(parts[1,])
    assert consumer.count("tl.tileop.gemm") == 1 and "tl.tileop.gemm" not in producer
    assert producer.count("tl.tileop.copy") == 2 and producer.count("tl.mbarrier_expect_tx") == 1
    assert consumer.count("tl.tileop.copy") == 1  # the result
    assert consumer.count("tl.mbarrier_wait") == 1 and consumer.count("tl.slot_release") == 1


def test_tiles_with_different_uses_have_rings_of_their_own():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            d = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(B[i * 64, 0], b)
                T.clear(s)
                T.gemm(a, b, s, transpose_B=True)
                T.copy(s, p)
                T.copy(B[i * 64, 0], d)
                T.gemm(p, d, c)
            T.copy(c, C)

    assert notes(main)[0] == "a producer fetches b; d into 2 slots"
    _, parts = regions(main)
    assert names(parts[0,]).count("tl.slot_release") == 4  # of b before the loop, of both in it, of d behind it: it is rotated
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 64), (256, 64)))
    got = np.zeros((64, 64), np.float32)
    run(main, a, b, got)
    scores = np.concatenate([(a.astype(np.float64) @ b[i : i + 64].astype(np.float64).T).astype(np.float16) for i in range(0, 256, 64)], 1)
    assert np.allclose(got, scores.astype(np.float64) @ b.astype(np.float64), rtol=1e-2, atol=1.0)


def test_the_slice_holds_the_loops_and_conditions_around():
    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), L: T.Tensor((2,), "int32"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(B, b)
            T.clear(c)
            for part in T.serial(2):
                for i in T.Pipelined(L[part], num_stages=2):
                    if i % 2 == 0:
                        T.copy(A[(part + i) * 64, 0], a)
                        T.gemm(a, b, c)
            T.copy(c, C)

    _, parts = regions(main)
    loops = []
    walk(parts[1,], {For: lambda f: loops.append(str(f.loop_var.name))})
    assert loops == ["part", "i"]
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((256, 64)).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float16)
    for lengths in ((3, 1), (0, 2), (0, 0)):
        got = np.zeros((64, 64), np.float32)
        run(main, a, b, np.array(lengths, np.int32), got)
        rows = [p + i for p in range(2) for i in range(lengths[p]) if i % 2 == 0]
        want = sum((a[r * 64 : r * 64 + 64].astype(np.float64) @ b.astype(np.float64) for r in rows), np.zeros((64, 64)))
        assert np.allclose(got, want, rtol=1e-3, atol=1e-2), lengths


# ---------------------------------------------------------------- what declines
def test_without_a_product_nothing_is_told():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float32")
            s = T.alloc_fragment((64, 64), "float32")
            T.clear(s)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(A[i * 64, 0], a)
                for y, x in T.Parallel(64, 64):
                    s[y, x] += a[y, x]
            T.copy(s, B)

    assert notes(main) == []


@pytest.mark.parametrize("threads", [64, 96, 1024])
def test_threads_that_are_no_warpgroups(threads):
    assert notes(gemm(128, 128, 128, threads=threads))[-1].startswith("none: ")


def test_switched_off():
    assert notes(gemm(128, 128, 128), {"tl.disable_warp_specialized": True}) == []
    assert notes(gemm(128, 128, 128), {"tl.disable_tma_lower": True}) == []


def test_a_bound_that_the_kernel_computes():
    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32"), N: T.Tensor((1,), "int32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(B, b)
            T.clear(c)
            N[0] = 3
            for i in T.Pipelined(N[0], num_stages=2):
                T.copy(A[i * 64, 0], a)
                T.gemm(a, b, c)
            T.copy(c, C)

    assert "which the kernel writes" in notes(main)[-1]


def around(kind):
    """Products in a loop that is left early, or that runs for as long as a variable says."""

    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), N: T.int32, C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            if kind == "break":
                for turn in T.serial(3):
                    if turn >= N:
                        break
                    for i in T.Pipelined(2, num_stages=2):
                        T.copy(A[0, i * 64], a)
                        T.copy(B[i * 64, 0], b)
                        T.gemm(a, b, c)
            else:
                turns = T.alloc_var("int32", 0)
                while turns < N:
                    turns += 1
                    for i in T.Pipelined(2, num_stages=2):
                        T.copy(A[0, i * 64], a)
                        T.copy(B[i * 64, 0], b)
                        T.gemm(a, b, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(("kind", "told"), [("break", ["none: a loop around the copies may be left early"]), ("while", [])])
def test_loops_whose_turns_only_the_consumers_know(kind, told):
    assert notes(around(kind))[-1:] == told
    compiled = tilelang.compile(around(kind), target="simt", out_idx=[-1])
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    for turns in (0, 2):
        want = turns * (a.astype(np.float64) @ b.astype(np.float64))
        np.testing.assert_allclose(compiled(a, b, turns), want, rtol=1e-3, atol=1e-2)


def test_a_kernel_that_synchronises_by_hand():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(B, b)
            T.sync_threads()
            T.clear(c)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(A[i * 64, 0], a)
                T.gemm(a, b, c)
            T.copy(c, C)

    assert "synchronises threads itself" in notes(main)[-1]


# ---------------------------------------------------------------- what it computes
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("shape", "stages"), [((128, 128, 128), 2), ((100, 72, 40), 3), ((64, 64, 8), 4)])
def test_products(shape, stages, transposed):
    m, n, k = shape
    a, b, want = product(np.random.default_rng(3), m, n, k, transposed, "bfloat16")
    got = np.zeros((m, n), np.float32)
    run(gemm(m, n, k, stages=stages, transposed=transposed, dtype="bfloat16"), a, b, got)
    assert np.allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_one_block_visits_many_tiles(monkeypatch, seed):
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 3)
    program = gemm(300, 200, 96, block=(128, 64, 32), threads=256)
    visits, roles = notes(program)[-2:]
    assert "one block a multiprocessor" in visits
    assert roles == "2 warpgroups compute, one more is the producer; 232 registers a thread, 40 of the producer"
    a, b, want = product(np.random.default_rng(4), 300, 200, 96, False)
    got = np.zeros((300, 200), np.float32)
    run(program, a, b, got, seed=seed)
    assert np.allclose(got, want, rtol=1e-4, atol=1e-4)


def test_slots_as_memory_allows():
    assert notes(gemm(512, 512, 512, block=(128, 256, 64), stages=9, threads=256))[0] == (
        "a producer fetches a, b into 4 slots (shared memory has no room for 9)"
    )


def test_last_stage_has_no_release_left():
    final = lower_to(gemm(128, 128, 128), HOPPER, {}, "relax_waits")
    assert "tl.slot_release" not in names(final.body)


def test_a_first_iteration_that_has_a_name():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((3, 64, 64), "float32")):
        with T.Kernel(3, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(B, b)
            T.clear(c)
            first = T.max(0, bx * 2 - 1)
            for i in T.Pipelined(first, 4, num_stages=2):
                T.copy(A[i * 64, 0], a)
                T.gemm(a, b, c)
            T.copy(c, C[bx, :, :])

    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((256, 64)).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float16)
    got = np.zeros((3, 64, 64), np.float32)
    run(main, a, b, got)
    for bx in range(3):
        rows = a.astype(np.float64).reshape(4, 64, 64)[max(0, bx * 2 - 1) :].sum(0)
        assert np.allclose(got[bx], rows @ b.astype(np.float64), rtol=1e-3, atol=1e-2)

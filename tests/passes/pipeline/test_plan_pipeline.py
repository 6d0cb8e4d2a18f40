"""Pipelined loops: which copies move, and that the emulated program computes what the serial one does, without a race."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.passes.pipeline.plan_pipeline import plan_pipeline
from tilelang.target.target import parse_target

SIMT = parse_target("simt -arch=sm_80")  # pipelines of asynchronous copies, not of bulk copies


def notes(program):
    ctx = context(SIMT)
    plan_pipeline(program, ctx)
    return [n.text for n in ctx.notes if n.subject == "pipeline"]


def moved(program):
    return any("stages of" in text for text in notes(program))


def calls(program, name, stage="relax_waits"):
    found = []
    walk(lower_to(program, SIMT, None, stage).body, {Call: lambda c: found.append(c) if op_name(c) == name else None})
    return found


def run(program, *arrays):
    kernel = tilelang.compile(program, target="simt")
    arrays = [np.array(a) for a in arrays]
    kernel(*arrays)
    return arrays[-1]


def gemm(trips, stages, dtype="float16"):
    n = 32

    @T.prim_func
    def main(A: T.Tensor((n, n * max(trips, 1)), dtype), B: T.Tensor((n * max(trips, 1), n), dtype), C: T.Tensor((n, n), "float32")):
        with T.Kernel(1, threads=64) as _:
            a, b = T.alloc_shared((n, n), dtype), T.alloc_shared((n, n), dtype)
            c = T.alloc_fragment((n, n), "float32")
            T.clear(c)
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(A[0, k * n], a)
                T.copy(B[k * n, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_gemm_of_any_trip_count(trips, stages):
    rng = np.random.default_rng(trips)
    a = rng.standard_normal((32, 32 * max(trips, 1))).astype(np.float16)
    b = rng.standard_normal((32 * max(trips, 1), 32)).astype(np.float16)
    found = run(gemm(trips, stages), a, b, np.full((32, 32), np.nan, np.float32))
    expected = a[:, : 32 * trips].astype(np.float64) @ b[: 32 * trips].astype(np.float64)
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=1e-3)
    assert moved(gemm(trips, stages)) == (stages > 1)


def test_one_barrier_in_the_loop():
    assert len(calls(gemm(5, 3), "tl.sync_threads")) == 1
    assert len(calls(gemm(5, 3), "tl.cp_async")) >= 6
    assert not calls(gemm(5, 0), "tl.cp_async")


def test_a_position_that_has_a_name():
    """Each block begins at a column of its own: that chunks are aligned follows from the name's value."""

    @T.prim_func
    def main(A: T.Tensor((3, 128), "float16"), C: T.Tensor((3, 32), "float32")):
        with T.Kernel(3, threads=32) as b:
            a = T.alloc_shared((32,), "float16")
            c = T.alloc_fragment((32,), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                column = (k + b) % 4 * 32
                T.copy(A[b, column], a)
                for i in T.Parallel(32):
                    c[i] = c[i] * 2 + a[i]
            T.copy(c, C[b, 0])

    assert moved(main)
    a = np.random.default_rng(1).integers(-4, 5, (3, 128)).astype(np.float16)
    found = run(main, a, np.zeros((3, 32), np.float32))
    parts = a.reshape(3, 4, 32).astype(np.float64)
    expected = [sum(parts[b, (k + b) % 4] * 2.0 ** (3 - k) for k in range(4)) for b in range(3)]
    np.testing.assert_array_equal(found, expected)


def scan(stages, change):
    """Rows of X, used twice, with variations that decide whether the copy may run ahead."""

    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), idx: T.Tensor((8,), "int32"), n: T.Tensor((1,), "int32"), Y: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((64,), "float32")
            acc = T.alloc_fragment((64,), "float32")
            T.clear(acc)
            T.fill(s, 1.0) if change == "outside" else None
            for k in T.Pipelined(n[0], num_stages=stages):
                T.copy(X[idx[k], 0] if change != "chain" else Y[k, 0], s)
                for i in T.Parallel(64):
                    acc[i] += s[63 - i] * (k + 1)
                for i in T.Parallel(64):
                    acc[i] += s[(i * 7) % 64]
                if change == "chain" and k < 7:
                    for i in T.Parallel(64):
                        Y[k + 1, i] = acc[i]
                if change == "indices" and T.get_thread_binding() == 0:
                    idx[7 - k] = 0
                if change == "second writer":
                    T.fill(s, 0.0)
            if change == "outside":
                for i in T.Parallel(64):
                    acc[i] += s[i]
            T.copy(acc, Y[7, 0:64])

    return main


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("change", ["", "chain", "indices", "outside", "second writer"])
def test_result_is_that_of_the_serial_loop(change, count):
    rng = np.random.default_rng(count)
    x, y = rng.integers(-8, 8, (8, 64)).astype(np.float32), rng.integers(-8, 8, (8, 64)).astype(np.float32)
    idx, n = rng.integers(0, 8, 8).astype(np.int32), np.array([count], np.int32)
    serial, ahead = (run(scan(stages, change), x, idx, n, y) for stages in (0, 3))
    np.testing.assert_array_equal(serial, ahead)
    assert moved(scan(3, change)) == (change == "")


def conditional(stages):
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), mask: T.Tensor((8,), "bool"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((64,), "float32")
            acc = T.alloc_fragment((64,), "float32")
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=stages):
                if mask[k]:
                    T.copy(X[k, 0], s)
                    for i in T.Parallel(64):
                        acc[i] = acc[i] * 0.5 + s[63 - i]
            T.copy(acc, Y)

    return main


@pytest.mark.parametrize("seed", range(3))
def test_conditional_body(seed):
    rng = np.random.default_rng(seed)
    x, mask = rng.integers(-8, 8, (8, 64)).astype(np.float32), rng.random(8) < 0.5
    serial, ahead = (run(conditional(stages), x, mask, np.zeros(64, np.float32)) for stages in (0, 2))
    np.testing.assert_array_equal(serial, ahead)
    assert moved(conditional(2))


def test_ragged_rows_are_filled_with_zeros():
    def program(stages):
        @T.prim_func
        def main(X: T.Tensor((5, 100), "float32"), Y: T.Tensor((8, 32), "float32")):
            with T.Kernel(1, threads=64) as _:
                s = T.alloc_shared((8, 32), "float32")
                acc = T.alloc_fragment((8, 32), "float32")
                T.clear(acc)
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(X[0, k * 32], s)
                    for i, j in T.Parallel(8, 32):
                        acc[i, j] += s[7 - i, 31 - j] + 1.0
                T.copy(acc, Y)

        return main

    x = np.random.default_rng(0).integers(-8, 8, (5, 100)).astype(np.float32)
    padded = np.zeros((8, 128), np.float32)
    padded[:5, :100] = x
    expected = padded.reshape(8, 4, 32).sum(1)[::-1, ::-1] + 4
    assert moved(program(2))
    np.testing.assert_array_equal(run(program(2), x, np.zeros((8, 32), np.float32)), expected)


def test_copies_that_convert_stay_at_their_place():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float16"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((64,), "float32")
            acc = T.alloc_fragment((64,), "float32")
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(X[k, 0], s)
                for i in T.Parallel(64):
                    acc[i] += s[63 - i]
            T.copy(acc, Y)

    assert any("converts float16 to float32" in text for text in notes(main)) and not moved(main)


def test_fewer_versions_where_memory_is_short():
    @T.prim_func
    def main(X: T.Tensor((4, 20000), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((20000,), "float32")
            acc = T.alloc_fragment((64,), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=4):
                T.copy(X[k, 0], s)
                for i in T.Parallel(64):
                    acc[i] += s[63 - i]
            T.copy(acc, Y)

    assert "2 stages of s" in notes(main)

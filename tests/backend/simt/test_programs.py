"""Programs of single threads give on the emulator what NumPy says."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

from . import programs as p

OWN_BARRIERS = {"tl.disable_thread_storage_sync": True}


def compiled(program: Any, **config: Any) -> Any:
    return tilelang.compile(program, target="simt", pass_configs={**OWN_BARRIERS, **config})


def test_reverse_with_a_guard() -> None:
    x, y = np.arange(1000, dtype=np.float32), np.full(1000, -1, np.float32)
    compiled(p.reverse())(x, y, 900)
    padded = np.zeros(1024, np.float32)
    padded[:1000] = x
    expected = padded.reshape(4, 256)[:, ::-1].reshape(-1)[:1000] * 2
    np.testing.assert_array_equal(y[:900], expected[:900])
    assert (y[900:] == -1).all()


def test_rounds() -> None:
    x, y = np.random.default_rng(0).standard_normal((4, p.N), np.float32), np.zeros((4, p.N), np.float32)
    compiled(p.rounds())(x, y)
    np.testing.assert_array_equal(y, np.roll(x, -33, 1))


def test_lanes() -> None:
    x, y = np.random.default_rng(1).integers(0, 100, 64).astype(np.int32), np.zeros((6, 64), np.int32)
    compiled(p.lanes())(x, y)
    lane = np.arange(64)
    np.testing.assert_array_equal(y[0], x[lane ^ 5])
    np.testing.assert_array_equal(y[1], np.where(lane % 16 + 3 < 16, x[(lane + 3) % 64], x))
    np.testing.assert_array_equal(y[2], np.repeat(x.reshape(2, 32).max(1), 32))
    np.testing.assert_array_equal(y[3], np.repeat((x.reshape(2, 32) > 90).any(1), 32))
    bits = [(sum(1 << k for k in range(16) if row[k] % 2)) for row in x.reshape(2, 32)]
    np.testing.assert_array_equal(y[4], np.repeat(bits, 32))
    assert (y[5] == (x < 50).sum()).all()


def test_atomics_on_shared_and_global_memory() -> None:
    x = np.random.default_rng(2).integers(0, 1000, 4 * p.N).astype(np.int32)
    h, s, c = np.zeros(16, np.int32), np.zeros(4 * p.N, np.int32), np.zeros(1, np.int32)
    compiled(p.histogram())(x, h, s, c)
    np.testing.assert_array_equal(h, np.bincount(x % 16, minlength=16))
    assert sorted(s.tolist()) == list(range(4 * p.N))
    assert c[0] == 4 * p.N


def test_tickets_come_in_an_order_drawn_from_the_seed() -> None:
    def tickets(seed: int) -> list[int]:
        x = np.zeros(4 * p.N, np.int32)
        h, s, c = np.zeros(16, np.int32), np.zeros(4 * p.N, np.int32), np.zeros(1, np.int32)
        compiled(p.histogram(), **{"tl.simt_seed": seed})(x, h, s, c)
        return s.tolist()

    assert tickets(1) == tickets(1)
    assert tickets(1) != tickets(2)


def test_lanes_leave_loops_at_different_times() -> None:
    x, y = np.random.default_rng(3).integers(0, 25, p.N).astype(np.int32), np.zeros(p.N, np.int32)
    compiled(p.leaving())(x, y)
    expected = [sum(k for k in range(min(20, v + 1)) if k % 3 != 1) * 100 + max(int(v).bit_length() - 1, 0) for v in x.tolist()]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("seed", range(20))
def test_groups_of_threads_with_barriers_of_their_own(seed: int) -> None:
    x = np.random.default_rng(4).standard_normal((p.ROUNDS, p.GROUP), np.float32)
    y = np.zeros_like(x)
    compiled(p.ring(), **{"tl.simt_seed": seed})(x, y)
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_blocks_of_odd_size_and_three_dimensions() -> None:
    @T.prim_func
    def main(Y: T.Tensor((3, 5, 7, 2), "int32")):
        with T.Kernel(3, threads=(7, 5, 2)) as bx:
            tx, ty, tz = T.get_thread_binding(0), T.get_thread_binding(1), T.get_thread_binding(2)
            Y[bx, ty, tx, tz] = bx * 1000 + tz * 100 + ty * 10 + tx

    y = np.zeros((3, 5, 7, 2), np.int32)
    compiled(main)(y)
    b, ty, tx, tz = np.indices(y.shape)
    np.testing.assert_array_equal(y, b * 1000 + tz * 100 + ty * 10 + tx)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_each_operation_rounds_to_its_type(dtype: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            C[tx] = A[tx] * B[tx] + A[tx]

    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[dtype]
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(64).astype(kind) for _ in range(2))
    c = np.zeros(64, kind)
    compiled(main)(a, b, c)
    product = (a.astype(np.float64) * b.astype(np.float64)).astype(kind)
    np.testing.assert_array_equal(c, (product.astype(np.float64) + a.astype(np.float64)).astype(kind))


def test_integers_wrap_and_casts_truncate() -> None:
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), F: T.Tensor((4,), "float32"), Y: T.Tensor((4, 4), "int32"), n: T.int32):
        with T.Kernel(1, threads=4):
            tx = T.get_thread_binding()
            Y[0, tx] = A[tx] * n + n * n
            Y[1, tx] = T.cast(F[tx], "int32")
            Y[2, tx] = T.cast(T.cast(F[tx], "int8"), "int32")
            Y[3, tx] = A[tx] // 7 + A[tx] % 7

    a = np.array([2**31 - 1, -(2**31), -5, 12], np.int32)
    f = np.array([3e9, np.nan, -2.7, 300.5], np.float32)
    y = np.zeros((4, 4), np.int32)
    n = 123457
    compiled(main)(a, f, y, n)
    wide = [(int(v) * n + n * n + 2**31) % 2**32 - 2**31 for v in a]
    np.testing.assert_array_equal(y[0], wide)
    np.testing.assert_array_equal(y[1], [2**31 - 1, 0, -2, 300])
    np.testing.assert_array_equal(y[2], [-1, 0, -2, 300 - 256])
    np.testing.assert_array_equal(y[3], [int(v) // 7 + int(v) % 7 for v in a])


def test_printing_names_block_and_thread() -> None:
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            if tx == 3:
                T.print(A[tx] + bx, "value")

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        compiled(main)(np.arange(4, dtype=np.int32))
    assert out.getvalue().splitlines() == [
        "msg='value' block=(0, 0, 0) thread=(3, 0, 0) dtype=int32 value=3",
        "msg='value' block=(1, 0, 0) thread=(3, 0, 0) dtype=int32 value=4",
    ]


def test_random_numbers_equal_those_of_the_cpu() -> None:
    @T.prim_func
    def main(U: T.Tensor((2, 64), "uint32"), F: T.Tensor((2, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            T.rng_init(1234)
            for _ in T.serial(3):
                U[bx, tx] = T.rng_rand()
            F[bx, tx] = T.rng_rand_float()

    found = []
    for target in ("cpu", "simt"):
        u, f = np.zeros((2, 64), np.uint32), np.zeros((2, 64), np.float32)
        tilelang.compile(main, target=target)(u, f)
        found.append((u, f))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])

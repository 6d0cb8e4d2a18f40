"""Accumulators that reach their tensor through small shared tiles, tried on the emulator."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

TARGET = "simt -arch=sm_90a"


def product(m, n, k, block, dtype="float16", batch=None, **hints):
    bm, bn, bk = block
    shape = (m, n) if batch is None else (batch, m, n)

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), batch or 1, threads=128) as (bx, by, bz):
            a, b = T.alloc_shared((bm, bk), "float16"), T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, step * bk], a)
                T.copy(B[step * bk, bx * bn], b)
                T.gemm(a, b, c)
            if batch is None:
                T.copy(c, C[by * bm, bx * bn], **hints)
            else:
                T.copy(c, C[bz, by * bm, bx * bn], **hints)

    return main


def note(kernel):
    """What became of the copy of the accumulator."""
    (found,) = [n.text for n in kernel.artifact.notes if n.subject == "copy" and n.text.startswith("staged") and "no copy of" not in n.text]
    return found.removeprefix("staged tma_store").removeprefix(" declined: ")


def run(func, m, n, k, dtype, batch=None):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    kernel = tilelang.compile(func, target=TARGET)
    c = np.full((m, n) if batch is None else (batch, m, n), np.nan, dtype)
    kernel(a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(c.astype(np.float64), np.broadcast_to(expected, c.shape))
    return kernel


@pytest.mark.parametrize(("size", "block", "dtype"), [
    ((64, 128, 32), (64, 128, 16), "float16"),
    ((100, 200, 48), (64, 128, 16), "float16"),  # ragged
    ((64, 96, 32), (64, 96, 16), "float32"),  # three panels
    ((64, 64, 32), (64, 64, 16), "float16"),  # one
    ((256, 64, 32), (128, 64, 16), "float32"),
])  # fmt: skip
def test_products(size, block, dtype):
    kernel = run(product(*size, block, dtype), *size, dtype)
    assert note(kernel) == ""
    text = kernel.get_kernel_source()
    assert "bulk.store" in text


def test_a_batch():
    assert note(run(product(64, 64, 32, (64, 64, 16), batch=3), 64, 64, 32, "float16", batch=3)) == ""


@pytest.mark.parametrize(("size", "block", "dtype", "hints", "expected"), [
    ((64, 96, 32), (64, 96, 16), "float16", {}, "64 x 96 elements are no panels of 128 bytes"),
    ((64, 100, 32), (64, 128, 16), "float16", {}, "rows of C end after 200 bytes, which is no multiple of 16"),
    ((64, 128, 32), (64, 128, 16), "float16", {"disable_tma": True}, "the program turns bulk copies off"),
])  # fmt: skip
def test_declined(size, block, dtype, hints, expected):
    assert note(run(product(*size, block, dtype, **hints), *size, dtype)) == expected


def test_a_fragment_whose_threads_hold_16_bytes():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((64, 64), "float16")
            T.copy(X, x)
            T.copy(x, Y)

    kernel = tilelang.compile(main, target=TARGET)
    assert note(kernel) == "threads hold runs of 16 bytes and more"


def test_a_tensor_that_is_written_twice():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)
            C[0, 0] = 7

    kernel = tilelang.compile(main, target=TARGET)
    assert note(kernel) == "the kernel also writes C"


def test_shared_memory_that_is_full():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            full = T.alloc_shared((110, 1024), "float16")
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            full[0, 0] = a[0, 0]
            T.copy(c, C)

    kernel = tilelang.compile(main, target=TARGET)
    assert note(kernel) == "shared memory is full"

"""T.cumsum and T.cummax by warps in the emulator: sizes, dimensions, directions, types, places."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values

FAST = "warps along rows"


def program(shape, scan, dim, reverse, dtype, threads, places):
    alloc = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            x = alloc[places[0]](shape, dtype)
            y = alloc[places[1]](shape, dtype)
            T.copy(X, x)
            scan(x, y, dim=dim, reverse=reverse)
            T.copy(y, Y)

    return main


def reference(x, scan, dim, reverse):
    x = np.flip(x, dim) if reverse else x
    total = np.cumsum(x, dim, dtype=np.float64) if scan is T.cumsum else np.fmax.accumulate(x, dim)
    return np.flip(total, dim) if reverse else total


def check(shape, scan=T.cumsum, dim=-1, reverse=False, dtype="float32", threads=128, places=("shared", "shared"), fast=True, x=None):
    x = values(shape, dtype) if x is None else x
    y = np.zeros(shape, numpy_type(dtype))
    notes = run(program(shape, scan, dim % len(shape), reverse, dtype, threads, places), x, y)
    assert (notes["scan"] == [FAST]) == fast
    np.testing.assert_array_equal(y.astype(np.float64), reference(x, scan, dim, reverse).astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize("places", [("shared", "shared"), ("fragment", "fragment"), ("shared", "fragment"), ("fragment", "shared")])
@pytest.mark.parametrize("reverse", [False, True])
def test_places_and_directions(places, reverse):
    check((6, 128), reverse=reverse, places=places)
    check((6, 128), T.cummax, reverse=reverse, places=places)


@pytest.mark.parametrize("length", [32, 33, 64, 100, 127, 128, 129, 300, 1024])
def test_lengths(length):
    check((length,))
    check((3, length), reverse=True)


@pytest.mark.parametrize("threads", [32, 96, 256])
def test_threads(threads):
    check((5, 130), threads=threads)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64", "int8"])
def test_types(dtype):
    x = values((4, 96), dtype)
    check((4, 96), T.cummax, dtype=dtype, x=x)
    x[:, 3:] = 0  # sums that every type holds
    check((4, 96), dtype=dtype, x=x)


def test_other_dimensions():
    check((160, 4), dim=0)
    check((2, 64, 3), dim=1)
    check((64, 64), dim=0, fast=False)  # a thread has a column
    check((64, 16), dim=1, fast=False)


def test_parts_of_warps_are_left_to_loops():
    check((4, 64), threads=48, fast=False)


def test_nan_is_passed_over():
    x = values((2, 64), "float32")
    x[:, ::5] = np.nan
    x[:, 0] = 1
    check((2, 64), T.cummax, x=x)


def test_in_place_in_registers():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), Y: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((8, 64), "float32")
            T.copy(X, x)
            T.cumsum(x, dim=1)
            T.cumsum(x, dim=1, reverse=True)
            T.copy(x, Y)

    x, y = values((8, 64), "float32"), np.zeros((8, 64), np.float32)
    assert run(main, x, y)["scan"] == [FAST, FAST]
    np.testing.assert_array_equal(y, np.flip(np.cumsum(np.flip(np.cumsum(x, 1), 1), 1), 1))


def test_a_fragment_that_a_view_moved_to_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            t = T.alloc_fragment((64,), "int32")
            T.copy(A, t)
            v = T.view(t, (4, 16))
            for i, j in T.Parallel(4, 16):
                v[i, j] = v[i, j] + 1
            T.cumsum(t, dim=0)
            T.copy(t, O)

    a = np.random.default_rng(8).integers(-9, 9, 64).astype(np.int32)
    got = np.zeros_like(a)
    tilelang.compile(main, target="simt")(a, got)
    np.testing.assert_array_equal(got, np.cumsum(a + 1))

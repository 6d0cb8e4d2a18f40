"""Tensors of 4 bits: a byte for each element (ml_dtypes), or two elements in a byte."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

TYPES = ("int4", "uint4", "float4_e2m1fn")


def program(dtype):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((4, n), dtype), B: T.Tensor((4, n), "float32"), C: T.Tensor((4, n), dtype)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 8), dtype)
            T.copy(A[0:4, 0:8], tile)
            for i, j in T.Parallel(4, 8):
                B[i, j] = A[i, j]
                C[i, j] = tile[i, 7 - j]

    return main


def values(dtype):
    choice = np.arange(16) if dtype == "uint4" else [0, 1, 2, 3, 4, 6, -1, -2, -3, -4, -6]
    return np.random.default_rng(0).choice(choice, (4, 8)).astype(np.float32)


def pack(array):
    raw = array.view(np.uint8) & 15
    return raw[:, 0::2] | raw[:, 1::2] << 4


@pytest.mark.parametrize("target", ["cpu", "simt"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_byte_for_each_element(dtype, target):
    wanted, kind = values(dtype), getattr(ml_dtypes, dtype)
    b, c = np.zeros((4, 8), np.float32), np.zeros((4, 8), kind)
    tilelang.compile(program(dtype), target=target)(wanted.astype(kind), b, c)
    assert np.array_equal(b, wanted) and np.array_equal(c.astype(np.float32), wanted[:, ::-1])
    made = tilelang.compile(program(dtype), target=target, out_idx=[2])(wanted.astype(kind), b)
    assert made.dtype == kind and np.array_equal(made.astype(np.float32), wanted[:, ::-1])


@pytest.mark.parametrize("target", ["cpu", "simt"])
@pytest.mark.parametrize("form", ["int8", "uint8", "torch"])
@pytest.mark.parametrize("dtype", TYPES)
def test_two_elements_in_a_byte(dtype, form, target):
    def passed(array):
        return pytest.importorskip("torch").from_numpy(array.view(np.int8)) if form == "torch" else array.view(form)

    wanted, kind = values(dtype), getattr(ml_dtypes, dtype)
    kernel = tilelang.compile(program(dtype), target=target)
    for _ in range(2):
        b, c = np.zeros((4, 8), np.float32), np.full((4, 4), 0x55, np.uint8)
        kernel(passed(pack(wanted.astype(kind))), b, passed(c))
        assert np.array_equal(b, wanted) and np.array_equal(c, pack(np.ascontiguousarray(wanted[:, ::-1]).astype(kind)))


def test_what_does_not_fit_is_refused():
    kernel = tilelang.compile(program("int4"), target="cpu")
    b, c = np.zeros((4, 8), np.float32), np.zeros((4, 8), ml_dtypes.int4)
    with pytest.raises(TypeError, match="expected dtype int4, got int16"):
        kernel(np.zeros((4, 8), np.int16), b, c)
    with pytest.raises(ValueError, match=r"B.shape\[1\] is 8, expected n = 6"):
        kernel(np.zeros((4, 3), np.int8), b, c)
    packed = np.zeros((4, 4), np.int8)
    packed.flags.writeable = False
    with pytest.raises(ValueError, match="C: the program writes this tensor, and the array is read-only"):
        kernel(np.zeros((4, 4), np.int8), b, packed)

"""Whole programs compared with NumPy: combinations of features whose parts are tested elsewhere."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def test_table_of_addresses():
    @T.prim_func
    def main(P: T.Tensor((3,), T.ptr), O: T.Tensor((3, 8), "float32")):
        with T.Kernel(3, threads=8) as b:
            source = T.make_tensor_from_addr(P[b], (8,), "float32")
            for i in T.Parallel(8):
                O[b, i] = source[7 - i] * 2.0

    rows = [np.arange(8, dtype=np.float32) + k for k in range(3)]
    out = np.zeros((3, 8), np.float32)
    tilelang.compile(main, target="cpu")(np.array([r.ctypes.data for r in rows]), out)
    assert np.array_equal(out, np.stack(rows)[:, ::-1] * 2)


def test_symbols_inside_extents_only():
    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def main(
        A: T.Tensor((m + n + 3 * k,), "int8"), B: T.Tensor((m,), "int8"), C: T.Tensor((m + 2 * n,), "int8"), O: T.Tensor((3,), "int32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=1):
            O[0] = n
            O[1] = k
            O[2] = A.shape[0]

    kernel = tilelang.compile(main, target="cpu")
    a, b, c = (np.zeros(size, np.int8) for size in (5 + 7 + 12, 5, 19))
    out = np.zeros(3, np.int32)
    kernel(a, b, c, out)
    assert out.tolist() == [7, 4, 24]
    with pytest.raises(ValueError, match=r"C\.shape\[0\] is 18.*no size n gives that"):
        kernel(a, b, c[:18].copy(), out)
    with pytest.raises(ValueError, match=r"C\.shape\[0\] is 3.*no size n gives that"):
        kernel(a, b, c[:3].copy(), out)


def test_assertion_on_the_host_between_guarded_accesses():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        half = n // 2
        assert half < n
        with T.Kernel(T.ceildiv(half, 16), threads=16) as b:
            i = b * 16 + T.get_thread_binding()
            if i < half:
                B[i] = A[n - 1 - i]

    a, b = np.arange(51, dtype=np.float32), np.zeros(51, np.float32)
    tilelang.compile(main, target="cpu")(a, b)
    assert np.array_equal(b, np.where(np.arange(51) < 25, a[::-1], 0))


def test_random_numbers_by_wrapping_multiplication():
    """Philox 4x32-10 written in the language; a product that overflows must wrap, whatever LLVM could do with it."""

    @T.macro
    def high(a, b):
        return T.cast((T.cast(a, "uint64") * T.cast(b, "uint64")) >> T.uint64(32), "uint32")

    @T.prim_func
    def main(S: T.Tensor((64,), "uint32"), O: T.Tensor((4, 64), "uint32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            c0 = T.alloc_var("uint32", T.cast(t, "uint32"))
            c1, c2, c3 = T.alloc_var("uint32"), T.alloc_var("uint32"), T.alloc_var("uint32")
            k0 = T.alloc_var("uint32", S[t])
            k1 = T.alloc_var("uint32", T.uint32(0xDEADBEEF))
            for _ in T.serial(10):
                low0, low1 = c0 * T.uint32(0xD2511F53), c2 * T.uint32(0xCD9E8D57)
                next0 = high(c2, T.uint32(0xCD9E8D57)) ^ c1 ^ k0
                next2 = high(c0, T.uint32(0xD2511F53)) ^ c3 ^ k1
                c0 = next0
                c1 = low1
                c2 = next2
                c3 = low0
                k0 += T.uint32(0x9E3779B9)
                k1 += T.uint32(0xBB67AE85)
            O[0, t] = c0
            O[1, t] = c1
            O[2, t] = c2
            O[3, t] = c3

    seeds = np.random.default_rng(0).integers(0, 1 << 32, 64).astype(np.uint32)
    got = np.zeros((4, 64), np.uint32)
    tilelang.compile(main, target="cpu")(seeds, got)
    for thread in range(64):
        c, k = [thread, 0, 0, 0], [int(seeds[thread]), 0xDEADBEEF]
        for _ in range(10):
            p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [(p1 >> 32) ^ c[1] ^ k[0], p1 % 2**32, (p0 >> 32) ^ c[3] ^ k[1], p0 % 2**32]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        assert got[:, thread].tolist() == c


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers_wrap(dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), O: T.Tensor((4, 64), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[0, i] = A[i] + B[i]
                O[1, i] = A[i] - B[i]
                O[2, i] = A[i] * B[i]
                O[3, i] = T.if_then_else(A[i] * A[i] < T.cast(0, dtype), T.cast(1, dtype), T.cast(0, dtype))

    limits = np.iinfo(dtype)
    a, b = np.random.default_rng(1).integers(limits.min, limits.max, (2, 64), dtype=dtype, endpoint=True)
    got = np.zeros((4, 64), dtype)
    tilelang.compile(main, target="cpu")(a, b, got)
    with np.errstate(over="ignore"):
        assert np.array_equal(got, np.stack([a + b, a - b, a * b, (a * a < 0).astype(dtype)]))


def test_a_value_unequal_to_itself_is_nan():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), H: T.Tensor((4,), "float16"), B: T.Tensor((2, 4), "bool")):
        with T.Kernel(1, threads=4):
            for i in T.Parallel(4):
                B[0, i] = A[i] != A[i]
                B[1, i] = H[i] != T.float16(1)

    a, got = np.array([1, np.nan, np.inf, -0.0], np.float32), np.zeros((2, 4), bool)
    tilelang.compile(main, target="cpu")(a, a.astype(np.float16), got)
    assert got.tolist() == [[False, True, False, False], [False, True, True, True]]


def test_likely_conditions():
    @T.prim_func
    def main(A: T.Tensor((50,), "int32"), B: T.Tensor((50,), "int32")):
        with T.Kernel(1, threads=64):
            i = T.get_thread_binding()
            if T.likely(i < 50):
                B[i] = T.if_then_else(T.likely(A[i] > 3), A[i], 0)

    a, b = np.arange(50, dtype=np.int32) % 7, np.zeros(50, np.int32)
    tilelang.compile(main, target="cpu")(a, b)
    assert np.array_equal(b, np.where(a > 3, a, 0))


@pytest.mark.parametrize("symbolic", [False, True])
def test_offsets_of_more_than_31_bits(symbolic):
    """The far end of a tensor of 2^32 elements; of its pages only those that are touched exist."""
    size = 1 << 16
    rows = T.dynamic("rows") if symbolic else size

    @T.prim_func
    def main(A: T.Tensor((rows, size), "int8"), O: T.Tensor((64,), "int8")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((1, 64), "int8")
            A[rows - 1, size - 1] = T.int8(7)
            T.fill(tile, 3)
            T.copy(tile, A[rows - 2, 0])
            for i in T.Parallel(64):
                O[i] = A[rows - 2, i] + A[rows - 1, size - 64 + i]

    try:
        array = np.zeros((size, size), np.int8)
    except MemoryError:
        pytest.skip("no 4 GiB of address space")
    out = np.zeros(64, np.int8)
    tilelang.compile(main, target="cpu")(array, out)
    assert out.tolist() == [3] * 63 + [10]
    assert (array[-1, -1], array[-2, 63], array[-2, 64], array[0, 0]) == (7, 3, 0, 0)

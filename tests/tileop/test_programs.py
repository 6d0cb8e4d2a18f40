"""Tile operators in whole programs, compiled for the CPU: out-of-range blocks, slices, threads, small floats, conditions."""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

RNG = np.random.default_rng(5)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def run(program, *arrays):
    tilelang.compile(program, target="cpu")(*arrays)


# ---------------------------------------------------------------- copies
def test_blocks_that_leave_their_tensor_on_every_side():
    @T.prim_func
    def main(A: T.Tensor((10, 12), "float32"), B: T.Tensor((16, 16), "float32"), C: T.Tensor((10, 12), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((16, 16), "float32")
            T.copy(A[bx - 3, bx - 2], s)
            T.copy(s, B)
            T.copy(s, C[bx - 3, bx - 2])

    a, b, c = floats(10, 12), np.full((16, 16), 7, np.float32), np.full((10, 12), 7, np.float32)
    run(main, a, b, c)
    want = np.zeros((16, 16))
    want[3:13, 2:14] = a
    np.testing.assert_array_equal(b, want)
    np.testing.assert_array_equal(c, a)


def test_safe_value_of_the_source():
    @T.prim_func
    def main(A: T.Tensor((10,), "float16"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            T.annotate_safe_value({A: -5.0})
            s = T.alloc_shared((16,), "float32")
            T.copy(A[bx], s)
            T.copy(s, B)

    a, b = floats(10, dtype=np.float16), np.zeros(16, np.float32)
    run(main, a, b)
    np.testing.assert_array_equal(b, np.r_[a.astype(np.float32), np.full(6, -5)])


def test_bound_regions():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), B: T.Tensor((32, 64), "float32")):
        with T.Kernel(4, threads=32) as bx:
            s = T.alloc_shared((8, 64), "float32")
            tile = A[bx * 8 : (bx + 1) * 8, :]
            T.copy(tile, s)
            row = s[2, 0:64]
            T.clear(row)
            T.fill(s[0:2, :], 3)
            T.copy(s, B[bx * 8 : bx * 8 + 8, 0:64])

    a, b = floats(32, 64), np.zeros((32, 64), np.float32)
    run(main, a, b)
    want = a.reshape(4, 8, 64).copy()
    want[:, 2], want[:, :2] = 0, 3
    np.testing.assert_array_equal(b, want.reshape(32, 64))


def test_corners_given_by_data_even_far_outside():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), P: T.Tensor((4,), "int64"), B: T.Tensor((4, 16, 32), "float32")):
        with T.Kernel(4, threads=32) as bx:
            s = T.alloc_shared((16, 32), "float32")
            T.copy(A[P[bx], 0], s)
            T.copy(s, B[bx, 0, 0])

    a, p, b = floats(64, 32), np.array([0, 60, -5, 2**40]), np.ones((4, 16, 32), np.float32)
    run(main, a, p, b)
    padded = np.zeros((200, 32), np.float32)
    padded[50:114] = a
    np.testing.assert_array_equal(b[:3], [padded[50 + q : 66 + q] for q in p[:3]])
    np.testing.assert_array_equal(b[3], 0)


def test_extents_given_at_run_time():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32, C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64):
            T.copy(A[0:n], C[0:n])

    kernel = tilelang.compile(main, target="cpu")
    for n in (0, 3, 8, 30):
        a, c = np.arange(8, dtype=np.int32) + 1, np.zeros(8, np.int32)
        kernel(a, n, c)
        np.testing.assert_array_equal(c, np.where(np.arange(8) < n, a, 0))


def test_shift_in_place():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            for _ in T.serial(3):
                T.copy(s[0:63], s[1:64])
            T.copy(s, A)
            T.copy(A[0:32], A[16:48])

    a = np.arange(64, dtype=np.int32)
    want = np.r_[[0] * 3, np.arange(61)]
    want[16:48] = want[0:32].copy()
    run(main, a)
    np.testing.assert_array_equal(a, want)


def test_copies_of_threads_under_a_condition():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32"), B: T.Tensor((64, 8), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            mine = T.alloc_local((8,), "float32")
            s = T.alloc_shared((64, 8), "float32")
            T.copy(A, s)
            if tx % 2 == 0:
                T.copy(s[tx, 0:8], mine)
                T.copy(mine, B[tx, 0:8])
            else:
                T.clear(mine)
                T.copy(mine, B[tx, 0])

    a, b = floats(64, 8), np.ones((64, 8), np.float32)
    run(main, a, b)
    np.testing.assert_array_equal(b, np.where(np.arange(64)[:, None] % 2 == 0, a, 0))


def test_variables_as_operands():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "int64")):
        with T.Kernel(8, threads=1) as bx:
            v = T.alloc_var("float32")
            w = T.alloc_var("float32")
            T.copy(A[bx], v)
            T.fill(w, 2)
            v = v * w
            T.copy(v, B[bx])
            T.copy(A[bx : bx + 1], C[bx : bx + 1])

    a, b, c = floats(8) * 9, np.zeros(8, np.float32), np.zeros(8, np.int64)
    run(main, a, b, c)
    np.testing.assert_array_equal(b, 2 * a)
    np.testing.assert_array_equal(c, np.trunc(a))


# ---------------------------------------------------------------- products and reductions
def test_small_floats():
    f8 = ml_dtypes.float8_e4m3fn

    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float8_e4m3fn"), B: T.Tensor((64, 32), "float8_e4m3fn"), C: T.Tensor((32, 32), "float32"),
        M: T.Tensor((32,), "float8_e4m3fn"), D: T.Tensor((32, 64), "float8_e5m2"),
    ):  # fmt: skip
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((32, 64), "float8_e4m3fn")
            b = T.alloc_shared((64, 32), "float8_e4m3fn")
            c = T.alloc_fragment((32, 32), "float32")
            m = T.alloc_fragment((32,), "float8_e4m3fn")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)
            T.reduce_max(a, m, dim=1)
            T.copy(m, M)
            T.copy(a, D)

    a, b, c = floats(32, 64, dtype=f8), floats(64, 32, dtype=f8), np.zeros((32, 32), np.float32)
    m, d = np.zeros(32, f8), np.zeros((32, 64), ml_dtypes.float8_e5m2)
    run(main, a, b, c, m, d)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(m.astype(np.float32), a.astype(np.float32).max(1))
    np.testing.assert_array_equal(d.astype(np.float32), a.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float32))


def test_half_accumulators_round_once():
    @T.prim_func
    def main(A: T.Tensor((32, 512), "float16"), B: T.Tensor((512, 32), "float16"), C: T.Tensor((32, 32), "float16")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, 512), "float16")
            b = T.alloc_shared((512, 32), "float16")
            c = T.alloc_fragment((32, 32), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    a, b = RNG.random((32, 512)).astype(np.float16), RNG.random((512, 32)).astype(np.float16)
    c = np.zeros((32, 32), np.float16)
    run(main, a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(c - want) <= want * 2.0**-11 * 1.01).all()


def test_operands_of_a_product_that_alias():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float32"), B: T.Tensor((3, 32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, 32), "float32")
            ring = T.alloc_shared((2, 32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.copy(a, c)
            T.gemm(a, a, c)
            T.copy(c, B[0, :, :])
            T.copy(A, ring[1, :, :])
            T.gemm(ring[1, :, :], ring[1, :, :], c, False, True, clear_accum=True)
            T.copy(c, B[1, :, :])
            T.gemm(a, a, a)
            T.copy(a, B[2, :, :])

    a, b = floats(32, 32), np.zeros((3, 32, 32), np.float32)
    run(main, a, b)
    x = a.astype(np.float64)
    np.testing.assert_allclose(b, [x + x @ x, x @ x.T, x + x @ x], rtol=1e-5, atol=1e-4)


def test_nan_in_maxima():
    @T.prim_func
    def main(A: T.Tensor((20, 33), "float16"), B: T.Tensor((3, 20), "float16")):
        with T.Kernel(1, threads=32):
            s = T.alloc_fragment((20, 33), "float16")
            r = T.alloc_fragment((20,), "float16")
            T.copy(A, s)
            T.reduce_max(s, r, dim=1, nan_propagate=True)
            T.copy(r, B[0, 0])
            T.reduce_max(s, r, dim=1)
            T.copy(r, B[1, 0])
            T.reduce_absmax(s, r, dim=1, nan_propagate=True)
            T.copy(r, B[2, 0])

    a, b = floats(20, 33, dtype=np.float16), np.zeros((3, 20), np.float16)
    a[4, 5], a[6] = np.nan, -np.inf
    run(main, a, b)
    np.testing.assert_array_equal(b, [a.max(1), np.nanmax(a, 1), np.abs(a).max(1)])


def test_reduction_of_a_run_time_slice():
    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), L: T.Tensor((4,), "int32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            s = T.alloc_shared((32,), "float32")
            o = T.alloc_shared((1,), "float32")
            T.copy(A[bx, 0], s)
            T.reduce_sum(s[0 : L[bx]], o, dim=0)
            B[bx] = o[0]

    a, lengths, b = floats(4, 32), np.array([0, 5, 31, 32], np.int32), np.ones(4, np.float32)
    run(main, a, lengths, b)
    np.testing.assert_allclose(b, [a[i, :n].astype(np.float64).sum() for i, n in enumerate(lengths)], rtol=1e-5, atol=1e-5)


def test_iterations_with_arrays_of_their_own():
    @T.prim_func
    def main(A: T.Tensor((20, 8), "float32"), B: T.Tensor((20,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((20, 8), "float32")
            T.copy(A, s)
            for i in T.Parallel(20):
                row = T.alloc_local((8,), "float32")
                top = T.alloc_local((1,), "float32")
                T.copy(s[i, 0], row)
                T.copy(row[0:7], row[1:8])
                T.reduce_max(row, top)
                if T.any_of(row[0:2]):
                    B[i] = top[0]
                else:
                    B[i] = -1

    a, b = RNG.random((20, 8)).astype(np.float32), np.zeros(20, np.float32)
    a[3, 0] = 0
    run(main, a, b)
    np.testing.assert_array_equal(b, np.where(a[:, 0] == 0, -1, a[:, :7].max(1)))


# ---------------------------------------------------------------- the others
def test_im2col_covers_the_whole_convolution():
    @T.prim_func
    def main(X: T.Tensor((2, 13, 10, 16), "float16"), Y: T.Tensor((96, 144), "float16")):
        with T.Kernel(3, threads=64) as bx:
            s = T.alloc_shared((32, 48), "float16")
            for k in T.serial(3):
                T.c2d_im2col(X, s, bx, k, 3, 2, 1, 1)
                T.copy(s, Y[bx * 32, k * 48])

    x, y = floats(2, 13, 10, 16, dtype=np.float16), np.ones((96, 144), np.float16)
    run(main, x, y)
    p = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = [p[n, 2 * h : 2 * h + 3, 2 * w : 2 * w + 3].reshape(-1) for n in range(2) for h in range(7) for w in range(5)]
    np.testing.assert_array_equal(y[:70], want)
    np.testing.assert_array_equal(y[70:], 0)  # past the last image


def test_older_reducers():
    @T.prim_func
    def main(A: T.Tensor((8, 100), "float32"), C: T.Tensor((8,), "float32"), D: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=64):
            r = T.alloc_reducer((8,), "float32", op="sum", replication="all")
            m = T.alloc_reducer(8, "float32", "max", replication="none")
            T.clear(r)
            T.fill(m, -T.infinity("float32"))
            for i, j in T.Parallel(8, 100):
                r[i] += A[i, j]
                m[i] = T.max(m[i], A[i, j])
            T.finalize_reducer(r)
            T.finalize_reducer(m)
            T.copy(r, C)
            T.copy(m, D)

    a, c, d = floats(8, 100), np.zeros(8, np.float32), np.zeros(8, np.float32)
    run(main, a, c, d)
    np.testing.assert_allclose(c, a.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(d, a.max(1))


def test_tile_atomics_drop_what_is_outside():
    @T.prim_func
    def main(X: T.Tensor((20, 20), "float32"), S: T.Tensor((20, 20), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            f = T.alloc_fragment((16, 16), "float32")
            T.copy(X[by * 16, bx * 16], f)
            T.atomic_add(S[by * 16, bx * 16], f)

    x, s = floats(20, 20), np.ones((20, 20), np.float32)
    run(main, x, s)
    np.testing.assert_array_equal(s, x + np.float32(1))


def test_logical_calls_in_conditions_and_expressions():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "int32"), C: T.Tensor((8, 4), "int32")):
        with T.Kernel(8, threads=16) as bx:
            s = T.alloc_shared((16,), "int32")
            n = T.alloc_var("int32", 0)
            T.copy(A[bx, 0], s)
            C[bx, 0] = T.if_then_else(T.any_of(s), 5, 6)
            if T.all_of(s) and bx > 2:
                C[bx, 1] = 1
            elif not T.any_of(s[0:8]):
                C[bx, 1] = 2
            else:
                C[bx, 1] = 3
            flag = T.any_of(s[8:16])
            for i in T.Parallel(16):
                if i == 0 and flag:
                    C[bx, 2] = 9
            while T.any_of(s):
                for i in T.Parallel(16):
                    s[i] = T.max(s[i] - 1, 0)
                n += 1
            C[bx, 3] = n

    a = RNG.integers(0, 4, (8, 16)).astype(np.int32)
    a[0], a[5], a[6, :8] = 0, 1, 0
    c = np.zeros((8, 4), np.int32)
    run(main, a, c)
    for i, row in enumerate(a):
        branch = 1 if row.all() and i > 2 else 2 if not row[:8].any() else 3
        assert c[i].tolist() == [5 if row.any() else 6, branch, 9 if row[8:].any() else 0, row.max()]

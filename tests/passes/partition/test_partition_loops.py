"""Nests divided among threads: whatever layout fragments have, the values are those of the block view."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.backend.base import Backend
from tilelang.compiler.pipeline import run as run_stages
from tilelang.errors import TileValueError
from tilelang.ir.context import PassContext
from tilelang.ir.dialect import ATTR_COLLECTIVE, FRAGMENT
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import AllocBuffer, AttrStmt, For, ForKind
from tilelang.ir.verify import THREADS, verify
from tilelang.knobs import knobs
from tilelang.passes.layouts.infer_layouts import infer_layouts
from tilelang.target.target import Target

from ..lockstep import run

GPU = Backend("simt", THREADS, None, None, None, (), {"tiles": (("infer_layouts", infer_layouts),)})


def lowered(program, last="simplify_threads"):
    """The THREADS program and its context."""
    ctx = PassContext(Target("simt"))
    func = program.func if hasattr(program, "func") else program
    with knobs.scoped(verify=True):
        after = {stage.name: result for stage, result in run_stages(func, GPU, ctx)}
    verify(after[last], THREADS, last)
    return after[last], ctx


def executed(program, *arrays):
    func, _ = lowered(program)
    return run(func, *arrays)


def conversions(program):
    return [n.text for n in lowered(program)[1].notes if "passes through shared memory" in n.text]


def ramp(*shape, dtype="float32"):
    return (np.arange(np.prod(shape)) % 251 + 1).reshape(shape).astype(dtype)


def blank(*shape, dtype="float32"):
    return np.full(shape, -7, dtype)


# ---------------------------------------------------------------- the law of THREADS
def test_nothing_of_the_block_is_left():
    @T.prim_func
    def main(X: T.Tensor((48, 40), "float32"), Y: T.Tensor((48,), "float32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((48, 40), "float32")
            s = T.alloc_fragment((48,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, s, dim=1)
            T.copy(s, Y)

    func, _ = lowered(main)
    left = []
    walk(func.body, {
        For: lambda f: left.append(f) if f.kind == ForKind.PARALLEL else None,
        AttrStmt: lambda a: left.append(a) if a.attr_key == ATTR_COLLECTIVE else None,
        AllocBuffer: lambda a: left.append(a) if a.buffer.scope() == FRAGMENT else None,
    })  # fmt: skip
    assert not left
    x = ramp(48, 40)
    assert np.array_equal(run(func, x, blank(48))[1], x.sum(1))


# ---------------------------------------------------------------- nests without fragments
@pytest.mark.parametrize("threads", [(32,), (96,), (8, 4), (4, 2, 8)])
@pytest.mark.parametrize("shape", [(1,), (5, 7), (300,), (3, 5, 64)])
def test_extents_need_not_fit_the_threads(threads, shape):
    size = int(np.prod(shape))

    @T.prim_func
    def main(X: T.Tensor((size,), "int32"), Y: T.Tensor((size,), "int32")):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(size):
                Y[i] = X[i] * 2 + i

    x = ramp(size, dtype="int32")
    assert np.array_equal(executed(main, x, blank(size, dtype="int32"))[1], x * 2 + np.arange(size))


def test_every_iteration_happens_once():
    @T.prim_func
    def main(C: T.Tensor((4,), "int32"), f: T.Tensor((100,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((1,), "float32")
            y = T.alloc_fragment((10, 10), "float32")
            T.fill(x, 1.0)
            T.fill(y, 1.0)
            for _i in T.Parallel(37):
                T.atomic_add(C[0], 1)
            for i in T.Parallel(1):
                if x[i] > 0.0:
                    T.atomic_add(C[1], 1)
            for i, j in T.Parallel(10, 10):
                if y[i, j] > 0.0:
                    T.atomic_add(C[2], 1)
            T.atomic_add(C[3:4], C[3:4])

    c = np.array([0, 0, 0, 5], np.int32)
    assert executed(main, c, blank(100))[0].tolist() == [37, 1, 100, 10]


def test_run_time_extents():
    @T.prim_func
    def main(X: T.Tensor((10, 30), "float32"), Y: T.Tensor((10, 30), "float32"), m: T.int32, n: T.int32):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((10, 30), "float32")
            T.copy(X, f)
            for i, j in T.Parallel(m, n):
                f[i, j] = f[i, j] * 2.0
            for i, j in T.Parallel(m, n):
                Y[i, j] = X[i, j] + 1.0
            for i, j in T.Parallel(10, 30):
                Y[i, j] = Y[i, j] + f[i, j]

    x, y = ramp(10, 30), blank(10, 30)
    for m, n in ((0, 5), (7, 13), (10, 30)):
        want = y.copy()
        want[:m, :n] = x[:m, :n] + 1
        twice = x.copy()
        twice[:m, :n] *= 2
        assert np.array_equal(executed(main, x, y, np.int32(m), np.int32(n))[1], want + twice)


def test_serial_loops_conditions_and_private_memory():
    @T.prim_func
    def main(X: T.Tensor((50, 8), "float32"), Y: T.Tensor((50,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(50):
                acc = T.alloc_var("float32")
                row = T.alloc_local((8,), "float32")
                for k in T.serial(8):
                    row[k] = X[i, k]
                for k in T.serial(i % 8 + 1):
                    if k % 2 == 0:
                        acc += row[k]
                Y[i] = acc

    x = ramp(50, 8)
    want = [sum(x[i, k] for k in range(i % 8 + 1) if k % 2 == 0) for i in range(50)]
    assert np.array_equal(executed(main, x, blank(50))[1], np.float32(want))


def test_nest_in_a_nest():
    @T.prim_func
    def main(Y: T.Tensor((12, 5), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(12):
                base = i * 100
                for j in T.Parallel(5):
                    Y[i, j] = base + j

    assert np.array_equal(executed(main, blank(12, 5, dtype="int32"))[0], np.arange(12)[:, None] * 100 + np.arange(5))


# ---------------------------------------------------------------- fragments
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (3, 100), (64, 64), (128, 2), (5, 96)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_fragments_of_any_shape(shape, dtype):
    m, n = shape

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=96):
            f = T.alloc_fragment(shape, dtype)
            g = T.alloc_fragment(shape, dtype)
            T.copy(X, f)
            for i, j in T.Parallel(m, n):
                g[i, j] = f[i, j] + T.cast(1, dtype)
            T.copy(g, Y)

    x = (np.arange(m * n) % 100).reshape(shape).astype(dtype)
    assert np.array_equal(executed(main, x, np.zeros_like(x))[1], x + 1)
    assert not conversions(main)


def test_shifted_reads_and_parts():
    @T.prim_func
    def main(X: T.Tensor((130,), "float32"), Y: T.Tensor((128,), "float32"), Z: T.Tensor((130,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((130,), "float32")
            g = T.alloc_fragment((128,), "float32")
            T.copy(X, f)
            for i in T.Parallel(128):
                g[i] = f[i] + f[i + 1] * 2.0 + f[i + 2]
            T.copy(g, Y)
            for i in T.Parallel(10):
                f[i + 50] = 1.0
            for i in T.Parallel(13):
                f[129 - i * 2] = 2.0
            T.copy(f, Z)

    x = ramp(130)
    z = x.copy()
    z[50:60] = 1
    z[129 - 2 * np.arange(13)] = 2
    _, got, final = executed(main, x, blank(128), blank(130))
    assert np.array_equal(got, x[:128] + 2 * x[1:129] + x[2:])
    assert np.array_equal(final, z)


def test_two_loops_of_different_extent():
    @T.prim_func
    def main(X: T.Tensor((32, 48), "float32"), Y: T.Tensor((32, 48), "float32"), k: T.int32):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((32, 48), "float32")
            T.copy(X, f)
            for i, j in T.Parallel(16, 48):
                f[i, j] = f[i, j] + 1000.0
            for i, j in T.Parallel(32, 16):
                f[i, j + 32] = f[i, j + 32] * 2.0
            for j in T.Parallel(48):
                f[k, j] = 5.0
            T.copy(f[8:24, :], Y[8:24, :])

    x, y = ramp(32, 48), blank(32, 48)
    want = x.copy()
    want[:16] += 1000
    want[:, 32:] *= 2
    want[11] = 5
    got = executed(main, x, y, np.int32(11))[1]
    assert np.array_equal(got[8:24], want[8:24])
    assert (got[:8] == -7).all()
    assert (got[24:] == -7).all()


def test_transposed_and_flattened_access():
    @T.prim_func
    def main(X: T.Tensor((16, 24), "float32"), Y: T.Tensor((24, 16), "float32"), Z: T.Tensor((384,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16, 24), "float32")
            g = T.alloc_fragment((24, 16), "float32")
            h = T.alloc_fragment((384,), "float32")
            T.copy(X, f)
            for i, j in T.Parallel(24, 16):
                g[i, j] = f[j, i]
            T.copy(g, Y)
            for i, j in T.Parallel(16, 24):
                h[i * 24 + j] = f[i, j] + 1.0
            for i in T.Parallel(384):
                h[i] = h[i] + f[i // 24, i % 24]
            T.copy(h, Z)

    x = ramp(16, 24)
    _, y, z = executed(main, x, blank(24, 16), blank(384))
    assert np.array_equal(y, x.T)
    assert np.array_equal(z, 2 * x.reshape(-1) + 1)


def test_vectors_along_rows_and_columns():
    tile, rows, columns = T.Tensor((16, 64), "float32"), T.Tensor((16,), "float32"), T.Tensor((64,), "float32")

    @T.prim_func
    def main(X: tile, Y: tile, R: rows, C: columns):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((16, 64), "float32")
            r = T.alloc_fragment((16,), "float32")
            c = T.alloc_fragment((64,), "float32")
            T.copy(X, f)
            T.reduce_max(f, r, dim=1)
            T.reduce_sum(f, c, dim=0)
            for i, j in T.Parallel(16, 64):
                f[i, j] = f[i, j] * 2.0 + r[i] - c[j]
            T.copy(f, Y)
            T.copy(r, R)
            T.copy(c, C)

    x = ramp(16, 64)
    _, y, r, c = executed(main, x, blank(16, 64), blank(16), blank(64))
    assert np.array_equal(r, x.max(1))
    assert np.array_equal(c, x.sum(0))
    assert np.array_equal(y, x * 2 + x.max(1)[:, None] - x.sum(0))


def test_a_write_that_only_some_iterations_of_a_row_make():
    @T.prim_func
    def main(X: T.Tensor((16, 40), "float32"), Y: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16, 40), "float32")
            m = T.alloc_fragment((16,), "float32")
            at = T.alloc_fragment((16,), "int32")
            T.copy(X, f)
            T.fill(at, -1)
            T.reduce_max(f, m, dim=1)
            for i, j in T.Parallel(16, 40):
                if f[i, j] == m[i]:
                    at[i] = j
            T.copy(at, Y)

    x = np.random.default_rng(0).permutation(640).reshape(16, 40).astype(np.float32)
    assert np.array_equal(executed(main, x, blank(16, dtype="int32"))[1], x.argmax(1))


def test_elements_read_by_every_thread():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((64,), "float32")
            t = T.alloc_fragment((1,), "float32")
            q = T.alloc_fragment((4,), "float32")
            T.copy(X, f)
            T.reduce_sum(f, t, dim=0)
            q[0] = t[0] + 1.0
            q[1] = q[0] * 2.0
            for k in T.serial(2):
                q[k + 2] = f[k * 3] + q[k]
            if t[0] > 10.0:
                for i in T.Parallel(64):
                    Y[i] = f[i] / t[0] + q[1]
            T.copy(q, Z)

    x = ramp(64)
    t = x.sum()
    q = [t + 1, 2 * t + 2, x[0] + t + 1, x[3] + 2 * t + 2]
    _, y, z = executed(main, x, blank(64), blank(4))
    assert np.array_equal(z, np.float32(q))
    assert np.array_equal(y, x / np.float32(t) + np.float32(q[1]))


def test_views_of_fragments():
    @T.prim_func
    def main(X: T.Tensor((8, 16), "float32"), Y: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((8, 16), "float32")
            T.copy(X, f)
            v = T.reshape(f, (128,))
            for i in T.Parallel(128):
                Y[i] = v[127 - i]

    x = ramp(8, 16)
    func, ctx = lowered(main)
    assert np.array_equal(run(func, x, blank(128))[1], x.reshape(-1)[::-1])
    assert any("lives in shared memory" in n.text for n in ctx.notes)


@pytest.mark.parametrize("copies", [1, 2])
def test_annotated_layouts(copies):
    @T.prim_func
    def main(X: T.Tensor((16, 8), "float32"), Y: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16, 8), "float32")
            g = T.alloc_fragment((16, 8), "float32")
            T.annotate_layout({f: T.Fragment((16, 8), forward_fn=lambda i, j, rep: (i + 16 * rep, 7 - j), replicate=copies)})
            T.copy(X, f)
            for i, j in T.Parallel(16, 8):
                g[i, j] = f[i, j] * 3.0
            T.copy(g, Y)
            for i, j in T.Parallel(16, 8):
                T.atomic_add(Y[i, j], f[i, j])

    x = ramp(16, 8)
    assert np.array_equal(executed(main, x, blank(16, 8))[1], x * 4)


def test_reducers_with_any_element():
    @T.prim_func
    def main(B: T.Tensor((100,), "int32"), X: T.Tensor((100,), "float32"), H: T.Tensor((10,), "float32"), S: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64):
            h = T.alloc_reducer((10,), "float32", op="sum")
            s = T.alloc_reducer((1,), "float32", op="max")
            hf = T.alloc_fragment((10,), "float32")
            sf = T.alloc_fragment((1,), "float32")
            T.reducer_init(h)
            T.reducer_init(s)
            for i in T.Parallel(100):
                T.reducer_update(h[B[i]], X[i])
                T.reducer_update(s[0], X[i])
            T.finalize_reducer(h, hf)
            T.finalize_reducer(s, sf)
            T.copy(hf, H)
            T.copy(sf, S)

    b, x = (np.arange(100) * 7 % 10).astype(np.int32), ramp(100)
    _, _, h, s = executed(main, b, x, blank(10), blank(1))
    assert np.array_equal(h, np.bincount(b, x, 10).astype(np.float32))
    assert s[0] == x.max()


def test_previous_values_of_atomics():
    @T.prim_func
    def main(C: T.Tensor((1,), "int32"), Y: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((40,), "int32")
            g = T.alloc_fragment((1,), "int32")
            for i in T.Parallel(40):
                f[i] = T.atomic_add(C[0], 1, return_prev=True)
            for i in T.Parallel(1):
                g[i] = T.atomic_add(C[0], 100, return_prev=True)
            for i in T.Parallel(40):
                Y[i] = f[i] + g[0]

    c, y = executed(main, np.zeros(1, np.int32), blank(40, dtype="int32"))
    assert c[0] == 140
    assert sorted(y - 40) == list(range(40))


# ---------------------------------------------------------------- threads of a nest
def test_values_of_single_threads():
    @T.prim_func
    def main(Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            f = T.alloc_fragment((64,), "int32")
            for i in T.Parallel(64):
                f[i] = tx * 10 + i
            T.copy(f, Y)

    assert np.array_equal(executed(main, blank(64, dtype="int32"))[0], np.arange(64) * 11)


def test_values_of_single_threads_need_one_iteration_each():
    @T.prim_func
    def main(Y: T.Tensor((63,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            for i in T.Parallel(63):
                Y[i] = tx

    with pytest.raises(TileValueError, match="64 threads"):
        lowered(main)


def test_all_threads_must_reach_a_nest():
    @T.prim_func
    def main(Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            if tx < 32:
                for i in T.Parallel(64):
                    Y[i] = i

    with pytest.raises(TileValueError, match="not all threads"):
        lowered(main)


def test_variables_of_every_thread():
    """A nest that writes a thread's own variable does so in all threads, for all iterations."""

    @T.prim_func
    def main(X: T.Tensor((6,), "float32"), Y: T.Tensor((32,), "float32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding(0)
            f = T.alloc_fragment((6,), "float32")
            total = T.alloc_var("float32")
            T.copy(X, f)
            for i in T.Parallel(6):
                total += f[i]
                T.atomic_add(C[0], 1)
            Y[tx] = total * tx

    x = ramp(6)
    _, y, c = executed(main, x, blank(32), np.zeros(1, np.int32))
    assert np.array_equal(y, x.sum() * np.arange(32))
    assert c[0] == 6


def test_groups_of_threads():
    @T.prim_func
    def main(X: T.Tensor((40, 16), "float32"), Y: T.Tensor((40, 16), "float32"), Z: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=384):
            s = T.alloc_shared((40, 16), "float32")
            f = T.alloc_fragment((40, 16), "float32")
            r = T.alloc_fragment((40,), "float32")
            with T.ws(1):
                for i, j in T.Parallel(40, 16):
                    s[i, j] = X[i, j] * 2.0
            T.sync_threads()
            with T.ws(0, 2):
                T.copy(s, f)
                T.reduce_sum(f, r, dim=1)
                for i, j in T.Parallel(40, 16):
                    f[i, j] = f[i, j] + r[i]
            T.copy(f, Y)
            T.copy(r, Z)

    x = ramp(40, 16)
    _, y, z = executed(main, x, blank(40, 16), blank(40))
    assert np.array_equal(z, 2 * x.sum(1))
    assert np.array_equal(y, 2 * x + z[:, None])


# ---------------------------------------------------------------- vectors
def widths(program):
    found = []
    walk(lowered(program)[0].body, {For: lambda f: found.append(int(f.extent)) if f.kind == ForKind.VECTORIZED else None})
    return found


@pytest.mark.parametrize(("dtype", "columns", "expected"), [("float32", 64, 4), ("float16", 64, 8), ("float16", 36, 4), ("float32", 33, 0)])
def test_contiguous_rows_become_vectors(dtype, columns, expected):
    @T.prim_func
    def main(X: T.Tensor((256, columns), dtype), Y: T.Tensor((256, columns), dtype)):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((256, columns), dtype)
            T.copy(X, s)
            T.copy(s, Y)

    assert set(widths(main)) == ({expected} if expected else set())
    x = (np.arange(256 * columns) % 97).reshape(256, columns).astype(dtype)
    assert np.array_equal(executed(main, x, np.zeros_like(x))[1], x)


def test_rows_that_start_anywhere_are_no_vectors():
    @T.prim_func
    def main(X: T.Tensor((64, 130), "float32"), Y: T.Tensor((64, 64), "float32"), k: T.int32):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(64, 64):
                Y[i, j] = X[i, j + k]

    assert not widths(main)
    x = ramp(64, 130)
    assert np.array_equal(executed(main, x, blank(64, 64), np.int32(3))[1], x[:, 3:67])

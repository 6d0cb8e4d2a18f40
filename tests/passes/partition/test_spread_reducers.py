"""Reducers as tiles of partial results, in the emulator: which become one, and that the totals are right."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values

M, N = 24, 64


def program(update, shape, op="sum", dtype="float32", init=None, extents=(M, N), epochs=1, threads=128):
    """`update(acc, i, j, value)` contributes X[i, j]."""

    @T.prim_func
    def main(X: T.Tensor(extents, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            acc = T.alloc_reducer(shape, dtype, op=op)
            out = T.alloc_fragment(shape, dtype)
            for _ in T.serial(epochs):
                if init is None:
                    T.reducer_init(acc)
                else:
                    T.reducer_init(acc, init)
                for i, j in T.Parallel(*extents):
                    update(acc, i, j, X[i, j])
                T.finalize_reducer(acc, out)
            T.copy(out, Y)

    return main


def row(acc, i, j, value):
    T.reducer_update(acc[i], value)


def column(acc, i, j, value):
    T.reducer_update(acc[j], value)


def everything(acc, i, j, value):
    T.reducer_update(acc[0], value)


def folded(acc, i, j, value):
    T.reducer_update(acc[j // 8], value)


FORMS = {"row": (row, (M,), 1), "column": (column, (N,), 0), "everything": (everything, (1,), (0, 1))}
NUMPY = {"sum": np.sum, "max": np.max, "min": np.min, "bitand": np.bitwise_and.reduce, "bitor": np.bitwise_or.reduce}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("max", "float32"), ("min", "float16"), ("sum", "int32"), ("bitand", "int32")]
)
def test_totals(form, op, dtype):
    update, shape, axis = FORMS[form]
    x, y = values((M, N), dtype), np.zeros(shape, numpy_type(dtype))
    notes = run(program(update, shape, op, dtype, epochs=2), x, y)
    assert notes["reducer"] == ["acc: partial results in registers"]
    np.testing.assert_array_equal(y, np.atleast_1d(NUMPY[op](x, axis=axis)).astype(y.dtype))


def test_an_initial_value_counts_once():
    x, y = values((M, N), "float32"), np.zeros(M, np.float32)
    run(program(row, (M,), init=100.0, epochs=2), x, y)
    np.testing.assert_array_equal(y, x.sum(1) + 100)


@pytest.mark.parametrize("form", FORMS)
def test_more_elements_than_registers_take_turns(form):
    update, shape, axis = FORMS[form]
    extents = (M, 1024)
    shape = (1024,) if form == "column" else shape
    x, y = values(extents, "float32"), np.zeros(shape, np.float32)
    notes = run(program(update, shape, extents=extents, threads=32), x, y)
    assert notes["reducer"] == ["acc: partial results in registers"]
    np.testing.assert_array_equal(y, np.atleast_1d(x.sum(axis)))


def test_more_totals_than_registers_stay_in_shared_memory():
    x, y = values((2, 4096), "float32"), np.zeros(4096, np.float32)
    notes = run(program(column, (4096,), extents=(2, 4096), threads=32), x, y)
    assert "reducer" not in notes
    np.testing.assert_array_equal(y, x.sum(0))


def test_an_index_that_is_no_loop_variable_stays_in_shared_memory():
    x, y = values((M, N), "float32"), np.zeros(N // 8, np.float32)
    notes = run(program(folded, (N // 8,)), x, y)
    assert "reducer" not in notes
    np.testing.assert_array_equal(y, x.sum(0).reshape(-1, 8).sum(1))


def test_nan_is_passed_over():
    x, y = values((M, N), "float32"), np.zeros(M, np.float32)
    x[:, ::3] = np.nan
    run(program(row, (M,), "max"), x, y)
    np.testing.assert_array_equal(y, np.nanmax(x, axis=1))


def test_two_loops_and_a_condition():
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Z: T.Tensor((8, M), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(1, threads=64):
            acc = T.alloc_reducer((M,), "float32", op="sum")
            out = T.alloc_shared((M,), "float32")
            T.reducer_init(acc)
            for i, j in T.Parallel(M, N):
                if j % 3 == 0:
                    T.reducer_update(acc[i], X[i, j])
            for j, i in T.Parallel(8, M):
                for k in T.serial(2):
                    T.reducer_update(acc[i], Z[j, i] * k)
            T.finalize_reducer(acc, out)
            T.copy(out, Y)

    x, z, y = values((M, N), "float32"), values((8, M), "float32"), np.zeros(M, np.float32)
    assert "reducer" in run(main, x, z, y)
    np.testing.assert_array_equal(y, x[:, ::3].sum(1) + z.sum(0))


def test_contributions_over_a_loop_are_exchanged_once():
    @T.prim_func
    def main(X: T.Tensor((M, 4 * N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((M, N), "float32")
            acc = T.alloc_reducer((M,), "float32", op="sum")
            out = T.alloc_fragment((M,), "float32")
            T.reducer_init(acc)
            for k in T.serial(4):
                T.copy(X[0, k * N], x)
                for i, j in T.Parallel(M, N):
                    T.reducer_update(acc[i], x[i, j])
            T.finalize_reducer(acc, out)
            T.copy(out, Y)

    x, y = values((M, 4 * N), "float32"), np.zeros(M, np.float32)
    notes = run(main, x, y)
    assert not [n for n in notes.get("layout", []) if "passes through shared memory" in n]
    np.testing.assert_array_equal(y, x.sum(1))


@pytest.mark.filterwarnings("ignore:T.alloc_reducer")
@pytest.mark.parametrize("replication", ["all", "none"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_the_older_form(form, op, replication):
    _, shape, axis = FORMS[form]
    combine = {"sum": lambda a, b: a + b, "max": T.max, "min": lambda a, b: T.min(b, a)}[op]
    place = {"row": lambda i, j: i, "column": lambda i, j: j, "everything": lambda i, j: 0}[form]

    @T.prim_func
    def main(X: T.Tensor((2, M, N), "float32"), Y: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=128):
            acc = T.alloc_reducer(shape, "float32", op=op, replication=replication)
            T.fill(acc, 1)
            for k in T.serial(2):
                for i, j in T.Parallel(M, N):
                    acc[place(i, j)] = combine(acc[place(i, j)], X[k, i, j])
            T.finalize_reducer(acc)
            T.copy(acc, Y)

    x, y = values((2, M, N), "float32"), np.zeros(shape, np.float32)
    assert "reducer" in run(main, x, y)
    total = np.atleast_1d(NUMPY[op](NUMPY[op](x, axis=0), axis=axis))
    np.testing.assert_array_equal(y, NUMPY[op](np.stack([total, np.ones_like(total)]), axis=0))


@pytest.mark.filterwarnings("ignore:T.alloc_reducer")
def test_the_older_form_used_in_another_way_stays():
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(1, threads=128):
            acc = T.alloc_reducer((M,), "float32", op="sum", replication="all")
            T.clear(acc)
            for i, j in T.Parallel(M, N):
                acc[i] += X[i, j] + acc[i] * 0
            for i in T.Parallel(M):
                acc[i] += 1
            T.finalize_reducer(acc)
            T.copy(acc, Y)

    x, y = values((M, N), "float32"), np.zeros(M, np.float32)
    assert "reducer" not in run(main, x, y)
    np.testing.assert_array_equal(y, x.sum(1) + 1)

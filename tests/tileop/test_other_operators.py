"""Reducers, tile atomics, transpose, im2col, any_of and all_of, dp4a."""

import warnings

import numpy as np
import pytest

from tests.tileop.harness import Program
from tilelang.errors import TileNotSupportedError, TileRuntimeError, TileTypeError, TileValueError
from tilelang.ir.tvm_api import ForKind, load, region
from tilelang.tileop.atomic import is_tile_update, tile_atomic
from tilelang.tileop.copy import copy
from tilelang.tileop.dp4a import dp4a
from tilelang.tileop.im2col import c2d_im2col, im2col
from tilelang.tileop.logical import all_of, any_of
from tilelang.tileop.reducer import REDUCER_OPS, finalize_reducer, reducer_init, reducer_update
from tilelang.tileop.transpose import transpose

RNG = np.random.default_rng(3)


def parallel(p, *extents):
    rank = len(extents)
    return p.builder.loop([f"i{k}" for k in range(rank)], [0] * rank, list(extents), ForKind.PARALLEL, "parallel", {"tl.parallel": rank})


# ---------------------------------------------------------------- reducers
@pytest.mark.parametrize("op", REDUCER_OPS)
@pytest.mark.parametrize("init", [None, 5])
def test_reducer_epoch(op, init):
    p = Program()
    X, Y = p.param((6, 9), "int32", "X"), p.param((9,), "int32", "Y")
    with p.writing():
        acc, out = p.alloc((9,), "int32", "acc", "local.reducer", op=op), p.alloc((9,), "int32", "out", "local.fragment")
        reducer_init(acc, init)
        with parallel(p, 6, 9) as (i, j):
            reducer_update(load(acc, [j]), load(X, [i, j]))
        finalize_reducer(acc, out)
        copy(out, Y)
    x, y = RNG.integers(-99, 99, (6, 9)).astype(np.int32), np.zeros(9, np.int32)
    p.run(x, y)
    ufunc = {"sum": np.add, "max": np.maximum, "min": np.minimum}.get(op) or getattr(np, f"bitwise_{op[3:]}")
    want = ufunc.reduce(x, axis=0)
    np.testing.assert_array_equal(y, want if init is None else ufunc(want, init))


def test_older_reducer_is_finalized_in_place():
    p = Program()
    X, Y = p.param((6,), "float32", "X"), p.param((1,), "float32", "Y")
    with p.writing():
        acc = p.alloc((1,), "float32", "acc", "local.fragment", op="sum", replication="all")
        reducer_init(acc)
        with parallel(p, 6) as (i,):
            p.builder.store(acc, load(acc, [0]) + load(X, [i]), [0])
        finalize_reducer(acc)
        copy(acc, Y)
    x, y = np.arange(6, dtype=np.float32), np.zeros(1, np.float32)
    p.run(x, y)
    assert y[0] == 15


def test_reducer_errors():
    p = Program()
    with p.writing():
        acc, frag = p.alloc((8,), "float32", "acc", "local.reducer", op="sum"), p.alloc((8,), "float32", "frag", "local.fragment")
        with pytest.raises(TileRuntimeError, match=r"outside T\.Parallel"):
            reducer_update(load(acc, [0]), 1.0)
        with pytest.raises(TileTypeError, match="element of a reducer"):
            reducer_update(acc, 1.0)
        with pytest.raises(TileValueError, match="in place"):
            finalize_reducer(acc)
        with pytest.raises(TileValueError, match=r"frag.*no reducer"):
            reducer_init(frag)
        with pytest.raises(TileValueError, match=r"small.*\(4,\)"):
            finalize_reducer(acc, p.alloc((4,), "float32", "small", "local.fragment"))
        with pytest.raises(TileValueError, match=r"T\.reducer_init"):
            copy(acc, frag)


# ---------------------------------------------------------------- atomics
@pytest.mark.parametrize("kind,ufunc", [("add", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_tile_atomics(kind, ufunc):
    p = Program()
    X, S = p.param((4, 8), "float32", "X"), p.param((3, 8, 16), "float32", "S")
    with p.writing():
        f = p.alloc((4, 8), "float32", "f", "local.fragment")
        copy(X, f)
        tile_atomic("T.atomic", kind, load(S, [1, 2, 4]), f)
    x, s = RNG.standard_normal((4, 8), np.float32), RNG.standard_normal((3, 8, 16), np.float32)
    want = s.copy()
    want[1, 2:6, 4:12] = ufunc(s[1, 2:6, 4:12], x)
    p.run(x, s)
    np.testing.assert_array_equal(s, want)


def test_what_is_a_tile_update():
    p = Program()
    with p.writing():
        a, v = p.alloc((4,), "float32", "a"), p.alloc((1,), "float32", "v", "local.var")
        assert is_tile_update(a, 1) and is_tile_update(load(a, [0]), a) and is_tile_update(region(a, [0], [2]), load(a, [0]))
        assert not is_tile_update(load(a, [0]), v) and not is_tile_update(load(a, [0]), 1.0)
        with pytest.raises(TileNotSupportedError, match="return_prev"):
            tile_atomic("T.atomic_add", "add", a, a, return_prev=True)
        with pytest.raises(TileValueError, match=r"local\.fragment"):
            tile_atomic("T.atomic_add", "add", p.alloc((4,), "float32", "f", "local.fragment"), a)


# ---------------------------------------------------------------- transpose, im2col
@pytest.mark.parametrize("shape", [(5, 7), (1, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_transpose(shape, dtype):
    swapped = (*shape[:-2], shape[-1], shape[-2])
    p = Program()
    X, Y = p.param(shape, dtype, "X"), p.param(swapped, dtype, "Y")
    with p.writing():
        a, b = p.alloc(shape, dtype, "a"), p.alloc(swapped, dtype, "b")
        copy(X, a)
        transpose(a, b)
        copy(b, Y)
    x, y = RNG.integers(-9, 9, shape).astype(dtype), np.zeros(swapped, dtype)
    p.run(x, y)
    np.testing.assert_array_equal(y, np.swapaxes(x, -1, -2))


def test_transpose_in_place_and_errors():
    p = Program()
    X = p.param((6, 6), "int32", "X")
    with p.writing():
        a = p.alloc((6, 6), "int32", "a")
        copy(X, a)
        transpose(a, a)
        copy(a, X)
        with pytest.raises(TileValueError, match=r"(?s)b .*\(3, 4\)"):
            transpose(p.alloc((4, 3), "int32", "b"), p.alloc((4, 3), "int32", "c"))
        with pytest.raises(TileValueError, match="no matrix"):
            transpose(p.alloc((4,), "int32", "d"), a)
    x = RNG.integers(-9, 9, (6, 6)).astype(np.int32)
    want = x.T.copy()
    p.run(x)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("kernel,stride,dilation,pad", [(3, 1, 1, 1), (3, 2, 1, 1), (1, 1, 1, 0), (2, 1, 2, 0)])
@pytest.mark.parametrize("call", [im2col, c2d_im2col])
def test_im2col(kernel, stride, dilation, pad, call):
    n, h, w, c, rows, columns = 2, 6, 5, 4, 8, 4
    oh, ow = ((s + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for s in (h, w))
    p = Program()
    X, Y = p.param((n, h, w, c), "float32", "X"), p.param((rows, columns), "float32", "Y")
    with p.writing():
        tile = p.alloc((rows, columns), "float32", "tile")
        call(X, tile, 1, kernel * kernel - 1, kernel, stride, dilation, pad)
        copy(tile, Y)
    x, y = RNG.standard_normal((n, h, w, c), np.float32), np.zeros((rows, columns), np.float32)
    p.run(x, y)
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    matrix = np.array(
        [
            [padded[b, i * stride + dy * dilation, j * stride + dx * dilation] for dy in range(kernel) for dx in range(kernel)]
            for b in range(n) for i in range(oh) for j in range(ow)
        ]
    ).reshape(n * oh * ow, kernel * kernel * c)  # fmt: skip
    np.testing.assert_array_equal(y, matrix[rows : 2 * rows, (kernel * kernel - 1) * columns :][:, :columns])


def test_im2col_errors():
    p = Program()
    X = p.param((1, 4, 4, 2), "float32", "X")
    with p.writing():
        tile = p.alloc((8, 8), "float32", "tile")
        with pytest.raises(TileValueError, match="stride=0"):
            im2col(X, tile, 0, 0, 3, 0, 1, 1)
        with pytest.raises(TileTypeError, match="kernel"):
            im2col(X, tile, 0, 0, 3.0, 1, 1, 1)
        with pytest.raises(TileValueError, match="no output position"):
            im2col(X, tile, 0, 0, 9, 1, 1, 0)
        with pytest.raises(TileValueError, match="two-dimensional"):
            im2col(X, p.alloc((8,), "float32", "row"), 0, 0, 3, 1, 1, 1)


# ---------------------------------------------------------------- any_of, all_of
@pytest.mark.parametrize("scope", ["shared.dyn", "local.fragment", "local"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_any_and_all(scope, dtype):
    p = Program()
    X, Y = p.param((4, 9), dtype, "X"), p.param((4, 3), "int32", "Y")
    with p.writing():
        row, both = p.alloc((9,), dtype, "row", scope), p.alloc((1,), "bool", "both", "local.var")
        with p.builder.loop(["r"], [0], [4]) as (r,):
            copy(load(X, [r, 0]), row)
            p.builder.store(Y, any_of(row).astype("int32"), [r, 0])
            p.builder.store(Y, all_of(row).astype("int32"), [r, 1])
            p.builder.store(both, any_of(region(row, [2], [3])), [0])
            with p.builder.when(load(both, [0])):
                p.builder.store(Y, load(both, [0]).astype("int32"), [r, 2])
    x = np.zeros((4, 9), dtype)
    x[1], x[2, 8], x[3, 1:] = 1, 1, 1
    y = np.zeros((4, 3), np.int32)
    p.run(x, y)
    np.testing.assert_array_equal(y, np.stack([x.any(1), x.all(1), x[:, 2:5].any(1)], 1))


def test_any_of_rejects_blocks_of_several_rows():
    p = Program()
    with p.writing():
        a = p.alloc((4, 9), "int32", "a")
        with pytest.raises(TileValueError, match=r"a\[0:2, 0:9\]"):
            any_of(region(a, [0, 0], [2, 9]))


# ---------------------------------------------------------------- dp4a
def test_dp4a():
    p = Program()
    A, B, C = p.param((3, 8), "int8", "A"), p.param((8,), "int8", "B"), p.param((2,), "int32", "C")
    with p.writing():
        dp4a(load(A, [1, 4]), load(B, [0]), load(C, [1]))
        dp4a(A, B, C)
    x, y, z = RNG.integers(-128, 128, (3, 8)).astype(np.int8), RNG.integers(-128, 128, 8).astype(np.int8), np.array([7, -5], np.int32)
    want = [7 + x[0, :4].astype(int) @ y[:4].astype(int), -5 + x[1, 4:].astype(int) @ y[:4].astype(int)]
    p.run(x, y, z)
    assert z.tolist() == want
    with pytest.raises(TileValueError, match="int8"), Program().writing() as q:
        dp4a(q.alloc((4,), "uint8", "a"), q.alloc((4,), "int8", "b"), q.alloc((1,), "int32", "c"))


def test_no_warnings_while_writing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = Program()
        with p.writing():
            copy(p.alloc((4,), "int8", "a"), p.alloc((4,), "int8", "b"))
    assert p.body is not None

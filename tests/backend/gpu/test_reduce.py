"""T.reduce on registers and shuffles in the emulator: kinds, types, dimensions, block sizes, places, layouts of products."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values

REFERENCE = {
    "sum": np.sum, "abssum": lambda x, axis: np.abs(x).sum(axis), "max": np.max, "min": np.min,
    "absmax": lambda x, axis: np.abs(x).max(axis), "bitand": np.bitwise_and.reduce, "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}  # fmt: skip


def program(shape, kind, dim, dtype, threads, clear, places):
    rest = [e for k, e in enumerate(shape) if k != dim % len(shape)] or [1]
    alloc = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(rest, dtype)):
        with T.Kernel(1, threads=threads):
            x = alloc[places[0]](shape, dtype)
            y = alloc[places[1]](rest, dtype)
            T.copy(X, x)
            T.copy(Y, y)
            T.reduce(x, y, kind, dim, clear)
            T.copy(y, Y)

    return main


def check(shape, kind="sum", dim=-1, dtype="float32", threads=128, clear=True, places=("fragment", "fragment"), fast=True):
    x = values(shape, dtype)
    total = REFERENCE[kind](x.astype(np.float64) if "float" in dtype else x, axis=dim)
    y = values(total.shape or (1,), dtype)
    wide = total if clear else REFERENCE[kind](np.stack([np.broadcast_to(total, y.shape), np.abs(y) if "abs" in kind else y]), axis=0)
    old = y.copy()
    if kind in ("abssum", "absmax") and not clear:  # the old contents count as they are
        wide = total + old if kind == "abssum" else np.maximum(total, old)
    notes = run(program(shape, kind, dim, dtype, threads, clear, places), x, y)
    assert not fast or notes["reduce"] == ["registers and shuffles"]
    np.testing.assert_array_equal(y.astype(np.float64), np.broadcast_to(wide, y.shape).astype(numpy_type(dtype)).astype(np.float64))


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("kind", ["sum", "abssum", "max", "min", "absmax"])
def test_kinds(kind, clear):
    check((16, 64), kind, clear=clear)


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
def test_kinds_of_bits(kind):
    check((16, 64), kind, dtype="int32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32", "uint8", "int64"])
def test_types(dtype):
    check((16, 64), "sum", dtype=dtype)
    check((16, 64), "max", 0, dtype=dtype)


@pytest.mark.parametrize("threads", [32, 96, 128, 256])
@pytest.mark.parametrize(("shape", "dim"), [((64, 64), 0), ((64, 64), 1), ((512,), 0), ((8, 4, 32), 1), ((8, 4, 32), 0), ((4, 1024), 1)])
def test_shapes(shape, dim, threads):
    check(shape, "sum", dim, threads=threads, fast=threads != 96)
    check(shape, "max", dim, threads=threads, fast=threads != 96)


@pytest.mark.parametrize("shape", [(5, 7), (30, 100), (1, 3), (3, 1), (130, 6)])
def test_odd_shapes(shape):
    check(shape, "sum", 1, fast=False)
    check(shape, "sum", 0, fast=False)


@pytest.mark.parametrize("threads", [20, 48])
def test_odd_blocks(threads):
    check((16, 64), "sum", 1, threads=threads, fast=False)


@pytest.mark.parametrize("target", ["shared", "fragment"])
@pytest.mark.parametrize("source", ["shared", "fragment"])
def test_places(source, target):
    check((32, 64), "sum", 1, places=(source, target))
    check((32, 64), "max", 0, places=(source, target), clear=False)


@pytest.mark.parametrize("policy", [0, 1, 2])
def test_rows_of_a_product_stay_in_registers(policy):
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), R: T.Tensor((64,), "float32"), Q: T.Tensor((64,), "float32")
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            q = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, policy=T.GemmWarpPolicy(policy), clear_accum=True)
            T.reduce_sum(c, r, dim=1)
            T.reduce_max(c, q, dim=0)
            T.copy(r, R)
            T.copy(q, Q)

    a, b = values((64, 32), "float16"), values((32, 64), "float16")
    r, q = np.zeros(64, np.float32), np.zeros(64, np.float32)
    notes = run(main, a, b, r, q)
    assert notes["reduce"] == ["registers and shuffles"] * 2
    product = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(r, product.sum(1))
    np.testing.assert_array_equal(q, product.max(0))


def test_nan_counts_as_no_value_unless_it_propagates():
    def make(propagate):
        @T.prim_func
        def main(X: T.Tensor((4, 64), "float32"), Y: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=64):
                x = T.alloc_fragment((4, 64), "float32")
                y = T.alloc_fragment((4,), "float32")
                T.copy(X, x)
                T.reduce_max(x, y, dim=1, nan_propagate=propagate)
                T.copy(y, Y)

        return main

    x, y = np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros(4, np.float32)
    x[1, 63] = np.nan
    run(make(False), x, y)
    np.testing.assert_array_equal(y, [63, 126, 191, 255])
    run(make(True), x, y)
    np.testing.assert_array_equal(y, [63, np.nan, 191, 255])

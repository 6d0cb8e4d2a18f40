"""Instruction records against the tables of the PTX ISA, written out here per lane, and products against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from tilelang.backend.gpu.instr import INSTRUCTIONS, load_matrices, product, split_product, store_matrices

NUMPY = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "bfloat16": ml_dtypes.bfloat16}


# Row and column of element i of a lane, as the PTX ISA states them.
def left_16(lane, i, kind):
    group, t = lane >> 2, lane % 4
    if kind == "f16":
        return group + (0 if i < 2 or 4 <= i < 6 else 8), t * 2 + (i & 1) + (8 if i >= 4 else 0)
    if kind == "tf32":
        return group + (8 if i in (1, 3) else 0), t + (4 if i >= 2 else 0)
    if kind == "f64":
        return group, t
    return group + (0 if i < 4 or 8 <= i < 12 else 8), t * 4 + (i & 3) + (16 if i >= 8 else 0)


def right_8(lane, i, kind):
    group, t = lane >> 2, lane % 4
    if kind == "f16":
        return t * 2 + (i & 1) + (8 if i >= 2 else 0), group
    if kind in ("tf32", "f64"):
        return t + 4 * i, group
    return t * 4 + (i & 3) + (16 if i >= 4 else 0), group


def result(lane, i, kind):
    group, t = lane >> 2, lane % 4
    return group + (8 if i >= 2 else 0), t * 2 + (i & 1)


CASES = [
    ("float16", "float16", "float32", "f16"), ("float16", "float16", "float16", "f16"), ("bfloat16", "bfloat16", "float32", "f16"),
    ("float32", "float32", "float32", "tf32"), ("float64", "float64", "float64", "f64"),
    *[(a, b, "int32", "byte") for a in ("int8", "uint8") for b in ("int8", "uint8")],
    *[(a, b, "float32", "byte") for a in ("float8_e4m3fn", "float8_e5m2") for b in ("float8_e4m3fn", "float8_e5m2")],
]  # fmt: skip


def numbers(rng, shape, dtype):
    if dtype in ("int8", "uint8"):
        low = -128 if dtype == "int8" else 0
        return rng.integers(low, low + 256, shape).astype(dtype)
    return rng.integers(-8, 9, shape).astype(np.float32).astype(NUMPY.get(dtype, dtype))  # exact in every type


def spread(matrix, place, elements, kind):
    return np.array([[matrix[place(lane, i, kind)] for lane in range(32)] for i in range(elements)])


@pytest.mark.parametrize(("a_dtype", "b_dtype", "c_dtype", "kind"), CASES)
def test_product_is_a_matrix_product(a_dtype, b_dtype, c_dtype, kind):
    found = product(a_dtype, b_dtype, c_dtype)
    m, n, k = found.shape
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (m, k), a_dtype), numbers(rng, (k, n), b_dtype)
    c = rng.integers(-50, 50, (m, n)).astype(c_dtype)
    lanes = [spread(x, p, x.size // 32, kind) for x, p in ((c, result), (a, left_16), (b, right_8))]
    (got,) = found.model(*lanes)
    expected = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    assert got.dtype == np.dtype(c_dtype)
    np.testing.assert_array_equal(got.astype(np.float64), spread(expected, result, c.size // 32, kind).astype(c_dtype).astype(np.float64))


@pytest.mark.parametrize(("a_dtype", "b_dtype", "c_dtype", "kind"), CASES)
def test_layouts_are_those_of_the_isa(a_dtype, b_dtype, c_dtype, kind):
    found = product(a_dtype, b_dtype, c_dtype)
    for operand, place in zip(found.operands, (result, left_16, right_8), strict=True):
        held = operand.layout.inverse()
        for lane in range(32):
            for i in range(held.shape[1]):
                assert np.unravel_index(held[lane, i], operand.layout.shape) == place(lane, i, kind)


def test_tf32_keeps_ten_bits():
    found = product("float32", "float32", "float32")
    a, b, c = (np.zeros((n, 32), np.float32) for n in (4, 2, 4))
    a[0, 0], b[0, 0] = np.float32(1 + 2.0**-11), np.float32(1)  # a tie: away from zero
    assert found.model(c, a, b)[0][0, 0] == np.float32(1 + 2.0**-10)


def test_a_split_product_has_the_precision_of_float32():
    found, coarse = split_product(), product("float32", "float32", "float32")
    m, n, k = found.shape
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    lanes = [spread(x, p, x.size // 32, "tf32") for x, p in ((c, result), (a, left_16), (b, right_8))]
    want = spread(a.astype(np.float64) @ b.astype(np.float64), result, 4, "tf32")
    size = spread(np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64), result, 4, "tf32")
    assert (np.abs(found.model(*lanes)[0] - want) / size).max() < 2.0**-21
    assert (np.abs(coarse.model(*lanes)[0] - want) / size).max() > 2.0**-15


def test_a_split_product_of_infinities_and_large_numbers():
    found = split_product()
    (m, n, k), top = found.shape, np.float32(3.4e38)
    a, b = np.ones((m, k), np.float32), np.eye(k, n, dtype=np.float32)
    a[0, 0], a[1, 1], a[2, 2] = np.inf, np.nan, top
    b[3, 3] = np.inf
    lanes = [spread(x, p, x.size // 32, "tf32") for x, p in ((np.zeros((m, n), np.float32), result), (a, left_16), (b, right_8))]
    got = np.zeros((m, n), np.float32)
    for lane in range(32):
        for i in range(4):
            got[result(lane, i, "tf32")] = found.model(*lanes)[0][i, lane]
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_other_types_have_no_product():
    assert product("float16", "bfloat16", "float32") is None
    assert product("int8", "int8", "float32") is None
    assert product("int32", "int32", "int32") is None
    assert product("float16", "float16", "float64") is None


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_move(count, transposed):
    matrices = np.arange(count * 64, dtype=np.float16).reshape(count, 8, 8)
    rows = np.zeros((8, 32), np.float16)
    for i in range(count):
        rows[:, 8 * i : 8 * i + 8] = matrices[i].T
    (lanes,) = load_matrices(count, transposed).model(np.zeros((2 * count, 32), np.float16), rows)
    for i in range(count):
        held = matrices[i].T if transposed else matrices[i]
        for lane in range(32):
            np.testing.assert_array_equal(lanes[2 * i : 2 * i + 2, lane], held[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2])
    (back,) = store_matrices(count, transposed).model(np.zeros_like(rows), lanes)
    np.testing.assert_array_equal(back[:, : 8 * count], rows[:, : 8 * count])


def test_matrices_of_bytes_move_in_pairs():
    rows = np.arange(16 * 32, dtype=np.uint8).reshape(32, 16).T.copy()
    (lanes,) = load_matrices(4).model(np.zeros((16, 32), np.uint8), rows)
    np.testing.assert_array_equal(lanes[:4, 5], rows[4:8, 1])


def test_every_record_is_consistent():
    for name, found in INSTRUCTIONS.items():
        assert found.name == name and found.function in found.code
        for operand in found.operands:
            assert operand.layout is None or operand.layout.get_thread_size() == 32

"""The printed text computes what the program says: run by the processor (`on_host`), against NumPy."""

import functools
import importlib.util
import itertools
import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.ir.dtype_table import numpy_type

from . import on_host
from .on_host import aligned
from .on_host.fuzz import check
from .programs import add_one, gemm, softmax, two_kernels, vector_add

pytestmark = pytest.mark.skipif(on_host.COMPILER is None, reason="needs a C++ compiler")

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SIZE = 256

# Expressions of a, b (elements) and j (int32), in words that both the language and NumPy get: operators of every precedence side by side.
COMMON = [
    "a + b", "a - b", "a * b", "-a", "a - (b - a)", "a - b - a", "a * (b * a)", "a + (b + a)", "a - (a + b)", "a * (a - b)",
    "K(j % 4 * 3) * (a + b)", "K(j // 5) * K(j % 4)", "where(a < b, a + b, a - b)", "where(j % 3 == 1, a, b) - where(a <= b, b, a)",
    "where(a < b, where(b > a, a, b), a * b) + a", "where((a < b) == (j % 2 == 0), a, b)", "where(a != b, a, K(3))", "a * K(3) - b * K(2)",
]  # fmt: skip
INTEGER = [
    "a // b", "a % b", "a // K(3)", "a % K(5)", "a * (b // K(3)) * (a % K(5))", "a // (b // K(2))", "a - a % K(7)", "a % K(7) - a",
    "a & b", "a | b", "a ^ b", "~a", "(a & b) + (a | b) * K(2)", "a ^ (b & (a | K(3)))", "a << K(2)", "a >> K(2)",
    "(a << K(1)) + (b >> K(1))",
    "a & b + K(1)", "a - b >> K(1)", "a << (b & K(7))", "a >> (b & K(7))", "~a & ~b", "-(a * b)", "minimum(a, b) - maximum(a, K(2))",
]  # fmt: skip
FLOAT = ["a / b", "a / (b / a)", "a / b * a", "a * (b / a)", "(a + b) * (a - b) / (a * a + K(1))", "a * b + a", "a - a * b", "K(1) / a"]


def source(func):
    return tilelang.compile(func, target="cuda -arch=sm_80").get_kernel_source()


def values(dtype):
    """Pairs of every edge with every other, then random ones."""
    kind, rng = numpy_type(dtype), np.random.default_rng(0)
    if dtype in INTEGERS:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        edges = np.array([low, low + 1, 0, 1, 2, 3, 5, high - 1, high, *((-1, -2, -7) if low < 0 else ())], kind)
        rest = rng.integers(low, high, (2, SIZE), kind, endpoint=True)
    else:
        edges = np.array([0.0, 1, -1, 0.5, -1.5, 2.5, 3, -7, np.inf, -np.inf, np.nan, 6e-8, 60000, 0.1], np.float32).astype(kind)
        rest = (rng.standard_normal((2, SIZE)) * np.exp2(rng.integers(-6, 6, (2, SIZE)))).astype(kind)
    pairs = np.array(list(itertools.product(edges, edges)), kind).T
    return np.concatenate([pairs, rest], axis=1)[:, :SIZE]


def program(tmp_path, dtype, expressions):
    """One program with an output row for each expression."""
    words = {"where(": "T.if_then_else(", "minimum(": "T.min(", "maximum(": "T.max("}
    lines = ["import tilelang.language as T", "def K(value):", f'    return T.cast(value, "{dtype}")', "@T.prim_func"]
    tensors = f'A: T.Tensor(({SIZE},), "{dtype}"), B: T.Tensor(({SIZE},), "{dtype}"), O: T.Tensor(({len(expressions)}, {SIZE}), "{dtype}")'
    lines += [f"def main({tensors}):", "    with T.Kernel(1, threads=64):", f"        for j in T.Parallel({SIZE}):"]
    lines += ["            a = A[j]", "            b = B[j]"]
    for k, text in enumerate(expressions):
        told = functools.reduce(lambda t, word: t.replace(*word), words.items(), text)
        lines.append(f"            O[{k}, j] = {told}")
    path = tmp_path / "operators.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("operators", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def _one_nan(values):
    return np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_operators(dtype, tmp_path, capfd):
    a, b = values(dtype)
    expressions = COMMON + (INTEGER if dtype in INTEGERS else FLOAT)
    outputs = aligned(np.zeros((len(expressions), SIZE), a.dtype))
    on_host.run(program(tmp_path, dtype, expressions), aligned(a), aligned(b), outputs, flags=on_host.sanitizer())
    assert capfd.readouterr().err == ""  # sums that leave their type are written so that C++ defines them
    names = {"a": a, "b": b, "j": np.arange(SIZE), "K": lambda v: np.asarray(v).astype(a.dtype), "where": np.where,
             "minimum": np.minimum, "maximum": np.maximum}  # fmt: skip
    for text, row in zip(expressions, outputs, strict=True):
        with np.errstate(all="ignore"):
            expected = eval(text, names)
        assert expected.dtype == a.dtype, text
        got, expected = (_one_nan(v) if dtype in FLOATS else v for v in (row, expected))
        wrong = got.view(np.uint8).reshape(SIZE, -1) != expected.view(np.uint8).reshape(SIZE, -1)
        k = int(np.argmax(wrong.any(axis=1)))
        assert not wrong.any(), f"{text}: a={a[k]} b={b[k]} j={k}: got {got[k]}, want {expected[k]}"


@pytest.mark.parametrize("careful", [False, True])
def test_programs(careful):
    rng = np.random.default_rng(0)
    x = aligned(rng.standard_normal(1000).astype(np.float32))
    y = aligned(np.zeros_like(x))
    on_host.run(add_one(), x, y, careful=careful)
    np.testing.assert_array_equal(y, x + 1)
    on_host.run(two_kernels(), x, y, careful=careful)
    np.testing.assert_array_equal(y, x * 2 + 1)
    h = aligned(rng.standard_normal((16, 1024)).astype(np.float16), 2 if careful else 0)
    total = aligned(np.zeros_like(h), 2 if careful else 0)
    on_host.run(vector_add(), h, total, careful=careful)
    np.testing.assert_array_equal(total, h + h)
    x = aligned(rng.standard_normal((64, 200)).astype(np.float32))
    y = aligned(np.zeros_like(x))
    on_host.run(softmax(), x, y, careful=careful)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_matrix_products():
    rng = np.random.default_rng(0)
    a, b = (aligned(rng.standard_normal((128, 128)).astype(np.float16)) for _ in range(2))
    c = aligned(np.zeros((128, 128), np.float32))
    on_host.run(gemm(), a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", [7, 23, 58, 105, 387])
def test_random_programs(seed):
    assert check(seed) == ""


def test_a_variable_nobody_set_shows():
    text = 'extern "C" int probe() { int x; return x; }'
    assert on_host.library(text).probe() != 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_packed_arithmetic_rounds_as_single_lanes(dtype, tmp_path):
    """Whole packs from memory and from registers, with operands that are the same in all lanes, that are not, and with NaN and infinity."""
    a, b = values(dtype)
    x, y = (aligned(v.reshape(2, SIZE // 2)) for v in (a, b))
    scale = aligned(np.array([1.5, -3.0], np.float32).astype(a.dtype))

    @T.prim_func
    def main(
        A: T.Tensor((2, SIZE // 2), dtype), B: T.Tensor((2, SIZE // 2), dtype), S: T.Tensor((2,), dtype),
        O: T.Tensor((5, 2, SIZE // 2), dtype),
    ):  # fmt: skip
        with T.Kernel(1, threads=32):
            kept = T.alloc_fragment((2, SIZE // 2), dtype)
            T.copy(A, kept)
            for i, j in T.Parallel(2, SIZE // 2):
                O[0, i, j] = A[i, j] * S[i] + B[i, j]
            for i, j in T.Parallel(2, SIZE // 2):
                O[1, i, j] = (A[i, j] - B[i, j]) * (T.cast(j % 8, dtype) - 3)
            for i, j in T.Parallel(2, SIZE // 2):
                kept[i, j] = T.max(kept[i, j] * S[i] - kept[i, j], S[1 - i])
            T.copy(kept, O[2, 0:2, 0 : SIZE // 2])
            for i, j in T.Parallel(2, SIZE // 2):
                O[3, i, j] = T.min(A[i, j], B[i, j]) - S[i]
            for i, j in T.Parallel(2, SIZE // 2):
                O[4, i, j] = 2 - A[i, j] * B[i, j] * A[i, j]

    text = source(main)
    assert len(re.findall(r"store_pack\(.*, .*(?:_v(?:_\d)?|part).* [*+-] ", text)) == 5 and "load_pack<8>(&kept[" in text
    out = aligned(np.zeros((5, 2, SIZE // 2), a.dtype))
    on_host.run(main, x, y, scale, out)
    k = scale[:, None]
    lanes = (np.arange(SIZE // 2) % 8).astype(a.dtype)
    with np.errstate(all="ignore"):
        expected = [
            x * k + y, (x - y) * (lanes - np.asarray(3, a.dtype)), np.fmax(x * k - x, k[::-1]), np.fmin(x, y) - k,
            np.asarray(2, a.dtype) - x * y * x,
        ]  # fmt: skip
    for got, want in zip(out, expected, strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(_one_nan(got).view(np.uint16) & 0x7FFF, _one_nan(want).view(np.uint16) & 0x7FFF)

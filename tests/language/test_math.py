"""Functions on scalars, compiled for the CPU and compared with NumPy in higher precision."""

import math

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.tvm_api import Var

N = 64
FLOAT_FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10.0**x, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": np.vectorize(math.erf), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "nearbyint": np.rint, "round": np.rint, "abs": np.abs, "fast_rcp": lambda x: 1 / x, "__exp": np.exp,
}  # fmt: skip
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 88.0, -100.0]


def inputs(dtype):
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        return np.concatenate([SPECIAL, rng.uniform(-4, 4, N - len(SPECIAL))]).astype(dtype)


def run(functions, out_types, *arrays):
    """One program with a row of results for each function of the elements."""
    kinds = [str(a.dtype) for a in arrays]
    outs = [np.zeros(N, t) for t in out_types]
    params = [T.Tensor((N,), k) for k in kinds]

    if len(arrays) == 1:

        @T.prim_func
        def one(X: params[0], Y: T.Tensor((N,), out_types[0])):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(N):
                    Y[i] = functions[0](X[i])

        program = one
    else:

        @T.prim_func
        def two(X: params[0], Z: params[1], Y: T.Tensor((N,), out_types[0])):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(N):
                    Y[i] = functions[0](X[i], Z[i])

        program = two
    tilelang.compile(program, target="cpu")(*arrays, *outs)
    return outs[0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("name", list(FLOAT_FUNCTIONS))
def test_functions(name, dtype):
    x = inputs(dtype)
    result = run([getattr(T, name)], [dtype], x)
    with np.errstate(all="ignore"):
        exact = FLOAT_FUNCTIONS[name](x.astype(np.longdouble if name not in ("erf",) else np.float64)).astype(dtype)
    steps = {"float32": 4, "float16": 1, "float64": 4}[dtype] * np.finfo(dtype).eps
    np.testing.assert_allclose(result, exact, rtol=float(steps), atol=float(np.finfo(dtype).tiny), equal_nan=True)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_classes(name, dtype):
    x = inputs(dtype)
    assert (run([getattr(T, name)], ["bool"], x) == getattr(np, name)(x)).all()


@pytest.mark.parametrize(
    ("name", "reference"), [("atan2", np.arctan2), ("hypot", np.hypot), ("copysign", np.copysign), ("fmod", np.fmod), ("pow", np.power)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pairs(name, reference, dtype):
    x, y = inputs(dtype), inputs(dtype)[::-1].copy()
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    result = run([getattr(T, name)], [dtype], x, y)
    np.testing.assert_allclose(result, exact, rtol=float(4 * np.finfo(dtype).eps), atol=0, equal_nan=True)


def test_float_division_rules_of_python():
    x, y = inputs("float32"), inputs("float32")[::-1].copy()
    with np.errstate(all="ignore"):
        plain = np.isfinite(x) & np.isfinite(y) & (y != 0)
        np.testing.assert_array_equal(run([T.floormod], ["float32"], x, y)[plain], np.mod(x, y)[plain])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers(dtype):
    rng = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, N, dtype=dtype, endpoint=True)
    y = rng.integers(1, 7, N).astype(dtype)
    bits = limits.bits
    pattern = [int(v) & ((1 << bits) - 1) for v in x]
    assert run([T.popcount], ["int32"], x).tolist() == [bin(p).count("1") for p in pattern]
    assert run([T.clz], ["int32"], x).tolist() == [bits - p.bit_length() for p in pattern]
    quotients = [int(a) // int(b) if a >= 0 else -(-int(a) // int(b)) for a, b in zip(x, y, strict=True)]
    assert (run([T.truncdiv], [dtype], x, y) == quotients).all()
    assert (run([T.truncmod], [dtype], x, y) == np.fmod(x, y)).all()
    assert (run([T.floordiv], [dtype], x, y) == x // y).all()
    assert (run([T.floormod], [dtype], x, y) == x % y).all()
    assert (run([T.bitwise_not], [dtype], x) == ~x).all()
    with np.errstate(over="ignore"):
        assert (run([T.abs], [dtype], x) == np.abs(x)).all()


def test_bool_operators():
    x = (np.arange(N) % 2).astype(bool)
    y = np.arange(N) % 3 == 0
    for function, reference in (
        (T.bitwise_xor, x ^ y), (T.bitwise_and, x & y), (T.EQ, x == y), (T.NE, x != y), (T.LT, ~x & y), (T.max, x | y), (T.Sub, x != y),
    ):  # fmt: skip
        assert (run([function], ["bool"], x, y) == reference).all()


def test_python_numbers_stay_python():
    assert T.ceildiv(7, 2) == 4 and T.align_up(7, 4) == 8 and T.max(3, 4) == 4 and T.truncdiv(-7, 2) == -3 and T.truncmod(-7, 2) == -1
    assert T.exp2(3) == 8.0 and T.sqrt(2.0) == math.sqrt(2.0) and math.isnan(T.sqrt(-1.0)) and T.clamp(5, 0, 3) == 3
    assert isinstance(T.ceildiv(7, 2), int) and T.all(True, 1) is True and T.any() is False and T.abs(-0.0) == 0


@pytest.mark.parametrize("value", [0.1, -0.0, 3])
def test_reinterpret_in_both_orders(value):
    x = Var("x", "float32")
    for found in (T.reinterpret(x, "int32"), T.reinterpret("int32", x), T.reinterpret(x, dtype=T.int32)):
        assert found.ty.dtype == "int32"
    assert T.reinterpret(T.uint64(0), dtype="handle") is not None
    with pytest.raises(TileTypeError, match="32 bits"):
        T.reinterpret(value if value != 3 else x, "int64")


def test_casts():
    x = Var("x", "float32")
    assert T.cast(x, "float16").ty.dtype == T.Cast("float16", x).ty.dtype == "float16"
    assert T.cast(0.1, "float64").value == 0.1
    for call in (lambda: T.cast(x, "int32", round="up"), lambda: T.cast(x, "float16", round="rs")):
        with pytest.raises(TileValueError):
            call()
    values = np.array([*np.linspace(-3, 3, N)], np.float32)
    for mode, reference in (("rn", np.rint), ("ru", np.ceil), ("rd", np.floor), ("rz", np.trunc)):
        assert (run([lambda v, mode=mode: T.cast(v, "int32", round=mode)], ["int32"], values) == reference(values)).all()


def test_constants_of_types():
    assert T.infinity("float16").value == math.inf and int(T.max_value("int8")) == 127 and T.min_value("float16").value == -65504
    with pytest.raises(TileValueError, match="no infinity"):
        T.infinity("float8_e4m3fn")
    with pytest.raises(TileValueError):
        T.infinity("int32")


def test_refusals():
    i, f = Var("i", "int32"), Var("f", "float32")
    for call, error in (
        (lambda: T.__dict__["__exp"](i), TileTypeError), (lambda: T.popcount(f), TileTypeError), (lambda: T.clz(f), TileTypeError),
        (lambda: T.truncdiv(i, 0), TileValueError), (lambda: T.round(f, "up"), TileValueError), (lambda: T.add2(f, f), TileTypeError),
        (lambda: T.extract_lane(f, 1), TileValueError), (lambda: T.Broadcast(f, 1), TileValueError), (lambda: T.exp(None), TileTypeError),
        (lambda: T.Ramp(f, 1, 4), TileTypeError), (lambda: T.Shuffle([], []), TileTypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()

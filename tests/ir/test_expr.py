"""Promotion, folding and guards of expressions."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import expr
from tilelang.ir.dtype_table import info
from tilelang.ir.tvm_api import FloatImm, IntImm, TensorRegion, Var, decl_buffer, region, tirx

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


def var(name):
    return Var("v", name)


def kind(value):
    return str(value.ty.dtype)


# ---------------------------------------------------------------- promotion
@pytest.mark.parametrize(("a", "b"), [*itertools.product(INTS, INTS)])
def test_integers_promote_to_the_wider_then_to_unsigned(a, b):
    bits = max(info(a).bits, info(b).bits)
    widest = [n for n in (a, b) if info(n).bits == bits]
    expected = next((n for n in widest if n.startswith("u")), widest[0])
    assert kind(expr.binary("+", var(a), var(b))) == expected


@pytest.mark.parametrize(("a", "b"), [*itertools.product(INTS, FLOATS)])
def test_integers_go_to_the_float_side(a, b):
    assert kind(expr.binary("*", var(a), var(b))) == b
    assert kind(expr.binary("*", var(b), var(a))) == b


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("float16", "float32", "float32"), ("bfloat16", "float16", "float16"), ("bfloat16", "float32", "float32"),
        ("bfloat16", "float64", "float64"), ("float8_e4m3fn", "float16", "float16"), ("float8_e5m2", "bfloat16", "bfloat16"),
        ("float8_e4m3fn", "float8_e5m2", "float32"), ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fn"), ("float32", "float64", "float64"),
        ("bool", "int8", "int8"), ("bool", "float16", "float16"), ("float16x4", "float32", "float32x4"), ("int8", "float32x2", "float32x2"),
    ],
)  # fmt: skip
def test_join(a, b, expected):
    assert expr.join(a, b) == expected
    assert expr.join(b, a) == expected


@pytest.mark.parametrize(
    ("a", "literal", "expected"),
    [
        ("float16", 0.5, "float32"), ("float16", 1, "float16"), ("int8", 1, "int32"), ("int64", 1, "int64"), ("uint32", 1, "uint32"),
        ("uint8", 1, "int32"), ("int32", 1 << 40, "int64"), ("uint64", (1 << 64) - 1, "uint64"), ("float64", 0.1, "float64"),
        ("float32", 1e300, "float64"), ("bool", 1, "int32"), ("int32", True, "int32"), ("int32", 2.5, "float32"),
        ("float16", np.float32(0.5), "float32"), ("int8", np.int64(3), "int32"),
    ],
)  # fmt: skip
def test_literals(a, literal, expected):
    for result in (expr.binary("+", var(a), literal), expr.binary("+", literal, var(a))):
        assert kind(result) == expected


def test_literals_keep_their_digits():
    assert expr.binary("+", var("float64"), 0.1).b.value == 0.1
    zero = expr.convert(-0.0, "float32")
    assert math.copysign(1.0, zero.value) == -1.0
    assert math.isnan(expr.convert(float("nan"), "float16").value)
    assert expr.convert(float("-inf"), "float32").value == -math.inf


def test_lanes_must_agree():
    with pytest.raises(TileTypeError, match="2 and 4 lanes"):
        expr.binary("+", var("float32x2"), var("float32x4"))


# ---------------------------------------------------------------- operators
OPERATORS = ["+", "-", "*", "//", "%", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "max", "min", "and", "or"]


@pytest.mark.parametrize("op", OPERATORS)
def test_two_python_values_stay_python(op):
    python = {"max": "max(7, 2)", "min": "min(7, 2)"}.get(op, f"7 {op} 2")
    result = expr.binary(op, 7, 2)
    assert result == eval(python)
    assert isinstance(result, (int, bool))


@given(st.sampled_from([op for op in OPERATORS if op not in ("<<", ">>", "and", "or")]), st.sampled_from(INTS), st.data())
def test_folding_agrees_with_python(op, name, data):
    facts = info(name)
    a, b = (data.draw(st.integers(facts.low, facts.high)) for _ in range(2))
    if op in ("//", "%") and b == 0:
        with pytest.raises(ZeroDivisionError):
            expr.binary(op, expr.convert(a, name), expr.convert(b, name))
        return
    result = expr.binary(op, expr.convert(a, name), expr.convert(b, name))
    exact = {"max": max, "min": min}[op](a, b) if op in ("max", "min") else eval(f"{a} {op} ({b})")
    if kind(result) == "bool":
        assert bool(int(result)) is exact
    elif isinstance(result, IntImm):
        wrapped = exact & ((1 << facts.bits) - 1)
        assert int(result) == (wrapped - (1 << facts.bits) if wrapped > facts.high else wrapped)
    else:  # not folded: out of range, or too large for TVM's own constant
        assert not facts.low <= exact <= min(facts.high, (1 << 63) - 1)


def test_comparisons_give_bool_and_never_raise_for_foreign_values():
    x = var("int32")
    assert kind(expr.binary("<", x, 3)) == "bool"
    assert expr.binary("==", x, None) is False
    assert expr.binary("!=", x, "name") is True
    a, b = (decl_buffer((4,), "float32", n) for n in "ab")
    assert expr.binary("==", a, a) is True
    assert expr.binary("==", a, b) is False
    assert isinstance(expr.binary("==", x, x), tirx.EQ)


def test_integer_division_by_slash_is_ambiguous():
    for a, b in (("int32", "int32"), ("uint8", "int64"), ("bool", "bool")):
        with pytest.raises(TileTypeError, match="ambiguous"):
            expr.binary("/", var(a), var(b))
    assert kind(expr.binary("/", var("int32"), var("float16"))) == "float16"


@pytest.mark.parametrize("op", ["//", "%"])
def test_division_by_the_constant_zero(op):
    with pytest.raises(ZeroDivisionError, match="zero"):
        expr.binary(op, var("int32"), 0)


@pytest.mark.parametrize("amount", [-1, 32, 100])
def test_shift_amounts(amount):
    with pytest.raises(TileValueError, match="0 to 31"):
        expr.binary("<<", var("int32"), amount)


@pytest.mark.parametrize("op", ["&", "|", "^", "<<", ">>"])
def test_bit_operations_need_integers(op):
    with pytest.raises(TileTypeError):
        expr.binary(op, var("float32"), 1)


def test_identities_apply_to_integers_only():
    x, f = var("int32"), var("float32")
    assert expr.binary("+", x, 0).same_as(x)
    assert expr.binary("*", x, 1).same_as(x)
    assert isinstance(expr.binary("+", f, 0.0), tirx.Add)
    assert isinstance(expr.binary("*", f, 1.0), tirx.Mul)


def test_negation_keeps_the_sign_of_zero():
    assert math.copysign(1.0, expr.unary("-", expr.convert(0.0, "float32")).value) == -1.0
    negated = expr.unary("-", var("float32"))
    assert isinstance(negated, tirx.Mul)


def test_unary():
    assert expr.unary("-", 3) == -3
    assert expr.unary("not", []) is True
    assert kind(expr.unary("not", var("int32"))) == "bool"
    assert kind(expr.unary("-", var("bool"))) == "int32"
    with pytest.raises(TileTypeError):
        expr.unary("~", var("float32"))


def test_logic_on_device_values():
    b = var("bool")
    assert expr.binary("and", True, b).same_as(b)
    assert expr.binary("and", False, b) is False
    assert expr.binary("or", b, 1) is True
    assert isinstance(expr.binary("and", b, var("float32")), tirx.And)


def test_choices():
    b = var("bool")
    assert expr.select(True, 1, 2) == 1
    assert kind(expr.if_then_else(b, var("float16"), 1)) == "float16"
    assert kind(expr.if_then_else(b, 1, 0.0)) == "float32"
    assert kind(expr.select(var("int32"), 1, 0)) == "int32"


def test_power():
    x, f = var("int32"), var("float32")
    assert expr.power(3, 4) == 81
    assert kind(expr.power(var("int8"), 2)) == "int32"
    assert int(expr.power(x, 0)) == 1
    assert isinstance(expr.power(f, 2), tirx.Mul)
    with pytest.raises(TileTypeError):
        expr.power(x, -1)


# ---------------------------------------------------------------- conversions
@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [(300, "int8", 44), (-1, "uint8", 255), (-1.9, "int32", -1), (2, "bool", 1), (0.0, "bool", 0), (7, "int4", 7), (8, "int4", -8)],
)
def test_constants_convert_like_c(value, name, expected):
    assert int(expr.convert(value, name)) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e9])
def test_floats_without_an_integer_value(value):
    with pytest.raises(TileValueError):
        expr.convert(value, "int32")


@pytest.mark.parametrize(
    ("value", "name"), [(0.1, "float16"), (0.1, "bfloat16"), (3.3, "float8_e5m2"), (1.3, "float8_e4m3fn"), (0.3, "float6_e2m3fn")]
)
def test_float_constants_round_to_nearest(value, name):
    numpy_type = getattr(ml_dtypes, name, None) or getattr(np, name)
    assert expr.convert(value, name).value == float(np.float64(value).astype(numpy_type))


def test_too_large_constants_become_infinity():
    assert expr.convert(1e6, "float16").value == math.inf
    assert expr.convert(-1e300, "float32").value == -math.inf
    assert isinstance(expr.convert(1e300, "float64"), FloatImm)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (127, "int8", True), (128, "int8", False), (-1, "uint8", False), (1.5, "int32", False), (2.0, "int32", True), (2, "bool", False),
        (65504, "float16", True), (65520.0, "float16", False), (1e300, "float64", True), (1e39, "float32", False),
        (float("inf"), "float32", True), (float("inf"), "float8_e4m3fn", False), (449, "float8_e4m3fn", True),
        (480, "float8_e4m3fn", False),
    ],
)  # fmt: skip
def test_representable(value, name, expected):
    assert expr.representable(value, name) is expected


def test_conversions_of_expressions():
    assert isinstance(expr.convert(var("float32"), "bool"), tirx.NE)
    assert kind(expr.convert(var("float32"), "float16x4")) == "float16x4"
    with pytest.raises(TileTypeError):
        expr.convert(var("float32x4"), "float32")
    with pytest.raises(TileTypeError):
        expr.convert(var("handle"), "int32")


# ---------------------------------------------------------------- what is no scalar
@pytest.mark.parametrize("value", [None, "text", [1], (1, 2), {}, object(), b"x", 1j])
def test_no_scalars(value):
    with pytest.raises(TileTypeError):
        expr.as_expr(value)
    with pytest.raises(TileTypeError):
        expr.binary("+", var("int32"), value)


def test_buffers_are_no_scalars_but_variables_are():
    tile = decl_buffer((4, 4), "float32", "tile", "shared.dyn")
    with pytest.raises(TileTypeError, match="tile"):
        expr.binary("+", tile, 1)
    with pytest.raises(TileTypeError, match="any_of"):
        expr.truth(tile)
    with pytest.raises(TileTypeError, match="block of tile"):
        expr.as_expr(region(tile, [0, 0], [1, 4]))
    assert isinstance(region(tile, [0, 0], [1, 1]), TensorRegion)
    assert kind(expr.as_expr(region(tile, [0, 0], [1, 1]))) == "float32"
    variable = decl_buffer((1,), "int8", "v", "local.var")
    assert kind(expr.binary("+", variable, 1)) == "int32"


@pytest.mark.parametrize(("value", "ok"), [(3, True), (np.int32(3), True), (True, False), (3.0, False), (None, False), ("3", False)])
def test_extents(value, ok):
    if ok:
        assert expr.as_extent(value, "extent") == 3
        return
    with pytest.raises(TileTypeError, match="extent"):
        expr.as_extent(value, "extent")


def test_vectors():
    f = var("float32")
    assert kind(expr.vector([f, 1, 2.0])) == "float32x3"
    with pytest.raises(TileTypeError):
        expr.vector([var("float32x2"), 1])


def test_addresses_compare_but_do_not_add():
    p = var("handle")
    assert kind(expr.binary("==", p, p)) == "bool"
    with pytest.raises(TileTypeError):
        expr.binary("+", p, 1)

"""Quotients without the lane, and whole numbers through the bits of a float: forms and values."""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run
from tilelang.compiler.compile import context
from tilelang.ir.evaluate import evaluate
from tilelang.ir.rewrite import substitute, uses, walk
from tilelang.ir.tvm_api import Cast, For, ForKind, PrimFunc, Var, const, decl_buffer, dtype_of, load, store, tirx
from tilelang.passes.partition.lane_arithmetic import lane_arithmetic
from tilelang.target.target import parse_target


def rewritten(lanes, value):
    """What is stored, in a vector loop, of a value made from the lane."""
    lane, out = Var("lane", "int32"), decl_buffer((64,), "float32", "out")
    result = value(lane)
    target = decl_buffer((64,), dtype_of(result), "out")
    loop = For(lane, const(0, "int32"), const(lanes, "int32"), ForKind.VECTORIZED, store(target, result, [lane]))
    func = lane_arithmetic(PrimFunc([out], loop), context(parse_target("simt"), {}))
    return func.body.body.value, lane


X = Var("x", "int32")


@pytest.mark.parametrize(
    ("lanes", "value", "stays"),
    [
        (2, lambda v: tirx.FloorDiv(X * 4 + v, const(8, "int32")), False),
        (4, lambda v: tirx.FloorDiv(X * 4 + v, const(8, "int32")), False),
        (8, lambda v: tirx.FloorDiv(X * 4 + v, const(8, "int32")), True),  # x * 4 may stand in the middle of the eight lanes
        (4, lambda v: tirx.FloorDiv(X * 4 + v, const(6, "int32")), True),
        (4, lambda v: tirx.FloorDiv(X * 4 + v * 2, const(8, "int32")), True),
        (4, lambda v: tirx.FloorDiv(X * 4 + v + 1, const(8, "int32")), True),
        (4, lambda v: tirx.FloorDiv(X + v, const(8, "int32")), True),
        (2, lambda v: tirx.Div(X * 4 + v, const(8, "int32")), True),  # rounds towards zero: -1 / 8 is another number than -2 / 8 has
    ],
)
def test_quotients(lanes, value, stays):
    result, lane = rewritten(lanes, value)
    assert uses(result, lane) == stays


def test_parts_below_a_common_multiple():
    """Not only lanes: what is less than the multiple that all other terms have."""
    register, thread = Var("r", "int32"), Var("t", "int32")
    small = tirx.FloorMod(thread, const(4, "int32")) * 2 + tirx.FloorDiv(tirx.FloorMod(register, const(16, "int32")), const(2, "int32")) * 8

    def split(dividend, divisor, form=tirx.FloorDiv):
        return rewritten(2, lambda v: form(dividend + v, const(divisor, "int32")))[0]

    found = split(X * 64 + small, 128)
    assert not any(uses(found, v) for v in (register, thread)) and uses(found, X)
    assert any(uses(split(X * 32 + small, 128), v) for v in (register, thread))
    assert isinstance(split(small, 128), tirx.IntImm) and int(split(small, 128)) == 0
    rest = split(X * 64 + small, 64, tirx.FloorMod)
    assert not uses(rest, X) and uses(rest, register)


@pytest.mark.parametrize("divisor", [2, 3, 4, 6, 8, 12, 16, 24, 64, 96])
@pytest.mark.parametrize("form", [tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod])
def test_values_of_quotients(form, divisor):
    """Against the same expression as it was, for all values of its variables."""
    for scale in (1, 2, 4, 6, 16, 32):
        for shift in (-5, 0, 1, 3):
            lane = Var("lane", "int32")
            before = form(X * scale + tirx.FloorMod(X, const(3, "int32")) * 2 + lane + shift, const(divisor, "int32"))
            after, inner = rewritten(2, lambda v, before=before, lane=lane: substitute(before, {lane: v}))
            points = {X: np.arange(-40, 41)[:, None]}
            values = [evaluate(e, {**points, v: np.arange(2)[None, :]}) for e, v in ((before, lane), (after, inner))]
            np.testing.assert_array_equal(*np.broadcast_arrays(*values))


def test_remainders():
    result, lane = rewritten(2, lambda v: tirx.FloorMod(X * 4 + v, const(2, "int32")))
    assert result.same_as(lane)
    result, lane = rewritten(2, lambda v: tirx.FloorMod(X * 4 + v, const(8, "int32")))
    assert isinstance(result, tirx.Add) and isinstance(result.a, tirx.FloorMod) and not uses(result.a, lane) and result.b.same_as(lane)


def casts(value):
    """Conversions of whole numbers to 16-bit floats that are left."""
    result, _ = rewritten(2, value)
    found = []
    walk(result, {Cast: lambda c: found.append(c) if dtype_of(c) in ("bfloat16", "float16") else None})
    return len(found)


BYTE = decl_buffer((64,), "uint8", "bytes")


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (lambda v: Cast("bfloat16", tirx.BitwiseAnd(load(BYTE, [v]), const(15, "uint8"))), 0),
        (lambda v: Cast("bfloat16", tirx.RShift(load(BYTE, [v]), const(1, "uint8"))), 0),
        (lambda v: Cast("bfloat16", load(BYTE, [v])), 1),  # eight bits, and a mantissa of seven
        (lambda v: Cast("float16", load(BYTE, [v])), 0),
        (lambda v: Cast("float16", X), 1),
        (lambda v: Cast("float16", tirx.FloorMod(X, const(1024, "int32"))), 0),
        (lambda v: Cast("float16", tirx.FloorMod(X, const(1025, "int32"))), 1),
        (lambda v: Cast("float16", Cast("int32", load(BYTE, [v])) * const(4, "int32")), 0),
        (lambda v: Cast("float16", load(BYTE, [v]) * const(2, "uint8")), 0),  # wraps around within the byte
        (lambda v: Cast("float16", const(3, "int32")), 1),  # a constant is no conversion
        (lambda v: Cast("bfloat16", tirx.BitwiseAnd(load(BYTE, [v]), const(15, "uint8"))) - const(200.0, "bfloat16"), 0),
    ],
)
def test_which_numbers(value, left):
    assert casts(value) == left


def test_the_number_that_is_subtracted_next():
    def steps(taken):
        result, _ = rewritten(
            2, lambda v: Cast("bfloat16", tirx.BitwiseAnd(load(BYTE, [v]), const(15, "uint8"))) - const(taken, "bfloat16")
        )
        found = []
        walk(result, {tirx.Sub: lambda s: found.append(float(s.b.value))})
        return found

    assert steps(8.0) == [136.0]
    assert steps(0.5) == [0.5, 128.0]
    assert steps(128.0) == [128.0, 128.0]  # 256 + 128 has more bits


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_all_bytes(dtype):
    """Every byte: both halves less 8, and the whole."""

    @T.prim_func
    def main(P: T.Tensor((256,), "uint8"), low: T.Tensor((256,), dtype), high: T.Tensor((256,), dtype), whole: T.Tensor((256,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                low[i] = T.cast(P[i] & 15, dtype) - T.cast(8, dtype)
                high[i] = T.cast(P[i] >> 4, dtype) - T.cast(8, dtype)
                whole[i] = T.cast(P[i], dtype)

    data = np.arange(256, dtype=np.uint8)
    low, high, whole = (np.zeros(256, numpy_type(dtype)) for _ in range(3))
    run(main, data, low, high, whole)
    np.testing.assert_array_equal(low.astype(np.float64), (data & 15).astype(np.float64) - 8)
    np.testing.assert_array_equal(high.astype(np.float64), (data >> 4).astype(np.float64) - 8)
    np.testing.assert_array_equal(whole, data.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16))

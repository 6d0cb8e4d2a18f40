"""T.reduce_*, T.cumsum, T.cummax: kinds, element types, dims, shapes, NaN, empty extents, errors."""

import ml_dtypes
import numpy as np
import pytest

from tests.tileop.harness import Program
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.tvm_api import region
from tilelang.tileop import reduce as reductions
from tilelang.tileop.copy import copy
from tilelang.tileop.reduce import KINDS, reduce, reduce_abssum, reduce_max, reduce_min, reduce_sum
from tilelang.tileop.scan import cummax, cumsum

RNG = np.random.default_rng(11)
TILES = ("shared.dyn", "shared", "local.fragment")
REFERENCE = {
    "sum": np.add.reduce, "abssum": lambda x, axis: np.abs(x).sum(axis), "max": np.max, "min": np.min,
    "absmax": lambda x, axis: np.abs(x).max(axis), "bitand": np.bitwise_and.reduce, "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}  # fmt: skip


def numpy_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def values(shape, name):
    if name == "bool":
        return RNG.random(shape) < 0.7
    data = RNG.integers(0 if name.startswith("u") else -50, 50, shape) if "int" in name else RNG.standard_normal(shape)
    return data.astype(numpy_type(name))


def run(x, out_shape, out_type, call, old=None, scopes=("local.fragment", "local.fragment")):
    """`call(tile, out)` on a copy of x; returns what is left in out."""
    p = Program()
    name = "bfloat16" if x.dtype == ml_dtypes.bfloat16 else str(x.dtype)
    X, Y = p.param(x.shape, name, "X"), p.param(out_shape, out_type, "Y")
    with p.writing():
        tile, out = p.alloc(x.shape, name, "tile", scopes[0]), p.alloc(out_shape, out_type, "out", scopes[1])
        copy(X, tile)
        copy(Y, out)
        call(tile, out)
        copy(out, Y)
    y = np.full(out_shape, 99, numpy_type(out_type)) if old is None else old.astype(numpy_type(out_type))
    p.run(x, y)
    return y


TYPES = ("float32", "float16", "bfloat16", "float64", "int8", "int32", "uint8", "int64", "bool")
DEFINED = [
    (kind, dtype)
    for kind in KINDS
    for dtype in TYPES
    if not (kind.startswith("bit") and "float" in dtype) and not (dtype == "bool" and kind in ("sum", "abssum", "absmax"))
]


@pytest.mark.parametrize("kind,dtype", DEFINED)
def test_kinds_and_types(kind, dtype):
    x = values((7, 13), dtype)
    got = run(x, (7,), dtype, lambda t, o: reduce(t, o, kind, 1, True))
    wide = x.astype(np.float64) if "float" in dtype else x.astype(bool) if dtype == "bool" else x.astype(np.int64)
    want = REFERENCE[kind](wide, axis=1)
    if "float" not in dtype:
        np.testing.assert_array_equal(got, want.astype(dtype))
        return
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


def test_mixed_types_keep_what_fits():
    x = values((5, 40), "int8")
    np.testing.assert_array_equal(run(x, (5,), "int32", reduce_sum), x.astype(np.int64).sum(1))
    h = values((5, 40), "float16")
    np.testing.assert_allclose(run(h, (5,), "float32", reduce_sum), h.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


def test_half_sum_does_not_stall():
    x = np.ones((1, 4096), np.float16)
    assert run(x, (1,), "float16", reduce_sum)[0] == 4096


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("keep", [False, True])
def test_every_dim_and_output_shape(dim, keep):
    x = values((3, 5, 4), "float32")
    want = x.astype(np.float64).sum(dim, keepdims=keep)
    got = run(x, want.shape, "float32", lambda t, o: reduce_sum(t, o, dim=dim))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("source", TILES)
@pytest.mark.parametrize("target", TILES)
def test_scope_combinations(source, target):
    x = values((6, 9), "float32")
    np.testing.assert_array_equal(run(x, (9,), "float32", lambda t, o: reduce_max(t, o, dim=0), scopes=(source, target)), x.max(0))


@pytest.mark.parametrize("target,shape", [("local", (6,)), ("local", (6, 1))])
def test_per_thread_arrays(target, shape):
    x = values((6, 9), "int32")
    got = run(x, shape, "int32", reduce_sum, scopes=("local", target))
    np.testing.assert_array_equal(got.reshape(6), x.sum(1))


def test_local_array_into_variable():
    x = values((9,), "int32")
    assert run(x, (1,), "int32", reduce_sum, scopes=("local", "local.var"))[0] == x.sum()


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "abssum"])
def test_without_clear_the_old_contents_count_once(kind):
    x, old = values((4, 6), "int32"), values((4,), "int32")
    got = run(x, (4,), "int32", lambda t, o: reduce(t, o, kind, 1, False), old=old)
    want = REFERENCE[kind](x.astype(np.int64), axis=1)
    combine = {"sum": np.add, "max": np.maximum, "absmax": np.maximum, "min": np.minimum}.get(kind) or getattr(np, f"bitwise_{kind[3:]}")
    np.testing.assert_array_equal(got, combine(want, old))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_nan_is_passed_over_or_propagated(dtype):
    x = values((4, 5), dtype)
    x[1, 2], x[3, :] = np.nan, np.nan
    for call, whole, ignore in ((reduce_max, np.max, np.nanmax), (reduce_min, np.min, np.nanmin)):
        got = run(x, (4,), dtype, lambda t, o, call=call: call(t, o, nan_propagate=True)).astype(np.float32)
        np.testing.assert_array_equal(got, whole(x.astype(np.float32), axis=1))
        got = run(x, (4,), dtype, lambda t, o, call=call: call(t, o)).astype(np.float32)
        np.testing.assert_array_equal(got[:3], ignore(x.astype(np.float32)[:3], axis=1))


def test_empty_slice_gives_the_identity():
    x = values((3, 4), "float32")
    empty = lambda t: region(t, [0, 0], [3, 0])  # noqa: E731
    np.testing.assert_array_equal(run(x, (3,), "float32", lambda t, o: reduce_sum(empty(t), o)), [0, 0, 0])
    np.testing.assert_array_equal(run(x, (3,), "float32", lambda t, o: reduce_max(empty(t), o)), [-np.inf] * 3)


def test_output_inside_the_input():
    x = values((5, 5), "float32")
    got = run(x, (5, 5), "float32", lambda t, o: (copy(t, o), reduce_sum(o, region(o, [0, 0], [1, 5]), dim=1)))
    np.testing.assert_allclose(got[0], x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


def test_slices():
    x = values((4, 6, 8), "int32")
    got = run(x, (10,), "int32", lambda t, o: reduce_sum(region(t, [2, 0, 0], [1, 6, 8]), region(o, [1], [6]), dim=-1))
    np.testing.assert_array_equal(got[1:7], x[2].sum(1))
    assert got[0] == 99 and got[9] == 99


def test_named_functions_use_their_kind():
    x = values((4, 6), "int32")
    for kind in KINDS:
        got = run(x, (4,), "int32", lambda t, o, kind=kind: getattr(reductions, f"reduce_{kind}")(t, o, dim=1))
        np.testing.assert_array_equal(got, REFERENCE[kind](x.astype(np.int64), axis=1))


# ---------------------------------------------------------------- scans
@pytest.mark.parametrize("shape,dim", [((9, 7), 0), ((9, 7), 1), ((9, 7), -1), ((9, 7), -2), ((13,), 0), ((1, 5), 0)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_scans(shape, dim, reverse, dtype):
    x = values(shape, dtype)
    for call, ufunc in ((cumsum, np.add), (cummax, np.maximum)):
        wide = x.astype(np.float64)
        flip = (lambda a: np.flip(a, dim)) if reverse else (lambda a: a)
        want = flip(ufunc.accumulate(flip(wide), dim))
        out_of_place = run(x, shape, dtype, lambda t, o, call=call: call(src=t, dst=o, dim=dim, reverse=reverse))
        in_place = run(x, shape, dtype, lambda t, o, call=call: (copy(t, o), call(o, dim=dim, reverse=reverse)))
        np.testing.assert_allclose(out_of_place.astype(np.float64), want, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-5)
        np.testing.assert_array_equal(out_of_place, in_place)


# ---------------------------------------------------------------- errors
def raises(kind, call, shape, out_shape, *mentions, scopes=("local.fragment", "local.fragment"), dtype="float32"):
    p = Program()
    with pytest.raises(kind) as caught, p.writing():
        call(p.alloc(shape, dtype, "tile", scopes[0]), p.alloc(out_shape, dtype, "out", scopes[1]))
    for text in mentions:
        assert text in str(caught.value)


def test_errors():
    raises(TileValueError, lambda t, o: reduce_sum(t, o, dim=1), (4, 6), (6,), "out", "(4,)", "(4, 1)")
    raises(TileValueError, lambda t, o: reduce_sum(t, o, dim=2), (4, 6), (4,), "dim=2", "-2 to 1")
    raises(TileValueError, lambda t, o: reduce_max(t, o, batch=0), (4, 6), (4,), "batch=0")
    raises(TileValueError, lambda t, o: reduce(t, o, "mean", 1, True), (4, 6), (4,), "mean", "absmax")
    raises(TileValueError, reduce_sum, (4, 6), (4,), "tile", scopes=("local.fragment", "local"))
    raises(TileValueError, reduce_sum, (4, 6), (4,), "tile", scopes=("global", "local.fragment"))
    raises(TileTypeError, reductions.reduce_bitor, (4, 6), (4,), "integers")
    raises(TileTypeError, lambda t, o: reduce_sum(t, o, dim="x"), (4, 6), (4,), "dim='x'")
    raises(TileTypeError, lambda t, o: reduce_abssum(None, o), (4, 6), (4,), "buffer", "None")
    raises(TileValueError, lambda t, o: cumsum(t, o, dim=2), (4, 6), (4, 6), "dim=2")
    raises(TileValueError, cumsum, (4, 6), (6, 4), "out", "(6, 4)")
    raises(TileValueError, lambda t, o: reduce_min(t, o, dim=-3), (4, 6), (4,), "dim=-3")

"""T.gemm: layouts, element types, clear_accum, aliasing, checks."""

import ml_dtypes
import numpy as np
import pytest

from tests.tileop.harness import Program
from tilelang.errors import TileAssertionError, TileNotSupportedError, TileTypeError, TileValueError
from tilelang.ir.builder import in_kernel
from tilelang.ir.dialect import make_call, tile_call
from tilelang.ir.tvm_api import const, load, region
from tilelang.tileop.copy import copy
from tilelang.tileop.fill import fill
from tilelang.tileop.gemm import GemmWarpPolicy, gemm, gemm_sp, wgmma_gemm
from tilelang.tileop.loops import tile

RNG = np.random.default_rng(7)


def numpy_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def product(m, n, k, a_type, c_type, ta=False, tb=False, scopes=("shared.dyn", "shared.dyn", "local.fragment"), **options):
    """(result, float64 reference, old C) of one product on random tiles."""
    p = Program()
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    A, B, C = p.param(a_shape, a_type, "A"), p.param(b_shape, a_type, "B"), p.param((m, n), c_type, "C")
    with p.writing():
        a, b = p.alloc(a_shape, a_type, "a", scopes[0]), p.alloc(b_shape, a_type, "b", scopes[1])
        c = p.alloc((m, n), c_type, "c", scopes[2])
        copy(A, a)
        copy(B, b)
        copy(C, c)
        gemm(a, b, c, ta, tb, **options)
        copy(c, C)

    def values(shape, name):
        low, high = (0, 200) if name == "uint8" else (-100, 100)
        data = RNG.integers(low, high, shape) if "int" in name else RNG.standard_normal(shape)
        return data.astype(numpy_type(name))

    x, y = values(a_shape, a_type), values(b_shape, a_type)
    z = values((m, n), "int8" if "int" in a_type else c_type).astype(numpy_type(c_type))
    old = z.astype(np.float64)
    want = (x.T if ta else x).astype(np.float64) @ (y.T if tb else y).astype(np.float64)
    p.run(x, y, z)
    return z.astype(np.float64), want, old


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 1), (33, 17, 20), (16, 8, 1)])
def test_transposes_and_odd_sizes(ta, tb, size):
    got, want, old = product(*size, "float32", "float32", ta, tb)
    np.testing.assert_allclose(got, want + old, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "a_type,c_type,tolerance",
    [
        ("float16", "float32", 1e-5), ("bfloat16", "float32", 1e-5), ("float64", "float64", 1e-12), ("float16", "float16", 2e-3),
        ("int8", "int32", 0), ("uint8", "int32", 0), ("int32", "int32", 0), ("int8", "float32", 0),
    ],
)  # fmt: skip
def test_element_types(a_type, c_type, tolerance):
    got, want, old = product(19, 21, 64, a_type, c_type)
    np.testing.assert_allclose(got, want + old, rtol=tolerance, atol=tolerance * 8)


def test_half_accumulator_is_rounded_once():
    got, want, old = product(8, 8, 512, "float16", "float16")
    assert (np.abs(got - (want + old)) <= np.abs(want + old) * 2.0**-11 + 1e-4).all()


@pytest.mark.parametrize("scopes", [("local.fragment", "shared", "local.fragment"), ("shared.dyn", "shared.dyn", "local"), ("local",) * 3])
def test_scopes(scopes):
    got, want, old = product(6, 5, 7, "float32", "float32", scopes=scopes)
    np.testing.assert_allclose(got, want + old, rtol=1e-5, atol=1e-5)


def test_slices_of_the_sum():
    """C[s] takes the products of the s-th part of K (an attribute that backends set)."""
    p = Program()
    A, B, C = p.param((3, 12), "float32", "A"), p.param((12, 5), "float32", "B"), p.param((4, 3, 5), "float32", "C")
    with p.writing():
        in_kernel("test").evaluate(make_call("tl.tileop.gemm", [tile(A), tile(B), tile(C), const(0, "bool")], slices=4,
                                             transpose_A=False, transpose_B=False))  # fmt: skip
    x, y, z = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 12), (12, 5), (4, 3, 5)))
    want = z + np.einsum("isr,srj->sij", x.reshape(3, 4, 3), y.reshape(4, 3, 5))
    p.run(x, y, z)
    np.testing.assert_allclose(z, want, rtol=1e-5, atol=1e-5)


def test_clear_accum_constant():
    got, want, _ = product(9, 5, 7, "float32", "float32", clear_accum=True)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_clear_accum_at_run_time_also_drops_nan():
    p = Program()
    A, C = p.param((3, 8, 8), "float32", "A"), p.param((8, 8), "float32", "C")
    with p.writing() as written:
        a, c = p.alloc((8, 8), "float32", "a"), p.alloc((8, 8), "float32", "c", "local.fragment")
        fill(c, float("nan"))
        with written.builder.loop(["k"], [0], [3]) as (k,):
            copy(load(A, [k, 0, 0]), a)
            gemm(a, a, c, clear_accum=(k.equal(0)))
        copy(c, C)
    x, z = RNG.standard_normal((3, 8, 8), np.float32), np.zeros((8, 8), np.float32)
    p.run(x, z)
    np.testing.assert_allclose(z, sum(m.astype(np.float64) @ m for m in x), rtol=1e-5, atol=1e-5)


def test_operands_that_alias_the_result():
    p = Program()
    A = p.param((6, 6), "float32", "A")
    with p.writing():
        a = p.alloc((6, 6), "float32", "a")
        copy(A, a)
        gemm(a, a, a, transpose_B=True)
        copy(a, A)
    x = RNG.standard_normal((6, 6), np.float32)
    want = x.astype(np.float64) + x.astype(np.float64) @ x.T
    p.run(x)
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-5)


def test_slices_and_leading_unit_dimensions():
    p = Program()
    A, C = p.param((2, 8, 8), "float32", "A"), p.param((16, 8), "float32", "C")
    with p.writing():
        a, c = p.alloc((2, 8, 8), "float32", "a"), p.alloc((16, 8), "float32", "c", "local.fragment")
        copy(A, a)
        fill(c, 0)
        gemm(region(a, [0, 0, 0], [1, 8, 8]), region(a, [1, 0, 0], [1, 8, 8]), region(c, [8, 0], [8, 8]))
        copy(c, C)
    x, z = RNG.standard_normal((2, 8, 8), np.float32), np.zeros((16, 8), np.float32)
    p.run(x, z)
    np.testing.assert_allclose(z, np.vstack([np.zeros((8, 8)), x[0].astype(np.float64) @ x[1]]), rtol=1e-5, atol=1e-5)


def test_call_keeps_its_options():
    p = Program()
    with p.writing():
        a, c = p.alloc((16, 16), "float16", "a"), p.alloc((16, 16), "float32", "c", "local.fragment")
        gemm(a, a, c, True, False, GemmWarpPolicy.FullRow, False, 2, -1)
        wgmma_gemm(a, a, c)
    first, second = (dict(tile_call(s).attrs.items()) for s in p.body.seq[-2:])
    assert (first["transpose_A"], first["policy"], first["k_pack"], first["wg_wait"]) == (True, 1, 2, -1)
    assert second["wg_wait"] == -1 and second["instruction"] == "wgmma"


# ---------------------------------------------------------------- errors
def raises(kind, a, b, c, *mentions, call=gemm, types=("float16", "float16", "float32"), scope="shared.dyn", **options):
    p = Program()
    with pytest.raises(kind) as caught, p.writing():
        call(p.alloc(a, types[0], "A_s", scope), p.alloc(b, types[1], "B_s"), p.alloc(c, types[2], "C_l", "local.fragment"), **options)
    for text in mentions:
        assert text in str(caught.value)


def test_shape_errors_name_the_axis_and_the_sizes():
    raises(TileAssertionError, (128, 64), (32, 128), (128, 128), "K shape check failed", "64", "32", "A_s", "B_s")
    raises(TileAssertionError, (128, 64), (64, 128), (64, 128), "M shape check failed", "C_l")
    raises(TileAssertionError, (128, 64), (64, 128), (128, 64), "N shape check failed")
    raises(TileAssertionError, (128, 64), (128, 64), (128, 128), "K shape check failed", "transpose_B=False")
    raises(TileAssertionError, (2, 8, 8), (8, 8), (8, 8), "A_s", "(2, 8, 8)")
    raises(TileAssertionError, (8,), (8, 8), (8, 8), "A_s")


def test_other_errors():
    square = ((8, 8),) * 3
    raises(TileTypeError, *square, "float16", "int8", types=("float16", "int8", "float32"))
    raises(TileTypeError, *square, "int32", types=("float16", "float16", "int32"))
    raises(TileTypeError, *square, "transpose_A", transpose_A="yes")
    raises(TileValueError, *square, "policy", "7", policy=7)
    raises(TileValueError, *square, "k_pack", k_pack=3)
    raises(TileValueError, *square, "global", scope="global")
    raises(TileNotSupportedError, *square, "gemm_sp", call=lambda a, b, c: gemm_sp(a, a, b, c))


def test_element_access_is_no_matrix():
    p = Program()
    with p.writing():
        a = p.alloc((8, 8), "float32", "a")
        with pytest.raises(TileValueError, match="slice it"):
            gemm(load(a, [0, 0]), a, a)

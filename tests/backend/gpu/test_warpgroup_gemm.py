"""T.gemm on warpgroup products: chosen where it can be, and equal to the portable meaning in the emulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import toolchain
from tilelang.compiler.compile import compile_stages, context
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def gemm(
    m, n, k, dtype="float16", flips=(False, False), threads=128, policy=T.GemmWarpPolicy.Square, left="shared", out="float32", clear=False
):
    @T.prim_func
    def main(
        A: T.Tensor((k, m) if flips[0] else (m, k), dtype), B: T.Tensor((n, k) if flips[1] else (k, n), dtype), C: T.Tensor((m, n), out)
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((k, m) if flips[0] else (m, k), dtype)
            b = T.alloc_shared((n, k) if flips[1] else (k, n), dtype)
            p = T.alloc_fragment((m, k), dtype)
            c = T.alloc_fragment((m, n), out)
            T.copy(B, b)
            T.fill(c, 1)
            if left == "fragment":
                T.copy(A, p)
                T.gemm(p, b, c, transpose_B=flips[1], policy=policy, clear_accum=clear)
            else:
                T.copy(A, a)
                T.gemm(a, b, c, transpose_A=flips[0], transpose_B=flips[1], policy=policy, clear_accum=clear)
            T.copy(c, C)

    return main


def lowering(program, config=None):
    ctx = context(HOPPER, config or {})
    for _ in compile_stages(program, ctx, {}):
        pass
    return [n.text for n in ctx.notes if n.subject == "gemm"]


def random(rng, shape, dtype):
    if dtype.startswith("int"):
        return rng.integers(-8, 8, shape).astype(dtype)
    return rng.standard_normal(shape).astype(NUMPY.get(dtype, dtype))


def check(program, m, n, k, dtype="float16", flips=(False, False), out="float32", clear=False, config=None, tolerance=1e-5):
    assert lowering(program, config)[-1] == "wgmma"
    rng = np.random.default_rng(5)
    a, b = random(rng, (k, m) if flips[0] else (m, k), dtype), random(rng, (n, k) if flips[1] else (k, n), dtype)
    got = np.zeros((m, n), NUMPY.get(out, out))
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs=config)(a, b, got)
    left, right = (x.astype(np.float64) for x in (a, b))
    want = (left.T if flips[0] else left) @ (right.T if flips[1] else right) + (0 if clear else 1)
    assert np.allclose(got.astype(np.float64), want, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("flips", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_majors(dtype, flips):
    check(gemm(64, 64, 32, dtype, flips), 64, 64, 32, dtype, flips)


@pytest.mark.parametrize(("dtype", "out"), [("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("int8", "int32")])
def test_bytes_along_k(dtype, out):
    check(gemm(64, 32, 64, dtype, (False, True), out=out), 64, 32, 64, dtype, (False, True), out)


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize(
    ("dtype", "out", "bits"), [("float16", "float16", 11), ("bfloat16", "bfloat16", 8), ("float8_e4m3fn", "float16", 11)]
)
def test_narrow_results(dtype, out, bits, clear):
    """Summed in float32, rounded once."""
    program = gemm(64, 64, 64, dtype, (False, True), out=out, clear=clear)
    check(program, 64, 64, 64, dtype, (False, True), out, clear, tolerance=2.0**-bits)


def test_narrow_results_are_rounded_once_a_call():
    """2048 + 1 is 2048 in float16, 2048 + 16 * 1 is not."""
    a, b = np.zeros((64, 32), "float16"), np.zeros((64, 32), "float16")
    a[:, :17], b[:, :17] = 1, 1
    b[:, 0] = 2047
    got = np.zeros((64, 64), "float16")
    tilelang.compile(gemm(64, 64, 32, flips=(False, True), out="float16"), target="simt -arch=sm_90a")(a, b, got)
    np.testing.assert_array_equal(got, 2064)


TF32 = {"tl.allow_tf32": True}


@pytest.mark.parametrize(("left", "threads"), [("shared", 128), ("fragment", 128), ("shared", 256)])
def test_tf32(left, threads):
    """10 bits of a factor are kept: each product is off by less than 2^-9 of it, by 2^-10 on average."""
    m = threads // 2
    program = gemm(m, 64, 64, "float32", (False, True), left=left, threads=threads)
    check(program, m, 64, 64, "float32", (False, True), config=TF32, tolerance=2.0**-7)


def test_tf32_cuts_bits_off():
    """The lower 13 bits of a factor are not read, whatever they are."""
    one, more = np.float32(1), np.nextafter(np.float32(1 + 2.0**-10), np.float32(0))
    a, b = np.full((64, 32), more), np.full((64, 32), one)
    got = np.zeros((64, 64), "float32")
    program = gemm(64, 64, 32, "float32", (False, True), clear=True)
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs=TF32)(a, b, got)
    np.testing.assert_array_equal(got, 32)


def test_tf32_across():
    found = lowering(gemm(64, 64, 32, "float32"), TF32)
    assert any("float32 operands must be contiguous along K" in text for text in found) and found[-1] != "wgmma", found


@pytest.mark.parametrize("columns", [8, 24, 96, 160, 256])
def test_columns(columns):
    check(gemm(64, columns, 32, flips=(False, True)), 64, columns, 32, flips=(False, True))


@pytest.mark.parametrize(
    ("m", "n", "threads", "policy"),
    [
        (128, 64, 128, T.GemmWarpPolicy.Square),  # two products a warpgroup, one below the other
        (128, 64, 256, T.GemmWarpPolicy.Square),
        (64, 128, 256, T.GemmWarpPolicy.Square),  # two warpgroups side by side
        (128, 128, 256, T.GemmWarpPolicy.FullCol),
        (192, 32, 384, T.GemmWarpPolicy.FullRow),
        (64, 512, 128, T.GemmWarpPolicy.Square),  # wider than the widest product
    ],
)
def test_warpgroups(m, n, threads, policy):
    check(gemm(m, n, 32, threads=threads, policy=policy), m, n, 32)


@pytest.mark.parametrize("threads", [128, 256])
def test_a_in_registers(threads):
    m = threads // 2
    check(gemm(m, 64, 64, left="fragment", threads=threads), m, 64, 64)


@pytest.mark.parametrize("left", ["shared", "fragment"])
def test_clear(left):
    check(gemm(64, 64, 48, left=left, clear=True), 64, 64, 48, clear=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"m": 48}, "M = 48"),
        ({"threads": 96}, "96 threads"),
        ({"dtype": "float32"}, "products of float32 are three of tf32 (tl.allow_tf32 takes one)"),
        ({"dtype": "int8", "out": "int32"}, "contiguous along K"),
        ({"n": 20}, "no product of"),
    ],
)
def test_what_declines_says_why(options, reason):
    arguments = {"m": 64, "n": 64, "k": 64, **options}
    found = lowering(gemm(**arguments))
    assert any(text.startswith("wgmma declined") and reason in text for text in found), found
    assert found[-1] != "wgmma"


def test_other_architectures():
    ctx = context(parse_target("simt -arch=sm_80"), {})
    for _ in compile_stages(gemm(64, 64, 32), ctx, {}):
        pass
    assert "wgmma declined: sm_80 has no wgmma (sm_90a has)" in [n.text for n in ctx.notes]


@pytest.mark.skipif(not toolchain.available(), reason="no CUDA compiler (pip install 'tilelang[cuda]')")
@pytest.mark.parametrize("left", ["shared", "fragment"])
@pytest.mark.parametrize(
    ("dtype", "out", "columns"),
    [
        ("float16", "float32", 256),
        ("float16", "float16", 128),
        ("bfloat16", "float32", 192),
        ("float32", "float32", 96),
        ("float8_e4m3fn", "float32", 256),
        ("float8_e5m2", "bfloat16", 64),
        ("int8", "int32", 256),
        ("uint8", "int32", 32),
    ],
)
def test_the_assembler_keeps_products_in_flight(dtype, out, columns, left):
    """Every type of operands is assembled, without spills, and without a remark that products are taken one by one (C7510 and kin)."""
    program = gemm(128, columns, 64, dtype, (False, True), threads=256, left=left, out=out)
    cubin = tilelang.compile(program, target="cuda -arch=sm_90a", pass_configs=TF32).artifact.entry.cubin("sm_90a")
    (report,) = cubin.reports.values()
    assert report.spill_stores == report.spill_loads == 0
    assert "serialized" not in cubin.log
    assert "wgmma.mma_async" in tilelang.compile(program, target="cuda -arch=sm_90a", pass_configs=TF32).get_kernel_source()

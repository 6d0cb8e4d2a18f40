"""Deferred stores: which tiles get them, what the consumers' program looks like, and that the emulated kernel computes the product."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context
from tilelang.ir.dialect import op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call, IfThenElse
from tilelang.passes.roles import specialize_warps as passes
from tilelang.passes.roles.defer_store import KEY_OFF, LONG_LOOP
from tilelang.passes.roles.specialize_warps import SUBJECT, specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Blocks visit several tiles."""
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 4)


def gemm(m, n, k, dtype="float16", relu=False, panel=0, stages=3, block=(128, 128, 32), reads=False, threads=256):
    bm, bn, bk = block

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            if panel:
                T.use_swizzle(panel)
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[by * bm, i * bk], a)
                T.copy(B[i * bk, bx * bn], b)
                T.gemm(a, b, c)
            if relu:
                for y, x in T.Parallel(bm, bn):
                    c[y, x] = T.max(c[y, x], 0)
            if reads:
                for y, x in T.Parallel(bm, bn):
                    c[y, x] += C[by * bm + y, bx * bn + x]
            T.copy(c, C[by * bm, bx * bn])

    return main


def notes(program, config=None):
    ctx = context(HOPPER, config or {})
    specialize_warps(program, ctx)
    return [n.text for n in ctx.notes if n.subject == SUBJECT and "stored" in n.text]


def test_panels_between_products():
    program = gemm(512, 256, 128)
    assert notes(program) == ["c is stored while the next tile's products run"]
    found = []
    map_kernels(specialize_warps(program, context(HOPPER, {})).body, lambda kernel: (found.append(kernel), kernel.to_stmt())[1])
    order = []
    walk(found[0].body, {Call: lambda call: order.append(op_name(call).rpartition(".")[2])})
    consumer = [name for name in order if name in ("gemm", "copy", "slot_release", "mbarrier_wait")]
    # two iterations with one panel of 64 columns each, the other iterations; the result is kept; the last tile's panels
    assert consumer[:11] == [
        "mbarrier_wait", "gemm", "slot_release", "copy", "copy", "mbarrier_wait", "gemm", "slot_release", "copy", "copy", "copy",
    ]  # fmt: skip
    conditions = []
    walk(found[0].body, {IfThenElse: lambda s: conditions.append(str(s.condition))})
    assert sum("turn" in condition for condition in conditions) == 1


@pytest.mark.parametrize(("program", "reason"), [
    (lambda: gemm(512, 256, 128, dtype="float32"), "it is not half as large in the tensor as in registers"),
    (lambda: gemm(512, 256, 32), "a tile may have fewer than 2 iterations"),
    (lambda: gemm(512, 224, 128, block=(128, 32, 32)), "it is no whole fragment of panels of 128 bytes"),
    (lambda: gemm(512, 256, 128, reads=True), "the kernel uses C elsewhere"),
    (lambda: gemm(1024, 512, 128, block=(256, 256, 32)), "registers of fragments"),
])  # fmt: skip
def test_stored_at_once(program, reason):
    (told,) = notes(program())
    assert told.startswith("a result is stored before the next tile begins: ") and reason in told


def test_switched_off():
    assert notes(gemm(512, 256, 128), {KEY_OFF: True}) == []


def test_a_long_tile_is_deferred_where_the_program_asks():
    long = gemm(512, 256, 32 * (LONG_LOOP + 1))
    (told,) = notes(long)
    assert f"beside the {LONG_LOOP + 1} iterations of a tile its store is short" in told
    assert notes(long, {KEY_OFF: False}) == ["c is stored while the next tile's products run"] == notes(gemm(512, 256, 32 * LONG_LOOP))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("shape", "options"), [
    ((512, 256, 64), {}), ((500, 264, 136), {"relu": True}), ((640, 256, 96), {"panel": 2, "stages": 2}),
    ((384, 512, 128), {"dtype": "bfloat16", "block": (128, 256, 32)}), ((896, 128, 64), {}),
])  # fmt: skip
def test_products(shape, options, seed):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    program = gemm(m, n, k, **options)
    assert notes(program) == ["c is stored while the next tile's products run"]
    got = np.full((m, n), np.nan, ml_dtypes.bfloat16 if options.get("dtype") == "bfloat16" else np.float16)
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(a, b, got)
    want = a.astype(np.float64) @ b.astype(np.float64)
    want = np.maximum(want, 0) if options.get("relu") else want
    assert np.allclose(got.astype(np.float64), want, rtol=1e-2, atol=1e-2)

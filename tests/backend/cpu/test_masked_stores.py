"""Masked stores of one lane: their text is rewritten, and guarded loops of small integers are right on processors with AVX-512."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cpu.machine import machine_of
from tilelang.backend.cpu.masked_stores import mend
from tilelang.backend.llvm import host_cpu
from tilelang.knobs import knobs


def store(mask: str, kind: str = "i16", value: str = "%86") -> str:
    """A masked store as LLVM prints it; the mask as ones and zeros."""
    lanes = ", ".join("i1 true" if bit == "1" else "i1 false" for bit in mask)
    n = len(mask)
    return (
        f"  call void @llvm.masked.store.v{n}{kind}.p0(<{n} x {kind}> {value}, ptr align 16 %78, <{n} x i1> <{lanes}>), !dbg !47, !tbaa !48"
    )


def test_a_single_lane_becomes_a_scalar_store():
    want = [
        "  %tl.lane0 = extractelement <8 x i16> %86, i64 3",
        "  %tl.lane0.at = getelementptr i8, ptr %78, i64 6",
        "  store i16 %tl.lane0, ptr %tl.lane0.at, align 2, !dbg !47, !tbaa !48",
    ]
    assert mend(store("00010000")) == "\n".join(want)


def test_a_lane_alone_in_one_half_leaves_the_rest_masked():
    lines = mend("x\n" + store("1" * 17 + "0" * 15) + "\ny").split("\n")
    assert lines[0] == "x" and lines[-1] == "y"
    assert [line for line in lines if line.startswith("  store i16")] == [
        "  store i16 %tl.lane0, ptr %tl.lane0.at, align 16, !dbg !47, !tbaa !48"
    ]
    assert lines[-2] == store("1" * 16 + "0" * 16)


@pytest.mark.parametrize("text", [store("1" * 16), store("11000000"), store("1" * 8, value="zeroinitializer"), "  store i16 %1, ptr %2"])
def test_other_text_stays(text):
    assert mend(text) == text


def test_a_name_is_made_once():
    text = mend("\n".join([store("0100"), store("0001")]))
    assert sorted(re.findall(r"(%tl\.lane\d+) =", text)) == ["%tl.lane0", "%tl.lane1"]


@pytest.mark.skipif(machine_of(host_cpu()).vector_bits < 512, reason="code for AVX-512 does not run here")
@pytest.mark.parametrize("cpu", ["skylake-avx512", "sapphirerapids", "znver4"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_the_element_after_a_guarded_loop_is_kept(cpu, dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), O: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), dtype)
            T.copy(A, tile)
            for i in T.Parallel(64):
                if i < 17:
                    tile[i] = T.max(tile[i] + i % 8, 5)
            T.copy(tile, O)

    a = np.random.default_rng(0).integers(-100, 100, 64).astype(dtype)
    want = a.copy()
    want[:17] = np.maximum(a[:17] + np.arange(17) % 8, 5)
    got = np.zeros_like(a)
    with knobs.scoped(cpu=cpu, disable_cache=True):
        tilelang.compile(main, target="cpu")(a, got)
    assert np.array_equal(got, want)

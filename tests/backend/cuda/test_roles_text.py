"""Descriptors of products in parts of a block: they follow the warpgroups of the part that is printed."""

import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import toolchain

pytestmark = pytest.mark.skipif(not toolchain.available(), reason="needs NVRTC or nvcc")


def parts(order):
    """Products of group 1, and of groups 2 and 3 by columns of B. order: of the two parts."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=512):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            T.copy(A, a)
            T.copy(B, b)
            for part in order:
                if part == "one":
                    with T.ws(1):
                        one = T.alloc_fragment((64, 64), "float32")
                        T.gemm(a, b[0:64, 0:64], one, clear_accum=True)
                        T.copy(one, C[0, 0])
                else:
                    with T.ws(2, 3):
                        two = T.alloc_fragment((64, 128), "float32")
                        T.gemm(a, b, two, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
                        T.copy(two, C[0, 0])

    return main


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one"), ("one", "one", "two")])
def test_columns_of_b_belong_to_a_warpgroup(order):
    """64 columns are a panel of 8 KiB: 512 units of 16 bytes for each warpgroup, the first of which is number 2."""
    text = tilelang.compile(parts(order), target="cuda -arch=sm_90a").get_kernel_source()
    found = re.findall(r"wgmma_m64n64k16_f32_f16_f16_k_mn\(&(\w+)\[0\].*?, tl::matrix<\d+, \d+, \d+>\(([^;]*)\), !\(", text)
    assert found
    for accumulator, place in found:
        assert ("warpgroup * 512" in place and "- 1024" in place.replace("+ -1024", "- 1024")) == accumulator.startswith("two"), place

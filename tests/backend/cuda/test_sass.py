"""Hopper kernels as machine code: the examples' products and attention hold the instructions that make them fast, and none that would
make them slow. Compiled and read without a GPU."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

import tilelang
from tilelang.backend.cuda import toolchain

from . import sass

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FAST = {"tl.enable_fast_math": True}
GEMM = {"M": 4096, "N": 4096, "K": 4096}
FP8 = {**GEMM, "transpose_B": True, "block_K": 128, "dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
ATTENTION = {"batch": 4, "heads": 32, "kv_heads": 32, "seq_q": 4096, "seq_kv": 4096}
THREE = {"block_M": 192, "threads": 384}  # warpgroups of 64 rows
# module and function, arguments, instruction of the products
PROGRAMS = {
    "gemm NN": ("gemm", {**GEMM, "dtype": "float16"}, "HGMMA"),
    "gemm NT": ("gemm", {**GEMM, "dtype": "bfloat16", "transpose_B": True}, "HGMMA"),
    "gemm of one warpgroup": ("gemm", {**GEMM, "dtype": "bfloat16", "block_M": 64, "block_N": 128, "stages": 6, "threads": 128}, "HGMMA"),
    "gemm of float8": ("gemm", FP8, "QGMMA"),
    "gemm of float8 with scales": ("gemm_fp8", {"M": 8192, "N": 8192, "K": 8192}, "QGMMA"),
    "gemm of unpacked int4": ("dequantize_gemm_w4a16", {**GEMM, "fmt": "int4"}, "HGMMA"),
    "gemm of unpacked fp4": ("dequantize_gemm_w4a16", {**GEMM, "fmt": "fp4"}, "HGMMA"),
    "attention, full": ("flash_attention", {**ATTENTION, **THREE, "block_N": 80, "dim": 128, "causal": False}, "HGMMA"),
    "attention, causal": ("flash_attention", {**ATTENTION, **THREE, "block_N": 80, "dim": 128, "causal": True}, "HGMMA"),
    "attention, head size 64": ("flash_attention", {**ATTENTION, **THREE, "block_N": 128, "dim": 64, "causal": False}, "HGMMA"),
    "attention, two warpgroups": (
        "flash_attention",
        {**ATTENTION, "block_M": 128, "block_N": 128, "threads": 256, "dim": 128, "causal": True, "dtype": "bfloat16"},
        "HGMMA",
    ),
    "4-bit weights": ("dequantize_gemm_w4a16", GEMM, "HGMMA"),
}
pytestmark = pytest.mark.skipif(
    not toolchain.available() or sass.disassembler() is None,
    reason="needs a CUDA compiler (pip install 'tilelang[cuda]', or nvcc) and nvdisasm (pip install nvidia-cuda-nvdisasm)",
)


def cubin_of(module, arguments, arch="sm_90a"):
    spec = importlib.util.spec_from_file_location(f"sass_{module}", EXAMPLES / f"{module}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    kernel = tilelang.compile(getattr(loaded, module)(**arguments), target=f"cuda -arch={arch}", pass_configs=FAST)
    return kernel.artifact.entry.cubin(arch)


def opcodes(cubin):
    """How often each instruction occurs, without its modifiers."""
    return Counter(text.partition(".")[0] for text in sass.instructions(cubin.data))


@pytest.mark.parametrize("name", PROGRAMS)
def test_hopper_kernel(name):
    module, arguments, product = PROGRAMS[name]
    cubin = cubin_of(module, arguments)
    found = opcodes(cubin)
    assert found[product], "products are warpgroup products"
    assert not found["HMMA"] and not found["QMMA"], "no product is left to single warps"
    assert found["UTMALDG"], "tiles come by TMA"
    assert found["UTMASTG"], "results leave by TMA"
    assert found["SYNCS"], "rings of mbarriers"
    assert not found["LDGSTS"], "no copy by threads"
    assert found["USETMAXREG"] >= 2 or arguments.get("threads") == 128, "producer and consumers share the registers unevenly"
    assert not found["LDL"] and not found["STL"], "no register is spilled"
    assert not any(r.spill_stores or r.spill_loads or r.local for r in cubin.reports.values())
    assert not re.search(r"\bC75\d\d\b", cubin.log), "the assembler takes no products one by one (C7510 and kin)"


def test_what_is_asserted_can_fail():
    """The same product on an architecture without these instructions has none of them."""
    module, arguments, _ = PROGRAMS["gemm NN"]
    found = opcodes(cubin_of(module, {**arguments, "block_N": 128, "stages": 3}, "sm_80"))
    assert found["HMMA"] and found["LDGSTS"] and found["LDSM"]
    assert not any(found[name] for name in ("HGMMA", "UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG"))

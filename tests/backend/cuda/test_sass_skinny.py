"""GEMV and products of few rows as machine code: all reads of weights are of 16 bytes and on the way together, each warp multiplies its own
part of K, weights of 4 bits become floats without conversions, and nothing spills. Compiled and read without a GPU."""

import importlib.util
from pathlib import Path

import pytest

import tilelang
from tilelang.backend.cuda import toolchain

from . import sass

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SQUARE = {"N": 4096, "K": 4096, "dtype": "bfloat16"}
FEW = {"M": 16, **SQUARE}
ASYNCHRONOUS = {"tl.disable_warp_specialized": True}
pytestmark = pytest.mark.skipif(
    not toolchain.available() or sass.disassembler() is None,
    reason="needs a CUDA compiler (pip install 'tilelang[cuda]', or nvcc) and nvdisasm (pip install nvidia-cuda-nvdisasm)",
)


def machine_code(module, name, config=None, **arguments):
    spec = importlib.util.spec_from_file_location(f"sass_{module}", EXAMPLES / f"{module}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    kernel = tilelang.compile(getattr(loaded, name)(**arguments), target="cuda -arch=sm_90a", pass_configs=config)
    return kernel.artifact.entry.cubin("sm_90a").data


def listing(*program, **arguments):
    """The disassembler's text."""
    return sass.listing(machine_code(*program, **arguments))


def instructions(*program, **arguments):
    """The kernel's instructions with their modifiers, in order; none of them spills."""
    found = list(sass.instructions(machine_code(*program, **arguments)))
    assert not [text for text in found if text.startswith(("LDL", "STL"))]
    return found


def count(found, *starts):
    return sum(text.startswith(starts) for text in found)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_vector(rows):
    found = instructions("gemv", "gemv", rows=rows, threads=512, **SQUARE)
    reads = [k for k, text in enumerate(found) if text.startswith("LDG.E.128")]
    assert len(reads) == rows + 1 and count(found, "LDG") == len(reads)  # 8 elements a thread of each row, and of x
    first = next(k for k, text in enumerate(found) if text.startswith(("FFMA", "FMUL")))
    assert sum(k < first for k in reads) >= min(rows + 1, 2)


@pytest.mark.parametrize("transposed", [True, False])
def test_few_rows(transposed):
    """256 elements of K in a step are 16 instructions deep; 8 warps take two of these each, for 4 columns of instructions."""
    found = instructions("skinny_gemm", "skinny_gemm", transposed=transposed, **FEW)
    assert count(found, "HMMA") == 8 and count(found, "LDSM") == 6
    assert count(found, "UTMALDG") == (8 if transposed else 5)  # boxes of 128 bytes by as many rows as there are; 64 bytes by 256 rows
    found = instructions("skinny_gemm", "skinny_gemm", ASYNCHRONOUS, transposed=transposed, stages=6, **FEW)
    assert count(found, "HMMA") % 8 == 0 and count(found, "LDGSTS") == count(found, "LDGSTS.E.BYPASS") > 0  # 16 bytes pass by the L1 cache


def test_parts_of_k_by_atomics():
    """16 x 64 results of 128 threads are two additions of four."""
    assert listing("skinny_gemm", "skinny_gemm_split_k", ASYNCHRONOUS, **FEW).count("REDG.E.ADD.F32x4") == 2


def test_weights_of_4_bits():
    """No conversions; each pair of weights is one packed subtraction and one packed product."""
    found = instructions("skinny_gemm", "skinny_gemm_int4", ASYNCHRONOUS, **FEW)
    pairs = 32 * 512 // 256 // 2
    assert count(found, "I2F", "F2F.") == 0
    assert count(found, "HADD2.BF16", "HFMA2.BF16") == pairs and count(found, "HMUL2.BF16") == pairs

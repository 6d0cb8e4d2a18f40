"""Machine code of kernels with five products a step, or with roles that the program gives: what `test_sass.py` asks of the others."""

import re

import pytest

from tilelang.backend.cuda import toolchain

from . import sass
from .test_sass import cubin_of, opcodes

BACKWARD = {"batch": 4, "heads": 32, "seq": 4096, "dim": 128, "stages": 3, "dtype": "bfloat16"}
pytestmark = pytest.mark.skipif(
    not toolchain.available() or sass.disassembler() is None,
    reason="needs a CUDA compiler (pip install 'tilelang[cuda]', or nvcc) and nvdisasm (pip install nvidia-cuda-nvdisasm)",
)


def check(cubin, found, products):
    """All products are warpgroup products, in flight beside each other; nothing is spilled."""
    assert found["HGMMA"] == products and not found["HMMA"]
    assert found["UTMALDG"] and found["USETMAXREG"] >= 2 and found["STSM"]
    assert not found["LDL"] and not found["STL"]
    assert not any(r.spill_stores or r.spill_loads or r.local for r in cubin.reports.values())
    assert not re.search(r"\bC75\d\d\b", cubin.log)


def test_attention_backward():
    """S, dV, dP, dK, dQ have 8, 4, 8, 4, 8 instructions; the loop is there, and its first and second half once more around it."""
    cubin = cubin_of("attention_backward", {**BACKWARD, "causal": False})
    found = opcodes(cubin)
    check(cubin, found, 2 * (8 + 4 + 8 + 4 + 8))
    assert found["UTMAREDG"], "the gradient of the queries is added by bulk copies"
    assert not found["RED"] and not found["ATOMG"]
    in_flight = [int(m[1], 16) for m in re.finditer(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)", sass.listing(cubin.data))]
    assert in_flight.count(1) >= 3, "products of one half run while the other half's are waited for"


def test_latent_attention_with_roles():
    """For each block of keys 4 + 4 * 8 instructions of scores, 2 * 4 of values."""
    cubin = cubin_of("mla_decode_roles", {"batch": 128, "heads": 128, "seq": 4096})
    found = opcodes(cubin)
    check(cubin, found, 36 + 8)

"""Every example as machine code for sm_80 and sm_90a, without a GPU: what the assembler says of registers, spills and shared memory."""

import importlib.util
import sys
from pathlib import Path

import pytest

import tilelang
from tilelang.backend.cuda import toolchain

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
BLOCK_BYTES = {"sm_80": 166912, "sm_90a": 232448}  # of shared memory, at most
HOPPER = {"mla_decode_roles"}  # more shared memory than an earlier device has
SPILLED = 160  # bytes of a thread, at most: an unrolled gather such as the one of the convolution takes every register
MINILM = {
    "embedding": (30522, 512, 384, 1e-12), "linear": (384, 1536, True), "attention": (12, 32), "add_layernorm": (384, 1e-12),
    "mean_pool": (384,),
}  # fmt: skip
pytestmark = pytest.mark.skipif(
    not toolchain.available(), reason="needs a CUDA compiler: pip install 'tilelang[cuda]' for NVRTC, or nvcc on the PATH"
)


class CompiledError(Exception):
    """The example has got as far as compiling its program."""


def load(path):
    spec = importlib.util.spec_from_file_location(f"cuda_example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(func, arch):
    """Compile a program; every kernel of it keeps to what a thread and a block may have, and spills next to nothing."""
    entry = tilelang.compile.original(func, target=f"cuda -arch={arch}").artifact.entry
    reports = entry.cubin(arch).reports
    for kernel in entry.program.kernels:
        report = reports[kernel.name]
        assert 0 < report.registers <= 255, kernel.name
        assert report.registers * kernel.block[0] * kernel.block[1] * kernel.block[2] <= 65536, kernel.name  # of a multiprocessor
        assert max(report.spill_stores, report.spill_loads) <= SPILLED, kernel.name
        assert report.shared + kernel.shared <= BLOCK_BYTES[arch], kernel.name


@pytest.fixture
def programs(monkeypatch):
    """Instead of compiling and running, examples hand over the program; what they do after that is no matter here."""
    found = []

    def take(func, **options):
        found.append(func)
        raise CompiledError

    take.original = tilelang.compile
    monkeypatch.setattr(tilelang, "compile", take)
    monkeypatch.setattr(tilelang, "jit", lambda **options: lambda factory: lambda *args, **kwargs: take(factory(*args, **kwargs)))
    return found


@pytest.mark.parametrize(("name", "arch"), [(n, a) for n in NAMES for a in BLOCK_BYTES if n not in HOPPER or a == "sm_90a"])
def test_example(name, arch, programs):
    with pytest.raises(CompiledError):
        load(EXAMPLES / f"{name}.py").main()
    check(programs[0], arch)


@pytest.mark.parametrize("arch", BLOCK_BYTES)
@pytest.mark.parametrize("name", MINILM)
def test_minilm(name, arch, programs, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "minilm"))
    try:
        check(getattr(importlib.import_module("kernels"), name)(*MINILM[name]), arch)
    finally:
        sys.modules.pop("kernels", None)

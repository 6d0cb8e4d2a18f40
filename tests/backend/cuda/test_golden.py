"""The printed text of a fixed set of programs, kept under `golden/`, and what the assembler makes of it.

A difference is no error by itself: read it, and if it is what you want, write the texts anew with
`pytest tests/backend/cuda/test_golden.py --update-goldens`.
"""

import difflib
import functools
import itertools
import re
from pathlib import Path

import pytest

import tilelang
from tilelang.backend.cuda import toolchain

from .golden_programs import PROGRAMS

GOLDEN = Path(__file__).parent / "golden"
ARCHITECTURES = ["sm_80", "sm_90a"]
REGISTERS = 255  # of one thread, at most
needs_compiler = pytest.mark.skipif(
    not toolchain.available(), reason="needs a CUDA compiler: pip install 'tilelang[cuda]' for NVRTC, or nvcc on the PATH"
)


@functools.cache
def launcher(name, arch):
    return tilelang.compile(PROGRAMS[name](), target=f"cuda -arch={arch}").artifact.entry


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name, arch, pytestconfig):
    text = launcher(name, arch).program.text
    path = GOLDEN / arch / f"{name}.cu"
    if pytestconfig.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    known = path.read_text() if path.exists() else ""
    difference = "\n".join(difflib.unified_diff(known.splitlines(), text.splitlines(), str(path), "printed now", lineterm="", n=1))
    assert not difference, f"{difference}\nif this is wanted: pytest {Path(__file__).name} --update-goldens"


def test_every_text_has_its_program():
    kept = {str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.cu")}
    assert kept == {f"{arch}/{name}" for arch in ARCHITECTURES for name in PROGRAMS}


@needs_compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_spilled(name, arch):
    entry = launcher(name, arch)
    (kernel,) = entry.program.kernels
    report = entry.cubin(arch).reports[kernel.name]
    assert 0 < report.registers <= REGISTERS
    assert (report.spill_stores, report.spill_loads, report.local) == (0, 0, 0)
    assert report.shared + kernel.shared <= 232448 if arch == "sm_90a" else 166912  # bytes of a block


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_what_a_person_would_write(name, arch):
    """No unused names, one comment for a run of lines, no loops of one turn, no arithmetic on constants."""
    text = launcher(name, arch).program.text
    body = text[text.index('extern "C"') :]
    lines = body.splitlines()
    for match in re.finditer(r"^ +const \w+\*? (?:const )?(\w+) = ", body, re.MULTILINE):
        assert len(re.findall(rf"\b{match[1]}\b", body)) > 1, match[0]
    comments = [line.strip() for line in lines if line.strip().startswith("// ")]
    assert all(a != b for a, b in itertools.pairwise(comments)), "the same comment twice in a row"
    assert all(re.fullmatch(r"// golden_programs\.py:\d+", c) for c in comments)
    assert not re.search(r"< 1; \+\+|\+ 0\b|\* 1\b|(?<![*/%] )(?<![\w.])\d+ [*/%] \d+\b|(?<![*/%+-] )(?<![\w.])\d+ [+-] \d+\b", body)

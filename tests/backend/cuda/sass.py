"""Machine code as instructions, for tests: NVIDIA's disassembler reads a cubin; no GPU is needed.

`nvdisasm` is looked for on the PATH and in the package nvidia-cuda-nvdisasm (a few megabytes).
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@functools.cache
def disassembler() -> str | None:
    """Path of nvdisasm, or None."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if Path(file).stem == "nvdisasm"), None)


def listing(cubin: bytes) -> str:
    """The disassembler's text of the code of every kernel."""
    program = disassembler()
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        return subprocess.run([program, "-c", str(path)], check=True, capture_output=True, text=True).stdout


def instructions(cubin: bytes) -> list[str]:
    """The instructions of every kernel in order, with their modifiers: "HGMMA.64x256x16.F32.BF16"."""
    return _INSTRUCTION.findall(listing(cubin))

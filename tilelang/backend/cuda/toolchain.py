"""CUDA text to machine code: NVRTC through cuda-bindings, or nvcc where that is missing. No GPU is needed.

In: source text, an architecture such as "sm_90a", flags. Out: `Cubin` with the bytes and what the assembler reports of each kernel:
registers, spilled bytes, shared bytes.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InternalError, TileNotSupportedError, TileRuntimeError, TileValueError
from ...knobs import knobs

HEADERS = Path(__file__).parent / "header"


@dataclass(frozen=True)
class KernelReport:
    """What the assembler says of one kernel: registers of a thread, bytes spilled (stores and loads), static shared bytes of a block,
    bytes of a thread's local memory (its stack frame)."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    local: int = 0


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture. log: the compiler's text. reports: by kernel name."""

    arch: str
    data: bytes
    log: str = ""
    reports: dict[str, KernelReport] = field(default_factory=dict)


def checked_arch(arch: str) -> str:
    """An architecture as the user names it: "sm_90a", "90a" or "compute_90"."""
    text = arch.removeprefix("sm_").removeprefix("compute_")
    if not re.fullmatch(r"\d{2,3}[af]?", text):
        raise TileValueError(f"architecture {arch!r}", remedy='use a name such as "sm_80" or "sm_90a"')
    if int(text.rstrip("af")) < 80:
        raise TileValueError(f"architecture {arch!r} is older than sm_80, the oldest one with asynchronous copies and bfloat16")
    return f"sm_{text}"


@functools.cache
def header_texts() -> tuple[tuple[str, bytes], ...]:
    """The device headers: (name for #include, text)."""
    return tuple((f"tilelang/{p.name}", p.read_bytes()) for p in sorted(HEADERS.glob("*.cuh")))


@functools.cache
def header_fingerprint() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, text in header_texts():
        digest.update(name.encode() + text)
    return digest.hexdigest()


@functools.cache
def nvrtc() -> Any:
    """The bindings of NVRTC, or None if they or the library are missing."""
    try:
        from cuda.bindings import nvrtc as bindings  # noqa: PLC0415 (optional)  # pyright: ignore

        status, *_ = bindings.nvrtcVersion()
    except Exception:  # the bindings raise their own classes when the library is not found
        return None
    return bindings if int(status) == 0 else None


@functools.cache
def nvcc() -> str | None:
    """Path of the nvcc compiler, or None."""
    return shutil.which("nvcc") or shutil.which("nvcc", path=str(knobs.cuda_home / "bin"))


def available() -> bool:
    """Can this machine compile CUDA text?"""
    return nvrtc() is not None or nvcc() is not None


def version() -> str:
    """The compiler, for cache keys."""
    bindings = nvrtc()
    if bindings is not None:
        _, major, minor = bindings.nvrtcVersion()
        return f"nvrtc-{major}.{minor}"
    return f"nvcc-{_nvcc_version()}" if nvcc() else "none"


@functools.cache
def _nvcc_version() -> str:
    done = subprocess.run([str(nvcc()), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"release ([\d.]+)", done.stdout)
    return found.group(1) if found else "unknown"


@functools.cache
def include_folders() -> tuple[str, ...]:
    """Folders of CUDA's own headers, for sources that the user brings."""
    folder = knobs.cuda_home / "include"
    return (str(folder),) if folder.is_dir() else ()


def compile_source(text: str, arch: str, flags: Sequence[str] = (), name: str = "kernel") -> Cubin:
    """Machine code of `text`. Raises TileNotSupportedError where no compiler is installed, InternalError for text it refuses."""
    options = ["-std=c++17", "-lineinfo", *flags]
    if nvrtc() is not None:
        return _with_nvrtc(text, arch, options, name)
    if nvcc() is not None:
        return _with_nvcc(text, arch, options, name)
    raise TileNotSupportedError(
        "no CUDA compiler on this machine: neither NVRTC (package nvidia-cuda-nvrtc with cuda-bindings) nor nvcc",
        remedy="pip install 'tilelang[cuda]', or put nvcc on the PATH",
    )


def _with_nvrtc(text: str, arch: str, options: list[str], name: str) -> Cubin:
    bindings = nvrtc()
    headers = header_texts()
    program = _checked(bindings.nvrtcCreateProgram(
        text.encode(), f"{name}.cu".encode(), len(headers), [t for _, t in headers], [n.encode() for n, _ in headers]
    ))  # fmt: skip
    try:
        command = [f"--gpu-architecture={arch}", *options, "--ptxas-options=-v", *_no_cache(), *(f"-I{f}" for f in include_folders())]
        status, *_ = bindings.nvrtcCompileProgram(program, len(command), [c.encode() for c in command])
        log = _text(bindings.nvrtcGetProgramLogSize, bindings.nvrtcGetProgramLog, program)
        if int(status) != 0:
            raise _refused(name, arch, text, log)
        data = _bytes(bindings.nvrtcGetCUBINSize, bindings.nvrtcGetCUBIN, program)
    finally:
        bindings.nvrtcDestroyProgram(program)
    return Cubin(arch, data, log, reports_of(log))


@functools.cache
def _no_cache() -> tuple[str, ...]:
    """NVRTC keeps machine code on disk where a driver is installed, from 12.9 on, and gives it back without the assembler's report.
    Our own cache keeps both."""
    _, major, minor = nvrtc().nvrtcVersion()
    return ("--no-cache",) if (int(major), int(minor)) >= (12, 9) else ()


def _checked(result: Any) -> Any:
    status, *values = result
    if int(status) != 0:
        raise TileRuntimeError(f"NVRTC: {status}")
    return values[0] if values else None


def _bytes(size_of: Any, get: Any, program: Any) -> bytes:
    buffer = b" " * _checked(size_of(program))
    _checked(get(program, buffer))
    return buffer


def _text(size_of: Any, get: Any, program: Any) -> str:
    return _bytes(size_of, get, program).rstrip(b"\0 ").decode(errors="replace")


def _with_nvcc(text: str, arch: str, options: list[str], name: str) -> Cubin:
    with tempfile.TemporaryDirectory(prefix="tilelang-") as folder:
        root = Path(folder)
        (root / "tilelang").mkdir()
        for header, content in header_texts():
            (root / header).write_bytes(content)
        (root / f"{name}.cu").write_text(text, encoding="utf-8")
        target = root / f"{name}.cubin"
        source = str(root / f"{name}.cu")
        command = [str(nvcc()), "-cubin", f"-arch={arch}", *options, "-Xptxas=-v", f"-I{folder}", "-o", str(target), source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise _refused(name, arch, text, log)
        return Cubin(arch, target.read_bytes(), log, reports_of(log))


def _refused(name: str, arch: str, text: str, log: str) -> InternalError:
    first = re.search(r"\.cu\((\d+)\): error", log)
    lines = text.splitlines()
    at = int(first.group(1)) if first else 0
    around = "\n".join(f"{k + 1:5d} {lines[k]}" for k in range(max(0, at - 3), min(len(lines), at + 2))) if at else ""
    return InternalError(f"the CUDA compiler refused the text of {name} for {arch}:\n{log.strip()}\n{around}")


def reports_of(log: str) -> dict[str, KernelReport]:
    """The assembler's report by kernel name."""
    reports: dict[str, KernelReport] = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.partition("'")[0]

        def number(pattern: str, where: str = part) -> int:
            found = re.search(pattern, where)
            return int(found.group(1)) if found else 0

        reports[name] = KernelReport(
            number(r"Used (\d+) registers"), number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes spill loads"),
            number(r"(\d+) bytes smem"), number(r"(\d+) bytes stack frame"),
        )  # fmt: skip
    return reports

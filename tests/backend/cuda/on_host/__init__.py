"""The printed CUDA text, run by the processor: what a GPU would do with it, on a machine that has none.

In: a tile program and NumPy arrays. The text is compiled by the host's C++ compiler over the stand-ins of this folder (threads
as coroutines, intrinsics, PTX); matrix instructions run their records' NumPy models. Variables that the program does not set hold
a pattern, so that reading one shows. Not modelled: asynchrony of copies, which the emulator checks.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.backend.cuda.program import KernelFacts, print_kernel, source_text
from tilelang.backend.cuda.toolchain import header_texts
from tilelang.backend.gpu.instr import INSTRUCTIONS, SHARED
from tilelang.compiler.compile import lower_to
from tilelang.ir.dtype_table import numpy_type
from tilelang.ir.kernel import KernelRegion, map_kernels
from tilelang.ir.rewrite import substitute
from tilelang.ir.tvm_api import Analyzer, PrimFunc, Stmt, Var, const, dtype_of, is_buffer
from tilelang.target.target import parse_target

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
FLAGS = ["-std=c++17", "-O1", "-w", "-fPIC", "-ffp-contract=off", "-ftrivial-auto-var-init=pattern"]
STAND_INS = ("ptx.cuh", "async.cuh")
_SCALARS = {
    "int": ctypes.c_int32, "float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool, "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8, "int16_t": ctypes.c_int16, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
}  # fmt: skip
_EXECUTE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def folder() -> Path:
    """The device headers with this folder's stand-ins, and the scheduler as object code."""
    root = Path(tempfile.mkdtemp(prefix="tilelang_on_host_"))
    (root / "tilelang").mkdir()
    for name, text in header_texts():
        own = HERE / Path(name).name
        (root / name).write_bytes(own.read_bytes() if own.name in STAND_INS else text)
    _compile(["-c", str(HERE / "scheduler.cpp"), "-o", str(root / "scheduler.o")])
    return root


def _compile(arguments: list[str]) -> None:
    assert COMPILER is not None
    done = subprocess.run([COMPILER, *FLAGS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def library(text: str, *flags: str) -> ctypes.CDLL:
    """C++ text over the device headers, as a library. The text may define functions of C linkage."""
    root = folder()
    name = hashlib.blake2b(text.encode() + " ".join(flags).encode(), digest_size=8).hexdigest()
    target = root / f"{name}.so"
    if not target.exists():
        (root / f"{name}.cpp").write_text(text)
        include = [f"-I{root}", "-include", str(HERE / "cuda_on_host.h")]
        _compile([*flags, *include, "-shared", "-o", str(target), str(root / f"{name}.cpp"), str(root / "scheduler.o")])
    return ctypes.CDLL(str(target))


def host_text(text: str, kernels: list[KernelFacts]) -> str:
    """The device's text as a host compiler takes it: a function that calls each kernel, instructions by name."""
    text = text.replace("extern __shared__", "extern")
    for record in INSTRUCTIONS.values():
        if record.code in text:
            operands = [f"o{k}" for k in range(len(record.operands))]
            head = f"static void {record.function}({', '.join(f'const void* {o}' for o in operands)})"
            call = f'const void* all[] = {{{", ".join(operands)}}}; host_instruction("{record.name}", {len(operands)}, all);'
            text = text.replace(record.code, f"{head} {{ {call} }}\n")
    assert "asm" not in re.sub(r'"(\\.|[^"\\])*"|//.*', "", text), "the text has inline PTX that no record describes"
    starts = []
    for facts in kernels:
        values = ", ".join(f"*({kind}*)values[{k}]" for k, kind in enumerate(facts.parameters))
        starts.append(f'extern "C" void start_{facts.name}(void** values) {{ {facts.name}({values}); }}')
    return text + "\n".join(starts) + "\n"


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """A copy that begins `offset` bytes after a multiple of 256."""
    memory = np.empty(array.nbytes + 512, np.uint8)
    start = -memory.ctypes.data % 256 + offset
    result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


@dataclass(frozen=True)
class Kernel:
    """What is needed to launch a kernel. region: it as IR. arguments: variables of its parameters. library: its machine code."""

    region: KernelRegion
    arguments: tuple[Var, ...]
    facts: KernelFacts
    library: ctypes.CDLL


@functools.cache
def sanitizer() -> tuple[str, ...]:
    """Flags that make arithmetic which C++ leaves undefined write to the standard error; none where the compiler has no such library."""
    flags = ("-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero",)
    try:
        library('extern "C" int probe(int x) { return x + 1; }', *flags)
    except (AssertionError, OSError):
        return ()
    return flags


def run(func: Any, *args: Any, careful: bool = False, flags: tuple[str, ...] = ()) -> None:
    """Compile a tile program for CUDA and run its text on NumPy arrays, in place. careful: the text for tensors at odd addresses."""
    final = lower_to(func, parse_target("cuda -arch=sm_80"), {}, "relax_waits")
    values: dict[Var, Any] = {}
    for var, given in zip(final.params, args, strict=True):
        values[var] = given
        for extent, size in zip(var.ty.shape, given.shape, strict=True) if is_buffer(var) else ():
            if isinstance(extent, Var):
                values[extent] = size
    for kernel in compiled(final, careful, flags):
        _launch(kernel, values)


def compiled(func: PrimFunc, careful: bool, flags: tuple[str, ...]) -> list[Kernel]:
    """The kernels of a final program as machine code of the host."""
    regions: list[KernelRegion] = []

    def note(region: KernelRegion) -> Stmt:
        regions.append(region)
        return region.to_stmt()

    map_kernels(func.body, note)
    order = {var: k for k, var in enumerate(func.params)}
    texts = [print_kernel(func, region, f"kernel_{k}", not careful, order) for k, region in enumerate(regions)]
    loaded = library(host_text(source_text("on the host", texts), [t.facts for t in texts]), *flags)
    loaded.host_launch.restype = ctypes.c_char_p
    return [Kernel(region, t.arguments, t.facts, loaded) for region, t in zip(regions, texts, strict=True)]


def _launch(kernel: Kernel, values: dict[Var, Any]) -> None:
    """Run a kernel. values: of the program's parameters; buffers that the program allocates between kernels are added."""

    def number(expr: Any) -> int:
        return int(Analyzer().simplify(substitute(expr, {v: const(n, str(v.ty.dtype)) for v, n in values.items() if isinstance(n, int)})))

    held = []
    for var, kind in zip(kernel.arguments, kernel.facts.parameters, strict=True):
        if kind.endswith("*"):
            if var not in values:  # memory of the program's own
                count = math.prod(number(e) for e in var.ty.shape)
                values[var] = np.full(count * np.dtype(numpy_type(dtype_of(var))).itemsize, 0xCB, np.uint8)
            held.append(ctypes.c_void_p(values[var].ctypes.data))
        else:
            held.append(_SCALARS[kind](values[var]))
    pointers = (ctypes.c_void_p * max(1, len(held)))(*[ctypes.addressof(h) for h in held])
    grid = [number(extent) for _, extent in kernel.region.blocks]
    shape = (ctypes.c_uint * 6)(*grid, *[1] * (3 - len(grid)), *kernel.facts.block)
    raised: list[BaseException] = []

    def execute(name: bytes, count: int, operands: Any) -> None:
        try:
            _instruction(name.decode(), [[operands[k * 32 + lane] for lane in range(32)] for k in range(count)])
        except BaseException as err:  # a callback cannot raise through C
            raised.append(err)

    failure = kernel.library.host_launch(getattr(kernel.library, f"start_{kernel.facts.name}"), pointers, shape, _EXECUTE(execute))
    if raised:
        raise raised[0]
    if failure:
        raise RuntimeError(f"{kernel.facts.name}: {failure.decode()}")


def _instruction(name: str, operands: list[list[int]]) -> None:
    """One matrix instruction of a warp: its record's model on what the lanes' addresses hold."""
    record = INSTRUCTIONS[name]
    memory, values = [], []
    for operand, addresses in zip(record.operands, operands, strict=True):
        kind = np.dtype(np.uint8) if operand.dtype is None else np.dtype(numpy_type(operand.dtype))
        lanes = operand.lanes if operand.memory == SHARED else 32
        held = [np.ctypeslib.as_array((ctypes.c_uint8 * operand.bytes).from_address(a)).view(kind) for a in addresses[:lanes]]
        memory.append(held)
        values.append(np.stack([*held, *[np.zeros_like(held[0])] * (32 - lanes)], axis=-1))
    results = iter(record.model(*values))
    for operand, held in zip(record.operands, memory, strict=True):
        if operand.role in "wu":
            result = next(results)
            for lane, target in enumerate(held):
                target[...] = result[..., lane]

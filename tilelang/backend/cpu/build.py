"""From plain loops to machine code: the list of TVM passes we use, LLVM, and the artifact.

In: the program after the pipeline's last stage. Out: an `Artifact` whose entry takes the arguments in parameter order.
TVM's own pipeline is not used: its software pipeliner, buffer compaction and float8 passes are wrong or not needed.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ...errors import InternalError
from ...ir.context import PassContext
from ...ir.tvm_api import IRModule, PrimFunc, tirx, tvm
from ...knobs import knobs
from ..base import Artifact
from . import masked_stores
from .machine import cpu_name
from .runtime import register_callbacks
from .threads import start_threads

_T = tirx.transform
TEXT, NAME, OBJECT = "kernel.ll", "entry.txt", "kernel.so"  # files of a saved artifact


def host_target(ctx: PassContext) -> Any:
    """TVM's target: the processor that the user named, or this machine's."""
    # Level 3 unrolls whole nests of constant loops after vectorising them: twenty times the code, no faster.
    options: dict[str, Any] = {"kind": "llvm", "mcpu": cpu_name(ctx), "opt-level": 2}
    if ctx.target.option("mtriple"):
        options["mtriple"] = ctx.target.option("mtriple")
    return _tvm_target(tuple(sorted(options.items())))


@functools.cache
def _tvm_target(options: tuple[tuple[str, Any], ...]) -> Any:
    return tvm.target.Target(dict(options))


@functools.cache
def _passes() -> tuple[Any, Any]:
    """(from buffers to packed functions, from packed functions to what LLVM codegen understands)."""
    sequential = tvm.ir.transform.Sequential
    # No StmtSimplify from here on: it replaces names by their values, which is exponential, and it takes float arithmetic
    # for exact, so that the rounding by (x + 2^23) - 2^23 would vanish. LLVM simplifies what is left.
    first = sequential([
        _T.FlattenBuffer(), _T.NarrowDataType(32), _T.VectorizeLoop(True), _T.UnrollLoop(),
        _T.AnnotateEntryFunc(), _T.SplitHostDevice(), _T.MakePackedAPI(), _T.FP8StorageLegalize(), _T.BF16StorageLegalize(),
    ])  # fmt: skip
    return first, sequential([_T.LowerTVMBuiltin(), _T.LowerIntrin()])


def build(func: PrimFunc, ctx: PassContext) -> Artifact:
    """Compile for `ctx.target`. Raises InternalError with TVM's text if TVM refuses the program."""
    target = host_target(ctx)
    seconds: dict[str, float] = {}
    name = str(func.attrs["global_symbol"])
    try:
        start = time.perf_counter()
        first, second = _passes()
        module = second(first(_T.BindTarget(target.with_host(target))(IRModule({name: func}))))
        seconds["tvm"] = time.perf_counter() - start
        start = time.perf_counter()
        library = tvm.get_global_func("target.build.llvm")(module, target)
        seconds["llvm"] = time.perf_counter() - start
    except Exception as error:  # every class of TVM error is our bug here
        raise InternalError(f"TVM refused {name} in the last step: {error}") from error
    start = time.perf_counter()
    written = str(library.inspect_source("ll"))
    text = masked_stores.mend(written)
    with tempfile.TemporaryDirectory(prefix="tilelang-", dir=knobs.tmp_dir) as folder:
        if text != written:
            Path(folder, TEXT).write_text(text, encoding="utf-8")
            library = tvm.runtime.load_module(str(Path(folder, TEXT)))
        library, shared = _linked(library, Path(folder, OBJECT))
    seconds["link"] = time.perf_counter() - start
    return _artifact(library, name, ctx, seconds, text, shared)


def _artifact(library: Any, name: str, ctx: PassContext, seconds: dict[str, float], text: str, shared: bytes) -> Artifact:
    """shared: the file of the shared object, empty if there is none."""
    start = time.perf_counter()
    start_threads()
    register_callbacks()
    entry = library[name]  # TVM compiles LLVM text here, if there is no shared object
    seconds["entry"] = time.perf_counter() - start

    def save(folder: Any) -> None:
        Path(folder, TEXT).write_text(text, encoding="utf-8")
        Path(folder, NAME).write_text(name, encoding="utf-8")
        if shared:
            Path(folder, OBJECT).write_bytes(shared)

    return Artifact(entry=entry, source=text, notes=tuple(ctx.notes), seconds=seconds, save=save)


def _linked(library: Any, target: Path) -> tuple[Any, bytes]:
    """The module as a shared object made in the file `target`, and the content of the file: made once, it serves this process
    and, from the cache, the next one. Where there is no linker, or nothing may be loaded from there: the module itself."""
    linker = shutil.which("ld") if sys.platform.startswith("linux") else None
    if linker is None:
        return library, b""
    machine_code = target.with_suffix(".o")
    library.write_to_file(str(machine_code), "o")
    done = subprocess.run([linker, "-shared", "-o", str(target), str(machine_code)], capture_output=True, check=False)
    if done.returncode != 0:
        return library, b""
    try:
        return tvm.runtime.load_module(str(target)), target.read_bytes()
    except Exception:  # e.g. a folder from which nothing may be executed; what is wrong with the module, compiling it tells
        return library, b""


def load(folder: Any, ctx: PassContext) -> Artifact:
    """The artifact that `save` wrote into `folder`."""
    name = Path(folder, NAME).read_text(encoding="utf-8")
    text = Path(folder, TEXT).read_text(encoding="utf-8")
    start = time.perf_counter()
    compiled = Path(folder, OBJECT)
    shared = compiled.read_bytes() if compiled.exists() else b""
    library = tvm.runtime.load_module(str(compiled if shared else Path(folder, TEXT)))
    return _artifact(library, name, ctx, {"load": time.perf_counter() - start}, text, shared)


def version(ctx: PassContext) -> str:
    """What the generated code depends on besides the program: TVM, LLVM, the processor."""
    llvm = tvm.get_global_func("target.llvm_version_major")()
    return f"cpu-2 tvm-{tvm.__version__} llvm-{llvm} {host_target(ctx)}"

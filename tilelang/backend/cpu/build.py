"""From plain loops to machine code: the list of TVM passes we use, LLVM, and the artifact.

In: the program after the pipeline's last stage. Out: an `Artifact` whose entry takes the arguments in parameter order.
TVM's own pipeline is not used: its software pipeliner, buffer compaction and float8 passes are wrong or not needed.
"""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path
from typing import Any

from ...errors import InternalError
from ...ir.context import PassContext
from ...ir.tvm_api import IRModule, PrimFunc, tirx, tvm
from ...knobs import knobs
from ..base import Artifact
from ..llvm import linked, llvm_target, llvm_version, load_module, machine_code
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
    return llvm_target(tuple(sorted(options.items())))


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
        library = machine_code(module, target)
        seconds["llvm"] = time.perf_counter() - start
    except Exception as error:  # every class of TVM error is our bug here
        raise InternalError(f"TVM refused {name} in the last step: {error}") from error
    start = time.perf_counter()
    written = str(library.inspect_source("ll"))
    text = masked_stores.mend(written)
    with tempfile.TemporaryDirectory(prefix="tilelang-", dir=knobs.tmp_dir) as folder:
        if text != written:
            Path(folder, TEXT).write_text(text, encoding="utf-8")
            library = load_module(Path(folder, TEXT))
        library, shared = linked(library, Path(folder, OBJECT))
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


def load(folder: Any, ctx: PassContext) -> Artifact:
    """The artifact that `save` wrote into `folder`."""
    name = Path(folder, NAME).read_text(encoding="utf-8")
    text = Path(folder, TEXT).read_text(encoding="utf-8")
    start = time.perf_counter()
    compiled = Path(folder, OBJECT)
    shared = compiled.read_bytes() if compiled.exists() else b""
    library = load_module(compiled if shared else Path(folder, TEXT))
    return _artifact(library, name, ctx, {"load": time.perf_counter() - start}, text, shared)


def version(ctx: PassContext) -> str:
    """What the generated code depends on besides the program: TVM, LLVM, the processor."""
    return f"cpu-2 {llvm_version()} {host_target(ctx)}"

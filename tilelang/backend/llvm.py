"""What backends share of LLVM as TVM brings it: this processor, targets, modules as shared objects.

In: functions that TVM's code generator understands. Out: modules whose functions can be called.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..ir.tvm_api import tvm
from ..knobs import knobs


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this processor."""
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


@functools.cache
def llvm_target(options: tuple[tuple[str, Any], ...]) -> Any:
    """TVM's target with these options, given as sorted (key, value) pairs."""
    return tvm.target.Target(dict(options))


def machine_code(module: Any, target: Any) -> Any:
    """The module of an `IRModule` whose functions are lowered to what LLVM's code generator takes."""
    return tvm.get_global_func("target.build.llvm")(module, target)


def llvm_version() -> str:
    """TVM and LLVM, for cache keys."""
    return f"tvm-{tvm.__version__} llvm-{tvm.get_global_func('target.llvm_version_major')()}"


def load_module(file: Path) -> Any:
    """A module from a shared object, or from LLVM text, which TVM compiles when a function of it is asked for."""
    return tvm.runtime.load_module(str(file))


def machine_of(text: str) -> str:
    """What the text of a module of TVM says of its machine and its target: data layout, triple, TVM's target with its options."""
    lines = [line for line in text.splitlines() if line.startswith("target ") or '!"tvm_target"' in line]
    flags = [line.partition(" = ")[0] for line in lines if line.startswith("!")]
    return "\n".join([*lines, f"!llvm.module.flags = !{{{', '.join(flags)}}}", ""])


def module_of_text(text: str, machine: str) -> Any:
    """A module from LLVM text without target. machine: from `machine_of`. Its packed functions are called `__tvm_ffi_NAME` in the text."""
    with tempfile.TemporaryDirectory(prefix="tilelang-", dir=knobs.tmp_dir) as folder:
        file = Path(folder, "text.ll")
        file.write_text(machine + text, encoding="utf-8")
        return load_module(file)


def linked(library: Any, target: Path) -> tuple[Any, bytes]:
    """The module as a shared object made in the file `target`, and the content of the file: made once, it serves this process
    and, from the cache, the next one. Where there is no linker, or nothing may be loaded from there: the module itself."""
    linker = shutil.which("ld") if sys.platform.startswith("linux") else None
    if linker is None:
        return library, b""
    object_file = target.with_suffix(".o")
    library.write_to_file(str(object_file), "o")
    done = subprocess.run([linker, "-shared", "-o", str(target), str(object_file)], capture_output=True, check=False)
    if done.returncode != 0:
        return library, b""
    try:
        return load_module(target), target.read_bytes()
    except Exception:  # e.g. a folder from which nothing may be executed; what is wrong with the module, compiling it tells
        return library, b""

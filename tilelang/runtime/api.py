"""`compile` and its kin: from a program to a kernel, through the cache.

In: a program and options. Out: a `JITKernel`; `lower` gives the stages' results instead.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..backend.target import resolve_target
from ..compiler.compile import compile_program
from ..errors import TileAssertionError, for_users
from ..ir.tvm_api import IRModule, PrimFunc
from ..knobs import knobs
from .cache import cached_artifact
from .cache import clear_cache as clear_artifacts
from .kernel import JITKernel
from .options import normalise_config
from .params import KernelParam
from .signature import signature_of

_kernels: dict[Any, JITKernel] = {}


@for_users
def compile(
    func: PrimFunc | None = None, out_idx: Any = None, execution_backend: str | None = None, target: Any = None, target_host: Any = None,
    verbose: bool | None = None, pass_configs: Mapping[Any, Any] | None = None, compile_flags: Any = None,
) -> JITKernel:  # fmt: skip
    """Compile a program.

    out_idx: int or list of ints; these parameters are allocated at each call and returned. target: "auto", "cpu",
    "cuda", with options as text or dict, or a TVM target. execution_backend, target_host, compile_flags: accepted, every value
    means the one launcher there is. Raises TileAssertionError (an AssertionError) if `func` is no program.
    """
    if not isinstance(func, PrimFunc):
        raise TileAssertionError(
            f"tilelang.compile needs a program, got {type(func).__name__}",
            remedy="decorate the function with @T.prim_func; a function under @tilelang.jit compiles when it is called",
        )
    start = time.perf_counter()
    machine, config = resolve_target(target), normalise_config(pass_configs)
    signature = signature_of(func, out_idx)
    key, artifact = cached_artifact(func, machine, config)
    if knobs.verbose or knobs.print_on_compilation or verbose:
        print(f"tilelang: {signature} for {machine}: {time.perf_counter() - start:.3f} s", file=sys.stderr)
    if not key:
        return JITKernel.from_artifact(func, signature, machine, config, artifact)
    return _kernels.setdefault((key, signature), JITKernel.from_artifact(func, signature, machine, config, artifact))


def cached(func: PrimFunc | None = None, out_idx: Any = None, *args: Any, **options: Any) -> JITKernel:
    """`compile` under its old name. Further positional arguments only told old caches apart: the program itself does."""
    return compile(func, out_idx, **options)


def clear_cache() -> None:
    """Forget every kept kernel: of this process, and in the cache folder."""
    _kernels.clear()
    clear_artifacts()


def par_compile(
    funcs: Sequence[PrimFunc], out_idx: Any = None, *, num_workers: int | None = None, ignore_error: bool = False, **options: Any
) -> list[JITKernel | None]:
    """Compile several programs at the same time. With `ignore_error` a program that fails gives None."""

    def one(func: PrimFunc) -> JITKernel | None:
        try:
            return compile(func, out_idx, **options)
        except Exception:
            if ignore_error:
                return None
            raise

    with ThreadPoolExecutor(num_workers or os.cpu_count() or 1) as pool:
        return list(pool.map(one, funcs))


@dataclass(frozen=True)
class LoweredProgram:
    """What `lower` returns: the generated text and the modules, under the names that programs read."""

    kernel_source: str
    host_source: str
    params: list[KernelParam]
    device_mod: IRModule
    host_mod: IRModule
    rt_mod: Any


@for_users
def lower(
    func: PrimFunc, target: Any = "auto", target_host: Any = None, runtime_only: bool = False, enable_host_codegen: bool = False,
    enable_device_compile: bool = False, pass_configs: Mapping[Any, Any] | None = None,
) -> LoweredProgram:  # fmt: skip
    """Compile without making a kernel object: source, parameters, the program as a module, the callable (`rt_mod`)."""
    if not isinstance(func, PrimFunc):
        raise TileAssertionError(
            f"tilelang.lower needs a program, got {type(func).__name__}", remedy="decorate the function with @T.prim_func"
        )
    signature = signature_of(func)
    artifact = compile_program(func, resolve_target(target), normalise_config(pass_configs))
    module = IRModule({signature.name: func})
    return LoweredProgram(
        artifact.source, artifact.host_source, [KernelParam.of(p) for p in signature.params], module, module, artifact.entry
    )

"""`@tilelang.jit`: kernels compiled when they are first called.

In: a factory that returns a program (lazy style). Out: a `JITFunction`; calling it gives the kernel, the same object for
the same arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import TileTypeError, TileValueError
from ..ir.tvm_api import PrimFunc
from .api import compile as compile_kernel
from .api import par_compile
from .kernel import JITKernel
from .memo import bind, freeze


class JITFunction:
    """A factory of programs with the options of its compilation. Called with the factory's arguments it gives the kernel."""

    def __init__(self, fn: Callable[..., Any], out_idx: Any = None, debug_root_path: Any = None, options: Mapping[str, Any] | None = None) -> None:
        self.fn = fn
        self.out_idx = out_idx
        self.debug_root_path = None if debug_root_path is None else Path(debug_root_path)
        self.options = dict(options or {})
        self._kernels: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.compile(*args, **named)

    def compile(self, *args: Any, **named: Any) -> JITKernel:
        """The kernel for these arguments of the factory."""
        arguments = bind(self.fn, args, named)
        key = freeze(arguments)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels.setdefault(key, self._compile(self.get_tir(*args, **named)))
        return kernel

    def _compile(self, program: PrimFunc) -> JITKernel:
        kernel = compile_kernel(program, out_idx=self.out_idx, **self.options)
        if self.debug_root_path is not None:
            self.debug_root_path.mkdir(parents=True, exist_ok=True)
            stem = self.debug_root_path / f"{self.fn.__name__}"
            stem.with_suffix(".kernel.txt").write_text(kernel.get_kernel_source(False))
            stem.with_suffix(".program.txt").write_text(program.script())
        return kernel

    def get_tir(self, *args: Any, **named: Any) -> PrimFunc:
        """The program for these arguments, not compiled."""
        program = self.fn(*args, **named)
        if not isinstance(program, PrimFunc):
            raise TileTypeError(
                f"{self.fn.__name__} under @tilelang.jit returned {type(program).__name__}, expected a program",
                remedy="return the function decorated with @T.prim_func",
            )
        return program

    def par_compile(self, configs: Iterable[Any], num_workers: int | None = None, ignore_error: bool = False) -> list[JITKernel | None]:
        """Kernels for several argument lists at the same time; each is a dict of named or a tuple of positional arguments."""
        programs = [self.get_tir(**c) if isinstance(c, Mapping) else self.get_tir(*c) for c in configs]
        return par_compile(programs, self.out_idx, num_workers=num_workers, ignore_error=ignore_error, **self.options)

    def get_kernel_source(self, *args: Any, **named: Any) -> str:
        """The generated text for these arguments."""
        return self.compile(*args, **named).get_kernel_source()


def jit(
    func: Callable[..., Any] | None = None, *, out_idx: Any = None, target: Any = None, target_host: Any = None,
    execution_backend: str | None = None, verbose: bool | None = None, pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: Any = None, compile_flags: Any = None,
) -> Any:  # fmt: skip
    """Decorator, with or without options (those of `tilelang.compile`). debug_root_path: a folder that receives the
    generated source and the program's text. Raises TileValueError on a program: there is nothing to call first."""
    options = dict(
        target=target, target_host=target_host, execution_backend=execution_backend, verbose=verbose, pass_configs=pass_configs, compile_flags=compile_flags,
    )

    def decorate(fn: Callable[..., Any]) -> JITFunction:
        if isinstance(fn, PrimFunc):
            raise TileValueError("@tilelang.jit on a program", remedy="decorate the function that returns the program, or use tilelang.compile(program)")
        if not callable(fn):
            raise TileTypeError(f"@tilelang.jit on a {type(fn).__name__}", remedy="decorate a function")
        return JITFunction(fn, out_idx, debug_root_path, options)

    return decorate if func is None else decorate(func)

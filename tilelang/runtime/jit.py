"""`@tilelang.jit`: kernels compiled when they are first called.

In: a factory that returns a program (lazy style), or a function that is itself the kernel (eager style). Out: a
`JITFunction`. Calling a lazy one gives the kernel, the same object for the same arguments; calling an eager one runs the
kernel that fits the actual tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import TileTypeError, TileValueError, for_users
from ..frontend.eager import EagerLayout, EagerSignature, analyse
from ..ir.tvm_api import PrimFunc
from .api import compile as compile_kernel
from .api import par_compile
from .arrays import array_info, is_array
from .kernel import JITKernel
from .memo import bind, freeze, python_signature


class JITFunction:
    """A decorated function with the options of its compilation; what the two styles have in common."""

    def __init__(self, fn: Callable[..., Any], out_idx: Any, debug_root_path: Any, options: Mapping[str, Any]) -> None:
        self.fn = fn
        self.out_idx = out_idx
        self.debug_root_path = None if debug_root_path is None else Path(debug_root_path)
        self.options = dict(options)
        self.profile: dict[str, Any] = {}  # options of tuning that the old form of the decorator takes
        self._kernels: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    def compile(self, *args: Any, **named: Any) -> JITKernel:
        """The kernel for these arguments, compiled if needed, not run."""
        raise NotImplementedError

    def get_tir(self, *args: Any, **named: Any) -> PrimFunc:
        """The program for these arguments, not compiled."""
        raise NotImplementedError

    def par_compile(self, configs: Iterable[Any], num_workers: int | None = None, ignore_error: bool = False) -> list[JITKernel | None]:
        """Kernels for several argument lists at the same time; each is a dict of named or a tuple of positional arguments."""
        programs = [self.get_tir(**c) if isinstance(c, Mapping) else self.get_tir(*c) for c in configs]
        return par_compile(programs, self.out_idx, num_workers=num_workers, ignore_error=ignore_error, **self.options)

    def get_kernel_source(self, *args: Any, **named: Any) -> str:
        """The generated text for these arguments."""
        return self.compile(*args, **named).get_kernel_source()

    def _kernel(self, key: Any, program: Callable[[], PrimFunc]) -> JITKernel:
        """The kernel remembered under `key`, else that of `program()`."""
        kernel = self._kernels.get(key)
        if kernel is None:
            made = program()
            kernel = self._kernels.setdefault(key, compile_kernel(made, out_idx=self.out_idx, **self.options))
            if self.debug_root_path is not None:
                self.debug_root_path.mkdir(parents=True, exist_ok=True)
                (self.debug_root_path / f"{self.fn.__name__}.kernel.txt").write_text(kernel.get_kernel_source(False))
                (self.debug_root_path / f"{self.fn.__name__}.program.txt").write_text(made.script())
        return kernel


class LazyFunction(JITFunction):
    """A factory of programs. Called with the factory's arguments it gives the kernel."""

    @for_users
    def __call__(self, *args: Any, **named: Any) -> JITKernel:
        return self.compile(*args, **named)

    @for_users
    def compile(self, *args: Any, **named: Any) -> JITKernel:
        return self._kernel(freeze(bind(self.fn, args, named)), lambda: self.get_tir(*args, **named))

    def get_tir(self, *args: Any, **named: Any) -> PrimFunc:
        bind(self.fn, args, named)  # a call that does not fit is named before the user's function runs
        program = self.fn(*args, **named)
        if not isinstance(program, PrimFunc):
            raise TileTypeError(
                f"{self.fn.__name__} under @tilelang.jit returned {type(program).__name__}, expected a program",
                remedy="return the function decorated with @T.prim_func",
            )
        return program


class EagerFunction(JITFunction):
    """A function that is itself the kernel. Called with tensors and compile-time values it compiles for the sizes of these
    tensors if that has not been done, runs, and returns the outputs made by `T.empty`."""

    def __init__(self, signature: EagerSignature, fn: Callable[..., Any], debug_root_path: Any, options: Mapping[str, Any]) -> None:
        super().__init__(fn, None, debug_root_path, options)
        self.signature = signature
        self._layouts: dict[Any, EagerLayout] = {}

    @for_users
    def __call__(self, *args: Any, **named: Any) -> Any:
        kernel, runtime = self.prepare(args, named)
        return kernel(*runtime)

    def prepare(self, args: Iterable[Any], named: Mapping[str, Any]) -> tuple[JITKernel, list[Any]]:
        """(the kernel for this call, its run-time arguments in order)."""
        given, consts = self._split(named)
        values = bind(self.fn, tuple(args), given)
        runtime = {name: values[name] for name in self.signature.runtime}
        statics = {name: values[name] for name in self.signature.static}
        return self._kernel_for(statics, consts, runtime), list(runtime.values())

    @for_users
    def compile(self, *args: Any, **named: Any) -> JITKernel:
        statics, consts, tensors = self._partial(args, named)
        return self._kernel_for(statics, consts, tensors)

    @for_users
    def get_tir(self, *args: Any, **named: Any) -> PrimFunc:
        statics, consts, tensors = self._partial(args, named)
        return self.signature.trace(statics, self._sizes(statics, consts, tensors))

    # ---------------------------------------------------------------- arguments
    def _split(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        """(named arguments of the function, values of `T.const` names)."""
        own = {p.name for p in self.signature.parameters}
        return {k: v for k, v in named.items() if k in own}, {k: v for k, v in named.items() if k not in own}

    def _partial(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
        """Compile-time values, constants and whatever tensors are given: for compiling without running."""
        given, consts = self._split(named)
        try:
            bound = python_signature(self.fn).bind_partial(*args, **given)
        except TypeError as error:
            raise TileTypeError(f"{self.fn.__name__}: {error}") from None
        bound.apply_defaults()
        missing = [name for name in self.signature.static if name not in bound.arguments]
        if missing:
            raise TileTypeError(f"{self.fn.__name__}: no value for {', '.join(missing)}")
        tensors = {name: bound.arguments[name] for name in self.signature.runtime if name in bound.arguments}
        return {name: bound.arguments[name] for name in self.signature.static}, consts, tensors

    def _kernel_for(self, statics: Mapping[str, Any], consts: Mapping[str, int], tensors: Mapping[str, Any]) -> JITKernel:
        sizes = self._sizes(statics, consts, tensors)
        return self._kernel((freeze(statics), tuple(sorted(sizes.items()))), lambda: self.signature.trace(statics, sizes))

    def _sizes(self, statics: Mapping[str, Any], consts: Mapping[str, int], tensors: Mapping[str, Any]) -> dict[str, int]:
        """Values of all `T.const` names."""
        frozen = freeze((statics, consts))
        layout = self._layouts.get(frozen)
        if layout is None:
            layout = self._layouts[frozen] = self.signature.probe(statics, consts)
        unknown = [name for name in consts if name not in layout.given]
        if unknown:
            raise TileTypeError(f"{self.fn.__name__}: {', '.join(unknown)} is neither a parameter nor a T.const name")
        shapes, strides = {}, {}
        for name in {place[0] for places in layout.places.values() for place in places if place[0] in tensors}:
            if not is_array(tensors[name]):
                raise TileTypeError(f"{name}: expected a tensor, got {type(tensors[name]).__name__}")
            found = array_info(tensors[name], name)
            shapes[name], strides[name] = found.shape, found.strides
        sizes = layout.read(shapes, strides)
        missing = [name for name in layout.places if name not in sizes]
        if missing:
            raise TileTypeError(
                f"{self.fn.__name__}: no value for {', '.join(missing)}", remedy="pass it by keyword, or the tensor whose size it is"
            )
        return sizes


def jit(
    func: Callable[..., Any] | None = None, *, out_idx: Any = None, target: Any = None, target_host: Any = None,
    execution_backend: str | None = None, verbose: bool | None = None, pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: Any = None, compile_flags: Any = None,
) -> Any:  # fmt: skip
    """Decorator, with or without options (those of `tilelang.compile`). debug_root_path: a folder that receives the
    generated source and the program's text. Raises TileValueError on a program: there is nothing to call first."""
    options = {
        "target": target, "target_host": target_host, "execution_backend": execution_backend, "verbose": verbose,
        "pass_configs": pass_configs, "compile_flags": compile_flags,
    }  # fmt: skip
    if func is None:
        return lambda fn: _decorated(fn, out_idx, debug_root_path, options)
    return _decorated(func, out_idx, debug_root_path, options)


def _decorated(fn: Any, out_idx: Any, debug_root_path: Any, options: Mapping[str, Any]) -> JITFunction:
    if isinstance(fn, PrimFunc):
        raise TileValueError("@tilelang.jit on a program", remedy="decorate the function that returns it, or use tilelang.compile(program)")
    if not callable(fn):
        raise TileTypeError(f"@tilelang.jit on a {type(fn).__name__}", remedy="decorate a function")
    signature = analyse(fn, depth=3)
    if signature is None:
        return LazyFunction(fn, out_idx, debug_root_path, options)
    if out_idx is not None:
        raise TileValueError(
            f"{fn.__name__} is itself a kernel and returns what it makes with T.empty; it cannot have out_idx={out_idx!r}",
            remedy="drop out_idx",
        )
    return EagerFunction(signature, fn, debug_root_path, options)

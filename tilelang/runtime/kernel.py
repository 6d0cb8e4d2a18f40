"""The kernel object: a compiled program that is called like a function.

In: a program, or an artifact with the signature of its program. Out: a `JITKernel`: checks the arguments, allocates the
outputs named by `out_idx`, runs, returns them; tells its source; can be timed and saved.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..backend.base import Artifact
from ..backend.target import resolve_target
from ..compiler.compile import compile_program
from ..compiler.memory import MemoryReport
from ..compiler.memory_report import memory_report
from ..errors import TileAssertionError, TileNotSupportedError, TileRuntimeError, TileTypeError, TileValueError, for_users
from ..ir.tvm_api import PrimFunc
from ..target.target import Target
from .arguments import prepare
from .arrays import is_torch, torch_module
from .options import normalise_config
from .params import KernelParam, TensorSupplyType
from .profiler import Profiler
from .quick import Quick, builtin_arguments, quick_call
from .signature import Signature, signature_of


class JITKernel:
    """A compiled program. `kernel(*arguments)` runs it and returns the outputs of `out_idx` (one value, or a list of
    several), or None. The constructor compiles without any cache; `tilelang.compile` is the usual way.

    `__call__` is a slot of each object: where the backend makes a builtin function for the arguments that have come, a call is a call of
    that function and nothing else.

    Attributes: params, out_idx, prim_func, target, pass_configs, artifact, kernel_source, host_source, memory; after tuning
    also latency (ms), config, ref_latency.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]

    def __init__(
        self, func: PrimFunc | None = None, out_idx: Any = None, execution_backend: str | None = None, target: Any = None,
        target_host: Any = None, verbose: bool | None = None, pass_configs: Mapping[Any, Any] | None = None, compile_flags: Any = None,
    ) -> None:  # fmt: skip
        if not isinstance(func, PrimFunc):
            raise TileAssertionError(
                f"a kernel is compiled from a program, got {type(func).__name__}", remedy="decorate the function with @T.prim_func"
            )
        machine = resolve_target(target)
        options = normalise_config(pass_configs)
        self._setup(func, signature_of(func, out_idx), machine, options, compile_program(func, machine, options))

    @classmethod
    def from_artifact(
        cls, func: PrimFunc, signature: Signature, target: Target, options: Mapping[str, Any], artifact: Artifact
    ) -> JITKernel:  # fmt: skip
        kernel = cls.__new__(cls)
        kernel._setup(func, signature, target, options, artifact)
        return kernel

    @classmethod
    def from_tilelang_function(cls, func: PrimFunc, **options: Any) -> JITKernel:
        return cls(func, **options)

    def _setup(
        self, func: PrimFunc, signature: Signature, target: Target, options: Mapping[str, Any], artifact: Artifact
    ) -> None:  # fmt: skip
        self.prim_func = func
        self.signature = signature
        self.target = target
        self.pass_configs = options
        self.artifact = artifact
        self.out_idx = list(signature.out_idx)
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self.config: Mapping[str, Any] | None = None
        self._entry = artifact.entry
        self._device = "cuda" if target.kind == "cuda" else "cpu"
        self._quick: dict[tuple[type, ...], Quick] = {}
        self._make_function = artifact.python_function
        self.__call__ = self._call

    # ---------------------------------------------------------------- running
    def _call(self, *args: Any, **named: Any) -> Any:
        if named:
            args = self._positional(args, named)
        # The compiled function checks tensors itself: for argument types known to be safe it is called at once, and
        # only its refusal is looked into.
        for quick in self._quick.values():
            if quick.accepts(args):
                if quick.outputs or quick.views:
                    return self._call_adapted(quick, args)
                try:
                    self._entry(*args)
                except Exception as error:
                    return self._retry(args, error)
                return None
        return self._call_checked(args)

    def _call_adapted(self, quick: Quick, args: Sequence[Any]) -> Any:
        """A direct call with outputs to allocate, or arrays to pass through views."""
        values = list(args)
        made = {}
        try:
            for parameter, make in quick.outputs:
                made[parameter] = output = make(args)
                values.insert(parameter, output)
            for parameter, view in quick.views:
                values[parameter] = view(values[parameter])
                if values[parameter] is None:
                    return self._call_checked(args)
            self._entry(*values)
        except Exception as error:
            return self._retry(args, error, {parameter for parameter, _ in quick.views})
        return _returned([made[k] for k in self.signature.out_idx])

    @for_users
    def _retry(self, args: Sequence[Any], refusal: Exception, viewed: Collection[int] = ()) -> Any:
        """The direct call raised `refusal`: say what is wrong with the arguments; pass those that need help (read-only or
        empty arrays), which the compiled function refused before it ran; else the program's own error goes on. viewed: positions of
        parameters that had been helped already."""
        prepared = prepare(self.signature, args, self._device)
        if not prepared.helped.difference(viewed):
            raise refusal
        return _returned(prepared.run(self._entry))

    @for_users
    def _call_checked(self, args: Sequence[Any]) -> Any:
        """A call whose arguments are checked one by one; remembers argument types that need no such checks."""
        prepared = prepare(self.signature, args, self._device)
        # The emulator is slower than any check.
        quick = quick_call(self.signature, args, self._device) if self.target.kind != "simt" else None
        if quick is not None:
            self._quick[tuple(map(type, args))] = quick
        outputs = prepared.run(self._entry)
        self._find_function(args)
        return _returned(outputs)

    def _find_function(self, args: Sequence[Any]) -> None:
        """Let calls go to a builtin function, if the backend makes one for tensors such as these."""
        torch = torch_module()
        if self._make_function is None or torch is None or not any(map(is_torch, args)):
            return
        make, self._make_function = self._make_function, None  # once
        arguments = builtin_arguments(self.signature)
        if arguments is None:
            return
        kinds = torch.Tensor, torch.nn.Parameter
        if self.out_idx:
            function = make(kinds, arguments, self._entry, _raise)
            self._entry = function or self._entry
        else:
            function = make(kinds, arguments, self._call, self._retry)
            self.__call__ = function or self.__call__

    @for_users
    def _positional(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments given by parameter name, put in order."""
        names = [self.signature.params[k].name for k in self.signature.inputs]
        rest = names[len(args) :]
        for name in named:
            if name not in rest:
                taken = "given twice" if name in names else "no parameter"
                raise TileTypeError(f"{self.signature.name}: {name!r} is {taken}", remedy=f"call {self.signature}")
        if len(named) < len(rest):
            missing = ", ".join(n for n in rest if n not in named)
            raise TileValueError(f"{self.signature.name}: expected {len(names)} arguments, got {len(args) + len(named)}; missing {missing}")
        return (*args, *(named[name] for name in rest))

    @property
    def torch_function(self) -> Callable[..., Any]:
        """The kernel as a plain function of its inputs."""
        return self.__call__

    @property
    def adapter(self) -> JITKernel:
        """The object that passes the arguments: the kernel itself."""
        return self

    def run_once(self, func: Callable[..., Any] | None = None) -> None:
        """Run once on generated inputs."""
        self.get_profiler().run_once(func)

    # ---------------------------------------------------------------- facts
    @functools.cached_property
    def memory(self) -> MemoryReport:
        """Every allocation of every launch: place, size, life, sharers, registers, bank conflicts, sums against the limits.

        Computed when it is first asked for, by running the stages again on `prim_func`: a kernel whose code came from a cache has it
        too, with the lines of this very program. On CUDA it holds what the assembler reports, where a compiler is at hand.
        """
        return memory_report(self.prim_func, self.target, self.pass_configs, self.artifact.resources)

    @property
    def params(self) -> list[KernelParam]:
        return [KernelParam.of(p) for p in self.signature.params]

    @property
    def kernel_source(self) -> str:
        return self.artifact.source

    @property
    def host_source(self) -> str:
        return self.artifact.host_source

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated text; with `kernel_only=False` the host part follows it."""
        return self.kernel_source if kernel_only else "\n".join(s for s in (self.kernel_source, self.host_source) if s)

    def get_host_source(self) -> str:
        return self.host_source

    def show_source(self, which: str = "kernel") -> None:
        """Print the source: "kernel", "host" or "both"."""
        texts = {"kernel": self.kernel_source, "host": self.host_source, "both": self.get_kernel_source(False)}
        if which not in texts:
            raise TileValueError(f"no source {which!r}", remedy=f"one of {', '.join(texts)}")
        print(texts[which])

    def print_source_code(self, which: str = "kernel", file: Any = None) -> None:
        print({"host": self.host_source, "both": self.get_kernel_source(False)}.get(which, self.kernel_source), file=file)

    def export_sources(self, kernel_path: Any = None, host_path: Any = None) -> None:
        """Write the generated texts to files."""
        if kernel_path is None and host_path is None:
            raise TileValueError("export_sources without a path", remedy="give kernel_path, host_path or both")
        for path, text in ((kernel_path, self.kernel_source), (host_path, self.host_source)):
            if path is not None:
                Path(path).write_text(text)

    def show_ptx(self) -> None:
        raise self._gpu_only("PTX")

    def export_ptx(self, path: Any) -> None:
        raise self._gpu_only("PTX")

    def show_sass(self) -> None:
        raise self._gpu_only("SASS")

    def export_sass(self, path: Any) -> None:
        raise self._gpu_only("SASS")

    def _gpu_only(self, what: str) -> TileNotSupportedError:
        return TileNotSupportedError(f"{what} of a kernel for target {self.target}", remedy="get_kernel_source() shows the generated code")

    def export_library(self, path: Any) -> None:
        """Write the compiled code. A name that ends in .so gets the shared library; any other name is a folder that
        `artifact.save` fills."""
        save = self.artifact.save
        if save is None:
            raise TileNotSupportedError(f"target {self.target} cannot save compiled code")
        target = Path(path)
        if target.suffix != ".so":
            target.mkdir(parents=True, exist_ok=True)
            save(target)
            return
        folder = target.with_name(target.name + ".parts")
        folder.mkdir(parents=True)
        try:
            save(folder)
            libraries = sorted(folder.glob("*.so"))
            if len(libraries) != 1:
                raise TileRuntimeError(
                    f"target {self.target} saves {[p.name for p in folder.iterdir()]}, not one library", remedy="export to a folder"
                )
            shutil.move(libraries[0], target)
        finally:
            shutil.rmtree(folder)

    # ---------------------------------------------------------------- timing
    def get_profiler(self, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto) -> Profiler:
        return Profiler(self.params, self.out_idx, tensor_supply_type, self)

    def update_tuner_result(self, latency: float, config: Mapping[str, Any], ref_latency: float | None = None) -> JITKernel:
        self.latency, self.config, self.ref_latency = latency, config, ref_latency
        return self

    def get_tuner_result(self) -> tuple[float, Mapping[str, Any], float | None]:
        """(latency in ms, configuration, latency of the reference) of the tuning that chose this kernel."""
        if self.latency is None or self.config is None:
            raise TileValueError("this kernel was not tuned", remedy="make it with @tilelang.autotune")
        return self.latency, self.config, self.ref_latency

    def __repr__(self) -> str:
        return f"<JITKernel {self.signature} for {self.target}>"


def _raise(args: Sequence[Any], error: Exception) -> Any:
    raise error


def _returned(outputs: list[Any]) -> Any:
    """None, the only output, or the list of them."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else outputs

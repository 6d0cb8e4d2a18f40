"""Tuning: every configuration is compiled, checked and timed; the fastest right one wins.

In: a function from a configuration to a kernel, the list of configurations. Out: an `AutotuneResult`. A configuration that
does not compile, gives wrong values or takes too long is skipped, and the reason kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..errors import TileRuntimeError, TileTypeError, TileValueError
from ..ir.tvm_api import PrimFunc
from ..knobs import knobs
from ..runtime.api import compile
from ..runtime.jit import JITFunction
from ..runtime.kernel import JITKernel
from ..runtime.params import TensorSupplyType
from ..runtime.profiler import Profiler
from .inputs import get_autotune_inputs

RESERVED = "pass_configs"  # a key of a configuration that is no parameter of the factory


@dataclass(frozen=True)
class ProfileArgs:
    """How a configuration is checked and timed. warmup, rep in ms; timeout in s for one configuration. supply_prog(params)
    makes the inputs, ref_prog(*inputs) the expected outputs, manual_check_prog(results, expected) compares."""

    warmup: float = 25
    rep: float = 100
    timeout: float | None = None  # None: the knob autotune_timeout
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False

    @staticmethod
    def names() -> frozenset[str]:
        return frozenset(f.name for f in fields(ProfileArgs))


@dataclass(frozen=True)
class AutotuneResult:
    """latency in ms and configuration of the winner, latency of the reference, its source, program and kernel; failures:
    why configurations were skipped."""

    latency: float
    config: Mapping[str, Any]
    ref_latency: float | None
    libcode: str
    func: PrimFunc
    kernel: JITKernel
    failures: Sequence[tuple[Mapping[str, Any], BaseException]] = field(default_factory=tuple)


class AutoTuner:
    """`AutoTuner.from_kernel(kernel=factory, configs=[...]).set_compile_args(...).set_profile_args(...).run()`."""

    def __init__(self, fn: Callable[..., Any], configs: Iterable[Mapping[str, Any]]) -> None:
        self.fn = fn
        self.configs = check_configs(configs)
        self.compile_args: dict[str, Any] = {}
        self.profile_args = ProfileArgs()
        self._inputs: list[Any] | None = None

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Iterable[Mapping[str, Any]]) -> AutoTuner:
        return cls(kernel, configs)

    def set_compile_args(self, **options: Any) -> AutoTuner:
        """Options of `tilelang.compile`."""
        self.compile_args = options
        return self

    def set_profile_args(self, **options: Any) -> AutoTuner:
        """Fields of `ProfileArgs`; others are accepted without effect."""
        self.profile_args = replace(self.profile_args, **{k: v for k, v in options.items() if k in ProfileArgs.names()})
        return self

    def run(self, warmup: float | None = None, rep: float | None = None, timeout: float | None = None) -> AutotuneResult:
        """Try all configurations. Raises TileRuntimeError with the reasons if none is usable."""
        given = {k: v for k, v in (("warmup", warmup), ("rep", rep), ("timeout", timeout)) if v is not None}
        options = replace(self.profile_args, **given)
        limit = knobs.autotune_timeout if options.timeout is None else options.timeout
        supplied = get_autotune_inputs()  # the other thread does not see this thread's context
        best: tuple[float, Mapping[str, Any], JITKernel] | None = None
        failures: list[tuple[Mapping[str, Any], BaseException]] = []
        for config in self.configs:
            try:
                latency, kernel = within(limit, lambda config=config: self._measure(config, options, supplied))
            except Exception as error:  # any failure only costs this configuration
                failures.append((config, error))
                continue
            if best is None or latency < best[0]:
                best = (latency, config, kernel)
        if best is None:
            reasons = "\n".join(f"  {dict(c)}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}" for c, e in failures[:8])
            raise TileRuntimeError(f"none of {len(self.configs)} configurations is usable\n{reasons}")
        latency, config, kernel = best
        reference = self._reference_latency(kernel, options, supplied)
        kernel.update_tuner_result(latency, config, reference)
        return AutotuneResult(latency, config, reference, kernel.get_kernel_source(), kernel.prim_func, kernel, tuple(failures))

    # ---------------------------------------------------------------- one configuration
    def _kernel(self, config: Mapping[str, Any]) -> JITKernel:
        arguments = {k: v for k, v in config.items() if k != RESERVED}
        made = self.fn.compile(**arguments) if isinstance(self.fn, JITFunction) else self.fn(**arguments)
        if isinstance(made, JITKernel) and RESERVED not in config:
            return made
        program = made.prim_func if isinstance(made, JITKernel) else made
        options = dict(self.fn.options, out_idx=self.fn.out_idx) if isinstance(self.fn, JITFunction) else dict(self.compile_args)
        if RESERVED in config:
            options[RESERVED] = {**(options.get(RESERVED) or {}), **config[RESERVED]}
        return compile(program, **options)

    def _measure(self, config: Mapping[str, Any], options: ProfileArgs, supplied: list[Any] | None) -> tuple[float, JITKernel]:
        kernel = self._kernel(config)
        profiler = kernel.get_profiler(options.supply_type)
        inputs = self._make_inputs(kernel, profiler, options, supplied)
        if options.manual_check_prog is not None and options.ref_prog is not None and not options.skip_check:
            profiler.manual_assert_close(options.ref_prog, inputs, options.manual_check_prog)
        elif options.ref_prog is not None and not options.skip_check:
            profiler.assert_allclose(options.ref_prog, inputs, options.atol, options.rtol, options.max_mismatched_ratio)
        return profiler.do_bench(warmup=options.warmup, rep=options.rep, input_tensors=inputs), kernel

    def _make_inputs(self, kernel: JITKernel, profiler: Profiler, options: ProfileArgs, supplied: list[Any] | None) -> list[Any]:
        if supplied is not None:
            return supplied
        if self._inputs is not None and options.cache_input_tensors:
            return self._inputs
        if options.supply_prog is not None:
            self._inputs = list(options.supply_prog([p for k, p in enumerate(kernel.params) if k not in kernel.out_idx]))
        else:
            self._inputs = profiler.inputs()
        return self._inputs

    def _reference_latency(self, kernel: JITKernel, options: ProfileArgs, supplied: list[Any] | None) -> float | None:
        if options.ref_prog is None:
            return None
        profiler = kernel.get_profiler(options.supply_type)
        inputs = self._make_inputs(kernel, profiler, options, supplied)
        return profiler.do_bench(options.ref_prog, warmup=options.warmup, rep=options.rep, input_tensors=inputs)


def check_configs(configs: Any) -> list[dict[str, Any]]:
    """Configurations as a list of dicts; TileTypeError or TileValueError otherwise."""
    if isinstance(configs, Mapping) or not isinstance(configs, Iterable):
        raise TileTypeError(f"configs is a {type(configs).__name__}", remedy="give a list of dicts, one for each configuration")
    found = list(configs)
    for config in found:
        if not isinstance(config, Mapping):
            raise TileTypeError(
                f"configuration {config!r} is a {type(config).__name__}", remedy='each one is a dict such as {"block_M": 64}'
            )
    if not found:
        raise TileValueError("no configurations to tune", remedy="give at least one dict")
    return [dict(c) for c in found]


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """The result of `work()`, or TileRuntimeError after `seconds`. Compiled code cannot be interrupted: its thread is left
    behind and ends with the process."""
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # handed to the caller's thread
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        raise TileRuntimeError(f"took longer than {seconds} s")
    if failure:
        raise failure[0]
    return outcome[0]

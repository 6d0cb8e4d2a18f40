"""`@tilelang.autotune(configs=...)` above `@tilelang.jit`: the call without the tunable arguments tunes them.

In: a `JITFunction`, configurations. Out: a callable with the parameters of the factory that returns the best kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import TileTypeError
from ..runtime.arrays import is_array
from ..runtime.jit import EagerFunction, JITFunction
from ..runtime.jit import jit as plain_jit
from ..runtime.kernel import JITKernel
from ..runtime.memo import freeze, python_signature
from .inputs import set_autotune_inputs
from .tuner import RESERVED, AutoTuner, ProfileArgs, check_configs


class TunedFunction:
    """A factory whose tunable arguments are chosen by measurement, once for each set of the other arguments."""

    def __init__(self, function: JITFunction, configs: Any, profile: Mapping[str, Any]) -> None:
        self.function = function
        self.configs = configs
        self.profile = dict(profile)
        self._best: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = dict(python_signature(self.function.fn).bind_partial(*args, **named).arguments)
        configs = check_configs(self.configs(*args, **named) if callable(self.configs) else self.configs)
        tunable = {k for config in configs for k in config if k != RESERVED}
        if tunable <= given.keys():
            return self.function(*args, **named)
        fixed = {k: v for k, v in given.items() if k not in tunable}
        if isinstance(self.function, EagerFunction):
            return self._run_eager(self.function, configs, fixed)
        return self._chosen(freeze(given), configs, fixed, self.function)

    def _run_eager(self, function: EagerFunction, configs: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any]) -> Any:
        """Tune on the actual tensors, then run the best kernel on them."""
        runtime = [fixed[name] for name in function.signature.runtime if name in fixed]
        shapes = [(tuple(v.shape), str(v.dtype)) if is_array(v) else type(v) for v in runtime]
        statics = {k: v for k, v in fixed.items() if k not in function.signature.runtime}
        with set_autotune_inputs(runtime):
            kernel = self._chosen(freeze((statics, shapes)), configs, fixed, lambda **call: function.prepare((), call)[0])
        return kernel(*runtime)

    def _chosen(self, key: Any, configs: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any], make: Callable[..., Any]) -> JITKernel:
        if key not in self._best:
            tuner = AutoTuner(make, [{**config, **fixed} for config in configs]).set_compile_args(**self.function.options)
            result = tuner.set_profile_args(**self.profile).run()
            chosen = {k: v for k, v in result.config.items() if k not in fixed}
            self._best[key] = result.kernel.update_tuner_result(result.latency, chosen, result.ref_latency)
        return self._best[key]


def autotune(
    func: Any = None, *, configs: Iterable[Mapping[str, Any]] | Callable[..., Any] | None = None, keys: Any = None, **profile: Any
) -> Any:
    """Decorator. configs: list of dicts of tunable arguments, or a function of the call's arguments that gives it. Other
    options: fields of `ProfileArgs`; unknown ones and the old `keys` are accepted without effect."""
    if configs is None:
        raise TileTypeError("autotune without configs", remedy="@tilelang.autotune(configs=[{...}, ...])")

    def decorate(function: Any) -> TunedFunction:
        if not isinstance(function, JITFunction):
            raise TileTypeError(f"@autotune on a {type(function).__name__}", remedy="put it above @tilelang.jit")
        options = {**function.profile, **{k: v for k, v in profile.items() if k in ProfileArgs.names()}}
        return TunedFunction(function, configs, options)

    return decorate if func is None else decorate(func)


def jit(func: Any = None, **options: Any) -> Any:
    """`tilelang.jit` in its old form below `@autotune`: takes the options of checking and timing as well."""
    profile = {k: options.pop(k) for k in list(options) if k in ProfileArgs.names()}

    def decorate(fn: Callable[..., Any]) -> JITFunction:
        function = plain_jit(fn, **options)
        function.profile = profile
        return function

    return decorate if func is None else decorate(func)

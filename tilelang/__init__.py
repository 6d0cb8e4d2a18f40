"""tilelang: a Python language and compiler for tile programs, kernels on blocks of tensors in explicitly allocated memory.

The language is `import tilelang.language as T`; this module holds what runs on the host: compile, jit, autotune, the cache.
"""

from . import (
    autotuner,
    cache,
    carver,
    engine,
    intrinsics,
    language,
    layout,
    math,
    primitives,
    profiler,
    quantize,
    testing,
    tools,
    transform,
    tvm,
    utils,
)
from . import env as _env_module  # noqa: F401 (loaded before the names below take its place)
from . import jit as _jit_module  # noqa: F401
from .autotune.decorator import autotune
from .autotune.inputs import get_autotune_inputs, set_autotune_inputs
from .autotune.tuner import AutoTuner
from .cache import disable_cache, enable_cache, get_cache_dir, is_cache_enabled, set_cache_dir
from .engine.callback import register_cuda_postproc, register_cuda_postproc_callback
from .env import env
from .errors import JITNoBuilderError, TileError
from .log import set_log_level
from .math import cdiv, next_power_of_2
from .profiler import Profiler, do_bench
from .runtime.api import cached, compile, lower, par_compile
from .runtime.jit import JITFunction, jit
from .runtime.kernel import JITKernel
from .runtime.params import TensorSupplyType
from .transform.pass_config import PassConfigKey
from .tvm import DataType

__version__ = "0.1.0"

__all__ = [
    "AutoTuner", "DataType", "JITFunction", "JITKernel", "JITNoBuilderError", "PassConfigKey", "Profiler", "TensorSupplyType", "TileError",
    "autotune", "autotuner", "cache", "cached", "carver", "cdiv", "compile", "disable_cache", "do_bench", "enable_cache", "engine", "env",
    "get_autotune_inputs", "get_cache_dir", "intrinsics", "is_cache_enabled", "jit", "language", "layout", "lower", "math",
    "next_power_of_2", "par_compile", "primitives", "profiler", "quantize", "register_cuda_postproc", "register_cuda_postproc_callback",
    "set_autotune_inputs", "set_cache_dir", "set_log_level", "testing", "tools", "transform", "tvm", "utils",
]  # fmt: skip

"""Tuning of kernels. The name `tilelang.autotune` itself is the decorator."""

from .decorator import TunedFunction, autotune, jit
from .inputs import get_autotune_inputs, set_autotune_inputs
from .tuner import AutoTuner, AutotuneResult

__all__ = ["AutoTuner", "AutotuneResult", "TunedFunction", "autotune", "get_autotune_inputs", "jit", "set_autotune_inputs"]

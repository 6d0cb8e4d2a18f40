"""`from tilelang.autotuner import *`: the tuner under the module name that programs import."""

from ..autotune.decorator import autotune, jit
from ..autotune.inputs import get_autotune_inputs, set_autotune_inputs
from ..autotune.tuner import AutoTuner, AutotuneResult

__all__ = ["AutoTuner", "AutotuneResult", "autotune", "get_autotune_inputs", "jit", "set_autotune_inputs"]

"""Timing: `from tilelang.profiler import do_bench`."""

from .runtime.params import TensorSupplyType
from .runtime.profiler import Profiler, do_bench

__all__ = ["Profiler", "TensorSupplyType", "do_bench"]

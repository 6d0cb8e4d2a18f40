"""`from tilelang.engine.param import KernelParam`."""

from ..runtime.params import KernelParam

__all__ = ["KernelParam"]

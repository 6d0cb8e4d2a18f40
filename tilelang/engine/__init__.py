"""Lowering without a kernel object: `tilelang.engine.lower`."""

from ..runtime.api import lower
from .callback import register_cuda_postproc, register_cuda_postproc_callback
from .param import KernelParam

__all__ = ["KernelParam", "lower", "register_cuda_postproc", "register_cuda_postproc_callback"]

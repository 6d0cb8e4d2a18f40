"""The kernel object under an older name of its module."""

from ..runtime.kernel import JITKernel

__all__ = ["JITKernel"]

"""`from tilelang.jit import JITKernel` and the like. The name `tilelang.jit` itself is the decorator."""

from ..runtime.api import compile, par_compile
from ..runtime.jit import JITFunction, jit
from ..runtime.kernel import JITKernel

__all__ = ["JITFunction", "JITKernel", "compile", "jit", "par_compile"]

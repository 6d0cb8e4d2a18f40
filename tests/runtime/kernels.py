"""Kernels for tests of calls: TIR built by hand and compiled by TVM alone, so that nothing but the runtime is under test."""

from tilelang.backend.base import Artifact
from tilelang.ir.tvm_api import BufferStore, Cast, For, ForKind, IfThenElse, IRModule, PrimFunc, Var, decl_buffer, load, tvm
from tilelang.runtime.kernel import JITKernel
from tilelang.runtime.signature import signature_of
from tilelang.target.target import Target


def program(dtype="float32", scalar="int32", strides=None):
    """main(A[n, 16], C[n, 16], s): C[0, :] = A[0, :], plus s for float32; nothing when n is 0."""
    n, s, i = Var("n", "int32"), Var("s", scalar), Var("i", "int32")
    a = decl_buffer((n, 16), dtype, "A", strides=strides and [Var("sa", "int32"), 1], alignment=1)
    c = decl_buffer((n, 16), dtype, "C", alignment=1)
    value = load(a, [0, i])
    if dtype == "float32":
        value = value + Cast("float32", s)
    loop = For(i, 0, 16, ForKind.SERIAL, BufferStore(c, value, [0, i]))
    return PrimFunc([a, c, s], IfThenElse(n > 0, loop, None)).with_attr("global_symbol", "main")


def kernel_of(func, out_idx=None):
    module = tvm.compile(IRModule({"main": func}), target="llvm")
    return JITKernel.from_artifact(func, signature_of(func, out_idx), Target("cpu"), {}, Artifact(module["main"], "; source"))


def make(dtype="float32", scalar="int32", out_idx=None, strides=None):
    return kernel_of(program(dtype, scalar, strides), out_idx)

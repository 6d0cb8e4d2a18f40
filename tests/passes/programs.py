"""Small hand-built programs for the tests of passes, and a way to run them on the host without any other part of the package."""

from __future__ import annotations

import numpy as np

from tilelang.ir.context import PassContext
from tilelang.ir.kernel import KernelRegion, map_kernels
from tilelang.ir.rewrite import rewrite
from tilelang.ir.tvm_api import AttrStmt, For, ForKind, IRModule, PrimFunc, Var, seq, tirx, tvm
from tilelang.target.target import Target

_T = tirx.transform
# TVM's own pipeline is not used: its simplifier changes the meaning of floats and of unsigned casts.
_PASSES = (
    _T.FlattenBuffer(), _T.BF16ComputeLegalize(), _T.VectorizeLoop(True), _T.UnrollLoop(), _T.AnnotateEntryFunc(), _T.SplitHostDevice(),
    _T.MakePackedAPI(), _T.BF16StorageLegalize(), _T.LowerTVMBuiltin(), _T.LowerIntrin(),
)  # fmt: skip

CPU, CUDA = PassContext(Target("cpu")), PassContext(Target("cuda"))


def kernel(params, make_body, blocks=(1,), threads=(1, 1, 1), **annotations) -> PrimFunc:
    """A function of one launch. `make_body(blocks, threads)` gets the index variables and returns a list of statements."""
    block_vars = [Var(f"b{'xyz'[k]}", "int32") for k in range(len(blocks))]
    thread_vars = [Var(f"t{'xyz'[k]}", "int32") for k in range(3)]
    body = seq(make_body(block_vars, thread_vars))
    threads = tuple(threads) + (1,) * (3 - len(threads))
    region = KernelRegion(tuple(zip(block_vars, blocks, strict=True)), tuple(zip(thread_vars, threads, strict=True)), body, annotations)
    return PrimFunc(list(params), region.to_stmt()).with_attr("global_symbol", "main")


def run(func: PrimFunc, *arrays) -> list[np.ndarray]:
    """Execute a program without threads: the grid as serial loops, everything else as it stands."""

    def grid(region):
        body = region.body
        for var, extent in reversed(region.blocks):
            body = For(var, 0, extent, ForKind.SERIAL, body)
        return body

    def serial(node, descend):
        node = descend.children(node)
        return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body)

    def plain(node, descend):
        return descend(node.body) if node.attr_key.startswith("tl.") else descend.children(node)

    body = rewrite(map_kernels(func.body, grid), {For: serial, AttrStmt: plain})
    arrays = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    compiled(func.with_body(body))(*arrays)
    return [a for a in arrays if isinstance(a, np.ndarray)]


def compiled(func: PrimFunc):
    """Machine code of a function that holds only loops and scalars."""
    target = tvm.target.Target("llvm")
    module = _T.BindTarget(target.with_host(target))(IRModule({"main": func}))
    return tvm.get_global_func("target.build.llvm")(tvm.ir.transform.Sequential(list(_PASSES))(module), target)["main"]

"""Runs small tile programs without the front end and the CPU backend: builder, lowering, serial loops, LLVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm

from tilelang.ir.builder import Builder, writing
from tilelang.ir.context import PassContext
from tilelang.ir.dialect import ATTR_COLLECTIVE, ATTR_KERNEL, ATTR_THREAD_EXTENT
from tilelang.ir.kernel import KernelRegion
from tilelang.ir.rewrite import rewrite
from tilelang.ir.tvm_api import (
    AttrStmt,
    BufferStore,
    Call,
    Evaluate,
    For,
    ForKind,
    IRModule,
    PrimFunc,
    Stmt,
    Var,
    decl_buffer,
    load,
)  # fmt: skip
from tilelang.passes.program.lower_tile_ops import lower_tile_ops
from tilelang.target.target import Target

CPU = {"kind": "llvm", "mcpu": tvm.get_global_func("target.llvm_get_system_cpu")()}


class Program:
    """A one-block kernel being written: `param`, `alloc`, then `run(arrays)`."""

    def __init__(self) -> None:
        self.builder = Builder("cpu")
        self.params: list[Var] = []
        self.body: Stmt | None = None

    def param(self, shape: Sequence[Any], dtype: str, name: str) -> Var:
        self.params.append(decl_buffer(shape, dtype, name))
        return self.params[-1]

    def scalar(self, name: str, dtype: str = "int32") -> Var:
        self.params.append(Var(name, dtype))
        return self.params[-1]

    def alloc(self, shape: Sequence[Any], dtype: str, name: str, scope: str = "shared.dyn", **facts: Any) -> Var:
        return self.builder.alloc(decl_buffer(shape, dtype, name, scope), facts or None)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Program]:
        with writing(self.builder), self.builder.frame("function"), self.builder.frame("kernel") as kernel:
            yield self
        self.body = kernel.body()

    def func(self) -> PrimFunc:
        assert self.body is not None
        threads = tuple((Var(f"t{k}", "int32"), 1) for k in "xyz")
        kernel = KernelRegion(((Var("bx", "int32"), 1),), threads, self.body)
        return PrimFunc(self.params, kernel.to_stmt()).with_attr("global_symbol", "main")

    def lowered(self, lowerings: Sequence[Any] = ()) -> tuple[PrimFunc, PassContext]:
        ctx = PassContext(Target("cpu"), lowerings=lowerings)
        return lower_tile_ops(self.func(), ctx), ctx

    def run(self, *arrays: Any) -> None:
        """Execute on NumPy arrays (ml_dtypes allowed) in place."""
        func, _ = self.lowered()
        assert tvm.tirx.analysis.verify_well_formed(func, assert_mode=False)
        entry = tvm.compile(IRModule({"main": serial(func)}), target=CPU)["main"]
        handed = [a if not isinstance(a, np.ndarray) or a.dtype.kind != "V" else tvm.runtime.tensor(a) for a in arrays]
        entry(*handed)
        for array, given in zip(arrays, handed, strict=True):
            if given is not array:
                array[...] = given.numpy()


def serial(func: PrimFunc) -> PrimFunc:
    """One block of one thread: PARALLEL loops become serial, attributes go, atomics become plain updates, scopes plain memory."""

    def strip(node: AttrStmt, descend: Any) -> Stmt:
        if node.attr_key in (ATTR_COLLECTIVE, ATTR_KERNEL):
            return descend(node.body)
        assert node.attr_key == ATTR_THREAD_EXTENT
        return For(node.node.var, 0, node.value, ForKind.SERIAL, descend(node.body))

    def loop(node: For, descend: Any) -> Stmt:
        return For(node.loop_var, node.min, node.extent, ForKind.SERIAL, descend(node.body))

    def atomic(node: Evaluate, descend: Any) -> Stmt:
        call = node.value
        if not (isinstance(call, Call) and call.op.name == "tl.atomic"):
            return descend.children(node)
        block, value = call.args
        place = [r.min for r in block.region]
        old = load(block.source, place)
        new = {"add": lambda: old + value, "max": lambda: tvm.tirx.max(old, value), "min": lambda: tvm.tirx.min(old, value)}
        return BufferStore(block.source, new[str(call.attrs["kind"])](), place)

    return rewrite(func, {AttrStmt: strip, For: loop, Evaluate: atomic})

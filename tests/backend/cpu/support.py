"""Loops over arrays, compiled by the last steps of the CPU backend alone: no language, no tile operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelang.backend.cpu.build import build
from tilelang.backend.cpu.grid import spread_grid
from tilelang.backend.cpu.scalars import legalize_scalars
from tilelang.ir.context import PassContext
from tilelang.ir.tvm_api import Expr, For, ForKind, PrimFunc, Var, decl_buffer, load, store
from tilelang.target.target import Target

CPU = Target("cpu")


def elementwise(function: Callable[..., Expr], inputs: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    """out[i] = function(in0[i], in1[i], ...) for one-dimensional arrays of NumPy's own types."""
    count = len(inputs[0])
    buffers = [decl_buffer((count,), array.dtype.name, f"in{k}") for k, array in enumerate(inputs)]
    out = decl_buffer((count,), dtype, "out")
    i = Var("i", "int32")
    body: Any = store(out, function(*[load(b, [i]) for b in buffers]), [i])
    func = PrimFunc([*buffers, out], For(i, 0, count, ForKind.SERIAL, body)).with_attr("global_symbol", "main")
    ctx = PassContext(CPU)
    result = np.zeros(count, dtype)
    build(spread_grid(legalize_scalars(func, ctx), ctx), ctx).entry(*inputs, result)
    return result

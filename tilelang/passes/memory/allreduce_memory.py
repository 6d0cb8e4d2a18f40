"""Shared memory that `tvm_thread_allreduce` needs beside the planned allocation: an array for each value, one element a thread.

In: a kernel region, or the axes of one reduction. Out: bytes, and whether lanes of a warp can exchange the values instead. The
planner counts these arrays, the printer declares them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.dialect import op_name
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import Call, Var, dtype_of

WARP = 32
_ALLREDUCE = "tirx.tvm_thread_allreduce"


def in_warp(kernel: KernelRegion, axes: Sequence[Var]) -> bool:
    """Is each group of a reduction over these thread axes a run of consecutive lanes of one warp?"""
    (x, extent), *_ = kernel.threads
    return len(axes) == 1 and axes[0].same_as(x) and extent in (1, 2, 4, 8, 16, WARP) and kernel.num_threads % WARP == 0


def static_bytes(kernel: KernelRegion) -> int:
    """Bytes of the arrays of all reductions of one kernel, each at a multiple of its element's size, in the order of the program."""
    total = 0

    def visit(call: Call) -> None:
        nonlocal total
        if op_name(call) != _ALLREDUCE:
            return
        count = int(call.args[0])
        if in_warp(kernel, list(call.args[2 + 2 * count :])):
            return
        for value in call.args[1 : 1 + count]:
            element = dtype(dtype_of(value))
            size = max(element.bits, 8) * element.lanes // 8
            total = -(-total // size) * size + size * kernel.num_threads

    walk(kernel.body, {Call: visit})
    return total

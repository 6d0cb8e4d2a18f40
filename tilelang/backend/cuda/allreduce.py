"""`tvm_thread_allreduce` as C++: values combined over thread axes, the result in every thread along them.

In: the call and the reducer of the `reduce_scope` around it. Out: lines. Groups of consecutive lanes use shuffles; all others go
through an array in shared memory, which every thread of a group reads.
"""

from __future__ import annotations

from typing import Any

from ...errors import InternalError
from ...ir.tvm_api import Call, Expr, Var, dtype_of
from ...passes.memory.allreduce_memory import in_warp
from .cpp_types import c_type
from .printer import Printer


def print_allreduce(p: Printer, call: Call, reducer: Any) -> None:
    """Print the statement. Operands: number of values, values, condition, result elements, thread variables."""
    if reducer is None:
        raise InternalError(f"a reduction over threads outside of a reduce_scope: {call}")
    count = int(call.args[0])
    values, condition = list(call.args[1 : 1 + count]), call.args[1 + count]
    results, axes = list(call.args[2 + count : 2 + 2 * count]), list(call.args[2 + 2 * count :])
    p.open()
    names = []
    for value, identity in zip(values, reducer.identity_element, strict=True):
        name = p.e.names.fresh("total")
        names.append(name)
        p.line(f"{c_type(dtype_of(value))} {name} = {p.e.choice(condition, value, identity)[0]};")
    extents = dict(p.kernel.threads)
    if not all(axis in extents for axis in axes):
        raise InternalError(f"a reduction over something that is no thread axis: {call}")
    if in_warp(p.kernel, axes):
        _by_shuffles(p, names, values, reducer, extents[axes[0]])
    else:
        _through_shared(p, names, values, reducer, axes)
    for name, result in zip(names, results, strict=True):
        p.line(f"{p.e.element(result.source, result.indices)} = {name};")
    p.close()


def _by_shuffles(p: Printer, names: list[str], values: list[Expr], reducer: Any, extent: int) -> None:
    p.o.needs.add("warp.cuh")
    delta = p.e.names.fresh("delta")
    p.line("#pragma unroll")
    p.line(f"for (int {delta} = {extent // 2}; {delta} > 0; {delta} >>= 1) {{")
    others = [f"tl::shfl_xor({name}, {delta})" for name in names]
    _combine(p, names, others, values, reducer)
    p.line("}")


def _through_shared(p: Printer, names: list[str], values: list[Expr], reducer: Any, axes: list[Var]) -> None:
    """Every thread writes its values, then reads those of its group."""
    linear = p.linear_thread()
    arrays = [p.e.names.fresh("scratch") for _ in values]
    for array, value in zip(arrays, values, strict=True):
        p.line(f"__shared__ {c_type(dtype_of(value))} {array}[{p.kernel.num_threads}];")
    p.line("__syncthreads();")
    for array, name in zip(arrays, names, strict=True):
        p.line(f"{array}[{linear}] = {name};")
    p.line("__syncthreads();")
    stride, place, first = 1, linear, p.e.names.fresh("first")
    loops: list[tuple[str, int, int]] = []
    for var, extent in p.kernel.threads:
        if any(var.same_as(axis) for axis in axes):
            place += f" - {stride} * {p.e.names.of(var)}"
            loops.append((p.e.names.fresh("k"), extent, stride))
        stride *= extent
    p.line(f"const int {first} = {place};")
    depth = p.depth
    for name, extent, _ in loops:
        p.line(f"for (int {name} = 0; {name} < {extent}; ++{name}) {{")
        p.depth += 1
    at = " + ".join([first, *(f"{step} * {name}" for name, _, step in loops)])
    p.line(f"if ({at} == {first}) {{")  # the first one starts the total
    for name, array in zip(names, arrays, strict=True):
        p.line(f"  {name} = {array}[{first}];")
    p.line("} else {")
    _combine(p, names, [f"{array}[{at}]" for array in arrays], values, reducer)
    p.line("}")
    while p.depth > depth:
        p.depth -= 1
        p.line("}")


def _combine(p: Printer, names: list[str], others: list[str], values: list[Expr], reducer: Any) -> None:
    """total = combiner(total, other), all results before any of them changes."""
    p.depth += 1
    for k, value in enumerate(values):
        kind = c_type(dtype_of(value))
        p.line(f"const {kind} {p.e.names.of(reducer.lhs[k])} = {names[k]}, {p.e.names.of(reducer.rhs[k])} = {others[k]};")
    for k, name in enumerate(names):
        p.line(f"{name} = {p.e.text(reducer.result[k])};")
    p.depth -= 1

"""Index arithmetic is exact: where 32 bits may overflow it is computed in 64.

In: a LOOPS program. Out: the same program in which signed arithmetic on loop, block and thread indices, sizes and constants
that may leave 32 bits is done in int64 wherever it chooses an element, is compared, or becomes an int64: `A[i * n + j]` of a
tensor of 3e9 elements, `if block * 65536 + i < n`. What the ranges of the variables show to fit stays as it is.
A name for such a value, and a loop that starts at one, gets a 64-bit twin for those uses; as a value it wraps like any
int32. So does arithmetic on scalar parameters alone, `d * 2 == e`, unless it chooses an element. Arithmetic on values from
memory is `guard_bounds`' to judge, except for tensors that 32 bits cannot index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...ir.context import PassContext
from ...ir.dialect import ATTR_THREAD_EXTENT, IF_THEN_ELSE, op_name
from ...ir.kernel import KernelRegion, match_kernel, rebuild_body
from ...ir.rewrite import Descend, rewrite, substitute, walk
from ...ir.tvm_api import (
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    Expr,
    For,
    IntImm,
    PrimFunc,
    Stmt,
    StringImm,
    TensorLoad,
    TensorRegion,
    Var,
    const,
    dtype_of,
    is_buffer,
    is_expr,
    load,
    region,
    seq,
    shape_of,
    store,
    tirx,
)  # fmt: skip
from ..analysis.facts import COMPARISONS, sizes_of
from ..analysis.index_ranges import ARITHMETIC, IndexRanges, Judgement

_TWO = (*ARITHMETIC, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def widened(index: Expr, twins: Mapping[Var, Expr] | None = None) -> Expr:
    """A 32-bit integer computed in 64 bits, where it cannot wrap. twins: 64-bit values of names."""
    if isinstance(index, IntImm):
        return const(int(index), "int64")
    if isinstance(index, Var) and twins is not None and index in twins:
        return twins[index]
    if dtype_of(index) == "int32":
        if isinstance(index, _TWO):
            return type(index)(widened(index.a, twins), widened(index.b, twins))
        if isinstance(index, tirx.LShift) and isinstance(index.b, IntImm):
            return tirx.Mul(widened(index.a, twins), const(1 << int(index.b), "int64"))
        if isinstance(index, tirx.Select):
            return tirx.Select(index.condition, widened(index.true_value, twins), widened(index.false_value, twins), index.span)
        if isinstance(index, Call) and op_name(index) == IF_THEN_ELSE:
            return tirx.if_then_else(index.args[0], widened(index.args[1], twins), widened(index.args[2], twins), index.span)
    return index if dtype_of(index) == "int64" else Cast("int64", index)


def as_written(index: Expr) -> Expr:
    """A widened index in the 32 bits in which it was written: for questions about its form, never for a program."""
    if isinstance(index, Cast) and dtype_of(index) == "int64" and dtype_of(index.value) == "int32":
        return index.value
    if dtype_of(index) != "int64":
        return index
    if isinstance(index, IntImm):
        return const(int(index), "int32") if abs(int(index)) < 1 << 31 else index
    if isinstance(index, _TWO):
        a, b = as_written(index.a), as_written(index.b)
        return type(index)(a, b) if dtype_of(a) == dtype_of(b) == "int32" else index
    return index


def widen_indices(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass."""
    widening = _Widening(func)
    body = widening.run(func.body)
    return func if body.same_as(func.body) else func.with_body(widening.with_twins(body))


class _Widening:
    """One traversal in program order. twins: the 64-bit variables of names; definitions: their values; needed: those in use.
    values: scalar parameters that are no extent, and names of what is computed from them alone."""

    def __init__(self, func: PrimFunc) -> None:
        self.ranges = IndexRanges()
        self.twins: dict[Var, Expr] = {}
        self.definitions: dict[Var, Expr] = {}
        self.needed: set[Var] = set()
        sizes = sizes_of(func)
        self.ranges.known.update(sizes)
        self.values = {p for p in func.params if not is_buffer(p) and p not in sizes}
        self.rules = {
            For: self.loop, AttrStmt: self.attribute, Bind: self.bind, BufferStore: self.store, TensorLoad: self.load,
            TensorRegion: self.region, COMPARISONS: self.comparison, Cast: self.cast,
        }  # fmt: skip

    def run(self, node: Any) -> Any:
        return rewrite(node, self.rules)

    # ---------------------------------------------------------------- what is known
    def attribute(self, node: AttrStmt, descend: Descend) -> Stmt:
        kernel = match_kernel(node)
        if kernel is not None and any(self._grows(extent) for _, extent in kernel.blocks):
            return self.grid(kernel)
        if node.attr_key == ATTR_THREAD_EXTENT:
            self.ranges.count(node.node.var, 0, node.value)
        body = descend(node.body)
        return node if body.same_as(node.body) else rebuild_body(node, body)

    def grid(self, kernel: KernelRegion) -> Stmt:
        """A launch whose extents, such as ceildiv(m * n, 1024), are computed in 64 bits and have to fit in 32."""
        tests: list[Stmt] = []
        blocks = []
        for var, extent in kernel.blocks:
            if self._grows(extent):
                exact = self.wide(extent)
                message = f"T.Kernel: the grid extent {extent} is more than 2^31 - 1"
                tests.append(AssertStmt(exact < const(1 << 31, "int64"), StringImm("ValueError"), [StringImm(message)], kernel.span))
                blocks.append((var, Cast("int32", exact)))
            else:
                blocks.append((var, extent))
        return seq([*tests, self.run(replace(kernel, blocks=tuple(blocks)).to_stmt())])

    def _grows(self, extent: Any) -> bool:
        if isinstance(extent, int) or dtype_of(extent) != "int32":
            return False
        found = self.ranges.judge(extent)
        return not found.data and (found.wraps or self._twin_in(extent))

    def loop(self, node: For, descend: Descend) -> Stmt:
        low, extent = descend(node.min), descend(node.extent)
        self.ranges.count(node.loop_var, node.min, node.extent)
        if dtype_of(node.loop_var) != "int32" or not self._overflows(node):
            many = self.ranges.judge(node.extent)
            extent = _not_backwards(extent) if many.data and many.wraps else extent
            body = descend(node.body)
            if body.same_as(node.body) and low.same_as(node.min) and extent.same_as(node.extent):
                return node
            return For(node.loop_var, low, extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)
        counter = Var(node.loop_var.name, "int64")
        self.twins[node.loop_var] = counter
        low, extent = self.wide(low), self.wide(extent)
        body = substitute(descend(node.body), {node.loop_var: Cast("int32", counter)})
        return For(counter, low, extent, node.kind, body, node.thread_binding, node.annotations, None, node.span)

    def _overflows(self, node: For) -> bool:
        """May the counter of a loop leave 32 bits? Its bounds by themselves, or where it ends."""
        first, many = self.ranges.judge(node.min), self.ranges.judge(node.extent)
        if first.data or many.data:
            return False
        grows = first.wraps or many.wraps or self._twin_in(node.min) or self._twin_in(node.extent)
        return grows or self.ranges.known[node.loop_var][1] >= 1 << 31

    def bind(self, node: Bind, descend: Descend) -> Stmt:
        value = descend(node.value)
        if is_expr(node.value) and dtype_of(node.var) == "int32" and not is_buffer(node.var):
            found = self.ranges.judge(node.value)
            if self._is_value(node.value):
                self.values.add(node.var)
            if not found.data and (found.wraps or self._twin_in(node.value)):
                twin = Var(node.var.name, "int64")
                self.twins[node.var], self.definitions[twin] = twin, widened(value, self.twins)
                self.ranges.known[node.var] = found.interval
            else:
                self.ranges.bind(node.var, found)
        return node if value.same_as(node.value) else Bind(node.var, value, node.span)

    def with_twins(self, body: Stmt) -> Stmt:
        """Definitions of the twins that are used, each behind the name's own."""
        pending = list(self.needed)
        while pending:
            found: list[Var] = []
            definition = self.definitions.get(pending.pop())
            if definition is not None:
                walk(definition, {Var: found.append})
            fresh = [v for v in found if v in self.definitions and v not in self.needed]
            self.needed.update(fresh)
            pending += fresh

        def behind(node: Bind, descend: Descend) -> Stmt:
            twin = self.twins.get(node.var)
            if twin is None or twin not in self.needed or twin not in self.definitions:
                return node
            return seq([node, Bind(twin, self.definitions[twin], node.span)])

        return rewrite(body, {Bind: behind}) if self.needed else body

    # ---------------------------------------------------------------- exact uses
    def exact(self, index: Any, large: bool = False) -> Any:
        """An integer that has to be right. large: an index of a dimension that 32 bits cannot count."""
        if isinstance(index, IntImm) or not is_expr(index):
            return index
        if isinstance(index, tirx.Ramp):
            base = self.exact(index.base, large)
            return index if base.same_as(index.base) else tirx.Ramp(base, widened(index.stride), index.lanes)
        if dtype_of(index) != "int32":
            return index
        if isinstance(index, Var):
            return self.wide(index) if index in self.twins else index
        found = self.ranges.judge(index)
        return self.wide(index) if self._must_be_wide(index, found, large) else index

    def _must_be_wide(self, index: Expr, found: Judgement, large: bool) -> bool:
        return (found.wraps and (large or not found.data)) or self._twin_in(index)

    def wide(self, expr: Expr) -> Expr:
        result = widened(expr, self.twins)
        walk(result, {Var: self.needed.add})
        return result

    def _twin_in(self, expr: Any) -> bool:
        found: list[Var] = []
        if self.twins and is_expr(expr):
            walk(expr, {Var: lambda v: found.append(v) if v in self.twins else None})
        return bool(found)

    def indices(self, buffer: Var, given: Any, descend: Descend) -> list[Expr]:
        shape = shape_of(buffer)
        return [self.exact(descend(i), _is_large(extent)) for i, extent in zip(given, shape, strict=True)]

    def load(self, node: TensorLoad, descend: Descend) -> Expr:
        indices = self.indices(node.source, node.indices, descend)
        return node if _same(indices, node.indices) else load(node.source, indices, node.span)

    def store(self, node: BufferStore, descend: Descend) -> Stmt:
        indices, value = self.indices(node.buffer, node.indices, descend), descend(node.value)
        if value.same_as(node.value) and _same(indices, node.indices):
            return node
        return store(node.buffer, value, indices, node.span)

    def region(self, node: TensorRegion, descend: Descend) -> TensorRegion:
        mins = self.indices(node.source, [r.min for r in node.region], descend)
        if _same(mins, [r.min for r in node.region]):
            return node
        extents = [r.extent if dtype_of(r.extent) == dtype_of(m) else widened(r.extent) for r, m in zip(node.region, mins, strict=True)]
        return region(node.source, mins, extents)

    def _is_value(self, expr: Expr) -> bool:
        """Is it computed from scalar parameters alone? Such arithmetic counts nothing, and wraps like NumPy's."""
        found: list[Var] = []
        walk(expr, {Var: found.append})
        return bool(found) and all(v in self.values for v in found)

    def comparison(self, node: Any, descend: Descend) -> Expr:
        given = descend(node.a), descend(node.b)
        a, b = (side if self._is_value(side) else self.exact(side) for side in given)
        if a.same_as(given[0]) and b.same_as(given[1]):
            return node if _same(given, (node.a, node.b)) else type(node)(a, b, node.span)
        return type(node)(_int64(a), _int64(b), node.span)

    def cast(self, node: Cast, descend: Descend) -> Expr:
        value = descend(node.value)
        if dtype_of(node) == "int64" and dtype_of(value) == "int32" and not self._is_value(value):
            exact = self.exact(value)
            if not exact.same_as(value):
                return exact
        return node if value.same_as(node.value) else Cast(dtype_of(node), value, node.span)


def _not_backwards(extent: Any) -> Expr:
    """The trips of a loop from one value of the data to another, 0 where the second is less: their difference may wrap around. The
    forms are those of `range`: end - begin, and (end - begin + step - 1) // step."""
    if isinstance(extent, tirx.Sub):
        return tirx.Max(extent.a, extent.b) - extent.b
    if isinstance(extent, tirx.FloorDiv) and isinstance(extent.b, IntImm) and isinstance(extent.a, tirx.Add):
        distance, rest = extent.a.a, extent.a.b
        if isinstance(distance, tirx.Sub) and isinstance(rest, IntImm) and 0 <= int(rest) < int(extent.b):
            return tirx.FloorDiv(_not_backwards(distance) + rest, extent.b)
    return extent


def _int64(value: Expr) -> Expr:
    """The value that it has in its own type."""
    if isinstance(value, IntImm):
        return const(int(value), "int64")
    return value if dtype_of(value) == "int64" else Cast("int64", value)


def _is_large(extent: Any) -> bool:
    """Does it take more than 32 bits to index this dimension, or may it?"""
    return extent > 1 << 31 if isinstance(extent, int) else dtype_of(extent) == "int64"


def _same(new: Any, old: Any) -> bool:
    return all(a.same_as(b) for a, b in zip(new, old, strict=True))

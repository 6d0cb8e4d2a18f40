"""Parts of portable lowerings: nests of loops over the elements of a block, accumulators, staging of overlaps.

In: regions of a call and the `LowerContext`. Out: statements. Loops of the block are PARALLEL and annotated like a
`T.Parallel` of the user; loops of a single thread are SERIAL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dialect import ANNOTATION_PARALLEL, FRAGMENT, GLOBAL, LOCAL, VAR
from ..ir.expr import convert
from ..ir.positions import same, surely
from ..ir.tvm_api import (
    AllocBuffer,
    Expr,
    For,
    ForKind,
    IntImm,
    Stmt,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    seq,
    shape_of,
    store,
    tvm,
)  # fmt: skip
from .base import LowerContext

Body = Callable[[list[Var]], Sequence[Stmt]]


def mins_of(block: TensorRegion) -> list[Any]:
    return [r.min for r in block.region]


def extents_of(block: TensorRegion) -> list[Any]:
    """Extents of a region, Python ints where constant."""
    return [int(r.extent) if isinstance(r.extent, IntImm) else r.extent for r in block.region]


def is_unit(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


def wide_dims(block: TensorRegion) -> list[int]:
    """Dimensions whose extent is not the constant 1: those that a loop runs over."""
    return [k for k, e in enumerate(extents_of(block)) if not is_unit(e)]


def loop_vars(extents: Sequence[Any], names: str = "ijklmnop") -> list[Var]:
    return [Var(names[k % len(names)], "int32" if isinstance(e, int) else str(e.ty.dtype)) for k, e in enumerate(extents)]


def nest(extents: Sequence[Any], body: Body, ctx: LowerContext, *, scalar: bool = False) -> Stmt:
    """Loops over `extents` around `body(loop variables)`.

    scalar: the body declares a variable of its own, so that a nest without loops gets one of extent 1: the variable
    then belongs to one iteration and not to every thread.
    """
    given = len(extents)
    extents = list(extents) or ([1] if scalar and not ctx.per_thread else [])
    variables = loop_vars(extents)
    result = seq(list(body(variables[:given])))
    kind = ForKind.SERIAL if ctx.per_thread else ForKind.PARALLEL
    for k in reversed(range(len(extents))):
        outermost = k == 0 and not ctx.per_thread
        annotations = {ANNOTATION_PARALLEL: IntImm("int32", len(extents))} if outermost else None
        zero = const(0, str(variables[k].ty.dtype))
        result = For(variables[k], zero, _extent(extents[k]), kind, result, annotations=annotations, span=ctx.span)
    return result


def serial(extent: Any, body: Callable[[Var], Sequence[Stmt]], ctx: LowerContext, name: str = "r") -> Stmt:
    """One serial loop."""
    variable = Var(name, "int32" if isinstance(extent, int) else str(extent.ty.dtype))
    zero = const(0, str(variable.ty.dtype))
    return For(variable, zero, _extent(extent), ForKind.SERIAL, seq(list(body(variable))), span=ctx.span)


def _extent(extent: Any) -> Expr:
    return const(extent, "int32") if isinstance(extent, int) else extent


def offset(low: Any, index: Any) -> Any:
    """`low + index` without additions of zero."""
    if isinstance(index, int) and index == 0:
        return low
    if isinstance(low, int | IntImm) and int(low) == 0:
        return index
    return low + index


def indices(block: TensorRegion, positions: dict[int, Any]) -> list[Any]:
    """The element of `block` at these positions (by dimension; 0 where none is given)."""
    return [offset(low, positions.get(k, 0)) for k, low in enumerate(mins_of(block))]


def at(block: TensorRegion, variables: Sequence[Any]) -> list[Any]:
    """The element of `block` at these positions, one for each of its wide dimensions, in order."""
    return indices(block, dict(zip(wide_dims(block), variables, strict=True)))


def read(block: TensorRegion, variables: Sequence[Any], dtype: str | None = None) -> Expr:
    """The element at these positions, converted to `dtype`."""
    value = load(block.source, at(block, variables))
    return convert(value, dtype) if dtype else value


def write(block: TensorRegion, variables: Sequence[Any], value: Expr, ctx: LowerContext) -> Stmt:
    """Store `value`, converted, at these positions."""
    return store(block.source, convert(value, dtype_of(block)), at(block, variables), ctx.span)


class Accumulator:
    """A scalar variable inside one iteration of a nest: declared, set, updated, read."""

    def __init__(self, dtype: str, ctx: LowerContext, name: str = "acc") -> None:
        self.buffer = decl_buffer((1,), dtype, name, VAR, span=ctx.span)
        self.dtype = dtype
        self.ctx = ctx

    def declare(self, value: Expr) -> list[Stmt]:
        """Its declaration, with a first value. A thread's own variable is declared by the pass."""
        if self.ctx.per_thread:
            self.ctx.temporaries.append(self.buffer)
            return [self.set(value)]
        return [AllocBuffer(self.buffer, None, self.ctx.span), self.set(value)]

    def set(self, value: Expr) -> Stmt:
        return store(self.buffer, value, [0], self.ctx.span)

    @property
    def value(self) -> Expr:
        return load(self.buffer, [0])


def accumulation_dtype(dtype: str) -> str:
    """The type in which many values of `dtype` are summed: narrow floats in float32, bool in int32, others as they are."""
    if dtype == "bool":
        return "int32"
    if dtype.startswith(("float", "bfloat")) and tvm.DataType(dtype).bits < 32:
        return "float32"
    return dtype


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "tfloat"))


def may_overlap(a: TensorRegion, b: TensorRegion, ctx: LowerContext) -> bool:
    """Could the two blocks share an element? Views count as the buffer that owns their storage."""
    if not _root(a, ctx).same_as(_root(b, ctx)):
        return False
    if not a.source.same_as(b.source):
        return True
    return not any(surely(x.min + x.extent <= y.min) or surely(y.min + y.extent <= x.min) for x, y in zip(a.region, b.region, strict=True))


def same_block(a: TensorRegion, b: TensorRegion) -> bool:
    """Provably the same elements of the same buffer, in the same order."""
    if not a.source.same_as(b.source):
        return False
    return all(same(x.min, y.min) and same(x.extent, y.extent) for x, y in zip(a.region, b.region, strict=True))


def _root(block: TensorRegion, ctx: LowerContext) -> Var:
    return ctx.roots.get(block.source, block.source)


def staged(block: TensorRegion, ctx: LowerContext, keep: int = 0) -> tuple[TensorRegion, Stmt]:
    """A copy of `block` in a temporary, and the statement that fills it: used where an operator writes what it reads.

    The temporary has the wide dimensions of the block and its last `keep` ones.
    """
    extents, wide = extents_of(block), wide_dims(block)
    shape = [e for k, e in enumerate(extents) if k in wide or k >= len(extents) - keep] or [1]
    scope = LOCAL if ctx.per_thread else FRAGMENT
    if not all(isinstance(e, int) for e in shape):  # registers and stacks need a constant size
        scope = GLOBAL
    copy = decl_buffer(shape, dtype_of(block), f"{block.source.name}_copy", scope, span=ctx.span)
    ctx.temporaries.append(copy)
    target = tile(copy)
    return target, nest([extents[k] for k in wide], lambda v: [write(target, v, read(block, v), ctx)], ctx)


def tile(buffer: Var) -> TensorRegion:
    """All of a buffer as a region."""
    shape = shape_of(buffer)
    return region(buffer, [0] * len(shape), shape)

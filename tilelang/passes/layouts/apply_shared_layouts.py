"""Accesses of shared tiles become accesses of flat runs of memory, by the layouts that were chosen.

In: a THREADS program with its barriers, `ctx.shared_layouts`. Out: the same; every shared buffer that is not row-major is a buffer of
one dimension and of all its bytes, with the facts `shared_layout`, `logical_shape`, `alignment` and `alignment_reason` on its
allocation. Elements, runs of elements along a row, and whole panels keep being what they are.

The address of a swizzled element is line + (chunk ^ phase), in chunks of 16 bytes, where lines are multiples of all chunks of a row.
Both numbers are simplified with what is known of loops and threads: the phase of a row that matrix instructions read is a
function of the lane alone. A chunk that is a sum of parts without common bits is the exclusive or of the parts. What loops
that are unrolled add to the line or flip in the chunk stands outermost: one address is computed for all iterations, each flips
some of its bits (one instruction) and adds a constant (none).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InternalError
from ...ir.access import allocations
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_ALLOC, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, substitute, uses, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    call,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    store,
    tirx,
)  # fmt: skip
from ...knobs import knobs
from ...layout.algebra import ravel
from ...layout.shared import SharedLayout
from ..analysis.facts import Facts
from .check_shared_layout import check_shared_layout


def apply_shared_layouts(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Rewrite every kernel region."""

    def of_kernel(kernel: KernelRegion) -> Stmt:
        found = {b: ctx.shared_layouts[b] for b in allocations(kernel.body) if b in ctx.shared_layouts}
        moved = {b: layout for b, layout in found.items() if not layout.is_row_major}
        return (_Applier(kernel, moved, ctx.sizes).run() if moved else kernel).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


class _Applier:
    """Rewrites one kernel region; its facts follow the program's order."""

    def __init__(self, kernel: KernelRegion, layouts: Mapping[Var, SharedLayout], sizes: Mapping[Var, tuple[int, int]]) -> None:
        self.kernel, self.layouts = kernel, layouts
        self.flat = {b: _flat(b, layout) for b, layout in layouts.items()}
        self.facts = Facts(sizes)
        self.unrolled: set[Var] = set()  # variables of unrolled loops
        self.lane: tuple[Var, int] | None = None  # of the loop whose iterations are a vector
        for var, extent in (*kernel.blocks, *kernel.threads):
            self.facts.bind_range(var, 0, extent)
        if knobs.verify:
            for buffer, layout in layouts.items():
                check_shared_layout(str(buffer.name), layout, self.offset)

    def run(self) -> KernelRegion:
        rules = {For: self._loop, Bind: self._bind, AllocBuffer: self._alloc, BufferStore: self._store, TensorLoad: self._load,
                 TensorRegion: self._region, Call: self._call, Evaluate: self._evaluate}  # fmt: skip
        annotations = {key: self._renamed(value) for key, value in self.kernel.annotations.items()}
        return replace(self.kernel, body=rewrite(self.kernel.body, rules), annotations=annotations)

    def _renamed(self, value: Any) -> Any:
        """An annotation whose keys may be buffers."""
        if not hasattr(value, "items"):
            return value
        return {self.flat.get(k, k) if isinstance(k, Var) else k: v for k, v in value.items()}

    # ---------------------------------------------------------------- the program
    def _loop(self, node: For, descend: Descend) -> Stmt:
        parts = self._in_chunks(node)
        if parts is not None:
            return descend(parts)
        self.facts.bind_range(node.loop_var, node.min, node.extent)
        outside = self.lane
        if node.kind == ForKind.VECTORIZED and isinstance(node.extent, IntImm):
            self.lane = node.loop_var, int(node.extent)
        elif node.kind == ForKind.UNROLLED:
            self.unrolled.add(node.loop_var)
        result = descend.children(node)
        self.lane = outside
        return result

    def _in_chunks(self, node: For) -> For | None:
        """A vector that is longer than the chunks of a swizzle as a loop over vectors of one chunk; None for all other loops."""
        if node.kind != ForKind.VECTORIZED or not isinstance(node.extent, IntImm) or not isinstance(node.min, IntImm):
            return None
        count, found = int(node.extent), set[int]()

        def note(buffer: Var) -> None:
            layout = self.layouts.get(buffer)
            if layout is not None and layout.swizzle and count > layout.chunk > 1 and count % layout.chunk == 0:
                found.add(layout.chunk)

        walk(node.body, {BufferStore: lambda s: note(s.buffer), TensorLoad: lambda e: note(e.source)})
        if not found:
            return None
        kind, size = dtype_of(node.loop_var), min(found)
        part, lane = Var("part", kind), Var(str(node.loop_var.name), kind)
        body = substitute(node.body, {node.loop_var: node.min + part * const(size, kind) + lane})
        inner = For(lane, const(0, kind), const(size, kind), ForKind.VECTORIZED, body, span=node.span)
        return For(part, const(0, kind), const(count // size, kind), ForKind.UNROLLED, inner, span=node.span)

    def _bind(self, node: Bind, descend: Descend) -> Stmt:
        result = descend.children(node)
        if hasattr(node.var.ty, "dtype"):
            self.facts.bind_value(node.var, node.value)
        return result

    def _alloc(self, node: AllocBuffer, descend: Descend) -> Stmt:
        layout = self.layouts.get(node.buffer)
        if layout is None:
            return node
        annotations = dict(node.annotations or {})
        facts = {k: v for k, v in dict(annotations.get(ANNOTATION_ALLOC, {})).items() if k != "layout"}
        placed = {"shared_layout": layout.name, "logical_shape": list(layout.shape)}
        if layout.alignment > int(facts.get("alignment", 0)):
            placed |= {"alignment": layout.alignment, "alignment_reason": layout.alignment_reason}
        return AllocBuffer(self.flat[node.buffer], {**annotations, ANNOTATION_ALLOC: {**facts, **placed}}, node.span)

    def _store(self, node: BufferStore, descend: Descend) -> Stmt:
        if node.buffer not in self.layouts:
            return descend.children(node)
        value, indices = descend(node.value), [descend(i) for i in node.indices]
        return store(self.flat[node.buffer], value, [self.place(self.layouts[node.buffer], indices)], node.span)

    def _load(self, node: TensorLoad, descend: Descend) -> Expr:
        if node.source not in self.layouts:
            return descend.children(node)
        indices = [descend(i) for i in node.indices]
        return load(self.flat[node.source], [self.place(self.layouts[node.source], indices)], node.span)

    def _evaluate(self, node: Evaluate, descend: Descend) -> Stmt:
        """A tile that is printed whole is printed element by element, each with its index in the tile."""
        printed = node.value.args[0] if op_name(node.value) == "tl.print" and node.value.args else None
        if not (isinstance(printed, TensorRegion) and printed.source in self.layouts):
            return descend.children(node)
        layout, block = self.layouts[printed.source], printed.region
        variables = [Var("p", "int32") for _ in block]
        indices = [_int32(descend(r.min)) + v for r, v in zip(block, variables, strict=True)]
        for v, r in zip(variables, block, strict=True):
            self.facts.bind_range(v, 0, r.extent)
        element = region(self.flat[printed.source], [self.offset(layout, indices)], [1])
        shown = call(node.value.op, [element, _expr(ravel(indices, layout.shape))], "void", node.value.attrs, node.value.span)
        body: Stmt = Evaluate(shown, node.span)
        for v, r in reversed(list(zip(variables, block, strict=True))):
            body = For(v, const(0, "int32"), r.extent, ForKind.SERIAL, body, span=node.span)
        return body

    def _call(self, node: Call, descend: Descend) -> Expr:
        """Warpgroup products know the arrangement of their operands: these are named by where they begin."""
        if op_name(node) != "tl.wgmma":
            return descend.children(node)
        operands = [self._corner(a, descend) if isinstance(a, TensorRegion) else descend(a) for a in node.args]
        return call(node.op, operands, "void", node.attrs, node.span)

    def _corner(self, node: TensorRegion, descend: Descend) -> TensorRegion:
        layout = self.layouts.get(node.source)
        if layout is None:
            return descend(node)
        return region(self.flat[node.source], [self.offset(layout, [_int32(descend(r.min)) for r in node.region])], [1])

    def _region(self, node: TensorRegion, descend: Descend) -> TensorRegion:
        layout = self.layouts.get(node.source)
        if layout is None:
            return descend.children(node)
        starts = [_int32(descend(r.min)) for r in node.region]
        extents = [int(r.extent) if isinstance(r.extent, IntImm) else 0 for r in node.region]
        count = self.run_of(layout, starts, extents)
        if count is None:
            raise InternalError(f"{node} is no run of elements of {node.source.name} ({layout.name})")
        return region(self.flat[node.source], [self.offset(layout, starts)], [count])

    # ---------------------------------------------------------------- places
    def place(self, layout: SharedLayout, indices: Sequence[Expr]) -> Expr:
        """The offset of an element. In a vector of neighbours of a row: that of the first one, and the lane."""
        indices = [_int32(i) for i in indices]
        if self.lane is not None and indices and layout.keeps(self.lane[1]):
            var, count = self.lane
            indices = [self.simple(i) for i in indices]  # looks through names, which may hold the lane
            if not any(uses(i, var) for i in indices[:-1]):
                last = self.simple(indices[-1] - _int32(var))
                if not uses(last, var) and self.facts.multiple_of(last, count):
                    return self.offset(layout, [*indices[:-1], last]) + _int32(var)
        return self.offset(layout, indices)

    def run_of(self, layout: SharedLayout, starts: Sequence[Expr], extents: Sequence[int]) -> int | None:
        """Elements of a region that are neighbours in memory, in order; None if they are not."""
        *others, count = extents
        if all(e == 1 for e in others):
            return count if layout.keeps(count) and (count == 1 or self.facts.multiple_of(starts[-1], count)) else None
        *lead, rows = others
        whole = layout.swizzle and all(e == 1 for e in lead) and count == layout.columns and rows <= layout.tile[-2]
        if whole and self.facts.multiple_of(starts[-1], count) and self.facts.multiple_of(starts[-2], 8):
            return rows * count
        return None

    def offset(self, layout: SharedLayout, indices: Sequence[Expr]) -> Expr:
        """Elements from the start of the buffer."""
        base, chunk, phase, within = layout.split(*indices)
        if not layout.swizzle:
            total = _sum([_expr(base), self.simple(within)])
            return self.facts.simplify(total) if layout.given is not None or layout.versions > 1 else total
        # Panels and versions are quotients of indices: simplified, they are constants or loop variables.
        base = _expr(base) if layout.columns == layout.tile[-1] else self.simple(base)
        steps, lines = self.divided(_products(base), layout.columns // layout.chunk)
        flips, bits = self.divided([*self.parts(self.simple(chunk)), *self.parts(self.simple(phase))])
        place = _exclusive_or([_sum([*lines, _exclusive_or(bits)]), *flips])
        return _sum([place * const(layout.chunk, "int32"), *(_times(t, layout.chunk) for t in steps), self.simple(within)])

    def divided(self, terms: Sequence[Expr], unit: int = 1) -> tuple[list[Expr], list[Expr]]:
        """(terms that are constants once the loops are unrolled, and multiples of `unit`; the others)"""
        fixed = [all(v in self.unrolled for v in _variables(t)) and (unit == 1 or self.facts.multiple_of(t, unit)) for t in terms]
        return [t for t, f in zip(terms, fixed, strict=True) if f], [t for t, f in zip(terms, fixed, strict=True) if not f]

    def simple(self, value: Any) -> Expr:
        return self.facts.simplify(_expr(value))

    def parts(self, value: Expr) -> list[Expr]:
        """Numbers whose exclusive or is `value`: the terms of a sum if no two have a bit in common, else `value`."""
        terms = _terms(value)
        if len(terms) == 1:
            return terms
        bounds = [self.facts.bounds(t) for t in terms]
        order = sorted(range(len(terms)), key=lambda k: bounds[k][1])
        below = 0  # all terms so far are less than 2 ** below
        for k in order:
            low, high = bounds[k]
            if low < 0 or (below and not self.facts.multiple_of(terms[k], 1 << below)):
                return [value]
            below = max(below, high.bit_length())
        return terms


def _flat(buffer: Var, layout: SharedLayout) -> Var:
    return decl_buffer((layout.elements,), dtype_of(buffer), str(buffer.name), buffer.scope(), alignment=layout.alignment, span=buffer.span)


def _expr(value: Any) -> Expr:
    return const(value, "int32") if isinstance(value, int) else value


def _int32(index: Any) -> Expr:
    """Shared memory has fewer than 2^31 elements."""
    if isinstance(index, int | IntImm):
        return const(int(index), "int32")
    return index if dtype_of(index) == "int32" else tirx.Cast("int32", index)


def _variables(value: Expr) -> list[Var]:
    found: list[Var] = []
    walk(value, {Var: found.append})
    return found


def _terms(value: Expr) -> list[Expr]:
    return [*_terms(value.a), *_terms(value.b)] if isinstance(value, tirx.Add) else [value]


def _products(value: Expr, factor: int = 1) -> list[Expr]:
    """The terms of a sum, products of sums with constants opened."""
    if isinstance(value, tirx.Add):
        return [*_products(value.a, factor), *_products(value.b, factor)]
    if isinstance(value, tirx.Mul) and isinstance(value.b, IntImm):
        return _products(value.a, factor * int(value.b))
    return [_times(value, factor)]


def _times(value: Expr, factor: int) -> Expr:
    if isinstance(value, IntImm):
        return const(int(value) * factor, "int32")
    if isinstance(value, tirx.Mul) and isinstance(value.b, IntImm):
        return _times(value.a, int(value.b) * factor)
    return value * const(factor, "int32") if factor != 1 else value


def _exclusive_or(values: Sequence[Expr]) -> Expr:
    """The exclusive or without zeros, constants last."""
    number, found = 0, None
    for value in values:
        if isinstance(value, IntImm):
            number ^= int(value)
        else:
            found = value if found is None else tirx.BitwiseXor(found, value)
    if found is None:
        return const(number, "int32")
    return tirx.BitwiseXor(found, const(number, "int32")) if number else found


def _sum(values: Sequence[Expr]) -> Expr:
    """The sum without zeros."""
    found = [v for v in values if not (isinstance(v, IntImm) and int(v) == 0)]
    total = found[0] if found else const(0, "int32")
    for value in found[1:]:
        total = total + value
    return total


__all__ = ["apply_shared_layouts"]

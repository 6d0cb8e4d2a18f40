"""Products of small tiles divide K among the warps of the block.

In: a TILE program. Out: the same, where a small accumulator C (M, N) has given way to `parts` (S, M, N): the warps form S slices, each of
which sums over its own S-th of K in registers of its own. Behind the outermost loop that does nothing to C but add products, the parts
are added up through shared memory. Otherwise a tile with fewer instructions than the block has warps would leave some idle, and
each of the others would load all of one operand: that is what products with up to 16 rows spend their time on.

S is the number that takes the fewest clocks by the estimate of `_clocks`. What declines: a B that is not in shared memory, sizes that
instructions do not divide, products that warpgroups execute, thread groups of the program's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.access import accesses, allocations, view_roots
from ...ir.context import PassContext
from ...ir.dialect import (
    ANNOTATION_ALLOC,
    ANNOTATION_PARALLEL,
    ATTR_WS,
    FRAGMENT,
    SHARED_DYN,
    SHARED_SCOPES,
    attr,
    make_call,
    op_name,
)  # fmt: skip
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Evaluate,
    Expr,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    Span,
    Stmt,
    Var,
    call,
    const,
    decl_buffer,
    dtype_of,
    ffi,
    load,
    location_of,
    seq,
    shape_of,
    store,
)  # fmt: skip
from ...passes.pipeline.pipeline_copies import tile_bytes
from ...target.limits import architecture, shared_bytes
from ...tileop.loops import accumulation_dtype, extents_of, loop_vars, tile
from .gemm import GEMM, is_whole, matrix_instruction
from .instr import WARP, Instruction
from .warps import warp_grid

SUBJECT = "gemm"
_UNKNOWN_TRIPS = 16  # of a loop whose extent only the call knows
_STEP = 32  # clocks between the loads of a step and its products
_REDUCTION = 256  # clocks: two barriers and the way through shared memory
_BYTES_A_CLOCK = 128  # of shared memory
_MOST_REGISTERS = 32  # of a thread, for its part of the sum


def split_products(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Divide the products of every kernel region."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _Splitter(kernel, roots, ctx).run().to_stmt()))


@dataclass(frozen=True)
class _Product:
    """A product whose K may be divided. around: the loops around it, outermost first."""

    stmt: Evaluate
    around: tuple[For, ...]
    size: tuple[int, int, int]
    instruction: Instruction
    clears: bool

    @property
    def instructions(self) -> int:
        """Matrix instructions that C is made of."""
        (rows, columns, _), (m, n, _) = self.size, self.instruction.shape
        return rows // m * (columns // n)

    @property
    def held(self) -> bool:
        """Is A in registers?"""
        return self.stmt.value.args[0].source.scope() == FRAGMENT

    @property
    def accumulator(self) -> Var:
        return self.stmt.value.args[2].source

    @property
    def policy(self) -> int:
        return int(attr(self.stmt.value, "policy", 0))


@dataclass(frozen=True)
class _Epoch:
    """`stmt` (a loop, or a product alone) does nothing to an accumulator but add products to it. parts: what takes its place there."""

    stmt: Stmt
    products: tuple[_Product, ...]
    parts: Var

    @property
    def slices(self) -> int:
        return int(shape_of(self.parts)[0])


class _Splitter:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext) -> None:
        self.kernel, self.roots, self.ctx = kernel, roots, ctx
        self.warps = kernel.num_threads // WARP
        self.seen = set(roots) | set(roots.values())
        shared = [tile_bytes(b) for b in allocations(kernel.body) if b.scope() in SHARED_SCOPES]
        self.room = shared_bytes(ctx.target) - sum(shared)
        self.products: list[_Product] = []
        self.around: list[For] = []

    def run(self) -> KernelRegion:
        if self.warps < 2:
            return self.kernel
        grouped: list[AttrStmt] = []
        walk(self.kernel.body, {AttrStmt: lambda a: grouped.append(a) if a.attr_key == ATTR_WS else None})
        if grouped:
            return self.kernel
        ffi.structural_visit(self.kernel.body, [(For, self._loop), (Evaluate, self._evaluate)])
        epochs = self._epochs()
        return self.kernel.with_body(_Rewriter(epochs).run(self.kernel.body)) if epochs else self.kernel

    # ---------------------------------------------------------------- what may be divided
    def _loop(self, node: For, visitor: Any) -> None:
        if ANNOTATION_PARALLEL in (node.annotations or {}):
            return
        self.around.append(node)
        visitor.default_visit(node)
        self.around.pop()

    def _evaluate(self, node: Evaluate, visitor: Any) -> None:
        if op_name(node.value) == GEMM:
            found = self._product(node)
            if found is not None:
                self.products.append(found)

    def _product(self, stmt: Evaluate) -> _Product | None:
        a, b, c, clear = stmt.value.args
        held = a.source.scope() == FRAGMENT and is_whole(a) and not attr(stmt.value, "transpose_A")
        placed = (held or a.source.scope() in SHARED_SCOPES) and b.source.scope() in SHARED_SCOPES and c.source.scope() == FRAGMENT
        if not (placed and is_whole(c) and isinstance(clear, IntImm)) or c.source in self.seen or a.source.same_as(c.source):
            return None
        size = (*extents_of(c)[-2:], extents_of(a)[-2 if attr(stmt.value, "transpose_A") else -1])
        instruction = matrix_instruction(stmt.value, self.ctx)
        if not all(isinstance(e, int) for e in size) or not isinstance(instruction, Instruction):
            return None
        (rows, columns, _), (m, n, k) = size, instruction.shape
        whole = not any(extent % part for extent, part in zip(size, (m, n, k), strict=True))
        if not whole or rows * columns > _MOST_REGISTERS * WARP or dtype_of(c) != accumulation_dtype(dtype_of(c)):
            return None
        if attr(stmt.value, "instruction") or (architecture(self.ctx.target) == "sm_90a" and rows % 64 == 0):
            return None  # for warpgroups
        return _Product(stmt, tuple(self.around), size, instruction, bool(int(clear)))

    # ---------------------------------------------------------------- where, and into how many parts
    def _epochs(self) -> list[_Epoch]:
        found: list[_Epoch] = []
        for product in self.products:
            if any(product.stmt.same_as(p.stmt) for epoch in found for p in epoch.products):
                continue
            stmt, products = self._outermost(product)
            slices = self._slices(stmt, products)
            if slices > 1:
                self.room -= slices * _result_bytes(product)
                c = product.accumulator
                shape = (slices, *product.size[:2])
                found.append(_Epoch(stmt, tuple(products), decl_buffer(shape, dtype_of(c), f"{c.name}_parts", FRAGMENT, span=c.span)))
                self.ctx.note(location_of(product.stmt), SUBJECT, f"{slices} slices of the warps divide K")
            elif product.instructions < self.warps:
                self.ctx.note(location_of(product.stmt), SUBJECT, "some warps idle: dividing K among them would cost more than it saves")
        return found

    def _outermost(self, product: _Product) -> tuple[Stmt, list[_Product]]:
        """The outermost loop that only adds products to the accumulator, else the product alone; and its products."""
        for loop in product.around if not product.clears else ():
            inside = [p for p in self.products if p.accumulator.same_as(product.accumulator) and any(s.same_as(loop) for s in p.around)]
            uses = sum(a.root.same_as(product.accumulator) for a in accesses(loop, self.roots))
            own = sum(a.root.same_as(product.accumulator) for p in inside for a in accesses(p.stmt, self.roots))
            if uses == own and not any(p.clears for p in inside):
                return loop, inside
        return product.stmt, [product]

    def _slices(self, stmt: Stmt, products: list[_Product]) -> int:
        """The number of slices that takes the fewest clocks, 1 for none."""
        first = products[0]
        if any(p.instruction is not first.instruction or p.policy != first.policy for p in products):
            return 1
        depths = [p.size[2] // p.instruction.shape[2] for p in products]
        room = self.room // _result_bytes(first)
        most = max(1, min(self.warps, room))
        possible = [s for s in range(1, most + 1) if self.warps % s == 0 and all(d % s == 0 for d in depths)]
        return min(possible, key=lambda s: (sum(self._clocks(stmt, p, s) for p in products) + self._sum(first, s), s))

    def _clocks(self, stmt: Stmt, product: _Product, slices: int) -> float:
        """An estimate for all executions of a product: on the way of each step stand the operands of all warps, which come from shared
        memory, and the latency of one product."""
        m, n, k = product.instruction.shape
        grid = warp_grid(*product.size[:2], self.warps // slices, product.policy, product.instruction)
        inner = product.around[_place(stmt, product.around) :]
        trips = math.prod(int(s.extent) if isinstance(s.extent, IntImm) else _UNKNOWN_TRIPS for s in inner)
        row = k * product.instruction.operands[1].bytes * WARP // (m * k)
        loaded = grid.n_tiles * n + (0 if product.held else grid.m_tiles * m)
        loads = loaded * row * grid.count * slices / _BYTES_A_CLOCK  # of one step of all slices
        return trips * (product.size[2] // k // slices) * (loads + _STEP)

    def _sum(self, product: _Product, slices: int) -> float:
        """An estimate for adding up the parts."""
        return _REDUCTION + 2 * slices * _result_bytes(product) / _BYTES_A_CLOCK if slices > 1 else 0


def _result_bytes(product: _Product) -> int:
    return tile_bytes(product.accumulator)


def _place(stmt: Stmt, around: tuple[For, ...]) -> int:
    return next((k for k, s in enumerate(around) if s.same_as(stmt)), len(around))


class _Rewriter:
    """The body with the products of all epochs divided."""

    def __init__(self, epochs: list[_Epoch]) -> None:
        self.epochs = epochs

    def run(self, body: Stmt) -> Stmt:
        return rewrite(body, {For: self._loop, Evaluate: self._evaluate})

    def _loop(self, node: For, descend: Descend) -> Stmt:
        return self._around(node, descend.children(node))

    def _evaluate(self, node: Evaluate, descend: Descend) -> Stmt:
        epoch = next((e for e in self.epochs for p in e.products if p.stmt.same_as(node)), None)
        if epoch is None:
            return descend.children(node)
        a, b, _, clear = node.value.args
        attrs = {**dict(node.value.attrs or {}), "slices": epoch.slices}
        divided = Evaluate(call(node.value.op, [a, b, tile(epoch.parts), clear], "void", attrs), node.span)
        return self._around(node, divided)

    def _around(self, node: Stmt, inside: Stmt) -> Stmt:
        """`inside` between the beginning and the end of the epochs that `node` is."""
        for epoch in self.epochs:
            if epoch.stmt.same_as(node):
                inside = seq([*_begin(epoch), inside, *_end(epoch)])
        return inside


def _begin(epoch: _Epoch) -> list[Stmt]:
    first, parts = epoch.products[0], epoch.parts
    stmts: list[Stmt] = [AllocBuffer(parts, {ANNOTATION_ALLOC: {}}, first.stmt.span)]
    if not first.clears:
        zero = const(0, dtype_of(parts))
        stmts.append(Evaluate(make_call("tl.tileop.fill", [tile(parts), zero], span=first.stmt.span), first.stmt.span))
    return stmts


def _end(epoch: _Epoch) -> list[Stmt]:
    """C = the sum of the parts, or C += that."""
    product, parts, span = epoch.products[0], epoch.parts, epoch.products[0].stmt.span
    c, (slices, *extents) = product.accumulator, shape_of(parts)
    between = decl_buffer(shape_of(parts), dtype_of(parts), f"{c.name}_slices", SHARED_DYN, alignment=16, span=span)
    terms = [lambda v, s=s: load(between, [const(s, "int32"), *v]) for s in range(slices)]
    old = [] if product.clears else [lambda v: load(c, _element(c, v))]
    return [
        AllocBuffer(between, {ANNOTATION_ALLOC: {}}, span),
        _nest([slices, *extents], lambda v: store(between, load(parts, v), v, span), span),
        _nest(extents, lambda v: store(c, _total([t(v) for t in (*terms, *old)]), _element(c, v), span), span),
    ]


def _element(c: Var, position: list[Var]) -> list[Any]:
    return [*([const(0, "int32")] * (len(shape_of(c)) - 2)), *position]


def _total(terms: list[Expr]) -> Expr:
    """The sum, as a tree."""
    while len(terms) > 1:
        terms = [terms[k] + terms[k + 1] if k + 1 < len(terms) else terms[k] for k in range(0, len(terms), 2)]
    return terms[0]


def _nest(extents: list[int], body: Any, span: Span | None) -> Stmt:
    """A `T.Parallel` over `extents`."""
    variables = loop_vars(extents)
    stmt = body(variables)
    for k in reversed(range(len(extents))):
        annotations = {ANNOTATION_PARALLEL: IntImm("int32", len(extents))} if k == 0 else None
        stmt = For(variables[k], const(0, "int32"), const(extents[k], "int32"), ForKind.PARALLEL, stmt, annotations=annotations, span=span)
    return stmt

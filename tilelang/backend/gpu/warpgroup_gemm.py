"""T.gemm on the asynchronous products of warpgroups (`wgmma`, sm_90a): operands stay in shared memory, C in registers.

In: a gemm call whose operands lie in swizzled shared tiles (A also in a fragment). Out: the program of a thread: fence, products,
commit, wait. Waiting is moved to the first statement that needs the result by `relax_waits`. A C of 16-bit floats is summed in registers of
float32 beside it, and rounded once a call. What declines goes to `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import FRAGMENT, LOCAL, SHARED_SCOPES, attr, make_call
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
    Evaluate,
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
    tirx,
)  # fmt: skip
from ...layout.fragment import Fragment
from ...layout.shared import SharedLayout
from ...passes.layouts.register_maps import register_map
from ...target.limits import architecture
from ...tileop.base import LowerContext, Lowering
from ...tileop.loops import accumulation_dtype, extents_of, mins_of
from .gemm import GEMM, KEY_TF32, is_whole
from .instr import WARP
from .warps import FULL_COL, at, bind_warps, loop, threads_of
from .wgmma import WARPGROUP, M, Matrix, Product, product_of

KEY_OFF = "tl.disable_wgmma"
LINES = 8  # rows after which every swizzle repeats


@dataclass(frozen=True)
class WarpgroupGrid:
    """rows x columns of warpgroups (row-major); each has m_tiles x n_tiles products of 64 x n."""

    rows: int
    columns: int
    m_tiles: int
    n_tiles: int
    product: Product

    def accumulator(self, shape: Sequence[int]) -> Fragment:
        """The fragment of C: (..., M, N), leading dimensions of extent 1."""
        n, atom, rank = self.product.n, self.product.accumulator, len(shape)
        per_thread = M * n // WARPGROUP

        def place(*index: Any) -> tuple[Any, Any]:
            i, j = index[rank - 2], index[rank - 1]
            thread, register = atom.forward([i % M, j % n])
            group = i // (M * self.m_tiles) * self.columns + j // (n * self.n_tiles)
            tile = i // M % self.m_tiles * self.n_tiles + j // n % self.n_tiles
            return group * WARPGROUP + thread, tile * per_thread + register

        return Fragment(tuple(shape), place)

    def left(self, shape: Sequence[int]) -> Fragment:
        """The fragment of A (..., M, K) as a register operand: every column of warpgroups holds a copy."""
        k, atom, rank = self.product.k, self.product.left, len(shape)
        k_tiles, per_thread = shape[-1] // k, M * k // WARPGROUP

        def place(*index: Any) -> tuple[Any, Any]:
            i, r = index[rank - 2], index[rank - 1]
            copy = index[rank] if len(index) > rank else 0
            thread, register = atom.forward([i % M, r % k])
            group = i // (M * self.m_tiles) * self.columns + copy
            return group * WARPGROUP + thread, (i // M % self.m_tiles * k_tiles + r // k) * per_thread + register

        return Fragment(tuple(shape), place, replicate=self.columns)


@dataclass(frozen=True)
class _Shared:
    """An operand in shared memory. lines: the dimension of the block along which the 8 lines of a swizzle run (rows of a "k" matrix);
    start: the block's first row and column. across: columns (of C or A) that one panel is wide, for an "mn" matrix."""

    block: TensorRegion
    matrix: Matrix
    across: int

    @property
    def by_rows(self) -> bool:
        return self.matrix.major == "k"


@dataclass(frozen=True)
class _Call:
    """A gemm call as numbers: (m, n, k) its size; a: an operand in shared memory, or None for one in registers."""

    a: _Shared | None
    b: _Shared
    left: TensorRegion
    c: TensorRegion
    clear: Expr
    depth: int
    grid: WarpgroupGrid


def _read(call: Call, ctx: LowerContext) -> _Call | str:
    """The call as a `_Call`, or why it is none."""
    a, b, c, clear = call.args
    if architecture(ctx.passes.target) != "sm_90a":
        return f"{architecture(ctx.passes.target)} has no wgmma (sm_90a has)"
    if ctx.passes.flag(KEY_OFF):
        return f"the program turns it off ({KEY_OFF})"
    if ctx.per_thread or ctx.kernel is None:
        return "an operand belongs to one thread"
    threads = threads_of(ctx).count
    if threads % WARPGROUP:
        return f"{threads} threads are no whole warpgroups of {WARPGROUP}"
    across = bool(attr(call, "transpose_A")), not attr(call, "transpose_B")
    size = (*extents_of(c)[-2:], extents_of(a)[-2 if across[0] else -1])
    if not all(isinstance(e, int) for e in size):
        return f"the size {size} is not constant"
    sums = accumulation_dtype(dtype_of(c))
    if c.source.scope() != FRAGMENT or dtype_of(c) not in (sums, "float16", "bfloat16") or not is_whole(c):
        return "C is no whole fragment of an accumulator's type"
    if "float32" in (dtype_of(a), dtype_of(b)) and not ctx.passes.flag(KEY_TF32):
        return f"products of float32 are three of tf32 ({KEY_TF32} takes one)"
    a_type, b_type = ("tf32" if dtype_of(x) == "float32" else dtype_of(x) for x in (a, b))
    grid = _grid(size, threads // WARPGROUP, int(attr(call, "policy", 0)), (sums, a_type, b_type))
    if isinstance(grid, str):
        return grid
    if size[2] % grid.product.k:
        return f"K = {size[2]} is no multiple of {grid.product.k}"
    right = _in_shared(b, across[1], grid, ctx)
    if isinstance(right, str):
        return f"B: {right}"
    if right.matrix.major == "mn" and grid.columns > 1 and grid.product.n * grid.n_tiles % right.across:
        return "a panel of B belongs to two warpgroups"
    if a.source.scope() == FRAGMENT:
        if across[0] or not is_whole(a) or a.source.same_as(c.source):
            return "A is no whole fragment stored by rows"
        return _Call(None, right, a, c, clear, size[2], grid)
    left = _in_shared(a, across[0], grid, ctx)
    return f"A: {left}" if isinstance(left, str) else _Call(left, right, a, c, clear, size[2], grid)


def _grid(size: Sequence[int], groups: int, policy: int, dtypes: tuple[str, str, str]) -> WarpgroupGrid | str:
    """The warpgroups over C: rows first, as far as there are rows for all; the policy FULL_COL gives them columns."""
    m, n, _ = size
    if m % M:
        return f"M = {m} is no multiple of {M}"
    rows = 1 if policy == FULL_COL else max(r for r in range(1, groups + 1) if groups % r == 0 and m // M % r == 0)
    columns = groups // rows
    if n % columns or m // M % rows:
        return f"a tile of {m} x {n} cannot be dealt out to {groups} warpgroups"
    mine = n // columns
    for parts in range(1, mine + 1):
        found = product_of(mine // parts, *dtypes) if mine % parts == 0 else None
        if found is not None:
            return WarpgroupGrid(rows, columns, m // M // rows, parts, found)
    return f"no product of {dtypes[1]} and {dtypes[2]} into {dtypes[0]} with columns that divide {mine}"


def _in_shared(block: TensorRegion, across: bool, grid: WarpgroupGrid, ctx: LowerContext) -> _Shared | str:
    """The operand as a matrix in shared memory. across: the dimension that is summed over is not the contiguous one."""
    if across and not grid.product.transposes():
        return f"{dtype_of(block)} operands must be contiguous along K"
    layout: SharedLayout | None = ctx.passes.shared_layouts.get(block.source)
    if block.source.scope() not in SHARED_SCOPES or layout is None or not layout.swizzle:
        return f"{block.source.name} is no swizzled tile of shared memory"
    row, column = mins_of(block)[-2:]
    if not (_multiple(row, LINES) and _multiple(column, layout.columns)):
        return f"the block of {block.source.name} does not begin at a panel"
    size = layout.bits // 8
    matrix = Matrix("mn" if across else "k", layout.swizzle, layout.panel * size if across else 16, LINES * layout.swizzle)
    return _Shared(block, matrix, layout.columns)


def _multiple(value: Any, count: int) -> bool:
    """Is it certainly a multiple? Products with such constants, and sums of them, are."""
    if isinstance(value, int | IntImm):
        return int(value) % count == 0
    if isinstance(value, tirx.Mul):
        return _multiple(value.a, count) or _multiple(value.b, count)
    if isinstance(value, tirx.Add | tirx.Sub):
        return _multiple(value.a, count) and _multiple(value.b, count)
    return False


def layouts(call: Call, ctx: LowerContext) -> Mapping[Any, Fragment]:
    """What the products want: C as an accumulator, a fragment A as their register operand."""
    p = _read(call, ctx)
    if isinstance(p, str):
        return {}
    found = {p.c.source: p.grid.accumulator(shape_of(p.c.source))}
    if p.a is None:
        found[p.left.source] = p.grid.left(shape_of(p.left.source))
    threads = threads_of(ctx).count
    return found if all(register_map(layout, threads) is not None for layout in found.values()) else {}


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None where warpgroup products can compute the call: operands have the layouts that they want."""
    p = _read(call, ctx)
    if isinstance(p, str):
        return p
    if _registers(p.c.source, p.grid.accumulator, ctx) is None:
        return f"{p.c.source.name} has another layout"
    if p.a is None and _registers(p.left.source, p.grid.left, ctx) is None:
        return f"{p.left.source.name} has another layout"
    return None


def _registers(buffer: Var, wanted: Any, ctx: LowerContext) -> Var | None:
    """The registers of a fragment that has the layout `wanted`."""
    plan = ctx.passes.fragments.get(buffer)
    if plan is None or plan.groups != ctx.groups or not plan.layout.is_equal(wanted(shape_of(buffer))):
        return None
    return plan.registers


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The products of one call as one group, waited for at once."""
    p = _read(call, ctx)
    assert isinstance(p, _Call)
    return _Emitter(p, ctx).run()


class _Emitter:
    """Builds the statements of one call."""

    def __init__(self, p: _Call, ctx: LowerContext) -> None:
        self.p, self.ctx, self.span = p, ctx, ctx.span
        self.warps = bind_warps(ctx)
        accumulator = _registers(p.c.source, p.grid.accumulator, ctx)
        assert accumulator is not None
        self.result: Var = accumulator
        self.c = accumulator if dtype_of(p.c) == accumulation_dtype(dtype_of(p.c)) else self.sums()
        self.a = None if p.a is not None else _registers(p.left.source, p.grid.left, ctx)

    def run(self) -> Stmt:
        grid = self.p.grid
        steps = self.p.depth // grid.product.k

        def tile(i: Any, s: Any) -> list[Stmt]:
            return [loop(grid.n_tiles, lambda j: [self.one(i, j, s)], "j", self.span)]

        body = loop(steps, lambda s: [loop(grid.m_tiles, lambda i: tile(i, s), "i", self.span)], "s", self.span)
        wait = make_call("tl.wgmma_wait", [const(0, "int32"), region(self.c, [0], list(shape_of(self.c)))], span=self.span)
        products = [self.fence(), body, self.call("tl.wgmma_commit"), Evaluate(wait, self.span)]
        if self.c.same_as(self.result):
            return seq([*self.warps.declare, *products])
        cleared = isinstance(self.p.clear, IntImm) and bool(int(self.p.clear))
        before = [] if cleared else [self.converted(self.result, self.c)]
        allocation = AllocBuffer(self.c, None, self.span)
        return seq([*self.warps.declare, allocation, *before, *products, self.converted(self.c, self.result)])

    def sums(self) -> Var:
        """Registers in which the products into a narrower C are summed."""
        c = self.result
        return decl_buffer(shape_of(c), accumulation_dtype(dtype_of(c)), f"{c.name}_acc", LOCAL, alignment=16, span=self.span)

    def converted(self, source: Var, target: Var) -> Stmt:
        """Every register of `source`, converted, into the same one of `target`; two at a time."""
        pair, lane = Var("r", "int32"), Var("lane", "int32")
        register = pair * 2 + lane
        one = store(target, tirx.Cast(dtype_of(target), load(source, [register])), [register], self.span)
        body = For(lane, 0, 2, ForKind.VECTORIZED, one, span=self.span)
        return For(pair, 0, int(shape_of(source)[0]) // 2, ForKind.UNROLLED, body, span=self.span)

    def call(self, name: str) -> Stmt:
        return Evaluate(make_call(name, [], span=self.span), self.span)

    def fence(self) -> Stmt:
        """Names A in registers: it is complete before the first product, or the assembler would stop between the products for it."""
        operands = [] if self.a is None else [region(self.a, [0], list(shape_of(self.a)))]
        return Evaluate(make_call("tl.wgmma_fence", operands, span=self.span), self.span)

    def one(self, i: Any, j: Any, s: Any) -> Stmt:
        """The product of row i and column j of this warpgroup's, step s."""
        p, grid, record = self.p, self.p.grid, self.p.grid.product
        per_thread = M * record.n // WARPGROUP
        c = region(self.c, [at(at(0, per_thread * grid.n_tiles, i), per_thread, j)], [per_thread])
        if p.a is not None:
            left = self.block(p.a, at(at(0, M * grid.m_tiles, self.place(0)), M, i), s, M)
        else:
            assert self.a is not None
            elements = M * record.k // WARPGROUP
            left = region(self.a, [at(at(0, elements * (p.depth // record.k), i), elements, s)], [elements])
        right = self.block(p.b, at(at(0, record.n * grid.n_tiles, self.place(1)), record.n, j), s, record.n)
        attrs = {"name": record.name, "a_matrix": p.a.matrix.text if p.a is not None else None, "b_matrix": p.b.matrix.text}
        return Evaluate(make_call("tl.wgmma", [c, left, right, self.keep(s)], span=self.span, **attrs), self.span)

    def keep(self, s: Any) -> Expr:
        """Is C added to? Not in the first step of a call that clears it."""
        clear = self.p.clear
        first = const(int(s) == 0, "bool") if isinstance(s, int | IntImm) else tirx.EQ(s, const(0, "int32"))
        if isinstance(clear, IntImm):
            return (
                const(1, "bool") if not int(clear) else tirx.Not(first) if not isinstance(first, IntImm) else const(not int(first), "bool")
            )
        return tirx.Not(clear) if isinstance(first, IntImm) and int(first) else tirx.Not(tirx.And(first, clear))

    def block(self, operand: _Shared, row: Expr, s: Any, rows: int) -> TensorRegion:
        """The part of a shared operand from `row` (of M or N) and step s on."""
        block, k = operand.block, self.p.grid.product.k
        lead, (first, second) = mins_of(block)[:-2], mins_of(block)[-2:]
        along = at(0, k, s)
        down, right = (row, along) if operand.by_rows else (along, row)
        extents = [rows, k] if operand.by_rows else [k, rows]
        return region(block.source, [*lead, at(first, 1, down), at(second, 1, right)], [*([1] * len(lead)), *extents])

    def place(self, axis: int) -> Any:
        """The row (axis 0) or column (1) of this thread's warpgroup in the grid."""
        grid = self.p.grid
        group = self.warps.warp // (WARPGROUP // WARP)
        if (grid.rows, grid.columns)[axis] == 1:
            return 0
        if (grid.columns, grid.rows)[axis] == 1:
            return group
        return group // grid.columns if axis == 0 else group % grid.columns


WGMMA = Lowering("wgmma", GEMM, accepts, lower, layouts)

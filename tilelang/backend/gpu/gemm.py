"""T.gemm on matrix instructions (`mma.sync`): each warp computes a block of C in registers.

In: a gemm call whose operands are tiles of the block. Out: the program of a thread. Operands that are not where the instructions
want them are moved by ordinary loops: a fragment A of another layout, and B in a fragment, through a shared tile; a C that is
in shared memory, a slice, of another type or layout, through a fragment of its own. Sizes that the instructions do not divide
are padded with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.context import FragmentPlan, PassContext
from ...ir.dialect import FRAGMENT, LOCAL, SHARED_DYN, attr
from ...ir.expr import convert
from ...ir.positions import multiple_of
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
    Expr,
    ForKind,
    IfThenElse,
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
    tvm,
)  # fmt: skip
from ...layout.fragment import Fragment
from ...passes.layouts.choose_shared_layouts import operand_layout
from ...passes.layouts.register_maps import register_map
from ...target.limits import architecture
from ...tileop.base import LowerContext, Lowering
from ...tileop.gemm import slices_of
from ...tileop.loops import accumulation_dtype, extents_of, indices, mins_of, nest, read, tile, wide_dims, write
from .instr import WARP, Instruction, load_matrices, product, split_product
from .warps import WarpGrid, Warps, at, bind_warps, loop, threads_of, warp_grid

GEMM = "tl.tileop.gemm"
KEY_TF32 = "tl.allow_tf32"  # pass configuration: float32 operands are rounded to tf32, three times as fast and a thousandth as exact


@dataclass(frozen=True)
class _Product:
    """A gemm call as numbers. a, b, c: regions; (m, n, k): its size; transposed: (A, B)."""

    a: TensorRegion
    b: TensorRegion
    c: TensorRegion
    clear: Expr
    size: tuple[int, int, int]
    transposed: tuple[bool, bool]
    grid: WarpGrid

    @property
    def instruction(self) -> Instruction:
        return self.grid.instruction

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of C in whole instructions."""
        (m, n, _), (rows, columns, _) = self.instruction.shape, self.size
        return -(-rows // m) * m, -(-columns // n) * n


def matrix_instruction(call: Call, ctx: PassContext) -> Instruction | str:
    """The instruction that multiplies the call's operands, or why there is none."""
    a, b, c, _ = call.args
    instruction = product(dtype_of(a), dtype_of(b), accumulation_dtype(dtype_of(c)))
    if dtype_of(a) == dtype_of(b) == "float32" and instruction is not None and not ctx.flag(KEY_TF32):
        instruction = split_product()
    if instruction is None:
        return f"no matrix instruction multiplies {dtype_of(a)} by {dtype_of(b)} into {dtype_of(c)}"
    arch = architecture(ctx.target)
    if int("".join(d for d in arch if d.isdigit()) or 0) < instruction.architecture:
        return f"{arch} has no {instruction.name}"
    return instruction


def _read(call: Call, ctx: LowerContext) -> _Product | str:
    """The call as a `_Product`, or why it is none."""
    a, b, c, clear = call.args
    instruction = matrix_instruction(call, ctx.passes)
    if isinstance(instruction, str):
        return instruction
    if ctx.per_thread or ctx.kernel is None:
        return "an operand belongs to one thread"
    warps = threads_of(ctx).count // WARP
    if not warps:
        return f"a matrix instruction needs a warp of {WARP} threads"
    transposed = bool(attr(call, "transpose_A")), bool(attr(call, "transpose_B"))
    size = (*extents_of(c)[-2:], extents_of(a)[-2 if transposed[0] else -1])
    if not all(isinstance(e, int) for e in size):
        return f"the size {size} is not constant"
    slices = slices_of(call)
    if slices > warps or size[2] % (slices * (instruction.shape[2] if slices > 1 else 1)):
        return f"K = {size[2]} and {warps} warps cannot be dealt out in {slices} slices"
    grid = replace(warp_grid(size[0], size[1], warps // slices, int(attr(call, "policy", 0)), instruction), slices=slices)
    return _Product(a, b, c, clear, size, transposed, grid)


def is_whole(block: TensorRegion) -> bool:
    """Does the region name its whole buffer, whose leading dimensions are 1?"""
    mins = [int(m) if isinstance(m, IntImm) else m for m in mins_of(block)]
    shape = shape_of(block.source)
    return all(isinstance(m, int) and m == 0 for m in mins) and list(shape) == extents_of(block) and all(e == 1 for e in shape[:-2])


def _accumulates_in_place(p: _Product) -> bool:
    """Can the instructions work on the registers of C itself, given the right layout?"""
    fits = p.padded == p.size[:2] and dtype_of(p.c) == accumulation_dtype(dtype_of(p.c))
    whole = is_whole(p.c) if p.grid.slices == 1 else extents_of(p.c) == list(shape_of(p.c.source)) == [p.grid.slices, *p.size[:2]]
    return p.c.source.scope() == FRAGMENT and fits and whole


def _reads_registers(p: _Product) -> bool:
    """Can the instructions take A from the registers of a fragment, given the right layout?"""
    m, _, k = p.instruction.shape
    fits = p.size[0] % m == 0 and p.size[2] % (k * p.grid.slices) == 0 and not p.transposed[0]
    return p.a.source.scope() == FRAGMENT and fits and is_whole(p.a) and not p.a.source.same_as(p.c.source)


def _has_formula(layout: Fragment, threads: int) -> bool:
    return layout.get_thread_size() <= threads and register_map(layout, threads) is not None


def layouts(call: Call, ctx: LowerContext) -> Mapping[Any, Fragment]:
    """What the instructions want: C as an accumulator, a fragment A as their register operand."""
    p = _read(call, ctx)
    if isinstance(p, str):
        return {}
    found: dict[Any, Fragment] = {}
    if _accumulates_in_place(p):
        found[p.c.source] = p.grid.accumulator(shape_of(p.c.source))
    if _reads_registers(p):
        found[p.a.source] = p.grid.left(shape_of(p.a.source))
    threads = threads_of(ctx).count
    return {buffer: layout for buffer, layout in found.items() if _has_formula(layout, threads)}


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None where matrix instructions can compute the call."""
    p = _read(call, ctx)
    if isinstance(p, str):
        return p
    if p.grid.slices > 1:
        return None if _registers_in_place(p, ctx) is not None else "the registers of the partial results have another layout"
    if not _has_formula(p.grid.accumulator(p.padded), threads_of(ctx).count):
        return f"the accumulator of shape {p.size[:2]} has no formula on {p.grid.rows} x {p.grid.columns} warps"
    return None


def _registers_in_place(p: _Product, ctx: LowerContext) -> Var | None:
    """The registers of C, where the instructions can update them."""
    return _registers_of(p.c.source, p.grid.accumulator, ctx) if _accumulates_in_place(p) else None


def _registers_of(buffer: Var, wanted: Any, ctx: LowerContext) -> Var | None:
    """The registers of a fragment that has the layout `wanted`."""
    plan = ctx.passes.fragments.get(buffer)
    if plan is None or plan.groups != ctx.groups or not plan.layout.is_equal(wanted(shape_of(buffer))):
        return None
    return plan.registers


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The product on matrix instructions."""
    p = _read(call, ctx)
    assert isinstance(p, _Product)
    return _Emitter(p, ctx).run()


class _Emitter:
    """Builds the statements of one product."""

    def __init__(self, p: _Product, ctx: LowerContext) -> None:
        self.p, self.ctx = p, ctx
        self.warps: Warps = bind_warps(ctx)
        self.before: list[Stmt] = []
        self.after: list[Stmt] = []
        self.span = ctx.span

    def run(self) -> Stmt:
        p = self.p
        accumulator, zero = self.accumulator()
        a_registers = _registers_of(p.a.source, p.grid.left, self.ctx) if _reads_registers(p) else None
        a = p.a if a_registers is not None else self.in_shared(p.a, p.transposed[0])
        b = self.in_shared(p.b, not p.transposed[1])
        body = [*zero, *self.product(a, b, accumulator, a_registers)]
        return seq([*self.before, *self.warps.declare, self.warps.only(p.grid.count, seq(body), self.span), *self.after])

    # ---------------------------------------------------------------- operands
    def in_shared(self, block: TensorRegion, across: bool) -> TensorRegion:
        """The block itself, or a shared copy of a fragment. across: the dimension that is summed over is not the contiguous one."""
        if block.source.scope() != FRAGMENT:
            return block
        extents = extents_of(block)
        wide = wide_dims(block)
        copy = decl_buffer(extents[-2:], dtype_of(block), f"{block.source.name}_shared", SHARED_DYN, alignment=16, span=self.span)
        self.ctx.temporaries.append(copy)
        self.ctx.passes.shared_layouts[copy] = operand_layout(copy, across)
        target = region(copy, [0, 0], extents[-2:])
        self.before.append(nest([extents[k] for k in wide], lambda v: [write(target, v, read(block, v), self.ctx)], self.ctx))
        return target

    def accumulator(self) -> tuple[Var, list[Stmt]]:
        """The registers that the instructions update, and the statements that clear them. A C that cannot be updated in place is
        copied into a fragment before and out of it afterwards."""
        p, ctx = self.p, self.ctx
        mine = _registers_in_place(p, ctx)
        if mine is not None:
            return mine, self.cleared(mine, p.clear)
        layout = p.grid.accumulator(p.padded)
        dtype = accumulation_dtype(dtype_of(p.c))
        buffer = decl_buffer(p.padded, dtype, f"{p.c.source.name}_acc", FRAGMENT, span=self.span)
        registers = decl_buffer((layout.get_register_size(),), dtype, str(buffer.name), LOCAL, alignment=16, span=self.span)
        ctx.passes.fragments[buffer] = FragmentPlan(layout, registers, ctx.groups)
        ctx.temporaries.append(buffer)
        whole, extents = tile(buffer), p.size[:2]
        rank = len(p.c.region)
        c = p.c

        def into(v: list[Var]) -> list[Stmt]:
            return [write(part, _wide(part, v), load(c.source, indices(c, {rank - 2: v[0], rank - 1: v[1]})), ctx)]

        def back(v: list[Var]) -> list[Stmt]:
            value = load(buffer, v)
            place = indices(c, {rank - 2: v[0], rank - 1: v[1]})
            return [store(c.source, convert(value, dtype_of(c)), place, ctx.span)]

        part = region(buffer, [0, 0], extents)
        if p.padded != extents:
            self.before.append(nest(list(p.padded), lambda v: [write(whole, _wide(whole, v), const(0, dtype), ctx)], ctx))
        if not _is_constant(p.clear, 1):
            self.before.append(nest(list(extents), into, ctx))
        self.after.append(nest(list(extents), back, ctx))
        return registers, self.cleared(registers, p.clear)

    def cleared(self, registers: Var, clear: Expr) -> list[Stmt]:
        if _is_constant(clear, 0):
            return []
        zero = const(0, dtype_of(registers))
        count = int(shape_of(registers)[0])
        stmt = loop(count, lambda r: [store(registers, zero, [r], self.span)], "r", self.span)
        return [stmt if _is_constant(clear, 1) else IfThenElse(clear, stmt, None, self.span)]

    # ---------------------------------------------------------------- the instructions
    def product(self, a: TensorRegion, b: TensorRegion, accumulator: Var, a_registers: Var | None) -> list[Stmt]:
        p, grid = self.p, self.p.grid
        (_, _, k), (c_count, a_count, b_count) = p.instruction.shape, self.counts()
        steps = -(-p.size[2] // grid.slices // k)
        allocations: list[Stmt] = []
        left = a_registers if a_registers is not None else self.local("a", grid.m_tiles * a_count, dtype_of(a), allocations)
        width = self.columns_at_once(b)
        right = self.local("b", width * b_count, dtype_of(b), allocations)

        def step(s: Any) -> list[Stmt]:
            stmts = []
            if a_registers is None:
                stmts.append(loop(grid.m_tiles, lambda i: [self.load_left(a, left, i, s)], "i", self.span))
            stmts.append(loop(grid.n_tiles // width, lambda j: [self.inside(1, j, seq(both(j, s)))], "j", self.span))
            return stmts

        def both(j: Any, s: Any) -> list[Stmt]:
            columns = loop(width, lambda h: [column(at(at(0, width, j), 1, h), h, s)], "h", self.span)
            return [self.load_right(b, right, j, s, width), columns]

        def first(i: Any, s: Any) -> Expr:
            return at(at(0, a_count * steps, i), a_count, s) if a_registers is not None else at(0, a_count, i)

        def multiply(i: Any, j: Any, h: Any, s: Any) -> Stmt:
            c_at = at(at(0, c_count * grid.n_tiles, i), c_count, j)
            places = (accumulator, c_at, c_count), (left, first(i, s), a_count), (right, at(0, b_count, h), b_count)
            return p.instruction.call([region(buffer, [start], [count]) for buffer, start, count in places], self.span)

        def column(j: Any, h: Any, s: Any) -> Stmt:
            return loop(grid.m_tiles, lambda i: [self.inside(0, i, multiply(i, j, h, s))], "i", self.span)

        return [*allocations, loop(steps, step, "s", self.span)]

    def columns_at_once(self, b: TensorRegion) -> int:
        """How many columns of instructions one load serves: ldmatrix gives a lane up to four registers."""
        grid = self.p.grid
        whole = grid.columns * grid.n_tiles == self.p.padded[1] // self.p.instruction.shape[1]
        return 2 if whole and grid.n_tiles % 2 == 0 and self.right_in_matrices(b) else 1

    def right_in_matrices(self, b: TensorRegion) -> bool:
        """Can ldmatrix read the right operand?"""
        bits = self.counts()[2] * tvm.DataType(dtype_of(b)).bits
        return bits == 64 and self.rows_of_matrices(b, (self.p.size[1], self.p.padded[1]), not self.p.transposed[1])

    def inside(self, axis: int, number: Any, body: Stmt) -> Stmt:
        """`body` if this warp's row (axis 0) or column (1) `number` of instructions is part of C: all of its lanes agree on that."""
        grid, shape = self.p.grid, self.p.instruction.shape
        warps, tiles = ((grid.rows, grid.m_tiles), (grid.columns, grid.n_tiles))[axis]
        present = self.p.padded[axis] // shape[axis]
        if warps * tiles == present:
            return body
        mine = at(at(0, tiles, self.warp_place(axis)), 1, number)
        return IfThenElse(tirx.LT(mine, const(present, "int32")), body, None, self.span)

    def warp_place(self, axis: int) -> Any:
        """The row (axis 0) or column (1) of this warp in the grid."""
        grid, warp = self.p.grid, self.warps.warp
        if (grid.rows, grid.columns)[axis] == 1:
            return 0
        if grid.slices > 1:
            warp = warp % (grid.rows * grid.columns)
        if (grid.columns, grid.rows)[axis] == 1:
            return warp
        return warp // grid.columns if axis == 0 else warp % grid.columns

    def depth_of(self, s: Any) -> Expr:
        """Where along K step `s` of this warp begins."""
        grid, k = self.p.grid, self.p.instruction.shape[2]
        mine = self.warps.warp // (grid.rows * grid.columns) if grid.slices > 1 else 0
        return at(at(0, self.p.size[2] // grid.slices, mine), k, s)

    def counts(self) -> tuple[int, ...]:
        """Elements of one lane in accumulator, left and right operand of one instruction."""
        return tuple(o.layout.get_register_size() for o in self.p.instruction.operands if o.layout is not None)

    def local(self, name: str, count: int, dtype: str, allocations: list[Stmt]) -> Var:
        buffer = decl_buffer((count,), dtype, f"{name}_operand", LOCAL, alignment=16, span=self.span)
        allocations.append(AllocBuffer(buffer, None, self.span))
        return buffer

    def rows_of_matrices(self, block: TensorRegion, rows: tuple[int, int], swapped: bool) -> bool:
        """Can ldmatrix read the operand: rows of 16 aligned bytes along the contiguous dimension, none of them outside? swapped: the
        block is stored (k, row), so that 8 x 8 blocks of 16-bit elements must be transposed on the way."""
        bits, shape = tvm.DataType(dtype_of(block)).bits, shape_of(block.source)
        chunk = 128 // bits
        if not all(isinstance(e, int) for e in shape) or bits == 64 or (swapped and bits != 16):
            return False
        layout = self.ctx.passes.shared_layouts.get(block.source)
        if layout is not None and not layout.keeps(chunk):
            return False
        whole = rows[0] == rows[1] and self.p.size[2] % self.p.instruction.shape[2] == 0
        return whole and shape[-1] % chunk == 0 and multiple_of(mins_of(block)[-1], chunk)

    def load_blocks(
        self, block: TensorRegion, target: Var, first: Expr, corner: tuple[Any, Any], count: int, swapped: bool, tall: bool = False
    ) -> Stmt:
        """`count` blocks of 8 rows by 16 bytes whose corner is (row, k) of the operand, two along k and then the next rows; tall: two
        along the rows first. Lane 8 q + r names row r of block q."""
        rank, bits = len(block.region), tvm.DataType(dtype_of(block)).bits
        chunk, lane, (row, column) = 128 // bits, self.warps.lane, corner
        q, r = (lane // 8 if count == 4 else lane // 8 % count), lane % 8
        down, along = (q % 2, q // 2) if tall else (q // 2 if count > 2 else 0, q % 2)
        if swapped:
            where = {rank - 2: at(at(column, 8, along), 1, r), rank - 1: at(row, 8, down)}
        else:
            where = {rank - 2: at(at(row, 8, down), 1, r), rank - 1: at(column, chunk, along)}
        place = [i if not isinstance(i, int) else const(i, "int32") for i in indices(block, where)]
        source = region(block.source, place, [1] * (rank - 1) + [chunk])
        registers = region(target, [first], [count * 32 // bits])
        return load_matrices(count, swapped).call([registers, source], self.span)

    def load_left(self, a: TensorRegion, left: Var, i: Any, s: Any) -> Stmt:
        """The operand of instruction row i and step s: element q * e + x of a lane is row lane / 4 + 8 * (q % halves)."""
        grid, m = self.p.grid, self.p.instruction.shape[0]
        e, halves = max(1, 32 // tvm.DataType(dtype_of(a)).bits), m // 8
        count = self.counts()[1]
        bounds, swapped = (self.p.size[0], grid.rows * grid.m_tiles * m), self.p.transposed[0]
        if m == 16 and self.rows_of_matrices(a, bounds, swapped):
            corner = at(at(0, m * grid.m_tiles, self.warp_place(0)), m, i), self.depth_of(s)
            return self.load_blocks(a, left, at(0, count, i), corner, 4, swapped, tall=True)
        base = at(self.lane_group(), m * grid.m_tiles, self.warp_place(0))

        def part(q: Any) -> list[Stmt]:
            row = at(at(base, m, i), 8, q % halves if halves > 1 else 0)
            column = at(self.depth_of(s), 4 * e, q // halves if halves > 1 else q)
            return [self.load_run(a, left, at(at(0, count, i), e, q), row, column, e, swapped, bounds)]

        return loop(count // e, part, "q", self.span)

    def load_right(self, b: TensorRegion, right: Var, j: Any, s: Any, width: int) -> Stmt:
        """The operands of `width` instruction columns, the j-th so many, and step s, seen as (n, k)."""
        grid, n = self.p.grid, self.p.instruction.shape[1]
        e = max(1, 32 // tvm.DataType(dtype_of(b)).bits)
        count = self.counts()[2]
        bounds, swapped = (self.p.size[1], self.p.padded[1]), not self.p.transposed[1]
        if self.right_in_matrices(b):
            corner = at(at(0, n * grid.n_tiles, self.warp_place(1)), n * width, j), self.depth_of(s)
            return self.load_blocks(b, right, const(0, "int32"), corner, 2 * width, swapped)
        base = at(self.lane_group(), n * grid.n_tiles, self.warp_place(1))

        def part(q: Any) -> list[Stmt]:
            row, column = at(base, n, j), at(self.depth_of(s), 4 * e, q)
            return [self.load_run(b, right, at(0, e, q), row, column, e, swapped, bounds)]

        return loop(count // e, part, "q", self.span)

    def lane_group(self) -> Expr:
        return self.warps.lane // 4

    def load_run(
        self, block: TensorRegion, target: Var, first: Expr, row: Expr, column: Expr, e: int, swapped: bool, bounds: tuple[int, int]
    ) -> Stmt:
        """`e` neighbours along k (of this lane) of a row into the registers from `first`. swapped: the block is stored (k, row). bounds:
        rows that exist, rows that may be asked for."""
        rank, depth, k = len(block.region), self.p.size[2], self.p.instruction.shape[2]

        def one(x: Any) -> list[Stmt]:
            place = at(column, e, self.warps.lane % 4, x)
            where = {rank - 2: place, rank - 1: row} if swapped else {rank - 2: row, rank - 1: place}
            value = load(block.source, indices(block, where))
            outside = [tirx.LT(row, const(bounds[0], "int32"))] if bounds[1] > bounds[0] else []
            outside += [tirx.LT(place, const(depth, "int32"))] if depth % k else []
            for condition in outside:
                value = tirx.if_then_else(condition, value, const(0, dtype_of(block)))
            return [store(target, value, [at(first, 1, x)], self.span)]

        vector = not swapped and not depth % k
        return loop(e, one, "x", self.span, ForKind.VECTORIZED if vector else ForKind.UNROLLED)


def _wide(block: TensorRegion, position: list[Var]) -> list[Any]:
    """Positions of the wide dimensions of a two-dimensional block."""
    return [position[k] for k in wide_dims(block)]


def _is_constant(value: Expr, expected: int) -> bool:
    return isinstance(value, IntImm) and int(value) == expected


MMA = Lowering("mma", GEMM, accepts, lower, layouts)

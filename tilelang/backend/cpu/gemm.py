"""T.gemm on vector registers: a lowering that agrees with the portable one up to the order of summation.

In: a `tl.tileop.gemm` call on constant extents. Out: loops. C is cut into register tiles of MR rows and NV vectors; the
loop over K keeps a register tile in registers, reads one row of B as vectors and broadcasts elements of A. An operand of
another type, transposed B, and global operands are first copied into a panel of the accumulator's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import GLOBAL, LOCAL, SHARED_DYN, THREAD_SCOPES
from ...ir.expr import convert, if_then_else
from ...ir.tvm_api import (
    AllocBuffer,
    Call,
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
    seq,
    store,
    tirx,
)  # fmt: skip
from ...tileop.base import LowerContext, Lowering
from ...tileop.loops import extents_of, may_overlap
from .grid import ALIGNMENT
from .loops import vectors as unrolled_vectors
from .machine import machine
from .transpose import transpose_square

ACCUMULATORS = {"float32": "float32", "float64": "float64", "float16": "float32", "bfloat16": "float32", "int32": "int32"}


@dataclass(frozen=True)
class Matrix:
    """A two-dimensional block: element (i, j) is at `region.min + (i, j)`, or (j, i) if `transposed`."""

    buffer: Var
    mins: tuple[Any, ...]
    transposed: bool = False

    @staticmethod
    def of(block: TensorRegion, transposed: bool = False) -> Matrix:
        return Matrix(block.source, tuple(r.min for r in block.region), transposed)

    def at(self, i: Any, j: Any) -> list[Any]:
        row, column = (j, i) if self.transposed else (i, j)
        return [*self.mins[:-2], self.mins[-2] + row, self.mins[-1] + column]

    def load(self, i: Any, j: Any) -> Expr:
        return load(self.buffer, self.at(i, j))

    @property
    def dtype(self) -> str:
        return dtype_of(self.buffer)


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None, or why the portable loops are used."""
    a, b, c, _ = call.args
    if dtype_of(c) not in ACCUMULATORS:
        return f"no register tiles for accumulators of type {dtype_of(c)}"
    if not all(isinstance(e, int) for block in (a, b, c) for e in extents_of(block)):
        return "symbolic extents"
    if any(block.source.scope() in THREAD_SCOPES for block in (a, b, c)):
        return "operands of a single thread"
    if may_overlap(a, c, ctx) or may_overlap(b, c, ctx):
        return "C overlaps an operand"
    m, n = extents_of(c)[-2:]
    if m * n < 16:
        return "too small for vectors"
    return None


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The statements of one call."""
    a_block, b_block, c_block, clear = call.args
    a = Matrix.of(a_block, bool(call.attrs["transpose_A"]))
    b = Matrix.of(b_block, bool(call.attrs["transpose_B"]))
    c = Matrix.of(c_block)
    m, n = extents_of(c_block)[-2:]
    k = extents_of(a_block)[-2 if a.transposed else -1]
    kind = ACCUMULATORS[c.dtype]
    host = machine(ctx.passes)
    before: list[Stmt] = []
    if a.dtype != kind or a.buffer.scope() == GLOBAL:
        a = _panel(a, m, k, kind, "A_panel", before, host.lanes(kind))
    if b.dtype != kind or b.transposed or b.buffer.scope() == GLOBAL:
        b = _panel(b, k, n, kind, "B_panel", before, host.lanes(kind))
    lanes = host.lanes(kind)
    rows, vectors = (4, 4) if host.registers >= 32 else (4, 2)
    tile = RegisterTile(a, b, c, k, kind, lanes, clear)
    return seq([*before, *_column_strips(tile, m, n, rows, vectors)])


def _panel(source: Matrix, rows: int, columns: int, kind: str, name: str, before: list[Stmt], lanes: int) -> Matrix:
    """A copy of an operand as (rows, columns) of the accumulator's type; as A it may stay as it is stored."""
    keep_order = source.transposed and name == "A_panel"
    shape = (columns, rows) if keep_order else (rows, columns)
    panel = decl_buffer(shape, kind, name, SHARED_DYN, alignment=ALIGNMENT)
    before.append(AllocBuffer(panel))
    stored = Matrix(source.buffer, source.mins)

    def copy(first: int, count: int, start: int, width: int) -> None:
        """Rows [first, first + count) and columns [start, start + width) of the panel, element by element."""
        if count > 0 and width > 0:
            i, j = Var("i", "int32"), Var("j", "int32")
            row, column = i + const(first, "int32"), j + const(start, "int32")
            value = stored.load(column, row) if turn else stored.load(row, column)
            body = store(panel, convert(value, kind), [row, column])
            before.append(For(i, 0, count, ForKind.SERIAL, For(j, 0, width, ForKind.SERIAL, body)))

    turn = source.transposed and not keep_order
    if not turn or source.buffer.scope() == GLOBAL or min(rows, columns) < lanes or small(source.dtype):
        copy(0, shape[0], 0, shape[1])
    else:
        whole_rows, whole_columns = rows - rows % lanes, columns - columns % lanes
        before.append(_turned(stored, panel, whole_rows, whole_columns, lanes, kind))
        copy(whole_rows, rows - whole_rows, 0, columns)
        copy(0, whole_rows, whole_columns, columns - whole_columns)
    return Matrix(panel, (const(0, "int32"), const(0, "int32")), keep_order)


def small(dtype: str) -> bool:
    """Types whose conversion is written for scalars only."""
    return dtype.startswith(("float8", "float6", "float4", "int4", "uint4", "bool"))


def _turned(stored: Matrix, panel: Var, rows: int, columns: int, lanes: int, kind: str) -> Stmt:
    """panel[i, j] = stored[j, i] for whole squares of lanes by lanes elements."""
    bi, bj = Var("bi", "int32"), Var("bj", "int32")
    i, j = bi * const(lanes, "int32"), bj * const(lanes, "int32")
    one = const(1, "int32")

    # Converted rows pass through memory: TVM loses track of bfloat16 buffers that are read in a `Bind`.
    rows_of = [decl_buffer((lanes,), kind, f"row{r}", LOCAL) for r in range(lanes)] if stored.dtype != kind else []

    def load_row(r: int) -> Expr:
        return load(rows_of[r], [tirx.Ramp(const(0, "int32"), one, lanes)]) if rows_of else stored_row(r)

    def stored_row(r: int) -> Expr:
        place = stored.at(j + const(r, "int32"), i)
        return load(stored.buffer, [*place[:-1], tirx.Ramp(place[-1], one, lanes)])

    def converted(r: int) -> list[Stmt]:
        vector = tirx.Cast(f"{kind}x{lanes}", stored_row(r))
        return [AllocBuffer(rows_of[r]), store(rows_of[r], vector, [tirx.Ramp(const(0, "int32"), one, lanes)])]

    def store_column(c: int, value: Expr) -> Stmt:
        return store(panel, value, [i + const(c, "int32"), tirx.Ramp(j, one, lanes)])

    before = [stmt for r in range(len(rows_of)) for stmt in converted(r)]
    body = seq([*before, *transpose_square(lanes, kind, load_row, store_column)])
    return For(bj, 0, columns // lanes, ForKind.SERIAL, For(bi, 0, rows // lanes, ForKind.SERIAL, body))


def _column_strips(tile: RegisterTile, m: int, n: int, rows: int, vectors: int) -> list[Stmt]:
    """Strips of columns, widest first: whole register tiles, then fewer vectors, then one narrow vector."""
    stmts: list[Stmt] = []
    start = 0
    for count in range(vectors, 0, -1):
        width = count * tile.lanes
        strips = (n - start) // width
        if strips:
            stmts.append(_strips(tile, m, start, strips, rows, count, tile.lanes))
            start += strips * width
    if start < n:
        stmts.append(_strips(tile, m, start, 1, rows, 1, n - start))
    return stmts


def _strips(tile: RegisterTile, m: int, start: int, strips: int, rows: int, vectors: int, lanes: int) -> Stmt:
    """`strips` strips of vectors * lanes columns from column `start`, each over all rows."""
    strip = Var("strip", "int32")
    column = strip * const(vectors * lanes, "int32") + const(start, "int32")
    stmts: list[Stmt] = []
    if m // rows:
        group = Var("group", "int32")
        body = tile.compute(group * const(rows, "int32"), column, rows, vectors, lanes)
        stmts.append(For(group, 0, m // rows, ForKind.SERIAL, body))
    if m % rows:
        stmts.append(tile.compute(const(m - m % rows, "int32"), column, m % rows, vectors, lanes))
    return For(strip, 0, strips, ForKind.SERIAL, seq(stmts))


@dataclass(frozen=True)
class RegisterTile:
    """C[row : row + rows, column : column + vectors * lanes] += A B, the tile held in registers over the loop on K."""

    a: Matrix
    b: Matrix
    c: Matrix
    k: int
    kind: str
    lanes: int
    clear: Expr

    def compute(self, row: Expr, column: Expr, rows: int, vectors: int, lanes: int) -> Stmt:
        accumulators = [decl_buffer((vectors * lanes,), self.kind, f"acc{r}", LOCAL) for r in range(rows)]

        def each(body: Callable[[Any, int, Expr, Expr], Stmt]) -> list[Stmt]:
            """`body(accumulator, row, column in the tile, column of C)` for each vector of the tile."""
            out = []
            for r, acc in enumerate(accumulators):
                out.append(unrolled_vectors(vectors, lanes, lambda e, acc=acc, r=r: body(acc, r, e, column + e)))
            return out

        def start(acc: Var, r: int, inner: Expr, j: Expr) -> Stmt:
            zero = const(0, self.kind)
            if isinstance(self.clear, IntImm):
                value = zero if int(self.clear) else convert(self.c.load(row + r, j), self.kind)
            else:
                value = if_then_else(self.clear, zero, convert(self.c.load(row + r, j), self.kind))
            return store(acc, value, [inner])

        depth = Var("k", "int32")

        def step(acc: Var, r: int, inner: Expr, j: Expr) -> Stmt:
            product = self.a.load(row + r, depth) * self.b.load(depth, j)
            return store(acc, load(acc, [inner]) + product, [inner])

        def finish(acc: Var, r: int, inner: Expr, j: Expr) -> Stmt:
            return store(self.c.buffer, convert(load(acc, [inner]), self.c.dtype), self.c.at(row + r, j))

        return seq([
            *[AllocBuffer(acc) for acc in accumulators],
            *each(start),
            For(depth, 0, self.k, ForKind.SERIAL, seq(each(step))),
            *each(finish),
        ])  # fmt: skip


GEMM = Lowering("register tiles", "tl.tileop.gemm", accepts, lower)

"""The blocks of a grid are handed to the worker threads one after the other, as each becomes free.

In: the number of blocks and what one block does. Out: a PARALLEL loop over the workers, each of which takes the next
blocks from a shared counter until none is left. Blocks of unequal work (causal attention) and cores that are busy with
something else need no fixed division of the grid.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...ir.dialect import LOCAL
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    Expr,
    For,
    ForKind,
    Span,
    Stmt,
    StringImm,
    Var,
    While,
    const,
    decl_buffer,
    load,
    seq,
    store,
    tirx,
)  # fmt: skip
from .expressions import cast
from .threads import num_threads

TAKE = "tilelang_take_blocks"
TAKE_TEXT = f"""define i64 @{TAKE}(ptr %counter, i64 %count) alwaysinline nounwind {{
  %first = atomicrmw add ptr %counter, i64 %count monotonic, align 8
  ret i64 %first
}}
"""
PORTIONS = 256  # a launch takes blocks from the counter about this often at most: one atomic instruction must not be felt


def share_blocks(total: Any, dtype: str, body: Callable[[Var], list[Stmt]], span: Span | None) -> Stmt:
    """`body(block)` for every block below `total` (an int, or an expression of `dtype`), in any order, on all workers."""
    block, worker, step = Var("block", dtype), Var("worker", "int32"), Var("step", "int64")
    counter, first = decl_buffer((1,), "int64", "counter"), decl_buffer((1,), "int64", "first", LOCAL)
    zero, one = const(0, "int64"), const(1, "int64")
    if isinstance(total, int):
        end: Expr = const(total, "int64")
        portion: Expr = const(max(1, total // PORTIONS), "int64")
    else:
        end = cast(total, "int64")
        portion = tirx.Max(one, tirx.FloorDiv(end, const(PORTIONS, "int64")))
    taken = tirx.call_extern("int64", TAKE, tirx.address_of(load(counter, [0])), portion)
    # The limits change nothing; they tell TVM's analysis the range of the block.
    number = tirx.Min(tirx.Max(load(first, [0]) + step, zero), end - one)
    inside = seq([Bind(block, cast(number, dtype)), *body(block)])
    turn = For(step, zero, tirx.Min(portion, end - load(first, [0])), ForKind.SERIAL, inside, span=span)
    take = store(first, taken, [0])
    work = seq([AllocBuffer(first), take, While(load(first, [0]) < end, seq([turn, take]), span)])
    workers = max(num_threads(), os.cpu_count() or 1)  # a pool of more threads would leave some without work
    return seq([AllocBuffer(counter), store(counter, zero, [0]), For(worker, 0, workers, ForKind.PARALLEL, work, span=span)])


def with_counter(body: Stmt) -> Stmt:
    """The program with the function that takes blocks."""
    return AttrStmt(StringImm("workers"), "pragma_import_llvm", StringImm(TAKE_TEXT), body)

"""Parts of a block: all of its threads, or the groups of 128 that `T.ws` names, with a thread index that counts from 0.

In: a kernel region. Out: `Threads`: how many, the expression of the index, the condition for a thread to be one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.kernel import KernelRegion
from ...ir.tvm_api import AttrStmt, Expr, Var, const, tirx
from .thread_loops import ThreadSpace

GROUP = 128  # threads of one T.ws group


@dataclass(frozen=True)
class Threads:
    """count: how many. index: of this thread among them, for threads that belong. groups: None for the whole block."""

    count: int
    index: Expr
    groups: tuple[int, ...] | None = None


def whole_block(kernel: KernelRegion, linear: Expr | None = None) -> Threads:
    """All threads. linear: an expression for the linear thread index, if there is a shorter one than its formula."""
    space = ThreadSpace(kernel)
    return Threads(space.count, space.linear if linear is None else linear)


def groups_of(node: AttrStmt) -> tuple[int, ...]:
    """The groups that a `tl.ws` attribute names, sorted."""
    return tuple(sorted({int(g) for g in node.node}))


def part(block: Threads, groups: Sequence[int]) -> Threads:
    """The threads of these groups, in their order; groups beyond the block have none."""
    present = [g for g in groups if g * GROUP < block.count]
    count = sum(min(GROUP, block.count - g * GROUP) for g in present)
    index: Expr = block.index
    if present and present != list(range(len(present))):
        rank: Expr = const((len(present) - 1) * GROUP - present[-1] * GROUP, "int32")
        for k in reversed(range(len(present) - 1)):
            here = const((k - present[k]) * GROUP, "int32")
            same = present[k + 1] - (k + 1) == present[k] - k
            rank = rank if same else tirx.Select(tirx.LT(block.index, const((present[k] + 1) * GROUP, "int32")), here, rank)
        index = block.index + rank
    return Threads(count, index, tuple(groups))


def belongs(block: Threads, groups: Sequence[int]) -> Expr:
    """Is this thread in one of the groups?"""
    runs: list[list[int]] = []
    for group in groups:
        if runs and runs[-1][1] == group:
            runs[-1][1] = group + 1
        else:
            runs.append([group, group + 1])
    result: Expr | None = None
    for low, high in runs:
        test = tirx.LT(block.index, const(high * GROUP, "int32"))
        if low:
            above = tirx.GE(block.index, const(low * GROUP, "int32"))
            test = above if high * GROUP >= block.count else tirx.And(above, test)
        result = test if result is None else tirx.Or(result, test)
    return const(0, "bool") if result is None else result


def as_kernel(kernel: KernelRegion, threads: Threads, index: Var) -> KernelRegion:
    """The region as the threads of a part see it: one dimension of threads, counted by `index` from 0."""
    _, y, z = kernel.threads
    return KernelRegion(kernel.blocks, ((index, threads.count), (y[0], 1), (z[0], 1)), kernel.body, kernel.annotations, kernel.span)

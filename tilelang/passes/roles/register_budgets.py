"""Registers that the program gives to its thread groups (`T.set_max_nreg` in `T.ws` regions), where the hardware can do it.

In: a TILE program. Out: the hint becomes a register budget, and the kernel is one block to a multiprocessor, if every warpgroup asks for
a number at most once, in a region of its own at the top of the kernel; if the numbers are multiples of 8 from 24 to 240, those that raise
theirs are not below and those that lower theirs not above what the launch gives; and if all together are not more than that: the
instruction (PTX ISA, "setmaxnreg") waits for registers that others give back, for ever if there are none. Else the hint has no effect,
and a note says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.context import PassContext
from ...ir.dialect import ATTR_WS, KERNEL_MIN_BLOCKS, REGISTER_BUDGET, attr, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import AttrStmt, Call, Evaluate, IntImm, PrimFunc, SeqStmt, Stmt, location_of
from ...target.limits import architecture
from ..analysis.thread_groups import GROUP, groups_of

SUBJECT = "registers"
_HINT = "set_max_nreg"
_FILE = 64 * 1024  # registers of a multiprocessor
_STEP, _LEAST, _MOST = 8, 24, 240
_ARCHITECTURE = "sm_90a"


def register_budgets(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Look at the hints of every kernel region."""

    def of_kernel(kernel: KernelRegion) -> Stmt:
        hints: list[Call] = []
        walk(kernel.body, {Call: lambda c: hints.append(c) if _is_hint(c) else None})
        if not hints or architecture(ctx.target) != _ARCHITECTURE:
            return kernel.to_stmt()
        reason = _refusal(kernel, hints)
        if reason:
            ctx.note(location_of(hints[0]), SUBJECT, f"as the launch gives them: {reason}")
            return kernel.to_stmt()
        return replace(kernel, body=_real(kernel.body), annotations={**kernel.annotations, KERNEL_MIN_BLOCKS: 1}).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


def _is_hint(call: Call) -> bool:
    return op_name(call) == "tl.hint" and attr(call, "what") == _HINT


def launched(threads: int) -> int:
    """Registers that a launch gives to each thread of a block that has a multiprocessor for itself."""
    return min(_FILE // threads // _STEP * _STEP, _MOST)


def _refusal(kernel: KernelRegion, hints: list[Call]) -> str:
    (_, x), (_, y), (_, z) = kernel.threads
    if y * z != 1 or x % GROUP:
        return f"{x} x {y} x {z} threads are no whole warpgroups in one dimension"
    given = launched(x)
    counts: dict[int, int] = {}
    seen = 0
    for region in _regions(kernel.body):
        for call in _first_hints(region):
            seen += 1
            count, more = call.args
            if not (isinstance(count, IntImm) and isinstance(more, IntImm)):
                return "their number is not constant"
            number = int(count)
            if number % _STEP or not _LEAST <= number <= _MOST:
                return f"{number} is no multiple of {_STEP} from {_LEAST} to {_MOST}"
            if number != given and (number > given) != bool(int(more)):
                return f"{number} is {'more' if number > given else 'less'} than the {given} of the launch"
            for group in groups_of(region):
                if group in counts:
                    return f"warpgroup {group} asks twice"
                counts[group] = number
    if seen != len(hints):
        return "they are asked for outside of a T.ws region at the top of the kernel, or behind other statements"
    groups = x // GROUP
    total = sum(counts.get(g, given) for g in range(groups))
    return f"{total} are more than the {given * groups} of the launch" if total > given * groups else ""


def _regions(body: Stmt) -> Iterator[AttrStmt]:
    """The `T.ws` regions that every thread of theirs enters once."""
    for stmt in body.seq if isinstance(body, SeqStmt) else (body,):
        if isinstance(stmt, SeqStmt):
            yield from _regions(stmt)
        elif isinstance(stmt, AttrStmt) and stmt.attr_key == ATTR_WS:
            yield stmt
        elif isinstance(stmt, AttrStmt):
            yield from _regions(stmt.body)


def _first_hints(region: AttrStmt) -> Iterator[Call]:
    for stmt in region.body.seq if isinstance(region.body, SeqStmt) else (region.body,):
        if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and _is_hint(stmt.value):
            yield stmt.value


def _real(body: Stmt) -> Stmt:
    def evaluate(node: Evaluate, _: Descend) -> Stmt:
        if not (isinstance(node.value, Call) and _is_hint(node.value)):
            return node
        return Evaluate(make_call("tl.hint", list(node.value.args), span=node.span, what=REGISTER_BUDGET), node.span)

    return rewrite(body, {Evaluate: evaluate})


__all__ = ["SUBJECT", "launched", "register_budgets"]

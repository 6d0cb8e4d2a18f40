"""An independent check of layouts and of divided loops, by counting: shares nothing with the passes that made them.

In: fragment plans; the statement of one thread that a nest became. Out: nothing, or an `InternalError`. Layouts: each element
has an owner, no register holds two elements, every owner is a thread of the block and every register is allocated.
Loops: the nest with its body replaced by a counter is executed for all threads at once; every iteration must have counted
once. Statements that depend on run-time values are not counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InternalError
from ...ir.context import FragmentPlan
from ...ir.evaluate import evaluate
from ...ir.tvm_api import Bind, BufferStore, For, IfThenElse, IntImm, SeqStmt, Stmt, Var, static_shape
from ...layout import LayoutError


def check_layout(name: str, plan: FragmentPlan, shape: Sequence[int], threads: int) -> None:
    """Total, injective up to copies, inside the threads and the registers."""
    size = static_shape(plan.registers)[0]
    held: dict[tuple[int, int], tuple[int, ...]] = {}
    for coords in itertools.product(*map(range, shape)):
        for copy in range(plan.layout.replicate_size):
            thread, register = (int(x) for x in plan.layout.forward(coords, copy))
            if not (0 <= thread < threads and 0 <= register < size):
                raise InternalError(f"{name}{list(coords)} lies in register {register} of thread {thread}: there are {size} on {threads}")
            other = held.setdefault((thread, register), coords)
            if other != coords:
                raise InternalError(f"{name}: {list(coords)} and {list(other)} share register {register} of thread {thread}")


def check_coverage(stmt: Stmt, counter: Var, values: Mapping[Var, Any], threads: int, what: str) -> None:
    """`stmt` adds to `counter` by stores of 1, one for each iteration. values: the thread variables, as arrays."""
    counts = np.zeros(static_shape(counter), dtype=np.int64)
    try:
        _Counter(counts, dict(values), threads).stmt(stmt, np.ones(threads, dtype=bool))
    except LayoutError:
        return  # bounds that are known at run time only
    if not (counts == 1).all():
        where = tuple(int(x) for x in np.argwhere(counts != 1)[0])
        raise InternalError(f"{what}: iteration {where} is executed {counts[where]} times")


class _Counter:
    """Executes loops, conditions, names and counting stores for all threads together."""

    def __init__(self, counts: np.ndarray, values: dict[Var, Any], threads: int) -> None:
        self.counts, self.values, self.threads = counts, values, threads

    def value(self, expr: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(evaluate(expr, self.values)), (self.threads,))

    def stmt(self, node: Stmt, mask: np.ndarray) -> None:
        if isinstance(node, SeqStmt):
            for child in node.seq:
                self.stmt(child, mask)
        elif isinstance(node, Bind):
            self.values[node.var] = self.value(node.value)
        elif isinstance(node, IfThenElse):
            taken = self.value(node.condition).astype(bool)
            self.stmt(node.then_case, mask & taken)
        elif isinstance(node, For):
            if not isinstance(node.extent, IntImm):
                raise LayoutError("a bound of run time")
            low = self.value(node.min)
            for k in range(int(node.extent)):
                self.values[node.loop_var] = low + k
                self.stmt(node.body, mask)
        elif isinstance(node, BufferStore):
            np.add.at(self.counts, tuple(self.value(i)[mask] for i in node.indices), 1)
        else:
            raise InternalError(f"a divided loop holds {type(node).__name__}")

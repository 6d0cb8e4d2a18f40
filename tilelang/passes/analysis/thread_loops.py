"""The threads of one block as loops: linear thread index, and loops over all threads around a statement.

In: a kernel region. Out: statements without thread variables.
"""

from __future__ import annotations

from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute
from ...ir.tvm_api import Expr, For, ForKind, Span, Stmt, Var, const


class ThreadSpace:
    """count: threads of the block. linear: x + ex * (y + ey * z) in the region's own thread variables."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.axes = kernel.threads  # (variable, extent) for x, y, z
        self.count = kernel.num_threads
        self.linear = self._linear([var for var, _ in self.axes])

    def _linear(self, indices: list[Expr]) -> Expr:
        """Linear index of the thread with these x, y, z (64-bit thread variables are narrowed nowhere: all are int32)."""
        result: Expr | None = None
        for index, (_, extent) in reversed(list(zip(indices, self.axes, strict=True))):
            if result is not None:
                result = result * extent + index
            elif extent > 1:
                result = index
        return result if result is not None else const(0, "int32")

    def loops(self, body: Stmt, span: Span | None) -> Stmt:
        """`body` for every thread in linear order, x innermost."""
        fresh = [Var(var.name, var.ty) for var, _ in self.axes]
        used = {var: new if extent > 1 else const(0, "int32") for new, (var, extent) in zip(fresh, self.axes, strict=True)}
        body = substitute(body, used)
        for new, (_, extent) in zip(fresh, self.axes, strict=True):
            if extent > 1:
                body = For(new, 0, extent, ForKind.SERIAL, body, span=span)
        return body

    def indices_of(self, linear: Expr) -> dict[Var, Expr]:
        """x, y, z of the thread with this linear index."""
        (x, ex), (y, ey), (z, ez) = self.axes
        zero = const(0, "int32")
        if ey == 1 and ez == 1:
            return {x: linear, y: zero, z: zero}
        return {x: linear % ex, y: (linear // ex) % ey, z: linear // (ex * ey)}

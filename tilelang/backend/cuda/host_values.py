"""Variables of the host that kernels read: each launch gets their value, since their memory is on the host.

In: a program whose kernel regions may read scalars that the host assigns. Out: the same with the value bound to a name before each
region, and the name in the region.
"""

from __future__ import annotations

from typing import Any

from ...errors import TileNotSupportedError
from ...ir.dialect import THREAD_SCOPES
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import AllocBuffer, Bind, BufferStore, Expr, PrimFunc, Stmt, TensorLoad, Var, dtype_of, location_of, seq


def pass_values(func: PrimFunc) -> PrimFunc:
    """The pass. Raises TileNotSupportedError where a kernel assigns a variable of the host."""
    return func.with_body(map_kernels(func.body, _with_values))


def _with_values(region: KernelRegion) -> Stmt:
    own: set[Var] = set()
    walk(region.body, {AllocBuffer: lambda node: own.add(node.buffer)})
    foreign = lambda buffer: buffer.scope() in THREAD_SCOPES and buffer not in own  # noqa: E731
    binds: dict[Var, Bind] = {}

    def load(node: Any, descend: Descend) -> Expr:
        if not foreign(node.source):
            return descend.children(node)
        if node.source not in binds:
            binds[node.source] = Bind(Var(node.source.name, dtype_of(node.source)), node, region.span)
        return binds[node.source].var

    def store(node: Any, descend: Descend) -> Stmt:
        if foreign(node.buffer):
            raise TileNotSupportedError(
                f"{node.buffer.name} is a variable of the host, and a kernel assigns it", at=location_of(node),
                remedy="let the kernel write a tensor",
            )  # fmt: skip
        return descend.children(node)

    body = rewrite(region.body, {TensorLoad: load, BufferStore: store})
    return seq([*binds.values(), region.with_body(body).to_stmt()])

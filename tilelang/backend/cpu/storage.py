"""Types of less than 8 bits get a byte for each element, as ml_dtypes arrays have.

In: a LOOPS program. Out: the same, in which no buffer has such a type; their values exist only inside expressions.
"""

from __future__ import annotations

from typing import Any

from ...errors import TileNotSupportedError
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Expr,
    PrimFunc,
    Stmt,
    TensorLoad,
    Var,
    decl_buffer,
    dtype_of,
    is_buffer,
    load,
    location_of,
    shape_of,
    store,
    tirx,
)  # fmt: skip
from .expressions import reinterpret

STORAGE = {"int4": "int8", "uint4": "uint8", "float4_e2m1fn": "uint8", "float6_e2m3fn": "uint8", "float6_e3m2fn": "uint8"}


def widen_storage(func: PrimFunc) -> PrimFunc:
    """Replace the buffers; `func` itself if there are none."""
    table: dict[Var, Var] = {}

    def see(buffer: Var) -> None:
        kind = STORAGE.get(dtype_of(buffer)) if is_buffer(buffer) else None
        if kind is not None:
            table[buffer] = decl_buffer(shape_of(buffer), kind, buffer.name, buffer.scope(), strides=list(buffer.ty.strides) or None)

    for param in func.params:
        see(param)
    walk(func.body, {AllocBuffer: lambda stmt: see(stmt.buffer)})
    names: dict[Var, Var] = {}  # names of float values: their bit patterns

    def name(stmt: Bind) -> None:
        if dtype_of(stmt.var) in STORAGE and dtype_of(stmt.var).startswith("float"):
            names[stmt.var] = Var(stmt.var.name, "uint8")

    walk(func.body, {Bind: name})
    if not table and not names:
        return func
    walk(func.body, {DeclBuffer: lambda stmt: _refuse(stmt, table)})

    def read(node: TensorLoad, descend: Descend) -> Expr:
        new = table.get(node.source)
        if new is None:
            return descend.children(node)
        value, dtype = load(new, [descend(i) for i in node.indices]), dtype_of(node.source)
        return reinterpret(value, dtype) if dtype.startswith("float") else tirx.Cast(dtype, value)

    def write(node: Any, descend: Descend) -> Stmt:
        new = table.get(node.buffer)
        if new is None:
            return descend.children(node)
        value, dtype = descend(node.value), dtype_of(new)
        value = reinterpret(value, dtype) if dtype_of(node.buffer).startswith("float") else tirx.Cast(dtype, value)
        return store(new, value, [descend(i) for i in node.indices], node.span)

    def declare(node: Any, descend: Descend) -> Stmt:
        return AllocBuffer(table.get(node.buffer, node.buffer), None, node.span)

    def bind(node: Any, descend: Descend) -> Stmt:
        if node.var not in names:
            return descend.children(node)
        return Bind(names[node.var], reinterpret(descend(node.value), "uint8"), node.span)

    def use(node: Var, descend: Descend) -> Expr:
        return reinterpret(names[node], dtype_of(node)) if node in names else node

    rules = {TensorLoad: read, BufferStore: write, AllocBuffer: declare, Bind: bind, Var: use}
    body = rewrite(func.body, rules)
    return PrimFunc([table.get(p, p) for p in func.params], body, func.ret_type, func.attrs, func.span)


def _refuse(view: Any, table: dict[Var, Var]) -> None:
    data = view.data
    source = data.args[0] if isinstance(data, Call) and data.args else data
    if dtype_of(view.buffer) in STORAGE or source in table:
        raise TileNotSupportedError(
            f"{view.buffer.name}: a view of elements of less than 8 bits on the CPU, where each has a byte", at=location_of(view),
            remedy="unpack with shifts and masks from a uint8 buffer",
        )  # fmt: skip

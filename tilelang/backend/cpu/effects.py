"""Operators with effects: atomics, printing, assertions, hints; pointers for external functions.

In: a LOOPS program of which `block_threads` has removed the threads. Out: the same in TVM's terms. Atomics call LLVM
functions of `atomics.py`; printing calls back into Python; a failed assertion is noted in a status word that the host
checks after the launch (TVM cannot raise reliably from a worker thread).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from typing import Any

from ...errors import InternalError, TileNotSupportedError, TileTypeError
from ...ir.context import PassContext
from ...ir.dialect import ATTR_COLLECTIVE, ATTR_WS, BLOCK_SCOPES, THREAD_SCOPES, attr, op_name
from ...ir.kernel import KernelRegion, map_kernels
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Stmt,
    StringImm,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    location_of,
    seq,
    shape_of,
    store,
    tirx,
)  # fmt: skip
from .atomics import Update
from .expressions import cast

NOTHING = "tl.hint", "tl.sync_threads", "tl.sync_warp"
PRINT = "tilelang.cpu.print"  # the Python function that prints one line; registered by `runtime.py`


def lower_effects(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass (slot "last")."""
    lowering = _Effects()
    func = func.with_body(map_kernels(func.body, lowering.region))
    body = lowering.wrap(func.body)
    return func.with_body(body)


class _Effects:
    """State of one program: the atomics it uses, its assertions."""

    def __init__(self) -> None:
        self.updates: dict[str, Update] = {}
        self.messages: list[str] = []
        self.status = decl_buffer((1,), "int32", "status")
        self.kernel: KernelRegion | None = None

    def region(self, kernel: KernelRegion) -> Stmt:
        self.kernel = kernel
        first = len(self.messages)
        body = rewrite(kernel.body, {AttrStmt: self.attribute, Evaluate: self.evaluate, Call: self.call})
        checks = [
            AssertStmt(load(self.status, [0]) != const(k + 1, "int32"), StringImm("AssertionError"), [StringImm(self.messages[k])])
            for k in range(first, len(self.messages))
        ]
        return seq([kernel.with_body(body).to_stmt(), *checks])

    def wrap(self, body: Stmt) -> Stmt:
        """The program with what its operators need around it."""
        if self.messages:
            body = seq([AllocBuffer(self.status), store(self.status, const(0, "int32"), [0]), body])
        if self.updates:
            text = "\n".join(update.text() for update in self.updates.values())
            body = AttrStmt(StringImm("atomics"), "pragma_import_llvm", StringImm(text), body)
        return body

    def attribute(self, node: Any, descend: Descend) -> Stmt:
        return descend(node.body) if node.attr_key in (ATTR_COLLECTIVE, ATTR_WS) else descend.children(node)

    # ---- statements
    def evaluate(self, node: Any, descend: Descend) -> Stmt:
        name = op_name(node.value)
        if name in NOTHING:
            return seq([])
        if name == "tl.print":
            return self.print(node.value, node, descend)
        if name == "tl.device_assert":
            return self.device_assert(node, descend(node.value.args[0]))
        if name == "tl.dp4a":
            return dp4a(node.value)
        return Evaluate(descend(node.value), node.span)

    def device_assert(self, node: Any, condition: Expr) -> Stmt:
        at = location_of(node)
        text = str(attr(node.value, "message", "") or "device_assert failed")
        self.messages.append(f"{text}\n  --> {at}" if at else text)
        return IfThenElse(tirx.Not(condition), store(self.status, const(len(self.messages), "int32"), [0]), None, node.span)

    def print(self, value: Call, node: Any, descend: Descend) -> Stmt:
        """One line for a value, one for each element of a region."""
        message = str(attr(value, "message", "") or "")
        args = list(value.args[:-3])
        place = [*self.coordinates(), *[cast(descend(a), "int32") for a in value.args[-3:]]]
        if not args:
            return self.line(message, "", place, [], None)
        if not isinstance(args[0], TensorRegion):
            return self.line(message, "", place, [], descend(args[0]))
        region = args[0]
        loops = [Var(f"p{k}", "int32") for k in range(len(region.region))]
        indices = [cast(descend(r.min), "int32") + v for r, v in zip(region.region, loops, strict=True)]
        flat: Expr = const(0, "int32")
        for extent, index in zip(shape_of(region.source), indices, strict=True):
            flat = flat * cast(const(extent, "int32") if isinstance(extent, int) else extent, "int32") + index
        body = self.line(message, region.source.name, place, [flat], load(region.source, indices))
        for var, r in reversed(list(zip(loops, region.region, strict=True))):
            body = For(var, 0, cast(r.extent, "int32"), ForKind.SERIAL, body)
        return body

    def coordinates(self) -> list[Expr]:
        if self.kernel is None:
            raise InternalError("tl.print outside a kernel region")
        found = [cast(var, "int32") for var, _ in self.kernel.blocks][:3]
        return found + [const(0, "int32")] * (3 - len(found))

    def line(self, message: str, buffer: str, place: list[Expr], index: list[Expr], value: Expr | None) -> Stmt:
        dtype = "" if value is None else dtype_of(value)
        if value is not None:
            value = cast(value, "float64" if dtype.startswith(("float", "bfloat")) else "int64")
        args = [StringImm(message), StringImm(buffer), StringImm(dtype), *place, *([value] if value is not None else []), *index]
        return Evaluate(tirx.call_packed(PRINT, *args))

    # ---- expressions
    def call(self, node: Call, descend: Descend) -> Any:
        name = op_name(node)
        if name == "tl.atomic":
            return self.atomic(node, descend)
        if name in ("tl.gpu_only", "tl.sync_grid") or name.startswith("tl.mbarrier"):
            what = str(attr(node, "what", "") or "") or f"T.{name.removeprefix('tl.')}"
            error = TileNotSupportedError(f"{what} is not available on the CPU", remedy='compile for target="cuda"')
            error.locate(location_of(node))
            raise error
        if name in ("tirx.call_extern", "tirx.call_pure_extern"):
            check_extern(str(node.args[0].value), node)
        return descend.children(node)

    def atomic(self, node: Call, descend: Descend) -> Expr:
        """The previous value; for packs of 2 and 4 a vector of the previous values."""
        place, values = node.args[0], [descend(v) for v in node.args[1:]]
        buffer, element = place.source, dtype_of(place.source)
        kind = str(attr(node, "kind"))
        own = buffer.scope() in (*BLOCK_SCOPES, *THREAD_SCOPES)
        update = Update(kind, element, shared=not own)
        if not update.supported:
            raise TileTypeError(f"atomic {kind} on {element} elements", at=location_of(node), remedy="use a wider element type")
        self.updates[update.name] = update
        mins = [descend(r.min) for r in place.region]
        count = max(1, len(values))
        results = []
        for k in range(count):
            indices = [*mins[:-1], mins[-1] + const(k, dtype_of(mins[-1]))] if k else mins
            value = cast(values[k], element) if values else const(0, element)
            passed = "float32" if update.half else element
            pointer = tirx.address_of(load(buffer, indices))
            results.append(cast(tirx.call_extern(passed, update.name, pointer, cast(value, passed)), element))
        return results[0] if count == 1 else tirx.Shuffle(results, list(range(count)))


def dp4a(call: Call) -> Stmt:
    """C[0] += the sum of four products of signed bytes."""
    a, b, c = call.args
    first = [[r.min for r in region.region] for region in (a, b, c)]

    def element(region: TensorRegion, at: list[Expr], k: int) -> Expr:
        return tirx.Cast("int32", load(region.source, [*at[:-1], at[-1] + const(k, dtype_of(at[-1]))]))

    total: Expr = load(c.source, first[2])
    for k in range(4):
        total = total + element(a, first[0], k) * element(b, first[1], k)
    return store(c.source, total, first[2])


@functools.cache
def _library() -> Any:
    try:
        return ctypes.CDLL(None)
    except TypeError:  # Windows has no handle of the whole process; its C library is this one
        return ctypes.CDLL("ucrtbase")


def check_extern(name: str, node: Any) -> None:
    """An external function that the process does not have would end it at the call."""
    if name.startswith(("tilelang_", "llvm.")):
        return
    try:
        getattr(_library(), name)
    except AttributeError:
        raise TileNotSupportedError(
            f"external function {name!r} does not exist in this process", at=location_of(node),
            remedy="on the CPU, call functions of the C library, or compile for the target that has it",
        ) from None  # fmt: skip

"""Every access of a kernel to shared memory, and the bank conflicts that it will have, without running it.

In: a kernel region after `plan_shared`. Out: `SharedAccess` records in program order: how many warp-level accesses of one block, how
many passes they take, which lanes collide. The byte address of each lane is enumerated over the iterations of the loops around an access
and over all warps; the counting rule is that of `layout/banks.py`. Block (0, 0, 0) stands for all blocks. What depends on data, on sizes
known at run time, or on the block, is told as not exact, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import Location
from ...ir.access import accesses, view_roots, writes_of
from ...ir.dialect import ANNOTATION_ALLOC, ATTR_WS, IF_THEN_ELSE, SHARED_SCOPES, attr, op_name
from ...ir.evaluate import evaluate
from ...ir.kernel import KernelRegion
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    is_buffer,
    location_of_span,
    tirx,
)  # fmt: skip
from ...layout import LayoutError
from ...layout.banks import WARP, collision, passes
from .instr import INSTRUCTIONS
from .instr import SHARED as IN_SHARED
from .lane_addresses import Around, Points, Spot, Values, element_bytes

_BY_ADDRESS = ("tirx.address_of", "tirx.ptr_to")
_ALLREDUCE = "tirx.tvm_thread_allreduce"
_ENGINES = ("tl.tma_load", "tl.tma_store", "tl.wgmma")  # they move whole blocks in an order of their own
_LEAVE = ("tirx.break_loop", "tirx.continue_loop")


@dataclass(frozen=True)
class SharedAccess:
    """One access of the final program.

    buffer: the allocation's name. at: the user's line. op: load, store, cp.async, atomic, or the instruction. element: what lane and
    iteration name, as the final program writes it. width: bytes of one lane, 0 for copy engines and matrix units that move whole blocks
    (nobody counts their passes). requests: warp-level accesses of one block; passes: rounds they take; conflicts: rounds beyond those
    that any placement needs. bank, lanes: the worst request's busiest bank, and lanes that want different words of it (one lane for each
    word). exact: do the numbers hold for every block and all data? why: the reason if not.
    """

    buffer: str
    at: Location | None
    op: str
    element: str
    width: int
    requests: int
    passes: int
    conflicts: int
    bank: int
    lanes: tuple[int, ...]
    exact: bool
    why: str = ""

    @property
    def line(self) -> int | None:
        return None if self.at is None else self.at.line


def shared_accesses(kernel: KernelRegion) -> tuple[SharedAccess, ...]:
    """The accesses of one kernel region at level THREADS, in program order."""
    return tuple(_Collector(kernel).run())


class _Collector:
    """Walks one kernel with the loops and conditions around each place."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.kernel = kernel
        self.roots = view_roots(kernel.body)
        self.offsets: dict[Var, int] = {}
        self.bound: dict[Var, Expr] = {}
        self.found: list[SharedAccess] = []
        self.span: Any = kernel.span

        def place(stmt: AllocBuffer) -> None:
            facts = dict((stmt.annotations or {}).get(ANNOTATION_ALLOC, {}))
            if stmt.buffer.scope() in SHARED_SCOPES and "offset" in facts:
                self.offsets[stmt.buffer] = int(facts["offset"])

        walk(kernel.body, {AllocBuffer: place})

    def run(self) -> list[SharedAccess]:
        if self.offsets:
            self._stmt(self.kernel.body, Around())
        return self.found

    # ---------------------------------------------------------------- descent
    def _stmt(self, stmt: Stmt, around: Around) -> None:
        before, self.span = self.span, getattr(stmt, "span", None) or self.span
        if isinstance(stmt, SeqStmt):
            for child in stmt.seq:
                self._stmt(child, around)
        elif isinstance(stmt, For):
            self._for(stmt, around)
        elif isinstance(stmt, IfThenElse):
            self._expr(stmt.condition, around)
            self._stmt(stmt.then_case, _when(around, stmt.condition))
            if stmt.else_case is not None:
                self._stmt(stmt.else_case, _when(around, tirx.Not(stmt.condition)))
        elif isinstance(stmt, While):
            around = replace(around, vector=None, why="a while loop around it")
            self._expr(stmt.condition, around)
            self._stmt(stmt.body, around)
        elif isinstance(stmt, AttrStmt):
            groups = (tuple(int(g) for g in stmt.node),) if stmt.attr_key == ATTR_WS else ()
            self._stmt(stmt.body, replace(around, groups=around.groups + groups))
        elif isinstance(stmt, BufferStore):
            self._expr(stmt.value, around)
            for index in stmt.indices:
                self._expr(index, around)
            self._access(stmt.buffer, stmt.indices, "store", around, vector=True)
        elif isinstance(stmt, Bind):
            self._bind(stmt, around)
        elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call):
            self._call(stmt.value, around)
        self.span = before

    def _for(self, loop: For, around: Around) -> None:
        self._expr(loop.extent, around)
        low, extent, why = self._bounds(loop)
        if _is_left(loop.body):
            why = "the loop may be left early"
        around = replace(around, why=why or around.why)
        if int(loop.kind) == int(ForKind.VECTORIZED) and not why and low == 0 and _is_plain(loop.body):
            around = replace(around, vector=(loop.loop_var, extent))
        else:
            still = int(loop.kind) == int(ForKind.UNROLLED) and not self._writes(loop.body)
            around = replace(around, loops=(*around.loops, (loop.loop_var, low, extent)), vector=None)
            around = replace(around, still=(*around.still, loop.loop_var)) if still else around
        self._stmt(loop.body, around)

    def _writes(self, body: Stmt) -> bool:
        """May the body change shared memory, or wait for those who do?"""
        waits: list[Call] = []
        walk(body, {Call: lambda c: waits.append(c) if "sync" in op_name(c) or "wait" in op_name(c) else None})
        return bool(waits) or any(a.root in self.offsets for a in writes_of(body, self.roots))

    def _bounds(self, loop: For) -> tuple[int, int, str]:
        if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
            return int(loop.min), max(int(loop.extent), 0), ""
        values = Values({v: 0 for v, _ in self.kernel.blocks}, self.bound)
        try:
            return int(evaluate(loop.min, values)), max(int(evaluate(loop.extent, values)), 0), "the trip count differs between blocks"
        except (LayoutError, TypeError, ValueError):
            return 0, 1, "the trip count is known at run time; one iteration is counted"

    def _bind(self, bind: Bind, around: Around) -> None:
        self._expr(bind.value, around)
        if str(getattr(bind.var.ty, "dtype", "")).startswith(("int", "uint", "bool")):
            self.bound[bind.var] = bind.value

    def _expr(self, expr: Any, around: Around) -> None:
        """Loads of an expression; those that the text may skip under the condition they stand behind."""

        def on_load(node: TensorLoad, descend: Descend) -> Any:
            for index in node.indices:
                descend(index)
            self._access(node.source, node.indices, "load", around, vector=True)
            return node

        def on_call(node: Call, descend: Descend) -> Any:
            if op_name(node) != IF_THEN_ELSE:
                self._call(node, around)
                return node
            condition, a, b = node.args
            descend(condition)
            self._expr(a, _when(around, condition))
            self._expr(b, _when(around, tirx.Not(condition)))
            return node

        def on_pair(node: Any, descend: Descend) -> Any:
            descend(node.a)
            self._expr(node.b, _when(around, node.a if isinstance(node, tirx.And) else tirx.Not(node.a)))
            return node

        rewrite(expr, {TensorLoad: on_load, Call: on_call, (tirx.And, tirx.Or): on_pair})

    def _call(self, call: Call, around: Around) -> None:
        name = op_name(call)
        args = call.args[: 2 + int(call.args[0])] if name == _ALLREDUCE else call.args  # the results behind them are written
        for arg in args:
            if not isinstance(arg, TensorRegion | TensorLoad) or (isinstance(arg, TensorLoad) and name not in _BY_ADDRESS):
                self._expr(arg, around)
        if name == "tl.instr":
            record = INSTRUCTIONS.get(str(attr(call, "name")))
            for operand, arg in zip(record.operands if record else (), call.args, strict=False):
                if operand.memory == IN_SHARED:
                    self._region(arg, operand.bytes, str(attr(call, "name")), around, operand.lanes)
        elif name == "tl.cp_async":
            chunk = math.prod(int(r.extent) for r in call.args[0].region) * element_bytes(call.args[0].source)
            self._region(call.args[0], chunk, "cp.async", around)
        elif name == "tl.atomic":
            self._region(call.args[0], element_bytes(call.args[0].source), "atomic", around, why="atomics on one word take turns")
        elif name in _ENGINES:
            for arg in call.args:
                self._region(arg, 0, name.removeprefix("tl."), around)
        elif name == "tl.dp4a":
            for arg in call.args:
                self._region(arg, 4, "load", around)
        else:
            for access in accesses(call, self.roots):
                if access.node.same_as(call) and access.root in self.offsets and access.ranges is None:
                    why = f"its address goes to {name.rpartition('.')[2]}"
                    self.found.append(SharedAccess(str(access.root.name), self._at(), "unknown", "", 0, 0, 0, 0, 0, (), False, why))

    def _at(self) -> Location | None:
        return location_of_span(self.span) if self.span is not None else None

    def _region(self, arg: Any, width: int, op: str, around: Around, lanes: int = WARP, why: str = "") -> None:
        if isinstance(arg, TensorRegion) and self._root(arg.source) in self.offsets:
            self._count(Spot(arg.source, tuple(r.min for r in arg.region), width, op, self.span, lanes, why=why), around)

    def _access(self, buffer: Var, indices: Sequence[Expr], op: str, around: Around, vector: bool) -> None:
        if self._root(buffer) not in self.offsets:
            return
        mins = tuple(i.base if isinstance(i, tirx.Ramp) else i for i in indices)
        lanes = next((int(i.lanes) for i in indices if isinstance(i, tirx.Ramp)), 1)
        self._count(Spot(buffer, mins, element_bytes(buffer) * lanes, op, self.span, vector=vector and lanes == 1), around)

    def _root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer) if is_buffer(buffer) else None

    # ---------------------------------------------------------------- counting
    def _count(self, spot: Spot, around: Around) -> None:
        root = self._root(spot.buffer)
        element = f"{spot.buffer.name}[{', '.join(str(m) for m in spot.mins)}]"
        points = Points(self.kernel, self.bound, spot, around)
        why = spot.why or around.why
        try:
            rows, width, times, reason = points.addresses(self.offsets[root])
            why = why or reason
        except LayoutError:
            requests = points.requests()
            record = (requests, requests, 0, 0, ())
            self.found.append(SharedAccess(
                str(root.name), self._at(), spot.op, element, spot.width, *record, False, "the element depends on data",
            ))  # fmt: skip
            return
        if not width:
            requests = int((rows >= 0).any(1).sum()) * times
            record = SharedAccess(str(root.name), self._at(), spot.op, element, 0, requests, 0, 0, 0, (), not why, why)
            self.found.append(record)
            return
        rounds, needed = passes(rows, width)
        extra = rounds - needed
        bank, lanes = (0, ())
        if len(extra) and int(extra.max()) > 0:
            bank, lanes = collision(rows[int(extra.argmax())], width)
        requests = int((needed > 0).sum()) * times
        self.found.append(SharedAccess(
            str(root.name), self._at(), spot.op, element, width, requests, int(rounds.sum()) * times, int(extra.sum()) * times, bank, lanes,
            not why, why,
        ))  # fmt: skip


# ---------------------------------------------------------------- small questions
def _when(around: Around, condition: Expr) -> Around:
    return replace(around, conditions=(*around.conditions, condition))


def _is_plain(body: Stmt) -> bool:
    """Stores, names and conditions only: what may become vector accesses."""
    if isinstance(body, SeqStmt):
        return all(_is_plain(child) for child in body.seq)
    if isinstance(body, IfThenElse):
        return body.else_case is None and _is_plain(body.then_case)
    return isinstance(body, BufferStore | Bind)


def _is_left(body: Stmt) -> bool:
    """Does a break or continue stand in the body?"""
    found: list[Call] = []
    walk(body, {Call: lambda c: found.append(c) if op_name(c) in _LEAVE else None})
    return bool(found)

"""VECTORIZED loops as accesses of up to 16 bytes.

In: a loop whose iterations are independent. Out: packs loaded before an unrolled loop over the lanes, and stored after it, for the
accesses that are proven contiguous and aligned; every other access stays element by element inside that loop. A loop without such an
access is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.dialect import GLOBAL, SHARED_SCOPES, THREAD_SCOPES, op_name
from ...ir.rewrite import Descend, rewrite, substitute, uses, uses_memory
from ...ir.tvm_api import (
    Bind,
    BufferStore,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    store,
    tirx,
)  # fmt: skip
from .cpp_types import HALF, bytes_of, c_type, split
from .memory import Place, offset_of
from .packed import Packed, is_packed
from .printer import Printer

# Conditions under which a load is evaluated, the same in all lanes; None where it also depends on the lane.
Guards = tuple[Expr, ...] | None


def vector_loop(printer: Printer, node: For) -> bool:
    """Print the loop with vector accesses; False if it has none that is proven right."""
    lanes = int(node.extent) if isinstance(node.extent, IntImm) else 0
    if lanes < 2 or not (isinstance(node.min, IntImm) and int(node.min) == 0):
        return False
    return _Loop(printer, node, lanes).run()


@dataclass
class _Access:
    """A pack: its variable, the buffer and offset of lane 0, the guards under which it may be read."""

    pack: Var
    buffer: Var
    indices: list[Expr]
    guards: list[Expr]


class _Loop:
    def __init__(self, printer: Printer, node: For, lanes: int) -> None:
        self.p, self.node, self.lanes = printer, node, lanes
        self.var: Var = node.loop_var
        self.zero = {self.var: const(0, str(self.var.ty.dtype))}
        printer.e.facts.bind_range(self.var, 0, lanes)

    def run(self) -> bool:
        body = self._evened(_one_statement(self.node.body))
        if isinstance(body, IfThenElse) and body.else_case is None and not uses(body.condition, self.var):
            inner = For(self.var, 0, self.lanes, ForKind.VECTORIZED, body.then_case, span=self.node.span)
            if not _Loop(self.p, inner, self.lanes).plans():
                return False
            self.p.statement(IfThenElse(body.condition, inner, None, self.node.span))
            return True
        plans = self.plans(body)
        if not plans:
            return False
        for stmt, accesses, target in plans:
            self._print(stmt, accesses, target)
        return True

    def plans(self, body: Stmt | None = None) -> list[tuple[BufferStore, list[_Access], bool]]:
        """For every store of the body: the store, its packs, whether it stores a pack itself. Empty if no access is a vector."""
        stores = self._stores(self._evened(self.node.body) if body is None else body)
        found = [(stmt, *self._plan(stmt)) for stmt in stores]
        return found if any(accesses or target for _, accesses, target in found) else []

    def _stores(self, body: Stmt) -> list[BufferStore]:
        """The statements of the body one by one, names replaced by their values; empty if it has any but stores and names."""
        stmts = list(body.seq) if isinstance(body, SeqStmt) else [body]
        names: dict[Var, Expr] = {}
        stores: list[BufferStore] = []
        for stmt in stmts:
            if isinstance(stmt, Bind):
                if stores or (uses_memory(stmt.value) and sum(isinstance(s, BufferStore) for s in stmts) > 1):
                    return []
                names[stmt.var] = substitute(stmt.value, names)
            elif isinstance(stmt, BufferStore):
                stores.append(substitute(stmt, names))
            else:
                return []
        return stores

    # ---------------------------------------------------------------- what is a vector
    def _plan(self, stmt: BufferStore) -> tuple[list[_Access], bool]:
        value_lanes = split(dtype_of(stmt.value))[1]
        if value_lanes != 1 or split(dtype_of(stmt.buffer))[1] != 1:
            return [], False
        registers = is_packed(stmt.value) or isinstance(stmt.value, TensorLoad) or _is_rounding(stmt.value)
        return self._find_packs(stmt.value, registers), self._is_vector(stmt.buffer, list(stmt.indices), registers)

    def _find_packs(self, value: Expr, registers: bool) -> list[_Access]:
        """The vector accesses that may be made before the loop, each under the conditions of all the places that read it.
        registers: those of a thread's own arrays too."""
        found: list[_Access] = []

        def note(node: TensorLoad, guards: Guards, descend: Descend) -> Any:
            for index in node.indices:
                descend(index)
            indices = list(node.indices)
            if guards is None or not self._is_vector(node.source, indices, registers):
                return node
            known = next((a for a in found if _same(node, a, self.zero)), None)
            if known is None:
                pack = decl_buffer((self.lanes,), dtype_of(node.source), f"{node.source.name}_v", "local")
                found.append(_Access(pack, node.source, [substitute(i, self.zero) for i in indices], list(guards)))
            elif known.guards:  # read in several places: wherever one of them may
                known.guards = [tirx.Or(_all(known.guards), _all(list(guards)))] if guards else []
            return node

        self._each_load(value, note)
        return found

    def _each_load(self, value: Expr, visit: Callable[[TensorLoad, Guards, Descend], Any], guards: Guards = ()) -> Any:
        """`value` with every load replaced by what `visit` returns for it, given the conditions under which it is evaluated."""

        def visit_load(node: TensorLoad, descend: Descend) -> Any:
            return visit(node, guards, descend)

        def visit_call(node: Call, descend: Descend) -> Any:
            if not op_name(node).endswith(".if_then_else"):
                return descend.children(node)
            condition, a, b = node.args
            before = None if uses(condition, self.var) else guards
            chosen = None if before is None else (*before, condition)
            other = None if before is None else (*before, tirx.Not(condition))
            parts = (self._each_load(condition, visit, guards), self._each_load(a, visit, chosen), self._each_load(b, visit, other))
            return tirx.if_then_else(*parts, node.span)

        def visit_choice(node: Any, descend: Descend) -> Any:
            """C++ evaluates some parts only: as if every part depended on the lane."""
            return descend.children(node) if guards is None else self._each_load(node, visit, None)

        choices = (tirx.Select, tirx.And, tirx.Or, tirx.Let)
        return rewrite(value, {TensorLoad: visit_load, Call: visit_call, choices: visit_choice})

    def _is_vector(self, buffer: Var, indices: list[Expr], registers: bool) -> bool:
        """Is the access contiguous over the lanes, aligned, and of a size that one or several 16-byte accesses have?"""
        scope, size = buffer.scope(), bytes_of(dtype_of(buffer)) * self.lanes
        own = registers and dtype_of(buffer) in HALF and not self.p.e.place(buffer).scalar
        if (scope not in (GLOBAL, *SHARED_SCOPES) and not own) or (size > 16 and size % 16) or (size <= 16 and size & (size - 1)):
            return False
        if split(dtype_of(buffer))[1] != 1 or not (self.p.e.place(buffer).aligned or scope in THREAD_SCOPES):
            return False
        offset = offset_of(buffer, indices)
        unit = min(size, 16) // bytes_of(dtype_of(buffer))
        return self._is_run(offset) and self._is_multiple(substitute(offset, self.zero), unit)

    def _is_run(self, offset: Expr) -> bool:
        """offset(v) = offset(0) + v for all lanes?"""
        lane = self.var if str(offset.ty.dtype) == str(self.var.ty.dtype) else tirx.Cast(str(offset.ty.dtype), self.var)
        return self.p.e.facts.same(offset, substitute(offset, self.zero) + lane)

    def _is_multiple(self, value: Expr, unit: int) -> bool:
        return self.p.e.facts.multiple_of(value, unit)

    def _evened(self, body: Stmt) -> Stmt:
        """Comparisons that have the same result in all lanes, without the lane: x + v < n with x and n multiples of the lanes."""

        def compare(node: Any, descend: Descend) -> Any:
            a, b = node.a, node.b
            if not uses(a, self.var) or uses(b, self.var) or not str(a.ty.dtype).startswith("int"):
                return descend.children(node)
            first = substitute(a, self.zero)
            if self._is_run(a) and self._is_multiple(first, self.lanes) and self._is_multiple(b, self.lanes):
                return type(node)(first, b)
            return descend.children(node)

        return rewrite(body, {(tirx.LT, tirx.GE): compare})

    # ---------------------------------------------------------------- printing
    def _print(self, stmt: BufferStore, accesses: list[_Access], target: bool) -> None:
        p, lanes = self.p, self.lanes
        p.note(stmt)
        first = [substitute(i, self.zero) for i in stmt.indices]
        if target and len(accesses) == 1 and not accesses[0].guards and _is_plain(stmt.value, accesses[0]):
            source = p.e.address(accesses[0].buffer, accesses[0].indices)
            p.line(f"tl::store_pack({p.e.address(stmt.buffer, first)}, tl::load_pack<{lanes}>({source}));")
            return
        for access in accesses:
            self._print_load(access)
        table = {self._key(a.buffer, a.indices): a for a in accesses}

        def replace(node: TensorLoad, guards: Guards, descend: Descend) -> Any:
            access = table.get(self._key(node.source, [substitute(i, self.zero) for i in node.indices]))
            if access is None or not self._is_run(offset_of(node.source, list(node.indices))):
                return descend.children(node)
            if guards is None and access.guards:  # the pack may be empty here
                return descend.children(node)
            return load(access.pack, [self.var])

        value = self._each_load(stmt.value, replace)
        packed = Packed(p, self.var, lanes, [a.pack for a in accesses])
        if target and is_packed(value) and packed.others(value) <= 1:
            text = packed.print(value)[0]
            p.line(f"tl::store_pack({p.e.address(stmt.buffer, first)}, {text});")
            return
        if target and _is_rounding(value):
            p.line(f"tl::store_rounded({p.e.address(stmt.buffer, first)}, {packed.lane_by_lane(value.value)});")
            return
        result = self._pack(stmt.buffer) if target else stmt.buffer
        if target:
            p.line(f"tl::pack<{c_type(dtype_of(result))}, {lanes}> {p.e.names.of(result)};")
        inner = store(result, value, [self.var] if target else list(stmt.indices), stmt.span)
        p.statement(For(self.var, 0, lanes, ForKind.UNROLLED, inner, span=stmt.span))
        if target:
            p.line(f"tl::store_pack({p.e.address(stmt.buffer, first)}, {p.e.names.of(result)});")

    def _pack(self, buffer: Var) -> Var:
        pack = decl_buffer((self.lanes,), dtype_of(buffer), f"{buffer.name}_v", "local")
        self.p.e.places[pack] = Place(self.p.e.names.of(pack), dtype_of(buffer), "local")
        return pack

    def _print_load(self, access: _Access) -> None:
        p, lanes = self.p, self.lanes
        name, kind = p.e.names.of(access.pack), c_type(dtype_of(access.buffer))
        p.e.places[access.pack] = Place(name, dtype_of(access.buffer), "local")
        text = f"tl::load_pack<{lanes}>({p.e.address(access.buffer, access.indices)})"
        if not access.guards:
            p.line(f"const auto {name} = {text};")
            return
        p.line(f"tl::pack<{kind}, {lanes}> {name};")
        p.line(f"if ({' && '.join(p.e.text(g, 6) for g in access.guards)}) {name} = {text};")

    def _key(self, buffer: Var, indices: list[Expr]) -> str:
        return f"{self.p.e.place(buffer).name}:{self.p.e.text(offset_of(buffer, indices))}"


def _one_statement(body: Stmt) -> Stmt:
    """A body that names values for one statement, as that statement."""
    stmts = list(body.seq) if isinstance(body, SeqStmt) else [body]
    names: dict[Var, Expr] = {}
    for stmt in stmts[:-1]:
        if not isinstance(stmt, Bind) or uses_memory(stmt.value):
            return body
        names[stmt.var] = substitute(stmt.value, names)
    return substitute(stmts[-1], names)


def _all(guards: list[Expr]) -> Expr:
    result = guards[0]
    for guard in guards[1:]:
        result = tirx.And(result, guard)
    return result


def _same(node: TensorLoad, access: _Access, zero: dict[Var, Expr]) -> bool:
    from_indices = [substitute(i, zero) for i in node.indices]
    return node.source.same_as(access.buffer) and all(str(a) == str(b) for a, b in zip(from_indices, access.indices, strict=True))


def _is_rounding(value: Any) -> bool:
    """Is it a float32 rounded to 16 bits?"""
    return isinstance(value, tirx.Cast) and dtype_of(value) in HALF and dtype_of(value.value) == "float32"


def _is_plain(value: Expr, access: _Access) -> bool:
    """Is the value just the load of this pack?"""
    return isinstance(value, TensorLoad) and value.source.same_as(access.buffer)

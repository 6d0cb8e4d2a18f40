"""Statements of the program as Python lines over lanes, with masks for what only some lanes do.

In: statements, the mask under which they run. Out: lines in the scope. A condition that is equal in all lanes is a Python
`if`; any other narrows the mask. `break` and `continue` take lanes out of the masks up to their loop's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...errors import TileNotSupportedError
from ...ir.dialect import ATTR_REDUCE_SCOPE, ATTR_WS, CLUSTER_BARRIER, GLOBAL, SHARED_SCOPES, op_name
from ...ir.dtype_table import info
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorLoad,
    Var,
    While,
    dtype_of,
    is_buffer,
    shape_of,
)  # fmt: skip
from ...passes.program.widen_indices import widened
from . import scope as sc
from .effects import Effects, is_barrier
from .expressions import Expressions
from .independent import independent
from .scope import Place, Scope, Value


@dataclass
class Loop:
    """alive: mask of lanes that still run the loop, or "" when nothing leaves it early. depth: masks outside of its body."""

    alive: str
    depth: int


class Statements:
    """The compiler of statements of one program."""

    def __init__(self, scope: Scope, roots: Any) -> None:
        self.scope, self.roots = scope, roots
        self.effects = Effects(scope)
        self.expressions = Expressions(scope, self.effects)
        self.effects.expressions = self.expressions
        self.masks: list[str] = ["None"]
        self.loops: list[Loop] = []
        self.axes = 0  # leading axes: loops around that run all at once
        self.on_host = True
        self.by_warp = False
        self.shared: dict[Var, str] = {}
        self.scratch: set[Var] = set()  # shared tiles that the compiler made
        self.guarded: set[Var] = set()  # registers that warpgroup products use
        self.rules = (
            (SeqStmt, self._seq), (BufferStore, self._store), (For, self._for), (IfThenElse, self._if), (Bind, self._bind),
            (AllocBuffer, self._alloc), (DeclBuffer, self._view), (Evaluate, self._evaluate), (AttrStmt, self._attr), (While, self._while),
            (AssertStmt, self._assert),
        )  # fmt: skip

    @property
    def mask(self) -> str:
        return self.masks[-1]

    def __call__(self, stmt: Stmt) -> None:
        before = self.scope.span
        if getattr(stmt, "span", None) is not None:
            self.scope.span = stmt
        for types, rule in self.rules:
            if isinstance(stmt, types):
                rule(stmt)
                break
        else:
            raise TileNotSupportedError(f"the emulator has no form of {type(stmt).__name__}", at=self.scope.at())
        self.scope.span = before

    def block(self, stmt: Stmt) -> None:
        """A body, indented."""
        self.scope.depth += 1
        first = len(self.scope.lines)
        self(stmt)
        if len(self.scope.lines) == first:
            self.scope.emit("pass")
        self.scope.depth -= 1

    def _seq(self, stmt: SeqStmt) -> None:
        for part in stmt.seq:
            self(part)

    # ---------------------------------------------------------------- names and memory
    def _bind(self, stmt: Bind) -> None:
        value = self.expressions(stmt.value, self.mask)
        name = self.scope.fresh(stmt.var.name)
        self.scope.emit(f"{name} = {value.text if value.fresh else f'{value.text}.copy()'}")
        self.scope.names[stmt.var] = Value(name, value.dtype, value.uniform, value.low, value.high)

    def _store(self, stmt: BufferStore) -> None:
        place = self.scope.places[stmt.buffer]
        value = self.expressions(stmt.value, self.mask)
        if stmt.buffer in self.scratch and isinstance(stmt.value, TensorLoad) and ".load(" in value.text:
            # A fragment passes through the compiler's own tile as a whole, also where nobody has written it yet.
            value = Value(value.text.replace(".load(", ".load_any(", 1), value.dtype, value.uniform)
        index = self.expressions.linear(place, list(stmt.indices), self.mask)
        site = self.scope.site("write", stmt.buffer.name)
        self.scope.emit(f"{place.name}.store(g, {index.text}, {value.text}, {self.mask}, {site})")

    def _alloc(self, stmt: AllocBuffer) -> None:
        buffer, scope = stmt.buffer, self.scope
        if is_barrier(buffer):
            if buffer.scope() == CLUSTER_BARRIER and self.by_warp:
                self.effects.share_barriers(self.masks[-1])
            return
        name = scope.fresh(buffer.name)
        size = self._size(buffer)
        kind, dtype = scope.kind(dtype_of(buffer)), dtype_of(buffer)
        where = buffer.scope()
        if where in SHARED_SCOPES:
            scope.emit(f"{name} = shared[{self.shared[buffer]!r}]")
            self.declare(buffer, name, sc.SHARED)
            return
        lanes = info(dtype).lanes
        if where == GLOBAL or self.on_host:
            scope.emit(f"{name} = H.workspace({buffer.name!r}, {kind}, {size})")
            self.declare(buffer, name, sc.GLOBAL)
            return
        if lanes > 1:
            raise TileNotSupportedError(f"{buffer.name}: registers of the vector type {dtype} in the emulator", at=scope.at())
        site = scope.site("allocation", buffer.name)
        kinds = f"{self.recast(buffer)}, {buffer in self.guarded}"
        scope.emit(f"{name} = g.registers({buffer.name!r}, {kind}, {size}, {site}, {kinds})")
        self.declare(buffer, name, sc.REGISTERS)

    def recast(self, buffer: Var) -> bool:
        """Is there a view of these registers with elements of another size?"""
        own = info(dtype_of(buffer)).bits
        return any(root.same_as(buffer) and info(dtype_of(view)).bits != own for view, root in self.roots.items())

    def _size(self, buffer: Var) -> str:
        total = 1
        texts = []
        for extent in shape_of(buffer):
            if isinstance(extent, int):
                total *= extent
            else:
                texts.append(self.expressions(extent, self.mask).text)
        return " * ".join([str(total * info(dtype_of(buffer)).lanes), *texts])

    def declare(self, buffer: Var, name: str, kind: str) -> None:
        """Note where a buffer lives."""
        strides: list[Any] = [int(s) if isinstance(s, IntImm) else s for s in buffer.ty.strides] if len(buffer.ty.strides) else []
        if not strides:
            step: Any = 1
            for extent in reversed(shape_of(buffer)):
                strides.insert(0, step)
                step = step * (extent if isinstance(extent, int) else widened(extent))
        sizes = [*strides, *shape_of(buffer)]
        large = len(strides) > 1 and (not all(isinstance(s, int) for s in sizes) or math.prod(shape_of(buffer)) >= 1 << 31)
        self.scope.places[buffer] = Place(name, kind, tuple(strides), dtype_of(buffer), large=large)

    def _view(self, stmt: DeclBuffer) -> None:
        source = _owner(stmt.data)
        view, scope = stmt.buffer, self.scope
        if is_barrier(view):
            return
        name = scope.fresh(view.name)
        if op_name(stmt.data) == "tirx.reinterpret":
            self._at_address(view, name, stmt.data.args[0])
            return
        if source is not None and is_buffer(source) and source in scope.places and not scope.places[source].scattered:
            place = scope.places[source]
            scope.emit(f"{name} = {place.name}.as_type({view.name!r}, {scope.kind(dtype_of(view))}, {self._size(view)})")
            self.declare(view, name, place.kind)
            return
        if source is not None and source in scope.names:
            address = scope.names[source].text
            scope.emit(f"{name} = H.at_address({view.name!r}, {address}, {scope.kind(dtype_of(view))}, {self._size(view)})")
            self.declare(view, name, sc.GLOBAL)
            return
        raise TileNotSupportedError(f"{view.name}: a view of an unknown pointer in the emulator", at=scope.at())

    def _at_address(self, view: Any, name: str, address: Any) -> None:
        """A tensor at an integer address, which may differ between lanes."""
        scope, found = self.scope, self.expressions(address, self.mask)
        kind, size = scope.kind(dtype_of(view)), self._size(view)
        if found.uniform:
            scope.emit(f"{name} = H.at_address({view.name!r}, int({found.text}), {kind}, {size})")
            self.declare(view, name, sc.GLOBAL)
            return
        site = scope.site("tensor at an address", view.name)
        scope.emit(f"{name} = g.scattered({view.name!r}, {found.text}, {kind}, {size}, {self.mask}, {site})")
        self.declare(view, name, sc.GLOBAL)
        scope.places[view] = replace(scope.places[view], scattered=True)

    # ---------------------------------------------------------------- control flow
    def _if(self, stmt: IfThenElse) -> None:
        condition = self.expressions(stmt.condition, self.mask)
        if condition.uniform:
            self.scope.emit(f"if {condition.text}:")
            self.block(stmt.then_case)
            if stmt.else_case is not None:
                self.scope.emit("else:")
                self.block(stmt.else_case)
            return
        test = self.scope.temp("c")
        self.scope.emit(f"{test} = {condition.text}")
        self.narrowed(test, stmt.then_case)
        if stmt.else_case is not None:
            self.narrowed(f"inv({test})", stmt.else_case)

    def narrowed(self, condition: str, body: Stmt) -> None:
        """The body in those lanes of the mask in which the condition holds."""
        inner = self.scope.temp("m")
        self.scope.emit(f"{inner} = both({self.mask}, {condition})")
        self.scope.emit(f"if {inner} is not False:")
        self.masks.append(inner)
        self.block(body)
        self.masks.pop()

    def _for(self, stmt: For) -> None:
        scope = self.scope
        low, extent = self.expressions(stmt.min, self.mask), self.expressions(stmt.extent, self.mask)
        name = scope.fresh(stmt.loop_var.name)
        dtype = dtype_of(stmt.loop_var)
        if not self.on_host and independent(stmt, self.roots, self.axes > 0):
            self._all_at_once(stmt, name, dtype)
            return
        top = extent.high + (low.high or 0) - 1 if extent.high is not None and low.high is not None else None
        leaves = _leaves(stmt.body)
        if low.uniform and extent.uniform and not leaves:
            scope.names[stmt.loop_var] = Value(name, dtype, True, low.low, top)
            start = "" if low.text == "0" else f"{low.text}, "
            scope.emit(f"for {name} in range({start}{extent.text if not start else f'{low.text} + {extent.text}'}):")
            self._loop_body(stmt.body, "")
            return
        self._masked_for(stmt, name, dtype, low, extent, leaves)

    def _loop_body(self, body: Stmt, alive: str) -> None:
        self.loops.append(Loop(alive, len(self.masks)))
        self.block(body)
        self.loops.pop()

    def _masked_for(self, stmt: For, name: str, dtype: str, low: Value, extent: Value, leaves: bool) -> None:
        """Lanes leave one by one. The counter is shared by all lanes."""
        scope = self.scope
        alive, count, inner, end = scope.temp("alive"), scope.temp("k"), scope.temp("m"), scope.temp("end")
        scope.emit(f"{alive}, {count}, {end} = {self.mask}, -1, {extent.text}")
        begin = low.text
        if not low.uniform:
            begin = scope.temp("begin")
            scope.emit(f"{begin} = {low.text}")
        scope.emit("while True:")
        scope.depth += 1
        scope.emit(f"{count} += 1")
        scope.emit(f"{alive} = both({alive}, {count} < {end})")
        scope.emit(f"if {alive} is False: break")
        scope.emit(f"{inner} = {alive}")
        plus = count if begin == "0" else f"{begin} + {count}"
        facts = info(dtype)
        scope.emit(f"{name} = {plus}")
        scope.names[stmt.loop_var] = Value(name, dtype, low.uniform, int(facts.low), int(facts.high))
        scope.depth -= 1
        self.masks.append(inner)
        self._loop_body(stmt.body, alive)
        self.masks.pop()

    def _while(self, stmt: While) -> None:
        scope = self.scope
        alive, inner = scope.temp("alive"), scope.temp("m")
        scope.emit(f"{alive} = {self.mask}")
        scope.emit("while True:")
        scope.depth += 1
        condition = self.expressions(stmt.condition, alive)
        scope.emit(f"{alive} = both({alive}, {condition.text})")
        scope.emit(f"if {alive} is False: break")
        scope.emit(f"{inner} = {alive}")
        if self.by_warp:
            scope.emit("yield always")
        scope.depth -= 1
        self.masks.append(inner)
        self._loop_body(stmt.body, alive)
        self.masks.pop()

    def _all_at_once(self, stmt: For, name: str, dtype: str) -> None:
        """The loop variable is a leading axis, in front of those of the loops around."""
        scope = self.scope
        low, extent = int(stmt.min), int(stmt.extent)
        shape = ", ".join(["-1", *["1"] * (self.axes + 1)])
        scope.emit(f"{name} = np.arange({low}, {low + extent}, dtype={scope.kind(dtype)}).reshape({shape})")
        scope.names[stmt.loop_var] = Value(name, dtype, False)
        before, scope.vector = scope.vector, self.axes + 2 if int(stmt.kind) == int(ForKind.VECTORIZED) else 0
        self.axes += 1
        self(stmt.body)
        self.axes -= 1
        scope.vector = before

    def _leave(self, is_break: bool) -> None:
        """break, continue: the current lanes leave all masks inside the loop (and, for break, the loop)."""
        loop, scope = self.loops[-1], self.scope
        gone = scope.temp("gone")
        scope.emit(f"{gone} = {self.mask}")
        inside = self.masks[loop.depth - 1 :] if loop.alive else self.masks[loop.depth :]
        for mask in inside:
            scope.emit(f"{mask} = minus({mask}, {gone})")
        if is_break:
            scope.emit(f"{loop.alive} = minus({loop.alive}, {gone})")

    # ---------------------------------------------------------------- others
    def _attr(self, stmt: AttrStmt) -> None:
        if stmt.attr_key == ATTR_WS:
            groups = [int(k) for k in stmt.node]
            self.narrowed(f"g.in_groups({groups})", stmt.body)
            return
        if stmt.attr_key == ATTR_REDUCE_SCOPE:
            before, self.effects.reducer = self.effects.reducer, stmt.node
            self(stmt.body)
            self.effects.reducer = before
            return
        self(stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        if not isinstance(stmt.value, Call):
            return
        name = op_name(stmt.value)
        if name in ("tirx.break_loop", "tirx.continue_loop"):
            self._leave(name == "tirx.break_loop")
            return
        self.effects.statement(stmt.value, self.mask)

    def _assert(self, stmt: AssertStmt) -> None:
        condition = self.expressions(stmt.condition, self.mask)
        parts = [str(getattr(p, "value", p)) for p in stmt.message_parts]
        self.scope.emit(f"if not {condition.text}: H.failed({str(stmt.error_kind.value)!r}, {''.join(parts)!r})")


def _owner(data: Any) -> Var | None:
    if isinstance(data, Var):
        return data
    found: list[Var] = []
    walk(data, {Var: found.append})
    return found[0] if found else None


def _leaves(body: Stmt) -> bool:
    """Does a break or continue of this very loop stand in the body?"""
    found = False

    def visit(stmt: Any) -> None:
        nonlocal found
        if isinstance(stmt, SeqStmt):
            for part in stmt.seq:
                visit(part)
        elif isinstance(stmt, IfThenElse):
            visit(stmt.then_case)
            if stmt.else_case is not None:
                visit(stmt.else_case)
        elif isinstance(stmt, AttrStmt):
            visit(stmt.body)
        elif isinstance(stmt, Evaluate) and op_name(stmt.value) in ("tirx.break_loop", "tirx.continue_loop"):
            found = True

    visit(body)
    return found


__all__ = ["Statements"]

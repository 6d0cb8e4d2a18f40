"""Guards every element access that is not provably inside its buffer.

In: a LOOPS program. Out: the same program where a load outside gives the buffer's safe value (`T.annotate_safe_value`,
default 0), a store or an atomic outside does not happen (the atomic's result is the safe value). An access that is
provably always outside is also reported (`OutOfBoundsWarning`). On a target without threads every buffer is guarded, so
that no program can touch memory that is not its own; on a GPU only global memory. The configuration
"tl.disable_safe_memory_legalize" leaves global accesses as they are written.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import OutOfBoundsWarning, warn
from ...ir.access import view_roots, writes_of
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_PARALLEL, ATTR_THREAD_EXTENT, GLOBAL, IF_THEN_ELSE, make_call, op_info, op_name
from ...ir.kernel import match_kernel, rebuild_body
from ...ir.rewrite import Descend, rewrite, uses
from ...ir.tvm_api import (
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Span,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    const,
    dtype_of,
    is_buffer,
    is_expr,
    load,
    location_of_span,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from ..analysis.facts import Facts, conjuncts, holds_load, negated, sizes_of
from .widen_indices import widened

Conditions = list[Expr]  # all must hold for the statement to happen
_KEY_OFF = "tl.disable_safe_memory_legalize"


def guard_bounds(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put a condition around every access that may fall outside its buffer."""
    guard = _Guard(func, ctx)
    return func.with_body(_conditional(*guard.stmt(func.body)))


def _conditional(stmt: Stmt, conditions: Sequence[Expr], span: Span | None = None) -> Stmt:
    return IfThenElse(_all(conditions), stmt, None, span or getattr(stmt, "span", None)) if conditions else stmt


def _all(conditions: Sequence[Expr]) -> Expr:
    result = conditions[0]
    for condition in conditions[1:]:
        result = tirx.And(result, condition)
    return result


def _distinct(conditions: Sequence[Expr]) -> Conditions:
    return list({str(c): c for c in conditions}.values()) if len(conditions) > 1 else list(conditions)


class _Guard:
    """One traversal. Statements give back the conditions under which they happen, so that a loop can take those that do
    not depend on it out of its body."""

    def __init__(self, func: PrimFunc, ctx: PassContext) -> None:
        self.facts = Facts(sizes_of(func))
        self.body = func.body
        self.roots = view_roots(func.body)
        self.all_scopes = not ctx.target.is_gpu
        self.global_memory = not ctx.flag(_KEY_OFF)
        self.safe: Mapping[Var, Any] = {}
        self.padding: Mapping[Var, Any] = {}
        self.span: Span | None = None
        self.warned: set[Any] = set()
        self.split: list[Var] = []  # loops of the T.Parallel nest being left, inside which a condition now stands
        self.depth = 0  # conditions around this point
        self.padded: Conditions | None = None  # inside the right side of a store into a padded buffer
        self.shapes: dict[Var, list[Any]] = {}  # extents of each buffer; none for one that is not guarded
        self.rules = {TensorLoad: self.load, Call: self.call}

    @functools.cached_property
    def volatile(self) -> set[Var]:
        """Memory that other blocks may change at any time."""
        return {a.root for a in writes_of(self.body, self.roots) if not is_buffer(a.root) or a.root.scope() == GLOBAL}

    # ---------------------------------------------------------------- statements
    def stmt(self, node: Stmt) -> tuple[Stmt, Conditions]:
        """The guarded statement, and the conditions that the caller has to put around it."""
        if node.span is not None:
            self.span = node.span
        if isinstance(node, SeqStmt):
            return seq([_conditional(*self.stmt(child)) for child in node.seq]), []
        handler = {For: self.loop, IfThenElse: self.branch, BufferStore: self.store, Evaluate: self.evaluate, Bind: self.bind,
                   AttrStmt: self.attribute, While: self.repeat, AssertStmt: self.check}.get(type(node))  # fmt: skip
        return handler(node) if handler is not None else (node, [])

    def loop(self, node: For) -> tuple[Stmt, Conditions]:
        low, extent = self.expr(node.min), self.expr(node.extent)
        self.facts.bind_range(node.loop_var, low, extent)
        body, conditions = self.stmt(node.body)
        whole = not self.all_scopes and node.kind == ForKind.PARALLEL  # on a GPU the loops of a T.Parallel nest stay together
        stay = [c for c in conditions if whole or holds_load(c) or uses(c, node.loop_var)]
        leave = [c for c in conditions if not any(c is s for s in stay)]
        if stay and not whole and isinstance(body, For) and body.kind == ForKind.PARALLEL:
            self.split.append(node.loop_var)
            body = _with_nest(body, _depth(body))
        body = _conditional(body, stay)
        if node.annotations and ANNOTATION_PARALLEL in node.annotations and self.split:
            self.split.clear()
            node = _with_nest(node, 1 + _depth(body))
        if not (body.same_as(node.body) and low.same_as(node.min) and extent.same_as(node.extent)):
            node = For(node.loop_var, low, extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)
        return node, leave

    def branch(self, node: IfThenElse) -> tuple[Stmt, Conditions]:
        condition = self.expr(node.condition)
        changed = self.changed(condition, node)
        self.depth += 1
        with self.facts.assuming(conjuncts(condition), changed):
            then = _conditional(*self.stmt(node.then_case))
        otherwise = node.else_case
        if otherwise is not None:
            with self.facts.assuming(negated(condition), changed):
                otherwise = _conditional(*self.stmt(otherwise))
        self.depth -= 1
        return IfThenElse(condition, then, otherwise, node.span), []

    def repeat(self, node: While) -> tuple[Stmt, Conditions]:
        condition = self.expr(node.condition)
        self.depth += 1
        with self.facts.assuming(conjuncts(condition), self.changed(condition, node)):
            body = _conditional(*self.stmt(node.body))
        self.depth -= 1
        return While(condition, body, node.span), []

    def store(self, node: BufferStore) -> tuple[Stmt, Conditions]:
        indices = [self.expr(i) for i in node.indices]
        indices, conditions = self.check_indices(node.buffer, indices)
        with self.facts.assuming(conditions):
            value = self.padded_value(node) if node.buffer in self.padding else self.expr(node.value)
        return store(node.buffer, value, indices, node.span), conditions

    def padded_value(self, node: BufferStore) -> Expr:
        """A right side that is the destination's padding as a whole where one of its loads falls outside."""
        self.padded = []
        value = self.expr(node.value)
        outside, self.padded = _distinct(self.padded), None
        if not outside:
            return value
        return tirx.if_then_else(_all(outside), value, _as(self.padding[node.buffer], dtype_of(value)))

    def evaluate(self, node: Evaluate) -> tuple[Stmt, Conditions]:
        value = node.value
        if not isinstance(value, Call):
            return node, []
        call, conditions = self.operands(value, self.expr)
        if op_name(value) == IF_THEN_ELSE or (call is value and not conditions):
            guarded = self.expr(value)
            return (node if guarded is value else Evaluate(guarded, node.span)), []
        if op_name(value) == "tl.cp_async" and conditions:  # a chunk that is outside of its source is filled with zeros
            inside = _all([*call.args[2:], *conditions])
            return Evaluate(make_call("tl.cp_async", [*call.args[:2], inside], span=call.span), node.span), []
        if op_name(value) in ("tl.tma_load", "tl.tma_store"):  # they do by themselves what guards are for
            return Evaluate(call, node.span), []
        return Evaluate(call, node.span), conditions

    def bind(self, node: Bind) -> tuple[Stmt, Conditions]:
        value = self.expr(node.value)
        if is_expr(value):
            self.facts.bind_value(node.var, value)
        return (node if value is node.value else Bind(node.var, value, node.span)), []

    def attribute(self, node: AttrStmt) -> tuple[Stmt, Conditions]:
        kernel = match_kernel(node)
        if kernel is not None:
            self.safe = dict(kernel.annotations.get("safe_value", {}))
            self.padding = dict(kernel.annotations.get("padding", {}))
        if node.attr_key == ATTR_THREAD_EXTENT:
            self.facts.bind_range(node.node.var, 0, node.value)
        return rebuild_body(node, _conditional(*self.stmt(node.body))), []

    def check(self, node: AssertStmt) -> tuple[Stmt, Conditions]:
        condition = self.expr(node.condition)
        if condition is node.condition:
            return node, []
        return AssertStmt(condition, node.error_kind, node.message_parts, node.span), []

    def changed(self, condition: Expr, node: Stmt) -> set[Var]:
        """Buffers whose elements in `condition` may differ from what they were when it was tested."""
        if not holds_load(condition):
            return set()
        return self.volatile | {a.root for a in writes_of(node, self.roots)}

    # ---------------------------------------------------------------- expressions
    def expr(self, node: Any) -> Any:
        """The expression with guarded loads; the same object if nothing had to change."""
        if isinstance(node, Var | IntImm):
            return node
        result = rewrite(node, self.rules)
        return node if result.same_as(node) else result

    def load(self, node: TensorLoad, descend: Descend) -> Expr:
        given = list(node.indices)
        indices, conditions = self.check_indices(node.source, [descend(i) for i in given])
        if not conditions and all(a.same_as(b) for a, b in zip(indices, given, strict=True)):
            return node
        element = load(node.source, indices, node.span)
        if not conditions:
            return element
        if self.padded is not None:
            self.padded += conditions
        return tirx.if_then_else(_all(conditions), element, self.safe_value(node.source, dtype_of(node)))

    def call(self, node: Call, descend: Descend) -> Expr:
        if op_name(node) == IF_THEN_ELSE:
            return self.choice(node, descend)
        call, conditions = self.operands(node, descend)
        if not conditions:
            return call
        if dtype_of(call) in ("void", "handle"):  # an address by itself reads nothing
            return call
        target = next(a.source for a in node.args if isinstance(a, TensorRegion)) if op_info(node) is not None else None
        return tirx.if_then_else(_all(conditions), call, self.safe_value(target, dtype_of(node)))

    def choice(self, node: Call, descend: Descend) -> Expr:
        """if_then_else: each side is evaluated only when chosen."""
        condition = descend(node.args[0])
        self.depth += 1
        changed = self.volatile if holds_load(condition) else set()
        with self.facts.assuming(conjuncts(condition), changed):
            chosen = descend(node.args[1])
        with self.facts.assuming(negated(condition), changed):
            other = descend(node.args[2])
        self.depth -= 1
        if all(a.same_as(b) for a, b in zip((condition, chosen, other), node.args, strict=True)):
            return node
        return tirx.if_then_else(condition, chosen, other, node.span)

    def operands(self, node: Call, descend: Any) -> tuple[Call, Conditions]:
        """The call with guarded operands, and the conditions for the memory it names."""
        conditions: Conditions = []
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, TensorRegion):
                mins = [descend(r.min) for r in arg.region]
                extents = [r.extent for r in arg.region]
                mins, needed = self.check_indices(arg.source, mins, extents)
                conditions += needed
                same = all(m.same_as(r.min) for m, r in zip(mins, arg.region, strict=True))
                args.append(arg if same else region(arg.source, mins, extents))
            elif op_name(arg) == "tirx.address_of" and isinstance(arg.args[0], TensorLoad):
                element = arg.args[0]
                indices, needed = self.check_indices(element.source, [descend(i) for i in element.indices])
                conditions += needed
                args.append(Call(arg.op, [load(element.source, indices, element.span)], attrs=arg.attrs, ret_ty=arg.ty, span=arg.span))
            else:
                args.append(arg if isinstance(arg, Var) else descend(arg))
        if all(a.same_as(b) for a, b in zip(args, node.args, strict=True)):
            return node, _distinct(conditions)
        return Call(node.op, args, attrs=node.attrs, ret_ty=node.ty, span=node.span), _distinct(conditions)

    def safe_value(self, buffer: Var | None, dtype: str) -> Expr:
        given = None
        if buffer is not None:
            given = self.safe.get(buffer, self.safe.get(self.roots.get(buffer, buffer)))
        return _as(given, dtype)

    # ---------------------------------------------------------------- proofs
    def check_indices(self, buffer: Var, indices: list[Expr], extents: Sequence[Any] | None = None) -> tuple[list[Expr], Conditions]:
        """Indices (widened where their arithmetic could wrap) and what must be tested for the access to be inside."""
        shape = self.shapes.get(buffer)
        if shape is None:
            guarded = self.global_memory if buffer.scope() == GLOBAL else self.all_scopes
            shape = self.shapes[buffer] = list(buffer.ty.shape) if guarded else []
        if len(shape) != len(indices):
            return indices, []
        conditions: Conditions = []
        for k, bound in enumerate(shape):
            last = extents[k] if extents is not None else None
            needed = self.check_index(indices, k, bound, last)
            conditions += needed
        if conditions:
            self.warn_if_never(buffer, indices)
        return indices, _distinct(conditions)

    def check_index(self, indices: list[Expr], k: int, bound: Any, extent: Any) -> Conditions:
        index = indices[k]
        if isinstance(index, IntImm) and isinstance(bound, IntImm) and extent is None:
            return [] if 0 <= int(index) < int(bound) else [IntImm("bool", 0)]
        first, last = _ends(index, extent)
        low_ok, high_ok = self.facts.inside(first, last, bound)
        if low_ok and high_ok:
            return []
        if dtype_of(index) in ("int32", "uint32") and self.may_wrap(index):
            indices[k] = index = widened(index)
            first, last = _ends(index, extent)
            low_ok, high_ok = self.facts.inside(first, last, bound)  # what held for the wrapped sum need not hold for this one
        conditions: Conditions = []
        if not low_ok:
            conditions.append(tirx.GE(first, const(0, dtype_of(first))))
        if not high_ok:
            if not isinstance(bound, Var | IntImm):  # such as m * n, which may leave 32 bits
                bound = widened(bound)
            wide = "int64" if "int64" in (dtype_of(last), dtype_of(bound)) else dtype_of(last)
            conditions.append(tirx.LT(_as(last, wide), _as(bound, wide)))
        return conditions

    def may_wrap(self, index: Expr) -> bool:
        """Arithmetic on values from memory, or on names for them? (All other index arithmetic is known to fit.)"""
        return not isinstance(index, Var | TensorLoad | IntImm | tirx.Ramp) and (holds_load(index) or self.facts.any_data(index))

    def warn_if_never(self, buffer: Var, indices: Sequence[Expr]) -> None:
        if self.depth or self.span is None:
            return
        for k, (index, bound) in enumerate(zip(indices, buffer.ty.shape, strict=True)):
            empty = isinstance(bound, IntImm) and int(bound) == 0
            if empty or isinstance(index, tirx.Ramp) or not self.facts.never_inside(index, bound):
                continue
            at = location_of_span(self.span)
            key = (at, buffer.name, k)
            if key not in self.warned:
                self.warned.add(key)
                what = f"index {index} of dimension {k} is always outside {buffer.name}, whose extent there is {bound}"
                warn(f"{what}: a load gives the safe value, a store is dropped", OutOfBoundsWarning, at)
            return


def _depth(stmt: Stmt) -> int:
    """Loops of a T.Parallel nest that follow each other directly."""
    depth = 0
    while isinstance(stmt, For) and stmt.kind == ForKind.PARALLEL:
        depth, stmt = depth + 1, stmt.body
    return depth


def _with_nest(node: For, depth: int) -> For:
    """The loop as the outermost of a nest of `depth` loops."""
    annotations = {**(node.annotations or {}), ANNOTATION_PARALLEL: depth}
    return For(node.loop_var, node.min, node.extent, node.kind, node.body, node.thread_binding, annotations, node.step, node.span)


def _ends(index: Expr, extent: Any) -> tuple[Expr, Expr]:
    """First and last element that an index (scalar or `Ramp`) and an extent touch."""
    if isinstance(index, tirx.Ramp):
        last = index.base + index.stride * (int(index.lanes) - 1)
        return (index.base, last) if not isinstance(index.stride, IntImm) or int(index.stride) >= 0 else (last, index.base)
    if extent is None or (isinstance(extent, IntImm) and int(extent) == 1):
        return index, index
    return index, index + _as(extent, dtype_of(index)) - const(1, dtype_of(index))


def _as(value: Any, dtype: str) -> Expr:
    """`value` (a number, an expression or None for zero) as a scalar or vector of this type."""
    lanes = 1
    if "x" in dtype:
        dtype, count = dtype.split("x")
        lanes = int(count)
    if not is_expr(value):
        scalar = const(value or 0, dtype)
    elif dtype_of(value) == dtype:
        scalar = value
    else:
        scalar = const(int(value), dtype) if isinstance(value, IntImm) and "float" not in dtype else Cast(dtype, value)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

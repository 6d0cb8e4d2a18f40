"""From tiles to loops: every tile operator becomes the loops of a backend's lowering or of its portable meaning.

In: a program at level TILE. Out: level LOOPS. Operators on memory of the block stand in a "tl.collective" attribute;
operators on a thread's own memory, or inside `T.Parallel`, become plain statements of that thread or iteration.
`T.any_of` / `T.all_of` inside an expression are computed before the statement that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.access import view_roots
from ...ir.context import DECLINED, PassContext
from ...ir.dialect import (
    ANNOTATION_ALLOC,
    ANNOTATION_PARALLEL,
    ATTR_COLLECTIVE,
    ATTR_WS,
    FACT_SCRATCH,
    FRAGMENT,
    SHARED_SCOPES,
    THREAD_SCOPES,
    VAR,
    attr,
    info,
    op_name,
)  # fmt: skip
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Span,
    Stmt,
    TensorRegion,
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    load,
    location_of,
    seq,
    shape_of,
    store,
)  # fmt: skip
from ...tileop import TILE_OPS
from ...tileop.base import LowerContext, OtherKind
from ...tileop.logical import LOGICAL_OPS, lower_logical
from ..analysis.thread_groups import groups_of

_PORTABLE = {operator.op: operator for operator in TILE_OPS}
Maker = Callable[[], Stmt]


def lower_tile_ops(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Lower the tile operators of every kernel region of `func`."""
    roots = view_roots(func.body)
    body = map_kernels(func.body, lambda kernel: _Lowerer(kernel, ctx, roots).run().to_stmt())
    return func.with_body(body)


class _Lowerer:
    """The rewrite of one kernel region. homes: where temporaries are declared (the kernel, then open iterations).
    before: makers of statements that must precede the one being rewritten (called once for each copy, as no variable
    may be bound twice). again: what a `continue` of the innermost while loop must compute first."""

    def __init__(self, kernel: KernelRegion, passes: PassContext, roots: dict[Var, Var]) -> None:
        self.kernel, self.passes, self.roots = kernel, passes, roots
        self.has_logical = _has_logical(kernel.body)
        self.homes: list[list[Stmt]] = []
        self.before: list[Maker] = []
        self.again: list[Maker] = []
        self.span: Span | None = None
        self.groups: tuple[int, ...] | None = None

    def run(self) -> KernelRegion:
        rules: dict[Any, Any] = {SeqStmt: self.sequence, Evaluate: self.evaluate, For: self.loop, AttrStmt: self.attribute}
        rules[AllocBuffer] = lambda node, _: seq(self.allocated(node))
        if self.has_logical:
            rules |= {Call: self.logical, (BufferStore, Bind, AssertStmt): self.leaf, IfThenElse: self.branch, While: self.repeat}
        with self.home() as declared:
            body = rewrite(self.kernel.body, rules)
        return self.kernel.with_body(seq([*declared, body]))

    # ---- where temporaries live
    @contextmanager
    def home(self) -> Iterator[list[Stmt]]:
        declared: list[Stmt] = []
        self.homes.append(declared)
        yield declared
        self.homes.pop()

    @property
    def in_parallel(self) -> bool:
        return len(self.homes) > 1

    def declare(self, buffer: Var) -> list[Stmt]:
        """Declare a temporary in the innermost home; one of symbolic shape right where it is used (returned)."""
        facts = {ANNOTATION_ALLOC: {FACT_SCRATCH: True}} if buffer.scope() in SHARED_SCOPES else None
        statements = self.allocated(AllocBuffer(buffer, facts, self.span))
        if buffer.scope() == VAR:
            statements.append(store(buffer, const(0, dtype_of(buffer)), [0], self.span))
        if not all(isinstance(e, int) for e in shape_of(buffer)):
            return statements
        self.homes[-1].extend(statements)
        return []

    def allocated(self, node: AllocBuffer) -> list[Stmt]:
        """An allocation, and that of a fragment's registers, which lowerings may name."""
        plan = self.passes.fragments.get(node.buffer)
        return [node] if plan is None else [node, AllocBuffer(plan.registers, None, node.span)]

    # ---- operators
    def lower(self, call: Call, span: Span | None) -> Stmt:
        ctx = self.context(call, span)
        name = op_name(call)
        ctx.per_thread |= not info(name).tile
        result = self.choose(call, name, ctx)(call, ctx)
        return self.finish(result, ctx)

    def context(self, call: Call, span: Span | None) -> LowerContext:
        private = any(isinstance(a, TensorRegion) and a.source.scope() in THREAD_SCOPES for a in call.args)
        private = private or bool(attr(call, "tma"))  # a copy that one thread issues
        return LowerContext(self.passes, self.kernel, span, self.in_parallel or private, self.roots, groups=self.groups)

    def finish(self, lowered: Stmt, ctx: LowerContext) -> Stmt:
        here = [stmt for buffer in ctx.temporaries for stmt in self.declare(buffer)]
        lowered = seq([*here, lowered])
        return lowered if ctx.per_thread else AttrStmt(IntImm("int32", 0), ATTR_COLLECTIVE, IntImm("int32", 1), lowered, ctx.span)

    def choose(self, call: Call, name: str, ctx: LowerContext) -> Callable[[Call, LowerContext], Stmt]:
        """The backend's first lowering that accepts, else the portable meaning; the choice and refusals become notes."""
        at, subject = location_of(Evaluate(call, ctx.span)), name.rpartition(".")[2]
        for lowering in self.passes.lowerings:
            if lowering.op == name:
                reason = lowering.accepts(call, ctx)
                if not isinstance(reason, OtherKind):
                    self.passes.note(at, subject, lowering.name if reason is None else f"{lowering.name}{DECLINED}{reason}")
                if reason is None:
                    return lowering.lower
        self.passes.note(at, subject, "portable loops")
        return _PORTABLE[name].lower

    # ---- statements
    def sequence(self, node: SeqStmt, descend: Descend) -> Stmt:
        return seq([descend(child) for child in node.seq])

    def attribute(self, node: AttrStmt, descend: Descend) -> Stmt:
        outer = self.groups
        if node.attr_key == ATTR_WS:
            self.groups = groups_of(node)
        body = descend(node.body)
        self.groups = outer
        return rebuild_body(node, body)

    def evaluate(self, node: Evaluate, descend: Descend) -> Stmt:
        self.span = node.span
        if op_name(node.value) in _PORTABLE:
            call, hoisted = self.hoist(lambda: descend.children(node.value))
            return seq([*hoisted, self.lower(call, node.span)])
        if self.again and op_name(node.value) == "tirx.continue_loop":
            return seq([*[make() for make in self.again], node])
        return self.leaf(node, descend) if self.has_logical else descend.children(node)

    def leaf(self, node: Stmt, descend: Descend) -> Stmt:
        self.span = node.span
        rewritten, hoisted = self.hoist(lambda: descend.children(node))
        return seq([*hoisted, rewritten])

    def hoist(self, rewrite_expressions: Callable[[], Any]) -> tuple[Any, list[Stmt]]:
        """The result of the rewrite, and the statements that its logical calls need before them."""
        result, makers = self.collect(rewrite_expressions)
        return result, [make() for make in makers]

    def collect(self, rewrite_expressions: Callable[[], Any]) -> tuple[Any, list[Maker]]:
        outer, self.before = self.before, []
        result = rewrite_expressions()
        makers, self.before = self.before, outer
        return result, makers

    def loop(self, node: For, descend: Descend) -> Stmt:
        """A T.Parallel nest is a home for the temporaries of its iterations; `continue` inside belongs to the loop."""
        outer_again, self.again = self.again, []
        depth = int(node.annotations[ANNOTATION_PARALLEL]) if ANNOTATION_PARALLEL in node.annotations else 1
        loops = [node]
        while len(loops) < depth:
            loops.append(loops[-1].body)
        self.span = node.span
        bounds, hoisted = self.hoist(lambda: [(descend(f.min), descend(f.extent)) for f in loops])
        if ANNOTATION_PARALLEL in node.annotations:
            with self.home() as declared:
                body = descend(loops[-1].body)
            body = seq([*declared, body])
        else:
            body = descend(node.body)
        for f, (low, extent) in reversed(list(zip(loops, bounds, strict=True))):
            body = For(f.loop_var, low, extent, f.kind, body, f.thread_binding, f.annotations, f.step, f.span)
        self.again = outer_again
        return seq([*hoisted, body])

    def branch(self, node: IfThenElse, descend: Descend) -> Stmt:
        self.span = node.span
        condition, hoisted = self.hoist(lambda: descend(node.condition))
        then_case = descend(node.then_case)
        else_case = descend(node.else_case) if node.else_case is not None else None
        return seq([*hoisted, IfThenElse(condition, then_case, else_case, node.span)])

    def repeat(self, node: While, descend: Descend) -> Stmt:
        """The condition's logical calls are computed before the loop, at the end of its body and before each continue."""
        self.span = node.span
        outer_again = self.again
        condition, self.again = self.collect(lambda: descend(node.condition))
        body = descend(node.body)
        makers, self.again = self.again, outer_again
        return seq([*[make() for make in makers], While(condition, seq([body, *[make() for make in makers]]), node.span)])

    # ---- any_of, all_of
    def logical(self, node: Call, descend: Descend) -> Expr:
        call = descend.children(node)
        if op_name(call) not in LOGICAL_OPS:
            return call
        span, per_thread = self.span, self.context(call, None).per_thread
        result = decl_buffer((1,), "bool", op_name(call).removeprefix("tl."), VAR if per_thread else FRAGMENT, span=span)
        self.declare(result)

        def make() -> Stmt:
            ctx = self.context(call, span)
            return self.finish(lower_logical(call, result, ctx), ctx)

        self.before.append(make)
        return load(result, [0])


def _has_logical(root: Any) -> bool:
    found: list[Any] = []
    walk(root, {Call: lambda call: found.append(call) if op_name(call) in LOGICAL_OPS else None})
    return bool(found)

"""The meaning of a block of threads on a machine without threads.

In: a LOOPS program with kernel regions. Out: the same regions, whose bodies mention no thread index. What is the same in
all threads is executed once. Everything else becomes runs of statements inside loops over the threads; a run ends where
threads meet: at collective statements, barriers, warp operations, and where one statement touches shared or global memory
that another wrote for a different thread. Control flow that threads take alike stays around the loops over threads; a
condition or loop that they take differently becomes a mask per thread if threads meet inside.

Memory of a thread that varies gets a leading dimension: the linear index x + ex * (y + ey * z) of the thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import TileValueError
from ...ir.access import view_roots
from ...ir.context import PassContext
from ...ir.dialect import ATTR_WS, LOCAL, THREAD_SCOPES, op_name
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import rewrite, substitute, uses, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
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
    Var,
    While,
    const,
    decl_buffer,
    dtype_of,
    load,
    location_of,
    location_of_span,
    seq,
    store,
    tirx,
)  # fmt: skip
from ..analysis.thread_conflicts import Conflicts
from ..analysis.thread_loops import ThreadSpace
from ..analysis.uniformity import (
    LEAVE,
    Uniformity,
    has_threads,
    is_allreduce,
    is_barrier,
    is_collective,
    is_warp_call,
    loads_memory,
    statements,
)
from .thread_memory import indexing, needed, without_unread
from .warp_ops import WarpOps

_RUN = "tl.thread_run"  # AttrStmt(value = number of the run) while the pass works
_GROUP = 128  # threads of one T.ws group


def block_threads(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Give every kernel region its block meaning without threads. Raises TileValueError for a collective statement that
    not all threads reach, or one that needs a value which differs between the threads."""
    roots = view_roots(func.body)

    def kernel(region: KernelRegion) -> Stmt:
        return (_Block(region, roots, ctx.sizes).run() if has_threads(region) else region).to_stmt()

    body = map_kernels(func.body, kernel)
    return func if body.same_as(func.body) else func.with_body(body)


@dataclass(frozen=True)
class _Where:
    """masks: conditions for a thread to take part here. diverged: may some threads be absent, so that collective
    statements are errors? loop: masks of the innermost masked loop; looped: is there any loop around?"""

    masks: tuple[Expr, ...] = ()
    diverged: Span | bool = False
    loop: tuple[Var, Var] | None = None
    looped: bool = False


@dataclass
class _Run:
    """Statements that each thread executes on its own, in a row."""

    stmts: list[Stmt]
    masks: tuple[Expr, ...]
    looped: bool
    locals: set[Var] = field(default_factory=set)


class _Block:
    """The rewrite of one kernel region."""

    def __init__(self, kernel: KernelRegion, roots: dict[Var, Var], sizes: Mapping[Var, tuple[int, int]]) -> None:
        self.kernel, self.roots = kernel, roots
        self.space = ThreadSpace(kernel)
        self.uniform = Uniformity(kernel, roots)
        self.conflicts = Conflicts(kernel, self.uniform, sizes)
        self.warp = WarpOps(self.space)
        self.runs: list[_Run] = []
        self.copies: dict[Var, Var] = {}  # memory of threads -> its version with a leading thread dimension
        self.recomputed: dict[Var, Expr] = {}  # bindings cheap enough to repeat in each run that uses them
        self.counters: set[Var] = set()  # loop variables of masked loops
        self.saved: dict[Var, Var] = {}  # other bindings and loop variables -> the array that keeps them between runs
        self.declared: dict[Var, Stmt] = {}  # the user's private memory -> its declaration
        self.arrays: list[Var] = []  # our own memory, declared at the top of the kernel

    def run(self) -> KernelRegion:
        body = seq(self.sequence(statements(self.kernel.body), _Where()))
        if not self.runs and not self.copies:
            return self.kernel.with_body(body)
        return self.kernel.with_body(self.finish(body))

    # ---------------------------------------------------------------- splitting into runs
    def sequence(self, stmts: Sequence[Stmt], where: _Where) -> list[Stmt]:
        out: list[Stmt] = []
        pending: list[Stmt] = []

        def flush() -> None:
            if pending:
                out.append(self.open_run(pending, where))
                pending.clear()

        for stmt in stmts:
            if isinstance(stmt, AllocBuffer | DeclBuffer):
                out += self.declaration(stmt)
            elif is_barrier(stmt):
                flush()
            elif isinstance(stmt, Bind) and self.recomputable(stmt):
                self.recomputed[stmt.var] = stmt.value
            elif self.once(stmt, where):
                if not (isinstance(stmt, Bind) and not loads_memory(stmt.value)):
                    flush()
                out.append(stmt)
            elif self.threadwise(stmt, where):
                if isinstance(stmt, Bind):
                    self.saved[stmt.var] = self.array(stmt.var.name, dtype_of(stmt.var))
                if any(self.conflicts.between(earlier, stmt) for earlier in pending):
                    flush()
                pending.append(stmt)
            else:
                flush()
                out += self.together(stmt, where)
        flush()
        return out

    def once(self, stmt: Stmt, where: _Where) -> bool:
        """A statement with nothing of the threads in it."""
        if where.diverged:
            return False
        return not is_collective(stmt) and not is_allreduce(stmt) and not self.uniform.has_cut(stmt) and not self.uniform.leaf_varies(stmt)

    def threadwise(self, stmt: Stmt, where: _Where) -> bool:
        """May each thread execute this whole statement by itself?"""
        if self.uniform.has_cut(stmt) or self.uniform.single_copy_writes(stmt):
            return False
        if isinstance(stmt, Bind | BufferStore | Evaluate) and op_name(getattr(stmt, "value", None)) not in LEAVE:
            return True
        if self.uniform.leaves_outer_loop(stmt):
            return False
        return self.uniform.divergent(stmt) or not self.conflicts.within(stmt)

    def recomputable(self, stmt: Bind) -> bool:
        if not self.uniform.leaf_varies(stmt) or loads_memory(stmt.value):
            return False
        kept: list[Var] = []
        walk(stmt.value, {Var: lambda v: kept.append(v) if v in self.saved and v not in self.counters else None})
        return not kept

    def open_run(self, stmts: Sequence[Stmt], where: _Where) -> Stmt:
        self.runs.append(_Run(list(stmts), where.masks, where.looped))
        return AttrStmt(IntImm("int32", 0), _RUN, IntImm("int32", len(self.runs) - 1), Evaluate(IntImm("int32", 0)), stmts[0].span)

    def declaration(self, stmt: AllocBuffer | DeclBuffer) -> list[Stmt]:
        if stmt.buffer.scope() not in THREAD_SCOPES or not self.uniform.private(stmt.buffer):
            return [stmt]
        self.declared[stmt.buffer] = stmt
        return [AttrStmt(IntImm("int32", 0), _RUN, IntImm("int32", -len(self.declared)), Evaluate(IntImm("int32", 0)), stmt.span)]

    # ---------------------------------------------------------------- statements in which threads meet
    def together(self, stmt: Stmt, where: _Where) -> list[Stmt]:
        if is_collective(stmt):
            return [self.collective(stmt, where)]
        if is_allreduce(stmt):
            return self.allreduce(stmt, where)
        if isinstance(stmt, SeqStmt):
            return self.sequence(list(stmt.seq), where)
        if isinstance(stmt, AttrStmt):
            return self.attribute(stmt, where)
        if isinstance(stmt, IfThenElse):
            return self.branch(stmt, where)
        if isinstance(stmt, For):
            return self.masked_for(stmt, where) if self.uniform.divergent(stmt) else self.uniform_loop(stmt, where)
        if isinstance(stmt, While):
            masked = self.uniform.divergent(stmt) or where.diverged or self.has_warp_call(stmt.condition)
            return self.masked_while(stmt, where) if masked else self.uniform_loop(stmt, where)
        if isinstance(stmt, Evaluate) and op_name(stmt.value) in LEAVE:
            return self.leave(stmt, where)
        return self.with_warp_calls(stmt, where)

    def collective(self, stmt: Stmt, where: _Where) -> Stmt:
        if where.diverged:
            notes = []
            at = location_of_span(where.diverged) if isinstance(where.diverged, Span) else None
            if at is not None:
                notes = [(at, "threads part here")]
            raise TileValueError(
                "a collective statement stands where not all threads of the block arrive: the condition around it differs between threads",
                at=location_of(stmt), notes=notes,
                remedy="make the condition depend on block indices or shared values only, or move the statement out",
            )  # fmt: skip
        return self.mapped(stmt) if self.uniform.mentions(stmt) else stmt

    def mapped(self, stmt: Stmt) -> Stmt:
        """A T.Parallel nest that reads values of single threads: iteration number i is executed by thread number i."""
        nest: list[For] = []
        node = stmt
        while isinstance(node, For) and node.kind == ForKind.PARALLEL:
            nest.append(node)
            node = node.body
        extents = [int(n.extent) if isinstance(n.extent, IntImm) else 0 for n in nest]
        count = 1
        for extent in extents:
            count *= extent
        if not nest or count != self.space.count:
            raise TileValueError(
                f"a collective statement uses a value that differs between threads ({self.differing(stmt)}), "
                f"and has not exactly one iteration for each of the {self.space.count} threads",
                at=location_of(stmt),
                remedy="put the value into a shared buffer or fragment first, or loop over exactly one element per thread",
            )  # fmt: skip
        linear: Expr = const(0, "int32")
        for loop, extent in zip(nest, extents, strict=True):
            index = loop.loop_var - loop.min if not (isinstance(loop.min, IntImm) and int(loop.min) == 0) else loop.loop_var
            linear = linear * extent + index if loop is not nest[0] else index
        body = self.expand([node], linear)
        for loop in reversed(nest):
            body = For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step, loop.span)
        return body

    def differing(self, stmt: Stmt) -> str:
        names: list[str] = []
        walk(stmt, {Var: lambda v: names.append(v.name) if self.uniform.mentions(v) and v.name not in names else None})
        return ", ".join(names)

    def attribute(self, stmt: AttrStmt, where: _Where) -> list[Stmt]:
        if stmt.attr_key == ATTR_WS:
            group = self.space.linear // _GROUP
            mask = None
            for wanted in stmt.node:
                test = tirx.EQ(group, const(int(wanted), "int32"))
                mask = test if mask is None else tirx.Or(mask, test)
            return self.sequence(statements(stmt.body), replace(where, masks=(*where.masks, mask)) if mask is not None else where)
        return [rebuild_body(stmt, seq(self.sequence(statements(stmt.body), where)))]

    def branch(self, stmt: IfThenElse, where: _Where) -> list[Stmt]:
        condition, before = self.hoisted(stmt.condition, where, stmt.span)
        if not before and not self.uniform.varies(condition):
            then = seq(self.sequence(statements(stmt.then_case), where))
            otherwise = seq(self.sequence(statements(stmt.else_case), where)) if stmt.else_case is not None else None
            return [*before, IfThenElse(condition, then, otherwise, stmt.span)]
        taken = self.array("taken", "bool")
        out = [*before, self.open_run([self.keep(taken, condition)], where)]
        inside = replace(where, diverged=stmt.span or True)
        out += self.sequence(statements(stmt.then_case), replace(inside, masks=(*where.masks, self.at(taken))))
        if stmt.else_case is not None:
            out += self.sequence(statements(stmt.else_case), replace(inside, masks=(*where.masks, tirx.Not(self.at(taken)))))
        return out

    def uniform_loop(self, stmt: For | While, where: _Where) -> list[Stmt]:
        inside = replace(where, loop=None, looped=True)
        return [rebuild_body(stmt, seq(self.sequence(statements(stmt.body), inside)))]

    def masked_for(self, stmt: For, where: _Where) -> list[Stmt]:
        """for v in range(low, low + n): each thread counts for itself, as long as any thread has iterations left."""
        counter, end = self.array(stmt.loop_var.name, dtype_of(stmt.loop_var)), self.array("end", dtype_of(stmt.loop_var))
        self.saved[stmt.loop_var] = counter
        self.counters.add(stmt.loop_var)
        start = [self.keep(counter, stmt.min), self.keep(end, stmt.min + stmt.extent)]
        test = tirx.LT(self.at(counter), self.at(end))
        step = self.keep(counter, self.at(counter) + const(1, dtype_of(stmt.loop_var)))
        return [self.open_run(start, where), *self.masked_loop(stmt, where, test, [step])]

    def masked_while(self, stmt: While, where: _Where) -> list[Stmt]:
        return self.masked_loop(stmt, where, stmt.condition, [])

    def masked_loop(self, stmt: For | While, where: _Where, condition: Expr, step: list[Stmt]) -> list[Stmt]:
        """running: threads that have not left the loop; taking: those that take part in the rest of this iteration."""
        running, taking = self.array("running", "bool"), self.array("taking", "bool")
        any_thread = decl_buffer((1,), "bool", "any_running", LOCAL)
        self.arrays.append(any_thread)
        inside = _Where((self.at(taking),), stmt.span or True, (running, taking), True)
        looping = replace(where, looped=True)
        test, hoisted = self.hoisted(condition, replace(inside, masks=(self.at(running),)), stmt.span)

        def tests(masks: tuple[Expr, ...]) -> list[Stmt]:
            alive = store(any_thread, tirx.Or(load(any_thread, [0]), self.at(running)), [0])
            again = tirx.if_then_else(self.at(running), test, const(0, "bool"))
            run = [self.keep(running, again), self.keep(taking, self.at(running)), alive]
            return [store(any_thread, const(0, "bool"), [0], stmt.span), *hoisted, self.open_run(run, replace(looping, masks=masks))]

        body = self.sequence(statements(stmt.body), inside)
        advance = [self.open_run(step, replace(inside, masks=(self.at(running),)))] if step else []
        none, all_ = const(0, "bool"), const(1, "bool")
        return [
            self.open_run([self.keep(running, none), self.keep(taking, none)], replace(looping, masks=())),
            self.open_run([self.keep(running, all_)], looping),
            *tests(()),
            While(load(any_thread, [0]), seq([*body, *advance, *tests(())]), stmt.span),
        ]

    def leave(self, stmt: Evaluate, where: _Where) -> list[Stmt]:
        """break and continue: of a loop that all threads leave alike, or of the masks of one they do not."""
        if where.loop is None:
            return [stmt]
        running, taking = where.loop
        off = const(0, "bool")
        gone = [self.keep(running, off)] if op_name(stmt.value) == LEAVE[0] else []
        return [self.open_run([*gone, self.keep(taking, off)], where)]

    # ---------------------------------------------------------------- operations between threads
    def has_warp_call(self, node: Any) -> bool:
        found: list[Any] = []
        walk(node, {Call: lambda c: found.append(c) if is_warp_call(c) else None})
        return bool(found)

    def with_warp_calls(self, stmt: Stmt, where: _Where) -> list[Stmt]:
        """A simple statement whose warp operations are computed before it, in evaluation order."""
        before: list[Stmt] = []

        def call(node: Call, descend: Any) -> Expr:
            return self.warp_call(descend.children(node), where, stmt.span, before) if is_warp_call(node) else descend.children(node)

        rest = rewrite(stmt, {Call: call})
        if isinstance(rest, Evaluate) and isinstance(rest.value, TensorLoad):
            return before
        return [*before, *self.sequence([rest], where)]

    def hoisted(self, condition: Expr, where: _Where, span: Span | None) -> tuple[Expr, list[Stmt]]:
        before: list[Stmt] = []

        def call(node: Call, descend: Any) -> Expr:
            return self.warp_call(descend.children(node), where, span, before) if is_warp_call(node) else descend.children(node)

        return (rewrite(condition, {Call: call}) if self.has_warp_call(condition) else condition), before

    def warp_call(self, node: Call, where: _Where, span: Span | None, before: list[Stmt]) -> Expr:
        """Emit one warp operation; its result is an element of an array over the threads (or one value of the block)."""
        active = self.array("active", "bool")
        fill = [self.keep(active, const(0, "bool"))]
        before.append(self.open_run(fill, replace(where, masks=())))
        operands: list[Any] = []
        run: list[Stmt] = [self.keep(active, const(1, "bool"))]
        for k, operand in enumerate(self.warp.operands(node)):
            if not self.uniform.varies(operand) and not loads_memory(operand):
                operands.append(operand)
                continue
            array = self.array(f"operand{k}", dtype_of(operand))
            run.append(self.keep(array, operand))
            operands.append(array)
        before.append(self.open_run(run, where))
        declared, stmts, result = self.warp.evaluate(node, operands, active, span)
        self.arrays += declared
        before += stmts
        return result

    def allreduce(self, stmt: Stmt, where: _Where) -> list[Stmt]:
        """tvm_thread_allreduce(1, value, condition, result[..], axes...) with the reducer of the attribute around it."""
        reducer = stmt.node if isinstance(stmt, AttrStmt) else None
        call = statements(stmt.body)[0].value if isinstance(stmt, AttrStmt) else stmt.value
        if reducer is None or int(call.args[0]) != 1:
            raise TileValueError(
                "tvm_thread_allreduce without a comm_reducer for one value",
                at=location_of(stmt), remedy='put it inside `with T.attr(T.comm_reducer(...), "reduce_scope", ...)`',
            )  # fmt: skip
        value, condition, result, axes = call.args[1], call.args[2], call.args[3], list(call.args[4:])
        identity = reducer.identity_element[0]
        given = value if isinstance(condition, IntImm) and int(condition) else tirx.if_then_else(condition, value, identity)
        operand = self.array("operand", dtype_of(value))
        out = [self.open_run([self.keep(operand, identity)], replace(where, masks=())), self.open_run([self.keep(operand, given)], where)]
        declared, stmts, total = self.warp.allreduce(operand, reducer, axes, stmt.span)
        written = store(result.source, total, list(result.indices), stmt.span)
        self.arrays += declared
        return [*out, *stmts, self.open_run([written], where)]

    # ---------------------------------------------------------------- memory per thread
    def array(self, name: str, dtype: str) -> Var:
        """A new array with one element a thread; it stands for itself in every run."""
        buffer = decl_buffer((self.space.count,), dtype, name, LOCAL)
        self.arrays.append(buffer)
        return buffer

    def at(self, array: Var) -> Expr:
        return load(array, [self.space.linear])

    def keep(self, array: Var, value: Expr) -> Stmt:
        return store(array, value, [self.space.linear])

    def copy_of(self, buffer: Var) -> Var:
        """The version of a thread's buffer with the leading thread dimension."""
        if buffer not in self.copies:
            self.copies[buffer] = decl_buffer((self.space.count, *buffer.ty.shape), dtype_of(buffer), buffer.name, LOCAL)
        return self.copies[buffer]

    # ---------------------------------------------------------------- finishing: runs become loops over threads
    def finish(self, body: Stmt) -> Stmt:
        once = self.run_local()
        loops = [self.thread_loops(run, [d for d in once if once[d] == k]) for k, run in enumerate(self.runs)]
        declared = list(self.declared.items())

        def attribute(node: AttrStmt, descend: Any) -> Stmt:
            if node.attr_key != _RUN:
                return descend.children(node)
            number = int(node.value)
            if number >= 0:
                return loops[number]
            buffer, stmt = declared[-number - 1]
            return seq([]) if buffer in once else self.expanded_declaration(buffer, stmt)

        body = rewrite(body, {AttrStmt: attribute})
        return without_unread(seq([*(AllocBuffer(a, None, self.kernel.span) for a in self.arrays), body]), set(self.saved.values()))

    def expanded_declaration(self, buffer: Var, stmt: Stmt) -> Stmt:
        if isinstance(stmt, AllocBuffer):
            return AllocBuffer(self.copy_of(buffer), stmt.annotations, stmt.span)
        return DeclBuffer(self.copy_of(buffer), data=self.copy_of(self.roots[buffer]).data, span=stmt.span)

    def run_local(self) -> dict[Var, int]:
        """Private memory that only one run touches, outside any loop: it lives inside the loop over threads."""
        users: dict[Var, set[int]] = {}
        for k, run in enumerate(self.runs):
            for stmt in (*run.stmts, *(Evaluate(m) for m in run.masks)):
                walk(stmt, {Var: lambda v, k=k: users.setdefault(v, set()).add(k) if self.roots.get(v, v) in self.declared else None})
        once: dict[Var, int] = {}
        for buffer, stmt in self.declared.items():
            used = users.get(buffer, set())
            is_view = isinstance(stmt, DeclBuffer) or any(r.same_as(buffer) for v, r in self.roots.items() if not v.same_as(buffer))
            if len(used) == 1 and not is_view and not self.runs[min(used)].looped and buffer not in self.copies:
                once[buffer] = min(used)
        return once

    def thread_loops(self, run: _Run, own: list[Var]) -> Stmt:
        stmts: list[Stmt] = [self.declared[buffer] for buffer in own]
        body = self.expand(run.stmts, self.space.linear, set(own))
        if run.masks:
            mask = run.masks[0]
            for more in run.masks[1:]:
                mask = tirx.And(mask, more)
            body = IfThenElse(mask, body, None, run.stmts[0].span)
        return self.space.loops(seq([*stmts, body]), run.stmts[0].span)

    def expand(self, stmts: Sequence[Stmt], linear: Expr, own: set[Var] = frozenset()) -> Stmt:  # type: ignore[assignment]
        """The statements for the thread with this linear index: private memory indexed by it, bindings of earlier runs
        restored, its own bindings kept for later runs."""
        stmts, prefix = self.with_bindings(list(stmts), linear)
        body = seq([*prefix, *stmts])
        table = {b: self.copy_of(b) for b in self.declared if b not in own and uses(body, b)}
        body = rewrite(body, indexing(table, linear)) if table else body
        return substitute(body, self.space.indices_of(linear)) if linear is not self.space.linear else body

    def with_bindings(self, stmts: list[Stmt], linear: Expr) -> tuple[list[Stmt], list[Stmt]]:
        """Restore what earlier runs bound; keep what this one binds."""
        bound = [s.var for s in stmts if isinstance(s, Bind)]
        prefix: list[Stmt] = []
        renamed: dict[Var, Expr] = {}
        order = [v for v in (*self.recomputed, *self.saved) if not any(v.same_as(b) for b in bound)]
        wanted = needed(order, stmts, self.recomputed)
        for var in [v for v in (*self.saved, *self.recomputed) if v in wanted]:
            fresh = Var(var.name, var.ty)
            value = load(self.saved[var], [linear]) if var in self.saved else substitute(self.recomputed[var], renamed)
            prefix.append(Bind(fresh, value))
            renamed[var] = fresh
        out: list[Stmt] = []
        for stmt in stmts:
            out.append(substitute(stmt, renamed) if renamed else stmt)
            if isinstance(stmt, Bind) and stmt.var in self.saved:
                out.append(store(self.saved[stmt.var], stmt.var, [linear]))
        return out, prefix

"""Which values of a kernel are the same in every thread of the block, and which statements may run thread by thread.

In: a kernel region at LOOPS. Out: `Uniformity`: the buffers and bindings that vary between threads, the loops that
threads leave at different times, and answers about statements. A value varies if it depends on a thread index, on memory
of a thread that varies, on the previous value of an atomic, on a shuffle, or on control flow that varies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.access import accesses
from ...ir.dialect import (
    ANNOTATION_PARALLEL,
    ATTR_COLLECTIVE,
    ATTR_REDUCE_SCOPE,
    THREAD_SCOPES,
    op_info,
    op_name,
)  # fmt: skip
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    TensorLoad,
    Var,
    While,
    ffi,
    is_buffer,
)  # fmt: skip

ALLREDUCE = "tirx.tvm_thread_allreduce"
SHUFFLES = ("tirx.tvm_warp_shuffle", "tirx.tvm_warp_shuffle_up", "tirx.tvm_warp_shuffle_down", "tirx.tvm_warp_shuffle_xor")
BARRIERS = ("tl.sync_threads", "tl.sync_warp", "tirx.tvm_storage_sync")
BLOCK_VOTE = "tl.block_vote"
LEAVE = ("tirx.break_loop", "tirx.continue_loop")
# Executed by every thread with an effect of its own: n threads have n effects even when all operands agree.
PER_THREAD = ("tl.atomic", "tl.print", "tl.random", "tirx.call_extern", "tirx.call_packed")


def is_warp_call(node: Any) -> bool:
    """A call whose result in one thread needs the operands of other threads."""
    entry, name = op_info(node), op_name(node)
    return name in SHUFFLES or name == BLOCK_VOTE or (entry is not None and entry.warp and name not in BARRIERS)


def is_collective(stmt: Stmt) -> bool:
    """Executed once by the block: a lowered tile operator or a `T.Parallel` nest."""
    if isinstance(stmt, AttrStmt):
        return stmt.attr_key == ATTR_COLLECTIVE
    return isinstance(stmt, For) and (stmt.kind == ForKind.PARALLEL or ANNOTATION_PARALLEL in (stmt.annotations or {}))


def is_barrier(stmt: Stmt) -> bool:
    return isinstance(stmt, Evaluate) and op_name(stmt.value) in BARRIERS


def is_allreduce(stmt: Stmt) -> bool:
    if isinstance(stmt, AttrStmt):
        return stmt.attr_key == ATTR_REDUCE_SCOPE
    return isinstance(stmt, Evaluate) and op_name(stmt.value) == ALLREDUCE


def statements(stmt: Stmt) -> list[Stmt]:
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def has_threads(kernel: KernelRegion) -> bool:
    """Does the kernel name a thread, or do something once for each thread, or make threads meet?"""
    axes = {var for var, _ in kernel.threads}
    found: list[Any] = []
    walk(kernel.body, {
        Var: lambda v: found.append(v) if v in axes else None,
        Call: lambda c: found.append(c) if op_name(c) in (*PER_THREAD, *BARRIERS, ALLREDUCE) or is_warp_call(c) else None,
    })  # fmt: skip
    return bool(found)


class Uniformity:
    """The analysis of one kernel region. roots: views to the buffers that own the storage."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
        self.roots = roots
        self.thread_vars = {var for var, _ in kernel.threads}
        self.varying: set[Var] = set()  # bindings, loop variables and memory of threads
        self.ragged: set[Any] = set()  # loops that some threads leave before others
        self.inner: set[Var] = set()  # memory of single iterations of T.Parallel, not of threads
        walk(kernel.body, {(For, AttrStmt): self._note_inner})
        # What a node names and calls does not change while the answers do: it is looked up once.
        self._named: dict[Any, frozenset[Var]] = {}
        self._told_apart: dict[Any, bool] = {}
        self._written: dict[Stmt, list[Var]] = {}
        self.demanded = self._demanded(kernel.body)
        while True:
            before = len(self.varying), len(self.ragged)
            self._visit(kernel.body, False, None)
            if (len(self.varying), len(self.ragged)) == before:
                self._make_private(kernel.body)
                if len(self.varying) == before[0]:
                    break

    # ---------------------------------------------------------------- answers
    def varies(self, node: Any) -> bool:
        """Can this expression have different values in different threads?"""
        if self.mentions(node):
            return True
        if node not in self._told_apart:
            self._told_apart[node] = _calls(node, lambda c: op_name(c) in PER_THREAD or (is_warp_call(c) and op_name(c) != BLOCK_VOTE))
        return self._told_apart[node]

    def mentions(self, node: Any) -> bool:
        """Is a thread index, a varying binding or varying memory named in it?"""
        named = self._named.get(node)
        if named is None:
            found: set[Var] = set()
            walk(node, {Var: lambda v: found.add(v if v in self.thread_vars else self.roots.get(v, v))})
            named = self._named[node] = frozenset(found)
        return not (named.isdisjoint(self.thread_vars) and named.isdisjoint(self.varying))

    def private(self, buffer: Var) -> bool:
        """Does each thread need its own copy?"""
        return self.roots.get(buffer, buffer) in self.varying

    def leaf_varies(self, stmt: Stmt) -> bool:
        """Must this simple statement run once for each thread?"""
        if isinstance(stmt, Bind):
            return stmt.var in self.varying
        if isinstance(stmt, BufferStore) and self.private(stmt.buffer):
            return True
        return self.varies(stmt)

    def has_cut(self, stmt: Stmt) -> bool:
        """Does it hold something that the threads do together?"""
        found = False

        def visit(node: Any) -> None:
            nonlocal found
            if isinstance(node, Call):
                found = found or is_warp_call(node) or op_name(node) in BARRIERS or op_name(node) == ALLREDUCE
            else:
                found = found or is_collective(node)

        walk(stmt, {(Call, For, AttrStmt): visit})
        return found

    def divergent(self, stmt: Stmt) -> bool:
        """Control flow that not all threads take alike?"""
        if isinstance(stmt, IfThenElse):
            return self.varies(stmt.condition)
        if isinstance(stmt, While):
            return self.varies(stmt.condition) or stmt in self.ragged
        return isinstance(stmt, For) and (self.varies(stmt.min) or self.varies(stmt.extent) or stmt in self.ragged)

    # ---------------------------------------------------------------- the fixpoint
    def _visit(self, stmt: Stmt, diverged: bool, loop: Stmt | None) -> None:
        if is_allreduce(stmt):
            self.varying |= {a.root for a in accesses(stmt, self.roots) if a.writes}
        elif is_collective(stmt) or isinstance(stmt, AllocBuffer | DeclBuffer):
            return
        elif isinstance(stmt, SeqStmt):
            for child in stmt.seq:
                self._visit(child, diverged, loop)
        elif isinstance(stmt, IfThenElse):
            diverged = diverged or self.varies(stmt.condition)
            self._visit(stmt.then_case, diverged, loop)
            if stmt.else_case is not None:
                self._visit(stmt.else_case, diverged, loop)
        elif isinstance(stmt, For | While):
            inside = diverged or self.divergent(stmt)
            if isinstance(stmt, For) and inside and (self.varies(stmt.min) or self.varies(stmt.extent) or stmt in self.ragged):
                self.varying.add(stmt.loop_var)
            self._visit(stmt.body, inside, stmt)
        elif isinstance(stmt, AttrStmt):
            self._visit(stmt.body, diverged, loop)
        else:
            self._visit_leaf(stmt, diverged, loop)

    def _visit_leaf(self, stmt: Stmt, diverged: bool, loop: Stmt | None) -> None:
        if isinstance(stmt, Bind):
            if diverged or self.varies(stmt.value):
                self.varying.add(stmt.var)
            return
        if isinstance(stmt, Evaluate) and op_name(stmt.value) in LEAVE:
            if diverged and loop is not None:
                self.ragged.add(loop)
            return
        if diverged or self.varies(stmt):
            if stmt not in self._written:
                self._written[stmt] = [a.root for a in accesses(stmt, self.roots) if a.writes and _of_thread(a.root)]
            self.varying.update(root for root in self._written[stmt] if root not in self.inner)

    def _note_inner(self, node: Any) -> None:
        if is_collective(node):
            walk(node, {AllocBuffer: lambda alloc: self.inner.add(alloc.buffer)})

    # ---------------------------------------------------------------- which uniform variables stay single
    def _demanded(self, body: Stmt) -> set[Var]:
        """Memory of threads whose value the block as a whole needs: read by collective statements, or by conditions and
        bounds around them; and what flows into it."""
        wanted: set[Var] = set()
        flows: list[tuple[Var, Any]] = []

        def want(node: Any) -> None:
            for access in accesses(node, self.roots):
                if _of_thread(access.root):
                    wanted.add(access.root)
            walk(node, {Var: wanted.add})

        def visit(node: Any, visitor: Any) -> None:
            if isinstance(node, BufferStore):
                flows.append((self.roots.get(node.buffer, node.buffer), node))
            elif isinstance(node, Bind):
                flows.append((node.var, node.value))
            elif is_collective(node):
                want(node)
                return
            elif isinstance(node, For) and self.has_cut(node.body):
                want(node.min)
                want(node.extent)
            elif isinstance(node, IfThenElse | While) and self.has_cut(node):
                want(node.condition)
            visitor.default_visit(node)

        ffi.structural_visit(body, [((BufferStore, Bind, For, AttrStmt, IfThenElse, While), visit)])
        size = -1
        while size != len(wanted):
            size = len(wanted)
            for target, source in flows:
                if target in wanted:
                    want(source)
        return wanted

    def _make_private(self, body: Stmt) -> None:
        """A uniform variable written among varying statements of one loop or branch gets a copy for each thread, so that
        the whole loop can run thread by thread."""

        def visit(node: Any, visitor: Any) -> None:
            if is_collective(node) or is_allreduce(node):
                return
            if isinstance(node, For | IfThenElse | While) and not self.has_cut(node) and self.varies(node):
                for access in accesses(node, self.roots):
                    if access.writes and _of_thread(access.root) and access.root not in self.demanded:
                        self.varying.add(access.root)
                return
            visitor.default_visit(node)

        ffi.structural_visit(body, [((For, IfThenElse, While, AttrStmt), visit)])

    def single_copy_writes(self, stmt: Stmt) -> bool:
        """Does it write memory of threads that all threads share because it is uniform?"""
        local = _declared(stmt)
        for access in accesses(stmt, self.roots):
            root = access.root
            if access.writes and _of_thread(root) and root not in self.varying and root not in local:
                return True
        return False

    def leaves_outer_loop(self, stmt: Stmt) -> bool:
        """Does it hold a `break` or `continue` of a loop around it?"""
        found = False

        def visit(node: Any, visitor: Any) -> None:
            nonlocal found
            if isinstance(node, For | While):
                return
            found = found or (isinstance(node, Evaluate) and op_name(node.value) in LEAVE)
            visitor.default_visit(node)

        ffi.structural_visit(stmt, [((For, While, Evaluate), visit)])
        return found


def _of_thread(root: Var) -> bool:
    """Memory of which each thread has its own? (What a raw pointer leads to is global memory.)"""
    return is_buffer(root) and root.scope() in THREAD_SCOPES


def _declared(stmt: Stmt) -> set[Var]:
    found: set[Var] = set()
    walk(stmt, {AllocBuffer: lambda alloc: found.add(alloc.buffer)})
    return found


def loads_memory(expr: Any) -> bool:
    found: list[Any] = []
    walk(expr, {(TensorLoad, Call): found.append})
    return bool(found)


def _calls(node: Any, test: Callable[[Call], bool]) -> bool:
    found: list[Call] = []
    walk(node, {Call: lambda c: found.append(c) if test(c) else None})
    return bool(found)

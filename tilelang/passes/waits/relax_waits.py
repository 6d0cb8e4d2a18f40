"""Warpgroup products stay in flight until something needs them, and slots of rings are released when nothing reads them.

In: a THREADS program in which every group of products is waited for at once, and slots are released by `tl.slot_release`. Out: waits stand
before the first statement that touches a register that a group in flight writes, or writes what it reads; releases are an arrival of one
lane of each warp. A release that would wait for the newest products at the end of a loop's body moves behind the first products of the next
iteration, so that the tensor cores do not run dry in between.

A wait says how many newer groups may stay in flight. Around a loop the state is that of its back edge: on entry fewer groups are in
flight, and the same wait is as right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.access import Access, accesses, view_roots
from ...ir.context import PassContext
from ...ir.dialect import SHARED_SCOPES, attr, make_call, op_name
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    Call,
    DeclBuffer,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    SeqStmt,
    Stmt,
    Var,
    While,
    const,
    dtype_of,
    region,
    seq,
    shape_of,
    tirx,
)  # fmt: skip
from ..analysis.thread_loops import ThreadSpace
from .barrier_windows import windows

WARP = 32
_PRODUCT, _FENCE, _COMMIT, _WAIT, _RELEASE = "tl.wgmma", "tl.wgmma_fence", "tl.wgmma_commit", "tl.wgmma_wait", "tl.slot_release"
_BARRIERS, _ARRIVALS = ("tl.sync_threads",), ("tl.mbarrier_arrive",)  # after which others may write what this thread has read


def relax_waits(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Move the waits of every kernel region that holds products, and make releases plain."""
    roots = view_roots(func.body)

    def of_kernel(kernel: KernelRegion) -> Stmt:
        if not _holds(kernel.body, (_PRODUCT, _RELEASE)):
            return kernel.to_stmt()
        return kernel.with_body(_Relaxer(kernel, roots).run()).to_stmt()

    return func.with_body(map_kernels(func.body, of_kernel))


@dataclass(frozen=True)
class _Group:
    """Products in flight. key: the commit that closed them. results: registers that they write. registers: that they read. tiles: shared
    buffers that they read. carried: from an earlier iteration of the innermost loop."""

    key: Any
    results: frozenset[Var]
    registers: frozenset[Var]
    tiles: frozenset[Var]
    carried: bool = False


State = tuple[_Group, ...]  # oldest first


class _Relaxer:
    """The rewrite of one kernel region. open: products since the last commit. earlier: releases of what the iteration before has read, with
    the condition that there was one. fence: of the products that come next."""

    def __init__(self, kernel: KernelRegion, roots: Mapping[Var, Var]) -> None:
        self.kernel, self.roots = kernel, roots
        self.windows = windows(kernel, roots)
        self.open = _Group(None, frozenset(), frozenset(), frozenset())
        self.earlier: dict[Stmt, Expr] = {}
        self.fence: list[Stmt] = []

    def run(self) -> Stmt:
        body, _ = self.stmt(self.kernel.body, ())
        return body

    # ---------------------------------------------------------------- statements
    def stmt(self, stmt: Stmt, state: State) -> tuple[Stmt, State]:
        """The statement with its waits, and what is in flight after it."""
        if isinstance(stmt, SeqStmt):
            return self.sequence(list(stmt.seq), state)
        if isinstance(stmt, AttrStmt):
            body, state = self.stmt(stmt.body, state)
            return rebuild_body(stmt, body), state
        if _is(stmt, _FENCE):  # barriers may have come between it and the products; it belongs directly before these
            self.fence = [stmt]
            return seq([]), state
        if not _holds(stmt, (_COMMIT, _WAIT, _RELEASE)):  # products, and the loops around them, or what has nothing to do with them
            waits, state = self.before(stmt, state)
            products = _calls(stmt, _PRODUCT)
            for call in products:
                self.note(call)
            fence, self.fence = (self.fence, []) if products else ([], self.fence)
            return seq([*waits, *fence, stmt]), state
        if isinstance(stmt, For):
            return self.loop(stmt, state)
        if isinstance(stmt, IfThenElse):
            return self.branch(stmt, state)
        if isinstance(stmt, While):
            waits, _ = _drain(state, stmt.span)
            body, left = self.stmt(stmt.body, ())
            return seq([*waits, While(stmt.condition, seq([body, *_drain(left, stmt.span)[0]]), stmt.span)]), ()
        assert isinstance(stmt, Evaluate), f"products inside {type(stmt).__name__}"
        return self.effect(stmt, state)

    def sequence(self, stmts: Sequence[Stmt], state: State) -> tuple[Stmt, State]:
        found = []
        for child in stmts:
            done, state = self.stmt(child, state)
            found.append(done)
        return seq(found), state

    def effect(self, stmt: Evaluate, state: State) -> tuple[Stmt, State]:
        name = op_name(stmt.value)
        if name == _WAIT:
            return seq([]), state
        if name == _COMMIT:
            group, self.open = replace(self.open, key=stmt), _Group(None, frozenset(), frozenset(), frozenset())
            return stmt, (*state, group)
        waits, state = self.before(stmt, state)
        return seq([*waits, self.release(stmt)]), state

    def note(self, call: Call) -> None:
        """One more product of the open group."""
        c, *operands = (a for a in call.args[:3])
        read = {o.source for o in operands}
        tiles = frozenset(b for b in read if b.scope() in SHARED_SCOPES)
        group = self.open
        self.open = replace(
            group, results=group.results | {c.source}, tiles=group.tiles | tiles, registers=group.registers | (frozenset(read) - tiles)
        )

    def before(self, stmt: Stmt, state: State) -> tuple[list[Stmt], State]:
        """The wait that a statement needs first. Products of one accumulator follow each other without."""
        if not state or isinstance(stmt, Bind | AllocBuffer | DeclBuffer):
            return [], state
        touched = accesses(stmt, self.roots)
        disturbed = self.disturbed(stmt)
        spared = _behind(stmt) if _is(stmt, _RELEASE) else 0
        for k in reversed(range(len(state))):
            group = state[k]
            if _is(stmt, _RELEASE):
                reads = bool({a.source for a in stmt.value.args[2:]} & group.tiles)
                late = reads and not spared and (group.carried or stmt not in self.earlier)
                spared -= reads and spared > 0
            else:
                late = any(_clashes(a, group) for a in touched) or any(disturbed(tile) for tile in group.tiles)
            if late:
                return _wait(state, len(state) - 1 - k, stmt.span), state[k + 1 :]
        return [], state

    def disturbed(self, stmt: Stmt) -> Callable[[Var], bool]:
        """Which shared tiles may others write once this thread has passed the statement?"""
        if _holds(stmt, _ARRIVALS) or (self.windows is None and _holds(stmt, _BARRIERS)):
            return lambda _: True
        written = {b for found in _statements(stmt, _BARRIERS) for b in (self.windows or {}).get(found, ())}
        return lambda tile: tile in written

    # ---------------------------------------------------------------- control
    def branch(self, node: IfThenElse, state: State) -> tuple[Stmt, State]:
        """Products inside of a branch are complete at its end, those before it at its beginning."""
        waits, _ = _drain(state, node.span)
        cases: list[Stmt | None] = []
        for case in (node.then_case, node.else_case):
            if case is None:
                cases.append(None)
                continue
            body, left = self.stmt(case, ())
            cases.append(seq([body, *_drain(left, node.span)[0]]))
        return seq([*waits, IfThenElse(node.condition, cases[0], cases[1], node.span)]), ()

    def loop(self, node: For, state: State) -> tuple[Stmt, State]:
        waits, _ = _drain(state, node.span)
        body, after = self.deferred(node)
        _, first = self.stmt(body, ())
        done, left = self.stmt(body, tuple(replace(g, carried=True) for g in first))
        if [g.key for g in left] != [g.key for g in first]:
            done, left = self.stmt(node.body, ())
            done, left, after = seq([done, *_drain(left, node.span)[0]]), (), []
        rest, left = self.sequence(after, left)
        return seq([*waits, rebuild_body(node, done), rest]), left

    # ---------------------------------------------------------------- releases
    def deferred(self, node: For) -> tuple[Stmt, list[Stmt]]:
        """The body with releases at its end moved behind the first commit of the next iteration, and what follows the loop. They stay
        where a statement in between touches results, and where the body is a branch."""
        stmts = _flat(node.body)
        commits = [k for k, s in enumerate(stmts) if _is(s, _COMMIT)]
        if not commits:
            return node.body, []
        first, last = commits[0], commits[-1]
        newest = stmts[commits[-2] + 1 if len(commits) > 1 else 0 : last]
        results = {c.args[0].source for c in _calls(seq(newest), _PRODUCT)}
        if results != {c.args[0].source for c in _calls(seq(stmts[:first]), _PRODUCT)}:  # the assembler would take them one by one
            return node.body, []
        between = [*stmts[last + 1 :], *stmts[:first]]
        quiet = not any(_touches(s, results, self.roots) for s in between)
        moved = [s for s in stmts[last + 1 :] if _is(s, _RELEASE) and not _behind(s)]
        if not quiet or not moved:
            return node.body, []
        again = tirx.GT(node.loop_var, node.min)
        earlier = [_renumbered(s, _previous) for s in moved]
        self.earlier.update(dict.fromkeys(earlier, again))
        body = [s for s in stmts if not any(s.same_as(m) for m in moved)]
        body[first + 1 : first + 1] = earlier
        later = [_renumbered(s, lambda n: _after(n, node)) for s in moved if bool(attr(s.value, "again"))]
        ran = tirx.GT(node.extent, const(0, dtype_of(node.extent)))
        return seq(body), [*later] if isinstance(node.extent, IntImm) else [IfThenElse(ran, seq(later), None, node.span)] if later else []

    def release(self, stmt: Evaluate) -> Stmt:
        """One lane of each warp arrives for the warp, at the barrier of each block of the cluster that waits for it."""
        barriers, number = stmt.value.args[:2]
        slot = tirx.truncmod(number, const(int(shape_of(barriers.source)[0]), "int32"))  # the number is not negative
        lane = tirx.floormod(ThreadSpace(self.kernel).linear, const(WARP, "int32"))
        ranks = int(attr(stmt.value, "ranks", 1))
        rank = [lane] if ranks > 1 else []
        arrive = make_call("tl.mbarrier_arrive", [region(barriers.source, [slot], [1]), *rank], span=stmt.span)
        some = lane < const(ranks, "int32") if ranks > 1 else tirx.EQ(lane, const(0, "int32"))
        first = IfThenElse(some, Evaluate(arrive, stmt.span), None, stmt.span)
        both = seq([Evaluate(make_call("tl.sync_warp", [], span=stmt.span), stmt.span), first])
        return IfThenElse(self.earlier[stmt], both, None, stmt.span) if stmt in self.earlier else both


# ---------------------------------------------------------------- small questions
def _clashes(access: Access, group: _Group) -> bool:
    """Must the group be complete before this access? Products may follow others into the same accumulator."""
    root = access.root
    if root in group.results:
        return not (op_name(access.node) == _PRODUCT and access.mode == "u")
    return access.writes and (root in group.registers or root in group.tiles)


def _wait(state: State, newer: int, span: Any) -> list[Stmt]:
    """Wait until all but so many groups are complete; registers that none of the others writes may be used then."""
    done = len(state) - newer
    busy = {r for g in state[done:] for r in g.results}
    registers = dict.fromkeys(r for g in state[:done] for r in sorted(g.results - busy, key=lambda b: str(b.name)))
    operands = [const(newer, "int32"), *(region(r, [0], list(shape_of(r))) for r in registers)]
    return [Evaluate(make_call(_WAIT, operands, span=span), span)]


def _drain(state: State, span: Any) -> tuple[list[Stmt], State]:
    return (_wait(state, 0, span) if state else []), ()


def _flat(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, sequences in it opened."""
    return [s for child in stmt.seq for s in _flat(child)] if isinstance(stmt, SeqStmt) else [stmt]


def _is(stmt: Stmt, *names: str) -> bool:
    return isinstance(stmt, Evaluate) and op_name(stmt.value) in names


def _calls(stmt: Stmt, name: str) -> list[Call]:
    found: list[Call] = []
    walk(stmt, {Call: lambda c: found.append(c) if op_name(c) == name else None})
    return found


def _statements(stmt: Stmt, names: Sequence[str]) -> list[Stmt]:
    """Those in it that are calls of these."""
    found: list[Stmt] = []
    walk(stmt, {Evaluate: lambda e: found.append(e) if op_name(e.value) in names else None})
    return found


def _holds(stmt: Stmt, names: Sequence[str]) -> bool:
    found = False

    def visit(call: Call) -> None:
        nonlocal found
        found = found or op_name(call) in names

    walk(stmt, {Call: visit})
    return found


def _touches(stmt: Stmt, buffers: set[Var], roots: Mapping[Var, Var]) -> bool:
    """Does something else than a product touch these registers?"""
    return any(a.root in buffers and op_name(a.node) not in (_PRODUCT, _WAIT) for a in accesses(stmt, roots))


def _renumbered(stmt: Evaluate, change: Callable[[Expr], Expr]) -> Evaluate:
    barriers, number, *tiles = stmt.value.args
    again, ranks = bool(attr(stmt.value, "again")), int(attr(stmt.value, "ranks", 1))
    return Evaluate(make_call(_RELEASE, [barriers, change(number), *tiles], span=stmt.span, again=again, ranks=ranks), stmt.span)


def _behind(release: Stmt) -> int:
    """How many of the newest products that read a release's tiles read later slots."""
    return int(attr(release.value, "behind", 0))


def _previous(number: Expr) -> Expr:
    return number - const(1, "int32")


def _after(number: Expr, node: For) -> Expr:
    """The number of the loop's last body, after the loop."""
    if _reads_memory(number):
        return _previous(number)
    return substitute(number, {node.loop_var: node.min + node.extent - const(1, dtype_of(node.extent))})


def _reads_memory(number: Expr) -> bool:
    return bool(accesses(number))


__all__ = ["relax_waits"]

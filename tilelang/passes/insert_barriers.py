"""Block barriers exactly where accesses of different threads to shared or global memory conflict.

In: a THREADS program without automatic barriers. Out: the same with `tl.sync_threads` (of the block, or of the threads of a
`T.ws` region with a barrier id). The program is executed abstractly with the set of accesses since the last barrier, around
loops until nothing new appears; a conflict puts a barrier at the latest uniform point that lies between, outside of inner
loops. Afterwards barriers that others have made unnecessary are taken out. Asynchronous copies count from the wait on.
The configuration "tl.disable_thread_storage_sync" leaves all barriers to the user.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import TileValueError
from ..ir.access import view_roots
from ..ir.context import PassContext
from ..ir.dialect import make_call, op_name
from ..ir.kernel import KernelRegion, map_kernels
from ..ir.rewrite import walk
from ..ir.tvm_api import Bind, Call, Evaluate, For, IntImm, PrimFunc, Stmt, Var, const, dtype_of, location_of, location_of_span
from .facts import Facts
from .footprints import Footprint, Footprints
from .race_proof import RaceProof
from .sync_tree import GROUP_THREADS, Node, TreeBuilder, emit, older
from .thread_uniformity import ThreadUniformity

_KEY_OFF = "tl.disable_thread_storage_sync"
_MAX_AGE = 8  # groups of asynchronous copies that are told apart
_MAX_ROUNDS = 6  # executions of a loop body until iterations are no longer told apart
_NAMED = range(1, 16)  # hardware barriers besides the block's own


def insert_barriers(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Put barriers into every kernel region of `func`."""
    if ctx.flag(_KEY_OFF):
        return func
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _Kernel(kernel, roots, ctx).run().to_stmt()))


@dataclass(frozen=True)
class _Pending:
    """An access that not all threads are known to have finished. depth: loops around the point where it happened that are
    still running the same iteration. lag: (least, most) groups of asynchronous copies committed since."""

    print: Footprint
    depth: int
    group: frozenset[int] | None
    region: Node | None
    lag: tuple[int, int] = (-1, -1)

    @property
    def key(self) -> Any:
        return self.print.serial, tuple(str(d.base) for d in self.print.dims)


_State = dict[Any, _Pending]


@dataclass
class _Moment:
    """finished: accesses since the last barrier. flying: asynchronous copies that have not been waited for."""

    finished: _State = field(default_factory=dict)
    flying: _State = field(default_factory=dict)

    def copy(self) -> _Moment:
        return _Moment(dict(self.finished), dict(self.flying))

    def merge(self, other: _Moment | None) -> _Moment:
        if other is None:
            return self
        for mine, others in ((self.finished, other.finished), (self.flying, other.flying)):
            for key, entry in others.items():
                have = mine.get(key)
                if have is None:
                    mine[key] = entry
                else:
                    lag = min(have.lag[0], entry.lag[0]), max(have.lag[1], entry.lag[1])
                    mine[key] = replace(have, depth=max(have.depth, entry.depth), lag=lag)
        return self

    def same(self, other: _Moment) -> bool:
        return all(
            a.keys() == b.keys() and all(a[k].lag == b[k].lag and a[k].depth == b[k].depth for k in a)
            for a, b in ((self.finished, other.finished), (self.flying, other.flying))
        )


@dataclass
class _Loop:
    node: Node
    leaving: list[_Moment] = field(default_factory=list)
    again: list[_Moment] = field(default_factory=list)


class _Kernel:
    """Barriers of one kernel region. before, after: the nodes that get one, with the group whose threads meet."""

    def __init__(self, kernel: KernelRegion, roots: dict[Var, Var], ctx: PassContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        uniform = ThreadUniformity(kernel, roots)
        self.prints = Footprints(kernel, uniform, roots)
        self.facts = Facts()
        for var, extent in (*kernel.threads, *kernel.blocks):
            self.facts.bind_range(var, 0, extent)
        walk(kernel.body, {For: lambda loop: self.facts.bind_range(loop.loop_var, loop.min, loop.extent),
                           Bind: lambda bind: self.facts.bind_value(bind.var, bind.value)})  # fmt: skip
        self.proof = RaceProof(self.facts)
        self.tree = TreeBuilder(kernel, uniform, self.prints, self.proof).build(kernel.body)
        self.before: dict[Node, frozenset[int] | None] = {}
        self.after: dict[Node, frozenset[int] | None] = {}
        self.fixed: list[tuple[dict[Node, frozenset[int] | None], Node]] = []
        self.open: dict[tuple[int, int], tuple[Footprint, Footprint]] = {}  # conflicts without a place for a barrier
        self.olds: dict[tuple[Node, Var, str], Var] = {}
        self.collect = True
        self.path: list[Node] = []
        self.loops: list[_Loop] = []

    def run(self) -> KernelRegion:
        if not self.prints.relevant or self.kernel.num_threads == 1:
            return self.kernel
        while True:
            size = len(self.before) + len(self.after)
            self._execute_all()
            if len(self.before) + len(self.after) == size:
                break
        unresolved = dict(self.open)
        for table, node in self.fixed:
            group = table.pop(node)
            self._execute_all(collect=False)
            if not self.open.keys() <= unresolved.keys():
                table[node] = group
        for first, second in unresolved.values():
            self._note(first, second)
        return self.kernel.with_body(self._emit())

    def _execute_all(self, collect: bool = True) -> None:
        self.collect = collect
        self.open = {}
        self.path, self.loops = [], []
        self._execute(self.tree, _Moment())

    # ---------------------------------------------------------------- abstract execution
    def _execute(self, node: Node, now: _Moment | None) -> _Moment | None:
        if now is None:
            return None
        if node in self.before:
            self._meet(now, self.before[node])
        self.path.append(node)
        try:
            return self._run(node, now)
        finally:
            self.path.pop()

    def _run(self, node: Node, now: _Moment) -> _Moment | None:
        if node.kind in ("seq", "attr", "ws"):
            result: _Moment | None = now
            for child in node.children:
                result = self._execute(child, result)
            return result
        if node.kind == "if":
            self._touch(node, now)
            results = [self._execute(child, now.copy()) for child in node.children]
            if len(results) == 1:
                results.append(now)
            alive = [r for r in results if r is not None]
            return alive[0].merge(alive[1]) if len(alive) == 2 else alive[0] if alive else None
        if node.kind in ("loop", "while"):
            return self._repeat(node, now)
        if node.kind in ("break", "continue"):
            if self.loops:
                (self.loops[-1].leaving if node.kind == "break" else self.loops[-1].again).append(now)
            return None
        self._touch(node, now)
        self._effect(node, now)
        return now

    def _repeat(self, node: Node, now: _Moment) -> _Moment:
        if node.kind == "loop":
            self._touch(node, now)
        loop = _Loop(node)
        self.loops.append(loop)
        level = len(self.loops)
        entry = now.copy()
        end: _Moment | None = None
        for round_ in range(_MAX_ROUNDS):
            loop.leaving, loop.again = [], []
            start = entry.copy()
            if node.kind == "while":
                self._touch(node, start)
            head = start.copy()
            end = self._execute(node.children[0], start)
            for moment in loop.again:
                end = moment if end is None else end.merge(moment)
            if end is not None and node in self.after:
                self._meet(end, self.after[node])
            if end is None:
                break
            following = self._later(end, node, level, round_ >= _MAX_ROUNDS - 3).merge(now)
            if following.same(entry):
                break
            entry = following
        self.loops.pop()
        leaving = [head] if node.kind == "while" else ([] if node.runs else [now])
        leaving += [m for m in (*loop.leaving, end if node.kind == "loop" else None) if m is not None]
        result = _Moment()
        for moment in leaving:
            result.merge(self._outside(moment, node, level - 1))
        return result

    def _later(self, moment: _Moment, node: Node, level: int, any_earlier: bool) -> _Moment:
        """What happened so far, seen from the next iteration."""
        table = self._old_names(node, any_earlier)
        return self._renamed(moment, table, level)

    def _outside(self, moment: _Moment, node: Node, level: int) -> _Moment:
        """What happened so far, seen from behind the loop."""
        return self._renamed(moment, self._old_names(node, True), level)

    def _old_names(self, node: Node, any_earlier: bool) -> dict[Var, Any]:
        table: dict[Var, Any] = {v: self._old(node, v) for v in node.declared}
        if isinstance(node.stmt, For):
            var = node.stmt.loop_var
            table[var] = self._old(node, var) if any_earlier else var - const(1, dtype_of(var))
        return table

    def _old(self, node: Node, var: Var) -> Var:
        """A name for the value that `var` had in some earlier iteration of this loop."""
        key = (node, var, "old")
        if key not in self.olds:
            old = Var(f"{var.name}_old", var.ty)
            low, high = self.facts.bounds(var)
            if high - low < 1 << 30:
                self.facts.bind_range(old, low, high - low + 1)
            self.olds[key] = old
        return self.olds[key]

    def _renamed(self, moment: _Moment, table: dict[Var, Any], level: int) -> _Moment:
        result = _Moment()
        for target, source in ((result.finished, moment.finished), (result.flying, moment.flying)):
            for entry in source.values():
                bases = older(tuple(d.base for d in entry.print.dims), table)
                moved = replace(entry, print=entry.print.at(bases), depth=min(entry.depth, level))
                target[moved.key] = moved
        return result

    # ---------------------------------------------------------------- effects
    def _region(self) -> Node | None:
        return next((n for n in reversed(self.path) if n.kind == "ws"), None)

    def _touch(self, node: Node, now: _Moment) -> None:
        """The accesses of a leaf, or of a condition: conflicts with what is pending, then pending themselves."""
        region = self._region()
        for touch in node.touches:
            for key, entry in list(now.finished.items()):
                if key in now.finished and self._conflict(entry, touch, region):
                    self._separate(entry, touch, node, region, now)
        for touch in node.touches:
            pending = _Pending(touch, len(self.loops), node.group, region)
            (now.flying if touch.landing else now.finished)[pending.key] = pending

    def _conflict(self, entry: _Pending, touch: Footprint, region: Node | None) -> bool:
        other = entry.region
        if other is not None and region is not None and other is not region and other.meets and region.meets:
            return False  # the groups wait for each other at mbarriers
        return self.proof.may_race(entry.print, touch)

    def _effect(self, node: Node, now: _Moment) -> None:
        if node.kind == "barrier":
            own = {k: e for k, e in now.finished.items() if any(e.print.serial == t.serial for t in node.touches)}
            if self._is_whole(node):
                self._meet(now, node.group)
            now.finished.update(own)
        elif node.kind == "commit":
            now.flying = {k: replace(e, lag=(min(e.lag[0] + 1, _MAX_AGE), min(e.lag[1] + 1, _MAX_AGE))) for k, e in now.flying.items()}
        elif node.kind == "wait":
            self._land(node, now)

    def _is_whole(self, node: Node) -> bool:
        """Do all threads of the group meet here? A part of the block (id and count) does not count outside of T.ws."""
        assert isinstance(node.stmt, Stmt)
        if node.group is not None or not isinstance(node.stmt, Evaluate):
            return True
        return op_name(node.stmt.value) != "tl.sync_threads" or not node.stmt.value.args

    def _land(self, node: Node, now: _Moment) -> None:
        assert node.stmt is not None
        count = node.stmt.value.args[0]
        left = int(count) if isinstance(count, IntImm) else 0
        sure = isinstance(count, IntImm)
        for key, entry in list(now.flying.items()):
            if entry.lag[1] >= left:
                now.finished[key] = replace(entry, depth=len(self.loops), lag=(-1, -1))
                if sure and entry.lag[0] >= left:
                    del now.flying[key]

    def _meet(self, now: _Moment, group: frozenset[int] | None) -> None:
        """A barrier of all threads, or of a group's."""
        if group is None:
            now.finished.clear()
        else:
            now.finished = {k: e for k, e in now.finished.items() if e.group is None or not e.group <= group}

    # ---------------------------------------------------------------- where a barrier goes
    def _separate(self, entry: _Pending, touch: Footprint, node: Node, region: Node | None, now: _Moment) -> None:
        """Put a barrier between a pending access and this one, at the latest point outside of inner loops."""
        group = region.group if region is not None and entry.group == region.group else None
        place, depth = self._place(entry, node, group)
        table = self.after if place is node and node.kind == "while" else self.before
        if place in table or not self.collect:
            self.open[entry.print.serial, touch.serial] = entry.print, touch
            return
        table[place] = group
        self.fixed.append((table, place))
        if table is self.before:  # the rest of this execution sees it already
            met = _Moment({k: e for k, e in now.finished.items() if e.depth <= depth})
            self._meet(met, group)
            now.finished = {k: e for k, e in now.finished.items() if e.depth > depth or k in met.finished}

    def _place(self, entry: _Pending, node: Node, group: frozenset[int] | None) -> tuple[Node, int]:
        """The node before which a barrier of `group` stands, and the loops around it: out of loops that began after the
        access, out of T.ws regions for a barrier of the block, never out of one for a barrier of its group."""
        depth = 0
        start = max((k for k, n in enumerate(self.path) if n.kind == "ws"), default=-1) if group is not None else -1
        for k, step in enumerate(self.path):
            if step.kind == "ws" and group is None:
                return step, depth
            if step.kind in ("loop", "while"):
                if k > start and depth >= entry.depth:
                    return step, depth
                depth += 1
        return node, depth

    # ---------------------------------------------------------------- result
    def _emit(self) -> Stmt:
        names = self._names()
        before = {node: [self._barrier(group, node, names)] for node, group in self.before.items()}
        after = {node: [self._barrier(group, node, names)] for node, group in self.after.items()}
        return emit(self.tree, before, after)

    def _barrier(self, group: frozenset[int] | None, node: Node, names: dict[frozenset[int], int]) -> Stmt:
        span = node.stmt.span if node.stmt is not None else None
        args: list[Any] = []
        if group is not None:
            count = sum(t // GROUP_THREADS in group for t in range(self.kernel.num_threads))
            args = [const(names[group], "int32"), const(count, "int32")]
        return Evaluate(make_call("tl.sync_threads", args, span=span), span)

    def _names(self) -> dict[frozenset[int], int]:
        """Ids of the groups' barriers, none that the program uses itself."""
        used: set[int] = set()

        def visit(call: Call) -> None:
            if op_name(call) == "tl.sync_threads" and call.args and isinstance(call.args[0], IntImm):
                used.add(int(call.args[0]))

        walk(self.kernel.body, {Call: visit})
        free = [i for i in _NAMED if i not in used]
        groups = sorted({g for t in (self.before, self.after) for g in t.values() if g is not None}, key=sorted)
        if len(groups) > len(free):
            raise TileValueError(
                f"{len(groups)} sets of T.ws groups need barriers of their own and {len(free)} of the {len(_NAMED)} named ones are free",
                at=location_of(self.kernel), remedy="use fewer different sets of groups",
            )  # fmt: skip
        return dict(zip(groups, free, strict=False))

    def _note(self, first: Footprint, second: Footprint) -> None:
        self.ctx.note(
            location_of_span(second.span), str(second.buffer.name),
            "different threads meet here inside divergent control flow, where no barrier can stand",
        )  # fmt: skip

"""Where barriers must stand: abstract execution of a kernel with the accesses that not all threads have finished.

In: a kernel region at THREADS; optionally which different buffers share bytes. Out: the kernel with barriers, or the conflicts
for which there is no place. Loops are executed until nothing new appears; accesses of earlier iterations are kept in terms
of the current one (k - 1, ...), so that stages of a ring are told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import TileValueError
from ...ir.dialect import ANNOTATION_TILES, SHARED_SCOPES, attr, make_call, op_name
from ...ir.kernel import KernelRegion
from ...ir.rewrite import walk
from ...ir.tvm_api import Bind, Call, Evaluate, For, IntImm, Stmt, Var, const, dtype_of, is_buffer, location_of, tirx
from ..analysis.facts import Facts, type_range
from ..analysis.footprints import Footprint, Footprints
from ..analysis.race_proof import RaceProof
from ..analysis.sync_tree import GROUP_THREADS, Node, TreeBuilder, emit, older
from ..analysis.thread_uniformity import ThreadUniformity

_MAX_AGE = 8  # groups of asynchronous copies that are told apart
_MAX_ROUNDS = 6  # executions of a loop body until iterations are no longer told apart
_NAMED = range(1, 16)  # hardware barriers besides the block's own
Group = frozenset[int] | None  # ids of T.ws groups; None: the whole block


@dataclass(frozen=True)
class _Pending:
    """An access that not all threads are known to have finished. depth: loops around the point where it happened that are
    still running the same iteration. lag: (least, most) groups of asynchronous copies committed since. met: have the threads of each
    warpgroup met since?"""

    print: Footprint
    depth: int
    group: Group
    region: Node | None
    lag: tuple[int, int] = (-1, -1)
    met: bool = False

    @property
    def key(self) -> Any:
        return self.print.key


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
                    mine[key] = replace(have, depth=max(have.depth, entry.depth), lag=lag, met=have.met and entry.met)
        return self

    def same(self, other: _Moment) -> bool:
        return all(
            a.keys() == b.keys() and all((a[k].lag, a[k].depth, a[k].met) == (b[k].lag, b[k].depth, b[k].met) for k in a)
            for a, b in ((self.finished, other.finished), (self.flying, other.flying))
        )


@dataclass
class _Loop:
    node: Node
    leaving: list[_Moment] = field(default_factory=list)
    again: list[_Moment] = field(default_factory=list)


class BarrierPlanner:
    """Barriers of one kernel region.

    own: separate conflicting accesses to the same buffer. reads, only: see `Footprints`. sizes: see `Facts`. unresolved: after `solve`, the
    conflicts that no barrier can separate.
    """

    def __init__(
        self, kernel: KernelRegion, roots: Mapping[Var, Var], own: bool = True, reads: bool = False,
        only: Collection[Var] | None = None, sizes: Mapping[Var, tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.own = kernel, own
        self.sharing: Mapping[Var, Collection[Var]] = {}
        uniform = ThreadUniformity(kernel, roots)
        self.prints = Footprints(kernel, uniform, roots, reads, only)
        self.facts = Facts(sizes)
        for var, extent in (*kernel.threads, *kernel.blocks):
            self.facts.bind_range(var, 0, extent)
        walk(kernel.body, {For: lambda loop: self.facts.bind_range(loop.loop_var, loop.min, loop.extent),
                           Bind: lambda bind: self.facts.bind_value(bind.var, bind.value)})  # fmt: skip
        self.proof = RaceProof(self.facts)
        self.tree = TreeBuilder(kernel, uniform, self.prints, self.proof).build(kernel.body)
        self.before: dict[Node, Group] = {}  # nodes with a barrier in front, and whose threads meet there
        self.after: dict[Node, Group] = {}  # loops with a barrier at the end of the body
        self.narrow: set[Node] = set()  # nodes whose barrier is one for each warpgroup of the group
        self.unresolved: dict[tuple[int, int], tuple[Footprint, Footprint]] = {}
        self._fixed: list[tuple[dict[Node, Group], Node]] = []
        self._olds: dict[tuple[Node, Var], Var] = {}
        self._tables: dict[tuple[Node, bool], dict[Var, Any]] = {}
        self._moves: dict[tuple[Footprint, Node, bool], Footprint] = {}
        self._collect = True
        self._path: list[Node] = []
        self._loops: list[_Loop] = []

    def solve(self, sharing: Mapping[Var, Collection[Var]] | None = None) -> None:
        """Find the barriers, then take out those that others have made unnecessary, and let warpgroups meet by themselves where that
        is enough. sharing: for a buffer those others that have bytes in common with it; their accesses always conflict."""
        self.sharing = sharing or {}
        self.before.clear()
        self.after.clear()
        self._fixed.clear()
        self.narrow.clear()
        while True:
            size = len(self.before) + len(self.after)
            self._execute_all()
            if len(self.before) + len(self.after) == size:
                break
        unresolved = self.unresolved
        for table, node in self._fixed:
            group = table.pop(node)
            self._execute_all(collect=False)
            if not self.unresolved.keys() <= unresolved.keys():
                table[node] = group
        for table, node in self._fixed:
            if node in table and self._divides(table[node]):
                self.narrow.add(node)
                self._execute_all(collect=False)
                if not self.unresolved.keys() <= unresolved.keys():
                    self.narrow.discard(node)
        self.unresolved = unresolved

    def _divides(self, group: Group) -> bool:
        """Is it several consecutive warpgroups of a block whose threads have one dimension?"""
        if group is None or len(group) < 2 or max(group) - min(group) >= len(group):
            return False
        return all(extent == 1 for _, extent in self.kernel.threads[1:])

    def result(self) -> KernelRegion:
        """The kernel with its barriers."""
        names = self._names()
        before = {node: [self._barrier(group, node, names)] for node, group in self.before.items()}
        after = {node: [self._barrier(group, node, names)] for node, group in self.after.items()}
        return self.kernel.with_body(emit(self.tree, before, after))

    def _execute_all(self, collect: bool = True) -> None:
        self._collect = collect
        self.unresolved = {}
        self._path, self._loops = [], []
        self._execute(self.tree, _Moment())

    # ---------------------------------------------------------------- abstract execution
    def _execute(self, node: Node, now: _Moment | None) -> _Moment | None:
        if now is None:
            return None
        if node in self.before:
            self._meet(now, self.before[node], node in self.narrow)
        self._path.append(node)
        try:
            return self._run(node, now)
        finally:
            self._path.pop()

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
            if self._loops:
                (self._loops[-1].leaving if node.kind == "break" else self._loops[-1].again).append(now)
            return None
        self._touch(node, now)
        self._effect(node, now)
        return now

    def _repeat(self, node: Node, now: _Moment) -> _Moment:
        if node.kind == "loop":
            self._touch(node, now)
        loop = _Loop(node)
        self._loops.append(loop)
        level = len(self._loops)
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
                self._meet(end, self.after[node], node in self.narrow)
            if end is None:
                break
            following = self._later(end, node, level, round_ >= _MAX_ROUNDS - 3).merge(now)
            if following.same(entry):
                break
            entry = following
        self._loops.pop()
        leaving = [head] if node.kind == "while" else ([] if node.runs else [now])
        leaving += [m for m in (*loop.leaving, end if node.kind == "loop" else None) if m is not None]
        result = _Moment()
        for moment in leaving:
            result.merge(self._outside(moment, node, level - 1))
        return result

    def _later(self, moment: _Moment, node: Node, level: int, any_earlier: bool) -> _Moment:
        """What happened so far, seen from the next iteration. Tiles of a persistent grid are blocks of the program: only in shared
        memory do they meet."""
        if isinstance(node.stmt, For) and ANNOTATION_TILES in (node.stmt.annotations or {}):
            of = lambda state: {k: e for k, e in state.items() if is_buffer(e.print.root) and e.print.root.scope() in SHARED_SCOPES}  # noqa: E731
            moment = _Moment(of(moment.finished), of(moment.flying))
        return self._renamed(moment, node, any_earlier, level)

    def _outside(self, moment: _Moment, node: Node, level: int) -> _Moment:
        """What happened so far, seen from behind the loop."""
        return self._renamed(moment, node, True, level)

    def _old_names(self, node: Node, any_earlier: bool) -> dict[Var, Any]:
        """The variables of a loop in terms of its next iteration, or as values of some earlier one."""
        table: dict[Var, Any] = {v: self._old(node, v) for v in node.declared}
        if isinstance(node.stmt, For):
            var = node.stmt.loop_var
            table[var] = self._old(node, var) if any_earlier else var - const(1, dtype_of(var))
        return table

    def _old(self, node: Node, var: Var) -> Var:
        """A name for the value that `var` had in some earlier iteration of this loop."""
        key = (node, var)
        if key not in self._olds:
            old = Var(f"{var.name}_old", var.ty)
            low, high = self.facts.bounds(var)
            limits = type_range(dtype_of(var))
            if limits is not None and high - low < min(1 << 30, limits[1]):  # the extent fits into the type
                self.facts.bind_range(old, low, high - low + 1)
            self._olds[key] = old
        return self._olds[key]

    def _renamed(self, moment: _Moment, node: Node, any_earlier: bool, level: int) -> _Moment:
        result = _Moment()
        for target, source in ((result.finished, moment.finished), (result.flying, moment.flying)):
            for entry in source.values():
                moved = replace(entry, print=self._moved(entry.print, node, any_earlier), depth=min(entry.depth, level))
                target[moved.key] = moved
        return result

    def _moved(self, touch: Footprint, node: Node, any_earlier: bool) -> Footprint:
        """An access in the variables of a later moment. The same ones come round in every execution."""
        key = touch, node, any_earlier
        if key not in self._moves:
            if (node, any_earlier) not in self._tables:
                self._tables[node, any_earlier] = self._old_names(node, any_earlier)
            self._moves[key] = touch.at(older(tuple(d.base for d in touch.dims), self._tables[node, any_earlier]))
        return self._moves[key]

    # ---------------------------------------------------------------- effects
    def _region(self) -> Node | None:
        return next((n for n in reversed(self._path) if n.kind == "ws"), None)

    def _touch(self, node: Node, now: _Moment) -> None:
        """The accesses of a leaf, or of a condition: conflicts with what is pending, then pending themselves."""
        region = self._region()
        for touch in node.touches:
            for entry in now.flying.values():
                if self._share(entry.print, touch):  # it may land at any time
                    self.unresolved[entry.print.serial, touch.serial] = entry.print, touch
            for key, entry in list(now.finished.items()):
                if key in now.finished and self._conflict(entry, touch, region):
                    self._separate(entry, touch, node, region, now)
        for touch in node.touches:
            pending = _Pending(touch, len(self._loops), node.group, region)
            (now.flying if touch.landing else now.finished)[pending.key] = pending

    def _conflict(self, entry: _Pending, touch: Footprint, region: Node | None) -> bool:
        first, other = entry.print, entry.region
        apart = other is not None and region is not None and other is not region and other.meets and region.meets
        if first.root.same_as(touch.root):  # groups that wait for each other at mbarriers look after themselves
            return self.own and not apart and self.proof.may_race(first, touch, GROUP_THREADS if entry.met else 1)
        if not self._share(first, touch):
            return False
        if apart:
            self.unresolved[first.serial, touch.serial] = first, touch
        return not apart

    def _share(self, first: Footprint, second: Footprint) -> bool:
        return second.root in self.sharing.get(first.root, ()) and (first.writes or second.writes)

    def _effect(self, node: Node, now: _Moment) -> None:
        if node.kind == "barrier":
            own = {k: e for k, e in now.finished.items() if any(e.print.serial == t.serial for t in node.touches)}
            if self._is_whole(node):
                self._meet(now, node.group, isinstance(node.stmt, Evaluate) and bool(attr(node.stmt.value, "narrow", False)))
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
                now.finished[key] = replace(entry, depth=len(self._loops), lag=(-1, -1))
                if sure and entry.lag[0] >= left:
                    del now.flying[key]

    def _meet(self, now: _Moment, group: Group, narrow: bool = False) -> None:
        """A barrier of all threads, or of a group's. narrow: of each warpgroup of the group."""
        if narrow:
            now.finished = {
                k: replace(e, met=True) if e.group is not None and group is not None and e.group <= group else e
                for k, e in now.finished.items()
            }
        elif group is None:
            now.finished.clear()
        else:
            now.finished = {k: e for k, e in now.finished.items() if e.group is None or not e.group <= group}

    # ---------------------------------------------------------------- where a barrier goes
    def _separate(self, entry: _Pending, touch: Footprint, node: Node, region: Node | None, now: _Moment) -> None:
        """Put a barrier between a pending access and this one, at the latest point outside of inner loops."""
        group = region.group if region is not None and entry.group == region.group else None
        place, depth = self._place(entry, node, group)
        table = self.after if place is node and node.kind == "while" else self.before
        if place in table or not self._collect:
            self.unresolved[entry.print.serial, touch.serial] = entry.print, touch
            return
        table[place] = group
        self._fixed.append((table, place))
        if table is self.before:  # the rest of this execution sees it already
            met = _Moment({k: e for k, e in now.finished.items() if e.depth <= depth})
            self._meet(met, group)
            now.finished = {k: e for k, e in now.finished.items() if e.depth > depth or k in met.finished}

    def _place(self, entry: _Pending, node: Node, group: Group) -> tuple[Node, int]:
        """The node before which a barrier of `group` stands, and the loops around it: out of loops that began after the
        access, out of T.ws regions for a barrier of the block, never out of one for a barrier of its group."""
        depth = 0
        start = max((k for k, n in enumerate(self._path) if n.kind == "ws"), default=-1) if group is not None else -1
        for k, step in enumerate(self._path):
            if step.kind == "ws" and group is None:
                return step, depth
            if step.kind in ("loop", "while"):
                if k > start and depth >= entry.depth:
                    return step, depth
                depth += 1
        return node, depth

    # ---------------------------------------------------------------- result
    def _barrier(self, group: Group, node: Node, names: Mapping[tuple[frozenset[int], bool], int]) -> Stmt:
        span = node.stmt.span if node.stmt is not None else None
        args: list[Any] = []
        if group is not None and node in self.narrow:
            first, thread = names[group, True] - min(group), self.kernel.threads[0][0]
            args = [tirx.floordiv(thread, const(GROUP_THREADS, "int32")) + const(first, "int32"), const(GROUP_THREADS, "int32")]
            ids: dict[str, Any] = {"narrow": len(group), "first": names[group, True]}
            return Evaluate(make_call("tl.sync_threads", args, span=span, **ids), span)
        if group is not None:
            count = sum(t // GROUP_THREADS in group for t in range(self.kernel.num_threads))
            args = [const(names[group, False], "int32"), const(count, "int32")]
        return Evaluate(make_call("tl.sync_threads", args, span=span), span)

    def _names(self) -> dict[tuple[frozenset[int], bool], int]:
        """Ids of the groups' barriers, none that the program uses itself; for those of single warpgroups the first of consecutive ones."""
        used: set[int] = set()

        def visit(call: Call) -> None:
            if op_name(call) == "tl.sync_threads" and call.args and isinstance(call.args[0], IntImm):
                used.add(int(call.args[0]))
            elif op_name(call) == "tl.sync_threads" and call.args:
                first = int(attr(call, "first", 0))
                used.update(range(first, first + int(attr(call, "narrow", 0))))

        walk(self.kernel.body, {Call: visit})
        free = [i for i in _NAMED if i not in used]
        found: dict[tuple[frozenset[int], bool], int] = {}
        for group in sorted({g for t in (self.before, self.after) for n, g in t.items() if g is not None and n in self.narrow}, key=sorted):
            first = next((i for i in free if all(i + k in free for k in range(len(group)))), None)
            if first is None:  # the whole group meets instead
                self.narrow -= {n for t in (self.before, self.after) for n, g in t.items() if g == group}
            else:
                found[group, True] = first
                free = [i for i in free if not first <= i < first + len(group)]
        wide = {g for t in (self.before, self.after) for n, g in t.items() if g is not None and n not in self.narrow}
        groups = sorted(wide, key=sorted)
        if len(groups) > len(free):
            raise TileValueError(
                f"{len(groups)} sets of T.ws groups need barriers of their own and {len(free)} of the {len(_NAMED)} named ones are free",
                at=location_of(self.kernel), remedy="use fewer different sets of groups",
            )  # fmt: skip
        return {**found, **{(group, False): i for group, i in zip(groups, free, strict=False)}}

"""Bulk stores read their tile while the program goes on, until somebody may write it.

In: a THREADS program with all its barriers, in which the thread that issues bulk stores waits at once until they have read the tile. Out:
the same thread waits before the next barrier on every path, and at the latest where the kernel (or its part of the threads) ends: who
overwrites the tile stands behind a barrier, because the store counted as a read of it. Where the path is not plain the wait stays.

Bulk stores are not ordered: before one that may write where an earlier one has written, the thread waits until that is complete; if another
thread issues the later one, all waits for the earlier one are such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...ir.access import accesses, view_roots
from ...ir.context import PassContext
from ...ir.dialect import ANNOTATION_TILES, ATTR_REDUCE_SCOPE, ATTR_WS, attr, make_call, op_name
from ...ir.effects import calls_of
from ...ir.kernel import KernelRegion, map_kernels, rebuild_body
from ...ir.rewrite import uses
from ...ir.tvm_api import (
    AttrStmt,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    Var,
    While,
    linear_coefficients,
    seq,
    tirx,
)  # fmt: skip
from ..analysis.thread_uniformity import BLOCK_BARRIERS
from ..analysis.uniformity import LEAVE
from .store_boxes import StoreBoxes

_STORE, _WAIT, _ALLREDUCE = "tl.tma_store", "tl.bulk_wait", "tirx.tvm_thread_allreduce"


def defer_bulk_waits(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Move the waits of every kernel region that holds bulk stores."""
    roots = view_roots(func.body)
    return func.with_body(map_kernels(func.body, lambda kernel: _defer(kernel, roots, ctx).to_stmt()))


@dataclass(eq=False)
class _Node:
    """kind: seq, loop, if, part (the threads of a T.ws region), attr, store (a branch of one thread that issues and waits), leaf.
    before, behind: waits that are to stand there, by their condition's text."""

    kind: str
    stmt: Stmt
    children: list[_Node] = field(default_factory=list)
    parent: _Node | None = None
    before: dict[str, Stmt] = field(default_factory=dict)
    behind: dict[str, Stmt] = field(default_factory=dict)
    moved: bool = False  # of a store: its wait stands elsewhere
    complete: bool = False  # of a store: waits for it are not only for its reading
    writes: set[Var] | None = None  # what it writes, once somebody has asked

    def add(self, wait: Stmt, ahead: bool) -> None:
        (self.before if ahead else self.behind).setdefault(str(wait), wait)


def _defer(kernel: KernelRegion, roots: Mapping[Var, Var], ctx: PassContext) -> KernelRegion:
    root = _tree(kernel.body)
    stores = [n for n in _nodes(root) if n.kind == "store"]
    boxes = StoreBoxes(kernel, ctx.sizes)
    for store in stores:
        mine, others = _Order(store, boxes).places()
        store.complete = bool(others)
        for later in mine:
            later.add(_waiting(store.stmt, complete=True), True)
        places = _Path(store, root, roots).places()
        store.moved = places is not None
        for place, ahead in places or ():
            place.add(_waiting(store.stmt, store.complete), ahead)
    return kernel.with_body(_emit(root)) if stores else kernel


# ---------------------------------------------------------------- the tree
def _tree(stmt: Stmt) -> _Node:
    if isinstance(stmt, SeqStmt):
        node = _Node("seq", stmt, [_tree(s) for s in stmt.seq])
    elif isinstance(stmt, For | While):
        node = _Node("loop", stmt, [_tree(stmt.body)])
    elif isinstance(stmt, AttrStmt) and stmt.attr_key != ATTR_REDUCE_SCOPE:
        node = _Node("part" if stmt.attr_key == ATTR_WS else "attr", stmt, [_tree(stmt.body)])
    elif isinstance(stmt, IfThenElse) and _is_store(stmt):
        return _Node("store", stmt)
    elif isinstance(stmt, IfThenElse):
        node = _Node("if", stmt, [_tree(s) for s in (stmt.then_case, stmt.else_case) if s is not None])
    else:
        return _Node("leaf", stmt)
    for child in node.children:
        child.parent = node
    return node


def _is_store(stmt: IfThenElse) -> bool:
    """`if (this thread) { stores; commit; wait until they have read }`."""
    if stmt.else_case is not None or not isinstance(stmt.then_case, SeqStmt) or not calls_of(stmt, _STORE):
        return False
    last = stmt.then_case.seq[-1]
    return isinstance(last, Evaluate) and op_name(last.value) == _WAIT and bool(attr(last.value, "read", False))


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _waiting(stmt: Stmt, complete: bool = False) -> Stmt:
    """The wait alone, under the condition of the store. complete: not only until the tile has been read."""
    assert isinstance(stmt, IfThenElse) and isinstance(stmt.then_case, SeqStmt)
    wait = stmt.then_case.seq[-1]
    if complete:
        wait = Evaluate(make_call(_WAIT, [wait.value.args[0]], span=wait.span), wait.span)
    return IfThenElse(stmt.condition, wait, None, stmt.span)


def _emit(node: _Node) -> Stmt:
    stmt, parts = node.stmt, [_emit(c) for c in node.children]
    if node.kind == "seq":
        stmt = seq(parts)
    elif isinstance(stmt, IfThenElse) and node.moved:
        assert isinstance(stmt.then_case, SeqStmt)
        stmt = IfThenElse(stmt.condition, seq(list(stmt.then_case.seq)[:-1]), None, stmt.span)
    elif isinstance(stmt, IfThenElse) and node.complete:
        stmt = seq([stmt, _waiting(stmt, complete=True)])
    elif isinstance(stmt, IfThenElse) and parts:
        stmt = IfThenElse(stmt.condition, parts[0], parts[1] if len(parts) > 1 else None, stmt.span)
    elif parts:
        stmt = rebuild_body(stmt, parts[0])
    return seq([*node.before.values(), stmt, *node.behind.values()])


# ---------------------------------------------------------------- where a wait goes
class _Path:
    """What follows a store."""

    def __init__(self, store: _Node, root: _Node, roots: Mapping[Var, Var]) -> None:
        self.store, self.root = store, root
        self.tiles = self._tiles(store, roots)
        self.roots = roots
        part = self._part(store)
        writers = [n for n in _nodes(root) if n.kind in ("leaf", "store") and self._writes(n) and self._part(n) is not part]
        own = part is None or not writers
        # An arrival lets others write a tile only if others do.
        loaded = any(calls_of(n.stmt, "tl.tma_load") and self._writes(n) for n in _nodes(root) if n.kind in ("leaf", "store"))
        self.meetings = (*BLOCK_BARRIERS, _ALLREDUCE, *(() if own and not loaded else ("tl.mbarrier_arrive", "tl.slot_release")))
        self.found: list[tuple[_Node, bool]] = []
        self.seen: set[int] = set()

    def places(self) -> list[tuple[_Node, bool]] | None:
        """(node, before it or behind it) of each wait; None if it stays where it is."""
        node: _Node | None = self.store
        while node is not None:
            if node.kind == "loop" and (isinstance(node.stmt, While) or calls_of(node.stmt, *LEAVE)):
                return None
            node = node.parent
        self._follow(self.store)
        return self.found

    def _follow(self, node: _Node) -> None:
        """What comes after `node`, up to a meeting."""
        parent = node.parent
        if parent is None:
            self.found.append((node, False))
            return
        if parent.kind == "seq":
            here = parent.children.index(node)
            if self._stops(parent.children[here + 1 :]):
                return
        elif parent.kind == "loop":
            if id(parent) in self.seen:
                return
            self.seen.add(id(parent))
            body = parent.children[0]
            self._stops(body.children if body.kind == "seq" else [body])
        elif parent.kind == "part":
            self.found.append((node, False))
            return
        self._follow(parent)

    def _stops(self, nodes: list[_Node]) -> bool:
        """Notes a wait before the first of these behind which the tile may change."""
        for node in nodes:
            if self._meets(node):
                self.found.append((node, True))
                return True
        return False

    def _meets(self, node: _Node) -> bool:
        return bool(calls_of(node.stmt, *self.meetings)) or self._writes(node)

    def _writes(self, node: _Node) -> bool:
        if node.writes is None:
            node.writes = {a.root for a in accesses(node.stmt, self.roots) if a.writes}
        return not self.tiles.isdisjoint(node.writes)

    @staticmethod
    def _tiles(store: _Node, roots: Mapping[Var, Var]) -> set[Var]:
        return {a.root for a in accesses(store.stmt, roots) if op_name(a.node) == _STORE and not a.writes}

    @staticmethod
    def _part(node: _Node) -> _Node | None:
        while node.parent is not None:
            node = node.parent
            if node.kind == "part":
                return node
        return None


class _Order:
    """The stores that come after a store, in this iteration of the loops around it or in a later one."""

    def __init__(self, store: _Node, boxes: StoreBoxes) -> None:
        self.store, self.boxes = store, boxes
        self.mine: list[_Node] = []
        self.others: list[_Node] = []
        assert isinstance(store.stmt, IfThenElse)
        self.thread = str(store.stmt.condition)

    def places(self) -> tuple[list[_Node], list[_Node]]:
        """Stores of the same thread, and of other ones, that may write where this one has written."""
        self._follow(self.store, ())
        return self.mine, self.others

    def _follow(self, node: _Node, left: tuple[Stmt, ...]) -> None:
        """What comes after `node`. left: loops of which another iteration may be running by then, outermost last."""
        parent = node.parent
        if parent is None:
            return
        if parent.kind == "seq":
            if self._stops(parent.children[parent.children.index(node) + 1 :], left):
                return
        elif parent.kind == "loop" and isinstance(parent.stmt, For) and ANNOTATION_TILES in (parent.stmt.annotations or {}):
            pass  # another tile is another block of the program
        elif parent.kind == "loop":
            left = (*left, parent.stmt)
            body = parent.children[0]
            if self._stops(body.children if body.kind == "seq" else [body], left):
                return
        self._follow(parent, left)

    def _stops(self, nodes: list[_Node], left: tuple[Stmt, ...]) -> bool:
        for node in nodes:
            for later in [n for n in _nodes(node) if n.kind == "store"]:
                if self.boxes.apart(self.store.stmt, later.stmt, left) or self._only_once(later, left):
                    continue
                same = isinstance(later.stmt, IfThenElse) and str(later.stmt.condition) == self.thread
                if same:  # before the whole statement, so that what is inside of a loop there waits once
                    self.mine.append(node)
                else:
                    self.others.append(later)
                if same and later is node:  # it waits for all before it
                    return True
        return False

    def _only_once(self, later: _Node, left: tuple[Stmt, ...]) -> bool:
        """Are both stores in a branch for one iteration of the loop whose next iteration is looked at?"""
        loop = left[-1] if left else None
        node, around = later.parent, set(map(id, _ancestors(self.store)))
        while isinstance(loop, For) and node is not None and node.stmt is not loop:
            if id(node) in around and node.kind == "if" and _names_iteration(node.stmt.condition, loop.loop_var):  # pyright: ignore[reportAttributeAccessIssue]
                return True
            node = node.parent
        return False


def _ancestors(node: _Node) -> Iterator[_Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def _names_iteration(condition: Expr, var: Var) -> bool:
    """Does it hold for one value of the variable at most, whatever else it names? (That is the same in all iterations, or is memory.)"""
    if not isinstance(condition, tirx.EQ) or accesses(condition):
        return False
    found = linear_coefficients(condition.a - condition.b, [var])
    return found is not None and found[0][0] != 0 and not uses(found[1], var)

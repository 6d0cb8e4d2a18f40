"""When each shared buffer of a kernel holds a value that somebody may still read.

In: the tree of `sync_tree.py` with footprints of all shared memory. Out: a `Life` for each buffer: first and last position in
program order, extended over loops that carry its value. A buffer whose elements are all written in an iteration before any is
read lives inside that iteration only. Parts of the block that meet at mbarriers run side by side: what several of them use lives
through all, and so does what one alone uses, but for the part that has most of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.tvm_api import IntImm, Var, shape_of
from ..analysis.footprints import Footprint
from ..analysis.sync_tree import Node


@dataclass
class Life:
    """Positions are numbered in program order; both ends count."""

    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Is there a position at which both are alive? A buffer written where another is last read meets it."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class _Use:
    position: int
    print: Footprint
    loops: tuple[Node, ...]
    certain: bool  # runs in every iteration of the innermost of `loops`


def life_ranges(tree: Node) -> dict[Var, Life]:
    """Lives of all buffers that footprints of the tree name."""
    uses: dict[Var, list[_Use]] = {}
    bounds: dict[Node, tuple[int, int]] = {}
    waits: list[int] = []
    _number(tree, _Walk(uses, bounds, waits))
    sides = [[bounds[part] for part in parts] for parts in _side_by_side(tree)]
    lives: dict[Var, Life] = {}
    for root, found in uses.items():
        life = Life(min(u.position for u in found), max(u.position for u in found))
        if any(u.print.landing for u in found):  # the bytes change until the copy has landed
            last = max(u.position for u in found if u.print.landing)
            life.last = max(life.last, min((w for w in waits if w > last), default=bounds[tree][1]))
        _extend(life, found, bounds, root)
        lives[root] = life
    for parts in sides:
        _through(parts, lives, uses)
    return lives


def _side_by_side(node: Node) -> Iterator[list[Node]]:
    """Parts of the block that follow each other with nothing between."""
    if node.kind == "seq":
        run: list[Node] = []
        for child in (*node.children, None):
            if child is not None and child.kind == "ws":
                run.append(child)
                continue
            if len(run) > 1 and any(part.meets for part in run):
                yield run
            run = []
    for child in node.children:
        yield from _side_by_side(child)


def _through(parts: list[tuple[int, int]], lives: dict[Var, Life], uses: dict[Var, list[_Use]]) -> None:
    """Extend the lives of what these parts use."""
    users = {root: {k for k, (low, high) in enumerate(parts) if any(low <= u.position <= high for u in uses[root])} for root in lives}
    own = [sum(_elements(root) for root, of in users.items() if of == {k}) for k in range(len(parts))]
    most = own.index(max(own))
    for root, of in users.items():
        if of and of != {most}:
            life = lives[root]
            life.first, life.last = min(life.first, parts[0][0]), max(life.last, parts[-1][1])


@dataclass
class _Walk:
    uses: dict[Var, list[_Use]]
    bounds: dict[Node, tuple[int, int]]
    waits: list[int]
    position: int = 0
    loops: tuple[Node, ...] = ()
    certain: bool = True


def _number(node: Node, walk: _Walk) -> bool:
    """Give positions; each leaf, condition and end of a loop has one of its own. May the node leave the iteration?"""
    start = walk.position
    walk.position += 1
    certain, loops = walk.certain, walk.loops
    if node.kind == "while":  # the condition is evaluated in every iteration
        walk.loops = (*loops, node)
    for touch in node.touches:
        walk.uses.setdefault(touch.root, []).append(_Use(start, touch, walk.loops, certain))
    if node.kind == "wait" and certain and not loops and _waits_for_all(node):
        walk.waits.append(start)
    if node.kind in ("loop", "while"):
        walk.loops, walk.certain = (*loops, node), True
    elif node.kind == "if":
        walk.certain = False
    leaves = node.kind in ("break", "continue")
    for child in node.children:
        leaves |= _number(child, walk)
        walk.certain &= not leaves  # what follows in this iteration may not run
    walk.loops, walk.certain = loops, certain
    walk.bounds[node] = start, walk.position
    walk.position += 1
    return leaves and node.kind not in ("loop", "while")


def _waits_for_all(node: Node) -> bool:
    assert node.stmt is not None
    count = node.stmt.value.args[0]
    return isinstance(count, IntImm) and int(count) == 0


def _extend(life: Life, uses: list[_Use], bounds: dict[Node, tuple[int, int]], root: Var) -> None:
    """Over every loop around a use, unless the buffer lives inside single iterations of it."""
    loops = {loop for use in uses for loop in use.loops}
    changed = True
    while changed:
        changed = False
        for loop in loops:
            low, high = bounds[loop]
            inside = low <= life.first and life.last <= high
            if inside and _iteration_local(loop, uses, root):
                continue
            if life.first > low or life.last < high:
                life.first, life.last = min(life.first, low), max(life.last, high)
                changed = True


def _iteration_local(loop: Node, uses: list[_Use], root: Var) -> bool:
    """Does each iteration write all elements before it reads any?"""
    if any(loop not in use.loops for use in uses):
        return False
    elements = _elements(root)
    if sum(len(u.print.threads) for u in uses if u.print.mode == "w") < elements:
        return False
    missing = np.ones(elements, bool)
    for use in sorted(uses, key=lambda u: u.position):
        if use.print.mode != "w":
            return not missing.any()
        if use.certain and use.loops[-1] is loop and use.print.exact:
            _mark(use.print, root, missing)
    return not missing.any()


def _elements(root: Var) -> int:
    return math.prod(e if isinstance(e, int) else 1 for e in shape_of(root))


def _mark(touch: Footprint, root: Var, missing: np.ndarray) -> None:
    """Take the elements that are written for certain out of `missing`."""
    if not touch.buffer.same_as(root):
        return
    shape = [int(e) for e in shape_of(root)]
    flat = np.zeros(len(touch.threads), np.int64)
    inside = np.ones(len(touch.threads), bool)
    for dim, size in zip(touch.dims, shape, strict=True):
        base = _constant(dim.base)
        if dim.rel is None or base is None:
            return
        index = dim.rel + base
        inside &= (index >= 0) & (index < size)
        flat = flat * size + index
    missing[flat[inside]] = False


def _constant(base: Any) -> int | None:
    if base is None:
        return 0
    return int(base) if isinstance(base, int | IntImm) else None


def peak(lives: dict[Var, Life], sizes: dict[Var, int]) -> tuple[int, list[Var]]:
    """(bytes, buffers) at the position where the most bytes are alive."""
    best: tuple[int, list[Var]] = (0, [])
    for position in sorted({life.first for life in lives.values()}):
        alive = list(_alive(lives.items(), position))
        total = sum(sizes[v] for v in alive)
        if total > best[0]:
            best = total, alive
    return best


def _alive(lives: Iterable[tuple[Var, Life]], position: int) -> Iterator[Var]:
    return (v for v, life in lives if life.first <= position <= life.last)

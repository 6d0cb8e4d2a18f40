"""One `T.Parallel` nest as a record: its loops, what its body does with fragments, and what forbids executing it twice.

In: the outermost `For` of a nest, or a statement that the block executes once (a nest without loops). Out: `Nest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.access import accesses
from ...ir.dialect import ANNOTATION_PARALLEL, THREAD_SCOPES
from ...ir.effects import has_effect
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    BufferStore,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Span,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    While,
    ffi,
    is_buffer,
)  # fmt: skip
from .facts import holds_load


@dataclass(frozen=True)
class FragmentAccess:
    """One element access. indices: with the nest's own bindings replaced by their values. node: load, store or region.
    conditional: it may not happen in each iteration."""

    buffer: Var
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool
    conditional: bool
    node: Any


@dataclass
class Nest:
    """loops: outermost first. inner: variables and memory that the body declares. whole: fragments of which the body
    names more than one element at once. effects: a call with an effect inside an expression. rereads: memory other than
    fragments that the body both reads and writes. outer_locals: memory of threads from outside that the body writes."""

    loops: list[For]
    body: Stmt
    span: Span | None
    fragments: list[FragmentAccess] = field(default_factory=list)
    whole: set[Var] = field(default_factory=set)
    inner: set[Var] = field(default_factory=set)
    effects: bool = False
    writes_memory: bool = False
    rereads: bool = False
    outer_locals: set[Var] = field(default_factory=set)

    @property
    def vars(self) -> list[Var]:
        return [loop.loop_var for loop in self.loops]

    @property
    def static_extents(self) -> list[int] | None:
        """Extents, if all are constants and all loops start at 0."""
        known = all(isinstance(f.extent, IntImm) and isinstance(f.min, IntImm) and int(f.min) == 0 for f in self.loops)
        return [int(f.extent) for f in self.loops] if known else None

    def buffers(self) -> list[Var]:
        """The fragments it touches, each once."""
        return list(dict.fromkeys([a.buffer for a in self.fragments] + list(self.whole)))


def is_nest(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == ForKind.PARALLEL


def read_nest(stmt: Stmt, is_fragment: Callable[[Var], bool], roots: Mapping[Var, Var]) -> Nest:
    """The record of a nest; any other statement is a nest without loops. `is_fragment`: the buffers to report."""
    loops: list[For] = []
    body = stmt
    if is_nest(stmt):
        annotations = stmt.annotations or {}
        depth = int(annotations[ANNOTATION_PARALLEL]) if ANNOTATION_PARALLEL in annotations else 1
        while len(loops) < depth and isinstance(body, For) and body.kind == ForKind.PARALLEL:
            loops.append(body)
            body = body.body
    nest = Nest(loops, body, stmt.span)
    _Reader(nest, is_fragment).read()
    _memory(nest, is_fragment, roots)
    return nest


class _Reader:
    """The walk that finds element accesses of fragments."""

    def __init__(self, nest: Nest, is_fragment: Callable[[Var], bool]) -> None:
        self.nest, self.is_fragment = nest, is_fragment
        self.values: dict[Var, Expr] = {}
        self.depth = 0

    def read(self) -> None:
        visitors = [
            ((For, While, IfThenElse), self.control), (Bind, self.bind), (AllocBuffer, self.declare), (BufferStore, self.store),
            (TensorLoad, self.load), (TensorRegion, self.region), (Call, self.call),
        ]  # fmt: skip
        ffi.structural_visit(self.nest.body, visitors)

    def control(self, node: Any, visitor: Any) -> None:
        if isinstance(node, For):
            self.nest.inner.add(node.loop_var)
        certain = isinstance(node, For) and isinstance(node.extent, IntImm) and int(node.extent) > 0
        self.depth += not certain
        visitor.default_visit(node)
        self.depth -= not certain

    def bind(self, node: Bind, visitor: Any) -> None:
        self.nest.inner.add(node.var)
        if not is_buffer(node.var) and not holds_load(node.value):
            self.values[node.var] = substitute(node.value, self.values)
        visitor.default_visit(node)

    def declare(self, node: AllocBuffer, visitor: Any) -> None:
        self.nest.inner.add(node.buffer)

    def add(self, buffer: Var, indices: Any, reads: bool, writes: bool, node: Any) -> None:
        plain = tuple(substitute(i, self.values) for i in indices)
        self.nest.fragments.append(FragmentAccess(buffer, plain, reads, writes, self.depth > 0, node))

    def store(self, node: BufferStore, visitor: Any) -> None:
        visitor.default_visit(node)
        if self.is_fragment(node.buffer):
            self.add(node.buffer, node.indices, False, True, node)

    def load(self, node: TensorLoad, visitor: Any) -> None:
        visitor.default_visit(node)
        if self.is_fragment(node.source):
            self.add(node.source, node.indices, True, False, node)

    def region(self, node: TensorRegion, visitor: Any) -> None:
        visitor.default_visit(node)
        if not self.is_fragment(node.source):
            return
        if all(isinstance(r.extent, IntImm) and int(r.extent) == 1 for r in node.region):
            self.add(node.source, [r.min for r in node.region], True, True, node)
        else:
            self.nest.whole.add(node.source)

    def call(self, node: Call, visitor: Any) -> None:
        for arg in node.args:
            if isinstance(arg, Var) and is_buffer(arg) and self.is_fragment(arg):
                self.nest.whole.add(arg)
        visitor.default_visit(node)


def _memory(nest: Nest, is_fragment: Callable[[Var], bool], roots: Mapping[Var, Var]) -> None:
    """What the body does with memory that is no fragment."""
    read: set[Var] = set()
    written: set[Var] = set()
    for access in accesses(nest.body, roots):
        if access.root in nest.inner or is_fragment(access.root):
            continue
        if access.writes and is_buffer(access.root) and access.root.scope() in THREAD_SCOPES:
            nest.outer_locals.add(access.root)
            continue
        if access.reads and not access.atomic:
            read.add(access.root)
        if access.writes:
            written.add(access.root)
    nest.writes_memory = bool(written)
    nest.rereads = bool(read & written)
    effects: list[Any] = []

    def leaf(node: Any, visitor: Any) -> None:
        if isinstance(node, Evaluate) and isinstance(node.value, Call) and has_effect(node.value):
            nest.writes_memory = True  # a statement of its own can be left to one copy
            for arg in node.value.args:
                visitor.visit(arg)
            return
        if isinstance(node, Call) and has_effect(node):
            effects.append(node)
        visitor.default_visit(node)

    ffi.structural_visit(nest.body, [((Evaluate, Call), leaf)])
    nest.effects = bool(effects)


def mentions(root: Any, variables: Any) -> bool:
    """Does one of these variables occur in `root`?"""
    found: list[Var] = []
    walk(root, {Var: lambda v: found.append(v) if v in variables else None})
    return bool(found)

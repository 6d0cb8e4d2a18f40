"""The effects model: which parts of which buffers a piece of program reads and writes.

In: any statement or expression, and the roots of its views. Out: a list of `Access` in the order of the program text.
Effects come from stores, loads and the operand roles of `ir/dialect.py`; a pointer that leaves the model (`address_of`,
`access_ptr`, a buffer's data handed to an external function) counts as a read and a write of an unknown part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .dialect import op_info, op_name
from .rewrite import walk
from .tvm_api import (
    AllocBuffer,
    BufferStore,
    Call,
    DeclBuffer,
    IntImm,
    Range,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    dtype_of,
    is_buffer,
    items,
    structural_visit,
    tirx,
    type_indices,
)  # fmt: skip

# Calls of TVM's own operators whose operand is an address.
_ADDRESS_OPS = ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr", "tirx.buffer_access_ptr", "tirx.access_ptr", "tirx.ptr_to")
_ALLREDUCE = "tirx.tvm_thread_allreduce"


@dataclass(frozen=True)
class Access:
    """One effect. buffer: as written in the program; root: the buffer whose storage that is. ranges: the block of
    `buffer`, one `Range` a dimension, or None when unknown. mode: "r" read, "w" written, "u" both. node: the load,
    store or call. atomic: does the machine make it indivisible?"""

    buffer: Var
    root: Var
    ranges: tuple[Range, ...] | None
    mode: str
    node: Any
    atomic: bool = False

    @property
    def reads(self) -> bool:
        return self.mode != "w"

    @property
    def writes(self) -> bool:
        return self.mode != "r"


def view_roots(root: Any) -> dict[Var, Var]:
    """For every view declared under `root` (`DeclBuffer` on another buffer's data) the buffer that owns the storage.

    A view of a raw pointer (`T.make_tensor`) maps to the pointer variable, so that two views of one pointer alias.
    """
    roots: dict[Var, Var] = {}

    def declare(stmt: DeclBuffer) -> None:
        owner = _owner(stmt.data)
        if owner is not None:
            roots[stmt.buffer] = roots.get(owner, owner)

    walk(root, {DeclBuffer: declare})
    return roots


def _owner(data: Any) -> Var | None:
    """The buffer or pointer variable inside the data expression of a view."""
    if isinstance(data, Var):
        return data
    found: list[Var] = []
    walk(data, {Var: found.append})
    return found[0] if found else None


def allocations(root: Any) -> dict[Var, AllocBuffer]:
    """All buffers allocated under `root`, in program order."""
    found: dict[Var, AllocBuffer] = {}

    def note(stmt: AllocBuffer) -> None:
        found.setdefault(stmt.buffer, stmt)

    walk(root, {AllocBuffer: note})
    return found


_VISITED = type_indices((Call, BufferStore, TensorLoad, DeclBuffer, AllocBuffer))


def accesses(node: Any, roots: Mapping[Var, Var] | None = None) -> list[Access]:
    """Every effect of a statement or expression on buffers. `roots`: from `view_roots` of the whole function."""
    found = _accesses_of(node)
    if not roots:
        return list(found)
    return [replace(a, root=roots[a.buffer]) if a.buffer in roots else a for a in found]


@functools.cache
def _is_statement(kind: type) -> bool:
    return issubclass(kind, Stmt)


# Many passes ask for the effects of statements that the passes before them have left as they were. By the node's address; the node is
# kept, so that no other one gets that address.
_known: dict[int, tuple[Any, list[Access]]] = {}
_MOST_KNOWN = 4096


def _accesses_of(node: Any) -> list[Access]:
    """The effects where no buffer is a view."""
    place = node.__chandle__() if _is_statement(type(node)) else 0
    known = _known.get(place)
    if known is not None:
        return known[1]
    collector = _Collector()
    rules = (collector.call, collector.store, collector.load, _skip, _skip)
    structural_visit(node, list(zip(_VISITED, rules, strict=True)))
    if place:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[place] = node, collector.found
    return collector.found


def writes_of(node: Any, roots: Mapping[Var, Var] | None = None) -> Iterator[Access]:
    return (a for a in accesses(node, roots) if a.writes)


def element_ranges(indices: Any) -> tuple[Range, ...] | None:
    """The block touched by an element access; a `Ramp` index covers its lanes, other vector indices are unknown."""
    ranges = []
    for index in indices:
        if type(index) is tirx.Ramp:
            if not (isinstance(index.stride, IntImm) and isinstance(index.lanes, IntImm | int) and int(index.stride) > 0):
                return None
            ranges.append(Range.from_min_extent(index.base, (int(index.lanes) - 1) * int(index.stride) + 1))
        elif "x" in dtype_of(index):
            return None
        else:
            ranges.append(Range.from_min_extent(index, 1))
    return tuple(ranges)


def _skip(_node: Any, _visitor: Any) -> None:
    """Declarations touch no memory."""


class _Collector:
    """Visitor callbacks; each owns the descent into its node, so that operands are counted once."""

    def __init__(self) -> None:
        self.found: list[Access] = []

    def add(self, buffer: Var, ranges: tuple[Range, ...] | None, mode: str, node: Any, atomic: bool = False) -> None:
        self.found.append(Access(buffer, buffer, ranges, mode, node, atomic))

    def load(self, node: TensorLoad, visitor: Any) -> None:
        indices = items(node.indices)
        for index in indices:
            visitor.visit(index)
        self.add(node.source, element_ranges(indices), "r", node)

    def store(self, node: BufferStore, visitor: Any) -> None:
        indices = items(node.indices)
        for index in indices:
            visitor.visit(index)
        visitor.visit(node.value)
        self.add(node.buffer, element_ranges(indices), "w", node)

    def call(self, node: Call, visitor: Any) -> None:
        name = op_name(node)
        entry = op_info(node)
        if name in _ADDRESS_OPS:
            self.address(node, visitor)
        elif entry is not None:
            roles = str(node.attrs["roles"]) if name == "tl.instr" else entry.roles
            for k, arg in enumerate(items(node.args)):
                self.operand(node, arg, roles[min(k, len(roles) - 1)][0] if roles else "v", visitor, name == "tl.atomic")
        elif name == _ALLREDUCE:
            self.allreduce(node, visitor)
        else:
            for arg in items(node.args):
                self.operand(node, arg, "u", visitor, False)

    def operand(self, node: Call, arg: Any, role: str, visitor: Any, atomic: bool) -> None:
        if type(arg) is TensorRegion:
            ranges = tuple(items(arg.region))
            for r in ranges:
                visitor.visit(r.min)
                visitor.visit(r.extent)
            self.add(arg.source, ranges, "r" if role == "v" else role, node, atomic)
        elif is_buffer(arg):
            self.add(arg, None, "u", node)
        else:
            visitor.visit(arg)

    def address(self, node: Call, visitor: Any) -> None:
        for arg in node.args:
            if isinstance(arg, TensorLoad):
                for index in arg.indices:
                    visitor.visit(index)
                self.add(arg.source, None, "u", node)
            else:
                self.operand(node, arg, "u", visitor, False)

    def allreduce(self, node: Call, visitor: Any) -> None:
        """tvm_thread_allreduce(n, value..., condition, result..., thread axes...): n results are written."""
        count = int(node.args[0]) if isinstance(node.args[0], IntImm) else 1
        results = range(2 + count, 2 + 2 * count)
        for k, arg in enumerate(node.args):
            if k in results and isinstance(arg, TensorLoad):
                for index in arg.indices:
                    visitor.visit(index)
                self.add(arg.source, element_ranges(arg.indices), "w", node)
            else:
                self.operand(node, arg, "u", visitor, False)

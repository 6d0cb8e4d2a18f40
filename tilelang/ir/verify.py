"""The law of each level of the program, as a check that runs between stages.

In: a program, the level it claims to be at, the name of the stage that produced it. Out: nothing, or an
`InternalError` with the statement that breaks the law: such a program is always our bug, never the user's.
"""

from __future__ import annotations

from typing import Any

from ..errors import InternalError
from .dialect import ANNOTATION_PARALLEL, SCOPES, op_info
from .rewrite import walk
from .tvm_api import (
    AllocBuffer,
    BufferStore,
    Call,
    For,
    ForKind,
    PrimFunc,
    TensorLoad,
    TensorRegion,
    dtype_of,
    location_of,
    tirx,
)

TILE, LOOPS, THREADS = "TILE", "LOOPS", "THREADS"
LEVELS = (TILE, LOOPS, THREADS)

_KINDS = frozenset(int(k) for k in (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED))


def verify(func: PrimFunc, level: str, stage: str) -> None:
    """Check the law of `level`; raise `InternalError` naming `stage` and the offending statement."""
    if level not in LEVELS:
        raise InternalError(f"no level named {level!r}; there are {', '.join(LEVELS)}")
    law = _Law(level, stage)
    walk(func.body, {AllocBuffer: law.allocation, For: law.loop, BufferStore: law.store, TensorLoad: law.load, TensorRegion: law.region,
                     Call: law.call, (tirx.Break, tirx.Continue): law.jump})  # fmt: skip
    if not tirx.analysis.verify_well_formed(func, assert_mode=False):
        law.fail("TVM finds a variable used outside its scope or defined twice", func)


class _Law:
    """Callbacks; each looks at one kind of node."""

    def __init__(self, level: str, stage: str) -> None:
        self.level, self.stage = level, stage

    def fail(self, what: str, node: Any) -> None:
        raise InternalError(f"after {self.stage} ({self.level}): {what}\n{location_of(node) or ''}\n{node}")

    def allocation(self, node: AllocBuffer) -> None:
        if node.buffer.scope() not in SCOPES:
            self.fail(f"unknown scope {node.buffer.scope()!r}", node)

    def loop(self, node: For) -> None:
        if int(node.kind) not in _KINDS:
            self.fail(f"loop of kind {node.kind}", node)
        depth = dict(node.annotations or {}).get(ANNOTATION_PARALLEL)
        inner = node
        for _ in range(int(depth) if depth is not None else 0):
            if not isinstance(inner, For) or inner.kind != ForKind.PARALLEL:
                self.fail(f"a T.Parallel nest announces {depth} loops and has fewer", node)
            inner = inner.body

    def store(self, node: BufferStore) -> None:
        self.rank(node.buffer, len(node.indices), node)
        element, value = dtype_of(node.buffer), dtype_of(node.value)
        if element.split("x")[0] != value.split("x")[0]:
            self.fail(f"{value} is stored into {node.buffer.name} of {element}", node)

    def load(self, node: TensorLoad) -> None:
        self.rank(node.source, len(node.indices), node)

    def region(self, node: TensorRegion) -> None:
        self.rank(node.source, len(node.region), node)

    def rank(self, buffer: Any, indices: int, node: Any) -> None:
        if len(buffer.ty.shape) != indices:
            self.fail(f"{buffer.name} has {len(buffer.ty.shape)} dimensions and {indices} indices", node)

    def call(self, node: Call) -> None:
        entry = op_info(node)
        if entry is None:
            return
        if entry.tile and self.level != TILE:
            self.fail(f"tile operator {entry.name} is left", node)
        for role, arg in zip(entry.roles, node.args, strict=False):
            if role[0] in "rwu" and not isinstance(arg, TensorRegion):
                self.fail(f"operand of {entry.name} names no memory", node)

    def jump(self, node: Any) -> None:
        self.fail("break and continue are calls here (tirx.break_loop); this TVM has no code for the statement", node)

"""What a tile operator is: its portable meaning, and what a backend may put in its place.

`TileOperator.lower` turns one call into loops over single elements: that is the operator's meaning on every target.
A `Lowering` of a backend is only an optimisation of it and must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.context import PassContext
from ..ir.kernel import KernelRegion
from ..ir.tvm_api import Call, Span, Stmt, Var
from ..layout.fragment import Fragment


@dataclass
class LowerContext:
    """Where a call stands: the pass context, the kernel region around it, the user's position.

    per_thread: the statement belongs to one thread (or to one iteration of `T.Parallel`): loops are serial, and no
    "tl.collective" attribute is put around them. roots: for every view the buffer that owns its storage. temporaries:
    buffers made by the lowering; the pass declares them at the top of the kernel region (of the iteration). groups: the
    128-thread groups (`T.ws`) that execute the statement, None for the whole block.
    """

    passes: PassContext
    kernel: KernelRegion | None
    span: Span | None
    per_thread: bool = False
    roots: Mapping[Var, Var] = field(default_factory=dict)
    temporaries: list[Var] = field(default_factory=list)
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class TileOperator:
    """op: its name in the dialect. lower: the portable meaning; the result holds no tile operator. Tiles of the
    block (shared, fragment, global) become `T.Parallel` nests (`For` PARALLEL with the "tl.parallel" annotation) or
    serial loops; the pass that calls `lower` wraps the whole in a "tl.collective" attribute unless the operator works
    on per-thread memory (scopes local, local.var)."""

    op: str
    lower: Callable[[Call, LowerContext], Stmt]


class OtherKind(str):
    """A reason that says no more than that a lowering is for another kind of call: no note is made of it."""


@dataclass(frozen=True)
class Lowering:
    """A faster way for one operator on one backend. accepts: None, or why this call is declined (told to the user by
    `explain`, except for an `OtherKind`). After acceptance an exception is a bug and propagates. layouts: on a GPU, the layouts
    that the lowering wants for its fragment operands, asked before layouts are chosen; `accepts` then looks at the layouts that
    were chosen."""

    name: str
    op: str
    accepts: Callable[[Call, LowerContext], str | None]
    lower: Callable[[Call, LowerContext], Stmt]
    layouts: Callable[[Call, LowerContext], Mapping[Any, Fragment]] | None = None

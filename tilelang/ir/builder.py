"""The stack of open frames into which a program is written: the front end and every `T.` statement emit here.

In: statements, with `builder.location` set to the user's position. Out: finished TIR when a frame closes.
One builder is current per thread of Python; outside of one, the language raises `JITNoBuilderError`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InternalError, JITNoBuilderError, Location, TileRuntimeError, TileValueError
from .dialect import BLOCK_SCOPES, GLOBAL, VAR
from .tvm_api import AllocBuffer, Evaluate, Expr, For, ForKind, IfThenElse, Span, Stmt, Var, While, const, make_span, seq, store


@dataclass
class Frame:
    """An open block of statements. kind: function, kernel, parallel, serial, if, while, attr, ..."""

    kind: str
    stmts: list[Stmt] = field(default_factory=list)
    allocs: list[Stmt] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def body(self) -> Stmt:
        return seq([*self.allocs, *self.stmts])


class Builder:
    """Frames of one function that is being written."""

    def __init__(self, target_kind: str = "auto") -> None:
        self.frames: list[Frame] = []
        self.location: Location | None = None
        self.target_name: str | None = None  # the name to which the running statement will bind its value
        self.target_kind = target_kind
        self.facts: dict[str, Any] = {}

    # ---- position
    def span(self) -> Span | None:
        return make_span(self.location) if self.location is not None else None

    # ---- frames
    @contextlib.contextmanager
    def frame(self, kind: str, **facts: Any) -> Iterator[Frame]:
        """Open a frame; on a clean exit the caller turns `frame.body()` into a statement and emits it."""
        opened = Frame(kind, facts=facts)
        self.frames.append(opened)
        try:
            yield opened
        finally:
            if self.frames.pop() is not opened:
                raise InternalError(f"frame {kind} closed out of order")

    def enclosing(self, *kinds: str) -> Frame | None:
        """The innermost open frame of one of these kinds."""
        return next((f for f in reversed(self.frames) if f.kind in kinds), None)

    @property
    def kernel(self) -> Frame | None:
        return self.enclosing("kernel")

    # ---- statements
    def emit(self, stmt: Stmt) -> None:
        if not self.frames:
            raise InternalError("emit without an open frame")
        self.frames[-1].stmts.append(stmt)

    def evaluate(self, value: Expr) -> None:
        self.emit(Evaluate(value, self.span()))

    def store(self, buffer: Var, value: Expr, indices: list[Any]) -> None:
        """`value` must have the buffer's element type already; see `ir.expr.convert`."""
        self.emit(store(buffer, value, indices, self.span()))

    def alloc(self, buffer: Var, facts: Mapping[str, Any] | None = None) -> Var:
        """Declare storage for the whole kernel, or for one iteration when inside T.Parallel.

        An allocation inside a serial loop is one allocation reused by each iteration; a per-thread array or
        variable inside T.Parallel is private to the iteration. Variables start as zero.
        """
        home = self.enclosing("parallel")
        if home is not None and buffer.scope() in BLOCK_SCOPES:
            raise TileValueError(
                f"{buffer.name} ({buffer.scope()}) is a tile of the whole block and cannot be allocated inside T.Parallel",
                remedy="allocate it before the loop; T.alloc_local and T.alloc_var give each iteration memory of its own",
            )
        if buffer.scope() == GLOBAL:
            home = None  # a workspace is one for the whole launch, also if declared in the kernel
        elif home is None:
            home = self.kernel
        home = home or self.enclosing("function")
        if home is None:
            raise JITNoBuilderError(f"{buffer.name}: allocation outside a kernel")
        annotations = {"tl.alloc": dict(facts)} if facts else None
        # On the host an extent may be a scalar bound just before, so the allocation stands where it was written.
        in_place = buffer.scope() == GLOBAL and home is self.frames[-1]
        (home.stmts if in_place else home.allocs).append(AllocBuffer(buffer, annotations, self.span()))
        if buffer.scope() == VAR:
            home.allocs.append(store(buffer, const(0, str(buffer.ty.dtype)), [0], self.span()))
        return buffer

    def name(self, default: str) -> str:
        """The user's name for the value that the running statement makes."""
        return self.target_name or default

    # ---- control flow
    @contextlib.contextmanager
    def loop(
        self, names: list[str], mins: list[Any], extents: list[Any], kind: ForKind = ForKind.SERIAL,
        frame: str = "serial", annotations: Mapping[str, Any] | None = None,
    ) -> Iterator[list[Var]]:  # fmt: skip
        """A nest of loops, outermost first, all of one kind; annotations go to the outermost."""
        loop_vars = [Var(n, _index_dtype(lo, extent)) for n, lo, extent in zip(names, mins, extents, strict=True)]
        span = self.span()
        with self.frame(frame) as opened:
            yield loop_vars
        body = opened.body()
        for k in reversed(range(len(loop_vars))):
            body = For(loop_vars[k], mins[k], extents[k], kind, body, annotations=dict(annotations or {}) if k == 0 else None, span=span)
        self.emit(body)

    @contextlib.contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        span = self.span()
        with self.frame("if") as opened:
            yield
        self.emit(IfThenElse(condition, opened.body(), None, span))

    @contextlib.contextmanager
    def repeat(self, condition: Expr) -> Iterator[None]:
        span = self.span()
        with self.frame("while") as opened:
            yield
        self.emit(While(condition, opened.body(), span))


def _index_dtype(lo: Any, extent: Any) -> str:
    wide = any(not isinstance(e, int) and str(e.ty.dtype) == "int64" for e in (lo, extent))
    return "int64" if wide else "int32"


_local = threading.local()


def current(what: str = "this statement") -> Builder:
    """The builder of the function being written; outside of one, an error that says where `what` belongs."""
    stack = getattr(_local, "stack", None)
    if not stack:
        raise JITNoBuilderError(
            f"{what} is only meaningful inside a kernel that is being written",
            remedy="call it in the body of a function under @T.prim_func, @T.macro or @tilelang.jit, inside `with T.Kernel(...)`",
        )
    return stack[-1]


def in_kernel(what: str) -> Builder:
    """Like `current`, and a `with T.Kernel(...)` must be open."""
    builder = current(what)
    if builder.kernel is None:
        raise TileRuntimeError(f"{what} outside `with T.Kernel(...)`", remedy="move it into the body of a kernel")
    return builder


def active() -> bool:
    return bool(getattr(_local, "stack", None))


@contextlib.contextmanager
def writing(builder: Builder) -> Iterator[Builder]:
    """Make `builder` current for the duration of the `with` block."""
    if not hasattr(_local, "stack"):
        _local.stack = []
    _local.stack.append(builder)
    try:
        yield builder
    finally:
        _local.stack.pop()

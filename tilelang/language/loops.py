"""Loop constructors: what stands after `in` of a `for` statement inside a kernel.

In: extents, as Python ints or device integers. Out: `Loop` objects, which the tracer turns into `For` statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TileRuntimeError, TileSyntaxError, TileTypeError, TileValueError
from ..frontend.constructs import Loop, Nest, Wave, as_bound, bounds, close_frame, difference, open_frame, require_positive, serial_loop
from ..ir.builder import current, in_kernel
from ..ir.dialect import ANNOTATION_PARALLEL, ANNOTATION_PIPELINE, THREAD_TAGS
from ..ir.expr import binary
from ..ir.tvm_api import Evaluate, ForKind, IfThenElse, tirx


def serial(start: Any, stop: Any = None, step: Any = None, *, annotations: Mapping[str, Any] | None = None) -> Loop:
    """An ordinary loop, like `range`: one argument is the end. step: non-zero, may be negative."""
    return serial_loop("T.serial", start, stop, step, annotations=annotations)


Serial = serial


def unroll(
    start: Any, stop: Any = None, step: Any = None, *, explicit: bool = False, unroll_factor: int | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Loop:  # fmt: skip
    """`T.serial`, unrolled. explicit: unroll in the program itself; unroll_factor: how far the device compiler unrolls."""
    if explicit and unroll_factor is not None:
        raise TileValueError("T.unroll: explicit and unroll_factor exclude each other", remedy="give one of them")
    if unroll_factor is not None and (not isinstance(unroll_factor, int) or unroll_factor <= 0):
        raise TileValueError(f"T.unroll: unroll_factor is {unroll_factor!r}; it is a positive int")
    facts = dict(annotations or {})
    if unroll_factor is not None:
        facts["tl.unroll_factor"] = unroll_factor
    return serial_loop("T.unroll", start, stop, step, ForKind.UNROLLED, facts)


def vectorized(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> Loop:
    """A loop of the running thread whose iterations are independent and become vector accesses where contiguous."""
    return serial_loop("T.vectorized", start, stop, None, ForKind.VECTORIZED, annotations)


def Parallel(
    *extents: Any, coalesced_width: int | None = None, loop_layout: Any = None, prefer_async: bool | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Loop:  # fmt: skip
    """Every index tuple exactly once, spread over the threads of the block; iterations are independent.

    extents: one for each index. coalesced_width: elements that a thread handles together; loop_layout: a Fragment that
    maps iterations to threads; prefer_async: a hint.
    """
    what = "T.Parallel"
    counts = [as_bound(e, f"{what}: extent {k}") for k, e in enumerate(extents)]
    require_positive(counts, what)
    facts: dict[str, Any] = {ANNOTATION_PARALLEL: len(counts), **dict(annotations or {})}
    if coalesced_width is not None:
        if not isinstance(coalesced_width, int) or coalesced_width <= 0:
            raise TileValueError(f"{what}: coalesced_width is {coalesced_width!r}; it is a positive int")
        facts["coalesced_width"] = coalesced_width
    if loop_layout is not None:
        facts["loop_layout"] = loop_layout
    if prefer_async is not None:
        facts["prefer_async"] = bool(prefer_async)
    return Nest(what, [0] * len(counts), counts, ForKind.PARALLEL, "parallel", facts)


def Pipelined(
    start: Any = None, stop: Any = None, num_stages: int = 0, order: Sequence[int] | None = None, stage: Sequence[int] | None = None,
    sync: Any = None, group: Any = None, *, annotations: Mapping[str, Any] | None = None,
) -> Loop:  # fmt: skip
    """A serial loop whose copies may run ahead of their use; the result is that of the plain loop.

    num_stages: versions of each tile that is copied ahead, 0 = none. order, stage: a schedule by hand, one entry for each
    statement of the body. sync, group: accepted, without effect.
    """
    what = "T.Pipelined"
    if start is None and stop is None:
        raise TileTypeError(f"{what}: no extent given", remedy=f"write {what}(n, num_stages=2)")
    if start is None:
        start, stop = stop, None
    if not isinstance(num_stages, int) or num_stages < 0:
        raise TileValueError(f"{what}: num_stages is {num_stages!r}; it is an int of 0 or more")
    facts: dict[str, Any] = {"num_stages": num_stages}
    for key, values in (("order", order), ("stage", stage)):
        if values is not None:
            if not isinstance(values, (list, tuple)) or not all(isinstance(v, int) for v in values):
                raise TileTypeError(f"{what}: {key} is {values!r}; it is a list of ints")
            facts[key] = list(values)
    if order is not None and len({v for v in order if v >= 0}) != len([v for v in order if v >= 0]):
        raise TileValueError(f"{what}: order {list(order)} names a position twice")
    lo, hi = bounds(start, stop, what)
    return Nest(what, [lo], [difference(hi, lo)], annotations={ANNOTATION_PIPELINE: facts, **dict(annotations or {})})


def grid(*extents: Any) -> Loop:
    """A nest of serial loops, one index for each extent."""
    counts = [as_bound(e, f"T.grid: extent {k}") for k, e in enumerate(extents)]
    require_positive(counts, "T.grid")
    return Nest("T.grid", [0] * len(counts), counts)


def parallel(start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None) -> Loop:
    """TIR's parallel loop: `T.Parallel` over one range."""
    lo, hi = bounds(start, stop, "T.parallel")
    facts = {ANNOTATION_PARALLEL: 1, **dict(annotations or {})}
    return Nest("T.parallel", [lo], [difference(hi, lo)], ForKind.PARALLEL, "parallel", facts)


class ThreadBinding(Loop):
    """A loop over the threads of the block in one dimension: its index is the running thread's."""

    what = "T.thread_binding"
    jumps = "none"

    def __init__(self, extent: Any, thread: str) -> None:
        if thread not in THREAD_TAGS:
            raise TileValueError(f"T.thread_binding: thread is {thread!r}", remedy=f"use one of {', '.join(THREAD_TAGS)}")
        self.extent, self.dim = as_bound(extent, "T.thread_binding: extent"), THREAD_TAGS.index(thread)

    def enter(self) -> Any:
        kernel = in_kernel(self.what).kernel
        assert kernel is not None
        launch = kernel.facts["launch"]
        have = launch.thread_extents[self.dim]
        if isinstance(self.extent, int) and self.extent > have:
            raise TileRuntimeError(
                f"T.thread_binding: {self.extent} threads wanted, the kernel has {have} in this dimension",
                remedy="raise `threads` of T.Kernel",
            )
        self.builder, self.frame = open_frame("if", self.what)
        self.span = self.builder.span()
        self.index = launch.threads[self.dim]
        self.all = isinstance(self.extent, int) and self.extent == have
        return self.index

    def leave(self) -> None:
        body = close_frame(self.builder, self.frame)
        self.builder.emit(body if self.all else IfThenElse(binary("<", self.index, self.extent), body, None, self.span))


def thread_binding(extent: Any, thread: str = "threadIdx.x") -> Loop:
    """`for tx in T.thread_binding(n, "threadIdx.x")`: the body runs in the first n threads of that dimension."""
    return ThreadBinding(extent, thread)


def Persistent(domain: Sequence[Any], wave_size: Any, index: Any, group_size: int = 8) -> Loop:
    """Tiles of a domain dealt out to persistent blocks: worker `index` of `wave_size` visits tiles index, index + wave_size, ...

    domain: extents; the last one is grouped by `group_size` for locality. Yields one index for each extent.
    """
    what = "T.Persistent"
    if not isinstance(domain, (list, tuple)) or not domain:
        raise TileTypeError(f"{what}: domain is {domain!r}; it is a list of extents")
    if not isinstance(group_size, int) or group_size <= 0:
        raise TileValueError(f"{what}: group_size is {group_size!r}; it is a positive int")
    extents = [as_bound(e, f"{what}: extent {k}") for k, e in enumerate(domain)]
    require_positive(extents, what)
    wave = as_bound(wave_size, f"{what}: wave_size")
    if isinstance(wave, int) and wave <= 0:
        raise TileValueError(f"{what}: wave_size is {wave}; it is positive")
    return Wave(what, extents, wave, as_bound(index, f"{what}: index"), group_size)


def loop_break() -> None:
    """Leave the innermost loop, as `break` does."""
    builder = current("T.loop_break")
    loop = builder.enclosing("serial", "while", "parallel")
    if loop is None or loop.kind == "parallel":
        raise TileSyntaxError("T.loop_break outside a serial loop", remedy="use it inside T.serial, range or while")
    builder.emit(Evaluate(tirx.break_loop(), builder.span()))

"""What `with` and `for` of the language open: the protocol between their constructors and the tracer, and the serial loop.

In: the user's arguments, checked. Out: on `enter`, frames of the builder and the values that the user's targets get;
on `leave`, the finished statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import TileSyntaxError, TileTypeError, TileValueError, TileWarning, warn
from ..ir.builder import Builder, Frame, current
from ..ir.expr import as_extent, binary, convert, select, type_of
from ..ir.tvm_api import Bind, For, ForKind, IfThenElse, IntImm, Range, Var


class Construct:
    """Something that opens frames. A subclass defines `enter` and `leave`.

    names: the user's target names, set by the tracer before `enter`; unpacked: the target is a tuple.
    conditional: the body may run not at all, or only in a part of the block, so that names assigned in it follow the scalar rule.
    """

    what = "this construct"
    conditional = False
    names: tuple[str, ...] = ()
    unpacked = False

    def enter(self) -> Any:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def name(self, position: int, default: str) -> str:
        """The user's name for one of the values; `default` where the target does not name each of them."""
        return self.names[position] if position < len(self.names) else default

    def __enter__(self) -> Any:
        return self.enter()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.leave()


class Loop(Construct):
    """A loop constructor, for `for ... in`. parallel: its iterations are independent. jumps: how `break` and
    `continue` act, "both", "continue" or "none". jumped: the tracer saw one of them in the body."""

    conditional = True
    parallel = False
    jumps = "both"
    jumped = False

    def __iter__(self) -> Iterator[Any]:
        raise TileSyntaxError(
            f"{self.what} in Python code that is not part of a kernel",
            remedy="a helper function that holds statements of the language needs @T.macro; comprehensions are Python's own",
        )

    def __enter__(self) -> Any:
        raise TileSyntaxError(f"`with {self.what}`", remedy=f"write `for i in {self.what}(...)`")


def open_frame(kind: str, what: str) -> tuple[Builder, Frame]:
    """A frame that stays open until `close_frame`."""
    builder = current(what)
    frame = Frame(kind)
    builder.frames.append(frame)
    return builder, frame


def close_frame(builder: Builder, frame: Frame) -> Any:
    """Close the innermost frame; its body as a statement."""
    opened = builder.frames.pop()
    assert opened is frame, f"frame {frame.kind} closed out of order"
    return frame.body()


_FAR = 1 << 30


def known_range(builder: Builder, var: Var, lo: Any, extent: Any) -> None:
    """Tell the analyzer from where an index counts, so that positions such as `-1 - k` are found to be negative.

    How far it counts is kept back: `A[by * 64 - 1]` must mean the same in a grid of one block, where it is always -1,
    as in a grid of many.
    """
    state = builder.facts.get("trace")
    if state is not None and isinstance(lo, int) and abs(lo) < _FAR and not (isinstance(extent, int) and extent <= 0):
        dtype = str(var.ty.dtype)
        state.analyzer.bind(var, Range.from_min_extent(typed(lo, dtype), typed(_FAR, dtype)))


def bounds(start: Any, stop: Any, what: str) -> tuple[Any, Any]:
    """(first, past the last) of a loop with one or two arguments, as ints or int32/int64 expressions."""
    if stop is None:
        start, stop = 0, start
    return as_bound(start, f"{what}: start"), as_bound(stop, f"{what}: stop")


def as_bound(value: Any, what: str) -> Any:
    value = as_extent(value, what)
    if isinstance(value, int):
        return value
    kind = type_of(value)
    if kind in ("int32", "int64"):
        return value
    return convert(value, "int64" if kind in ("uint32", "uint64") else "int32")


def index_type(values: Sequence[Any]) -> str:
    """int64 if one of the values needs it, else int32."""
    wide = any(not -(1 << 31) <= v < 1 << 31 if isinstance(v, int) else type_of(v) == "int64" for v in values)
    return "int64" if wide else "int32"


def typed(value: Any, dtype: str) -> Any:
    return IntImm(dtype, value) if isinstance(value, int) else convert(value, dtype)


def difference(stop: Any, start: Any) -> Any:
    """stop - start, folded; a constant negative count is 0."""
    count = stop if isinstance(start, int) and start == 0 else binary("-", stop, start)
    if isinstance(count, IntImm):
        count = int(count)
    return max(count, 0) if isinstance(count, int) else count


class Nest(Loop):
    """Loops of one kind, outermost first, with unit steps. mins and extents: ints or expressions."""

    def __init__(
        self, what: str, mins: Sequence[Any], extents: Sequence[Any], kind: ForKind = ForKind.SERIAL, frame: str = "serial",
        annotations: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.what, self.kind, self.frame_kind = what, kind, frame
        self.mins, self.extents, self.annotations = tuple(mins), tuple(extents), dict(annotations or {})
        self.parallel = frame == "parallel"
        self.jumps = "none" if self.parallel or kind == ForKind.VECTORIZED else "both" if len(self.extents) == 1 else "continue"

    def enter(self) -> Any:
        self.types = [index_type(pair) for pair in zip(self.mins, self.extents, strict=True)]
        self.vars = [Var(self.name(k, "ijklmn"[k % 6]), t) for k, t in enumerate(self.types)]
        self.builder, self.frame = open_frame(self.frame_kind, self.what)
        self.span = self.builder.span()
        for var, lo, extent in zip(self.vars, self.mins, self.extents, strict=True):
            known_range(self.builder, var, lo, extent)
        return self.vars[0] if len(self.vars) == 1 else tuple(self.vars)

    def leave(self) -> None:
        body = close_frame(self.builder, self.frame)
        kind = ForKind.SERIAL if self.jumped else self.kind  # an unrolled body cannot leave its loop
        for k in reversed(range(len(self.vars))):
            lo, extent = typed(self.mins[k], self.types[k]), typed(self.extents[k], self.types[k])
            body = For(self.vars[k], lo, extent, kind, body, annotations=self.annotations if k == 0 else {}, span=self.span)
        self.builder.emit(body)


class Stepped(Loop):
    """A loop with a step other than 1: a counter from 0, and the user's index bound from it."""

    def __init__(self, what: str, start: Any, stop: Any, step: Any, kind: ForKind, annotations: Mapping[str, Any] | None) -> None:
        self.what, self.start, self.step = what, start, step
        self.counter = Nest(what, [0], [trip_count(start, stop, step)], kind, annotations=annotations)

    def enter(self) -> Any:
        name = self.name(0, "i")
        self.counter.names = (f"{name}_step",)
        counter = self.counter.enter()
        builder = self.counter.builder
        value = binary("+", self.start, binary("*", counter, self.step))
        index = Var(name, type_of(value))
        builder.emit(Bind(index, value, builder.span()))
        return index

    def leave(self) -> None:
        self.counter.jumped = self.jumped
        self.counter.leave()


def trip_count(start: Any, stop: Any, step: Any) -> Any:
    """How many values `range(start, stop, step)` has, as an int or an expression (0 or less: none)."""
    if all(isinstance(v, int) for v in (start, stop, step)):
        return len(range(start, stop, step))

    def count(distance: Any, stride: Any) -> Any:
        return binary("//", binary("+", distance, binary("-", stride, 1)), stride)

    up, down = binary("-", stop, start), binary("-", start, stop)
    if isinstance(step, int):
        return count(up, step) if step > 0 else count(down, -step)
    size = binary("max", binary("max", step, binary("-", 0, step)), 1)  # a step of 0 at run time: no division by it
    return select(binary(">", step, 0), count(up, size), count(down, size))


def serial_loop(
    what: str, start: Any, stop: Any = None, step: Any = None, kind: ForKind = ForKind.SERIAL, annotations: Mapping[str, Any] | None = None
) -> Loop:
    """`range` semantics as one loop of the given kind. A step of 0 is a `TileValueError`."""
    lo, hi = bounds(start, stop, what)
    step = 1 if step is None else as_bound(step, f"{what}: step")
    if isinstance(step, int) and step == 0:
        raise TileValueError(f"{what}: step is 0", remedy="use a positive or negative step")
    if isinstance(step, int) and step == 1:
        return Nest(what, [lo], [difference(hi, lo)], kind, annotations=annotations)
    if not isinstance(step, int):
        builder = current(what)
        warn(f"{what}: the step is a run-time value; the trip count is computed from it", TileWarning, builder.location)
    return Stepped(what, lo, hi, step, kind, annotations)


class Wave(Loop):
    """The loop of T.Persistent: waves of `wave` workers over a linearised domain, tiles outside of it skipped."""

    def __init__(self, what: str, domain: Sequence[Any], wave: Any, worker: Any, group: int) -> None:
        self.what, self.worker, self.wave = what, worker, wave
        self.domain, last = tuple(domain), domain[-1]
        self.group = binary("max", 1, binary("min", group, last))
        self.others = 1
        for extent in self.domain[:-1]:
            self.others = binary("*", self.others, extent)
        strips = binary("//", binary("+", last, binary("-", self.group, 1)), self.group)
        self.padded = binary("*", binary("*", strips, self.others), self.group)
        waves = binary("//", binary("+", self.padded, binary("-", wave, 1)), wave)
        self.waves = Nest(what, [0], [waves])

    def enter(self) -> Any:
        self.waves.names = ("wave",)
        counter = self.waves.enter()
        builder = self.builder = self.waves.builder
        self.span = builder.span()
        linear = self._bind("tile", binary("+", binary("*", counter, self.wave), self.worker))
        rest, lane = binary("//", linear, self.group), binary("%", linear, self.group)
        last = binary("+", binary("*", binary("//", rest, self.others), self.group), lane)
        position, coords = binary("%", rest, self.others), []
        for extent in reversed(self.domain[:-1]):
            coords.append(binary("%", position, extent))
            position = binary("//", position, extent)
        values = [self._bind(self.name(k, f"tile_{k}"), v) for k, v in enumerate([*reversed(coords), last])]
        self.inside = binary("and", binary("<", linear, self.padded), binary("<", values[-1], self.domain[-1]))
        _, self.frame = open_frame("if", self.what)
        return values[0] if len(values) == 1 else tuple(values)

    def _bind(self, name: str, value: Any) -> Any:
        value = typed(value, "int32") if isinstance(value, int) else value
        var = Var(name, type_of(value))
        self.builder.emit(Bind(var, value, self.builder.span()))
        return var

    def leave(self) -> None:
        body = close_frame(self.builder, self.frame)
        self.builder.emit(IfThenElse(self.inside, body, None, self.span))
        self.waves.jumped = self.jumped
        self.waves.leave()


def require_positive(values: Sequence[Any], what: str) -> None:
    """Constant extents must be at least 0; anything that is no integer was refused before."""
    for axis, extent in enumerate(values):
        if isinstance(extent, int) and extent < 0:
            raise TileValueError(f"{what}: extent {axis} is {extent}; extents are 0 or more")
    if not values:
        raise TileTypeError(f"{what}: no extent given", remedy=f"write {what}(n)")

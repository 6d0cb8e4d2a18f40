"""One running call of a rewritten function: its names, and what each of its statements does.

In: calls made by the rewritten code. Out: Python effects where everything is Python's, statements in the builder where
it is not. Names follow Python's meaning; `control.py` says what happens to them where control flow is traced.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import (
    Location,
    TileAssertionError,
    TileError,
    TileNameError,
    TileSyntaxError,
    TileTypeError,
    TileUpdateError,
    TileWarning,
    warn,
)  # fmt: skip
from ..ir.dialect import make_call
from ..ir.dtypes import canonical
from ..ir.effects import effects_in
from ..ir.expr import as_expr, binary, convert, is_static, truth
from ..ir.tvm_api import AssertStmt, Call, Evaluate, Expr, StringImm, TensorRegion, Var, dtype_of, load, region, seq, tirx
from .constructs import Construct
from .control import Control
from .operations import Operations
from .rewriter import Program
from .subscripts import Access, stored_type
from .trace import Trace

MISSING = object()


class Env(dict):
    """Names of one activation. A name that is not there is looked up by rules (`Activation.missing`)."""

    __slots__ = ("owner",)

    def __init__(self, owner: Activation) -> None:
        super().__init__()
        self.owner = owner

    def __missing__(self, name: str) -> Any:
        return self.owner.missing(name)


class Activation(Operations, Control):
    """The object that rewritten code calls as `__tl`. role: "kernel", "macro" or "eager"."""

    def __init__(
        self, trace: Trace, program: Program, namespace: Callable[[], Mapping[str, Any]], role: str, parent: Activation | None = None
    ):
        self.trace = trace
        self.builder = trace.builder
        self.program = program
        self.sites: list[Location] = program.sites
        self.flows = program.flows
        self.namespace = namespace
        self.role = role
        self.parent = parent
        self.env = Env(self)
        self.references: dict[str, tuple[Var, list[Any]]] = {}  # parameters that stand for an element
        self.start_control()

    # ---------------------------------------------------------------- names
    def missing(self, name: str) -> Any:
        if name in self.references:
            return load(*self.references[name])
        if name in self.outer:
            self.outer_reads.add(name)
            return self.outer[name]
        if name in self.gone:
            raise self.gone_error(name)
        raise TileNameError(
            f"name {name!r} has no value here", at=self.builder.location, remedy="assign it before; names of a kernel are local to it"
        )

    def lookup(self, name: str) -> Any:
        """A name's value for an inner function or a caller's macro; `MISSING` if it has none."""
        if name in self.env or name in self.references or name in self.outer or name in self.gone:
            return self.env[name]
        found = self.parent.lookup(name) if self.parent is not None else MISSING
        return found if found is not MISSING else self.namespace().get(name, MISSING)

    def free(self, name: str) -> Any:
        """A free name of an inner function or an unhygienic macro."""
        found = self.parent.lookup(name) if self.parent is not None else MISSING
        if found is MISSING:
            found = self.namespace().get(name, MISSING)
        if found is MISSING:
            found = getattr(builtins, name, MISSING)
        if found is MISSING:
            raise TileNameError(f"name {name!r} is not defined", at=self.builder.location)
        return found

    def at(self, k: int) -> None:
        self.builder.location = self.sites[k]

    # ---------------------------------------------------------------- assignment
    def assign(self, name: str, value: Any, fresh: bool | tuple[bool, ...]) -> None:
        """`name = value`. fresh: the value was made by a call, so that a variable in it is a new one, not a copy."""
        try:
            if name in self.references:
                self.builder.store(self.references[name][0], convert(value, dtype_of(self.references[name][0])), self.references[name][1])
                return
            current = self.env.get(name)
            if current is not None and self.trace.is_variable(current) and not (fresh and self.trace.is_variable(value)):
                self._store_variable(name, current, value)
                return
            if name in self.outer_reads:
                raise self.carried_error(name)
            self.env[name] = self.settle(name, value, bool(fresh))
        except TileError as err:
            err.locate(self.builder.location)
            raise
        self.bound_at[name] = self.builder.location

    def _store_variable(self, name: str, variable: Var, value: Any) -> None:
        if not (is_static(value) or isinstance(value, Expr)) or (type(value) is Var and not self._scalar_var(value)):
            raise TileTypeError(
                f"{name!r} is a scalar variable here and cannot become {_describe(value)}", remedy="use another name for the other object"
            )
        if is_static(value) and not isinstance(value, (bool, int, float)) and not hasattr(value, "dtype"):
            raise TileTypeError(f"{name!r} is a scalar variable here and cannot become {_describe(value)}", remedy="use another name")
        self.trace.store(variable, value)

    def _scalar_var(self, value: Var) -> bool:
        facts = self.trace.facts(value)
        return facts is None or facts.variable

    def rebind(self, name: str, value: Any, _fresh: Any = True) -> None:
        """A target of `for`, `with` or `import`: the name gets the object itself."""
        self.env[name] = value
        self.bound_at[name] = self.builder.location

    def settle(self, name: str, value: Any, fresh: bool) -> Any:
        """What a name is bound to: device values are evaluated here, once; buffers and Python objects are aliased."""
        kind = type(value)
        if kind is Var:
            facts = self.trace.facts(value)
            if facts is not None and facts.variable and not fresh:
                return self.trace.bind(name, load(value, [0]))
            return value
        if isinstance(value, TensorRegion):
            return self._frozen_region(name, value)
        if isinstance(value, Expr):
            return self.trace.bind(name, value)
        if kind in (tuple, list) and not all(map(_is_plain, value)):
            return kind([v if type(v) is Var else self.settle(f"{name}_{j}", v, True) for j, v in enumerate(value)])
        if kind is dict and not all(map(_is_plain, value.values())):
            return {k: v if type(v) is Var else self.settle(f"{name}_{j}", v, True) for j, (k, v) in enumerate(value.items())}
        return value

    def _frozen_region(self, name: str, block: TensorRegion) -> TensorRegion:
        """A block whose position no longer depends on memory."""
        mins = [self.trace.freeze(r.min, f"{name}_{axis}") for axis, r in enumerate(block.region)]
        if all(m.same_as(r.min) for m, r in zip(mins, block.region, strict=True)):
            return block
        made = region(block.source, mins, [r.extent for r in block.region])
        known = self.trace.sliced.get(id(block))
        if known is not None:
            self.trace.sliced[id(made)] = (made, known[1])
        return made

    def hold(self, value: Any, fresh: Any, names: tuple[str, ...]) -> Any:
        """The right side of a multiple assignment: all values are taken before any name changes."""
        if not isinstance(value, (tuple, list)):
            return value if fresh and self.trace.is_variable(value) else self.settle(names[0] if names else "value", value, bool(fresh))
        flags = fresh if isinstance(fresh, tuple) else (fresh,) * len(value)
        hints = names if len(names) == len(value) else tuple(f"value_{j}" for j in range(len(value)))
        return type(value)([self.settle(n, v, f) for n, v, f in zip(hints, value, flags, strict=True)])

    def unpack(self, value: Any, k: int) -> Any:
        """A value on the right of `a, b = ...` as a Python iterable."""
        if isinstance(value, Expr):
            raise TileTypeError(f"{_describe(value)} cannot be unpacked into several names", at=self.sites[k], remedy="index its elements")
        return value

    def annotated(self, value: Any, annotation: Callable[[], Any], k: int) -> Any:
        """`x: T.int32 = value` converts; annotations that name no element type are documentation."""
        try:
            kind = annotation()
            if isinstance(kind, type) and kind in (int, float, bool) and is_static(value):
                return kind(value)
            element = canonical(kind) if isinstance(kind, str) or kind in (int, float, bool) else None
            if element is None or (self.trace.is_variable(value) and str(dtype_of(value)) == str(element)):
                return value
            return convert(value, element)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def annotate(self, name: str, annotation: Callable[[], Any], k: int) -> None:
        """`A: T.Tensor(...)` as a statement: declares a tensor parameter in eager style, elsewhere it is documentation."""
        if self.role == "eager" and self.declare is not None:
            try:
                self.declare(name, annotation())
            except TileError as err:
                err.locate(self.sites[k])
                raise

    declare: Callable[[str, Any], None] | None = None

    def augment_name(self, name: str, op: str, value: Any, k: int) -> None:
        current = self.env[name]
        if isinstance(current, TensorRegion) or (type(current) is Var and not self._scalar_var(current)):
            raise TileUpdateError(
                f"`{name} {op}= ...` on {_describe(current)}",
                at=self.sites[k],
                remedy=f"update elements: `{name}[i] {op}= ...`; only a variable made by T.alloc_var is updated as a whole",
            )
        self.assign(name, self.binary(op, current, value, k), False)

    def walrus(self, name: str, value: Any) -> Any:
        self.assign(name, value, False)
        return self.env[name]

    def delete(self, name: str) -> None:
        if self.env.pop(name, MISSING) is MISSING:
            self.missing(name)

    # ---------------------------------------------------------------- stores
    def setitem(self, obj: Any, index: Any, value: Any, k: int) -> None:
        try:
            access = self.access(obj, index)
            if access is None:
                self._set_python_item(obj, index, value)
            else:
                self._store(access, value)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def _store(self, access: Access, value: Any) -> None:
        if access.sliced:
            raise TileTypeError(
                f"assignment to a block of {access.buffer.name}", remedy="use T.copy or T.fill, or T.Parallel for a formula of the elements"
            )
        facts = self.trace.facts(access.buffer)
        assert facts is not None
        if facts.variable and access.buffer in self.trace.promoted:
            self.trace.store(access.buffer, value)
            return
        self.builder.store(access.buffer, convert(value, stored_type(facts.dtype, access.mins)), list(access.mins))

    def _set_python_item(self, obj: Any, index: Any, value: Any) -> None:
        if isinstance(obj, Expr):
            raise TileTypeError(f"{_describe(obj)} has no elements to assign to", remedy="only buffers and blocks of them are indexed")
        index = self._python_index(obj, index)
        if isinstance(obj, (list, dict)):
            held: Any = obj[index] if isinstance(obj, list) or index in obj else None
            if self.trace.is_variable(held):
                self.trace.store(held, value)
                return
            if self.in_traced_flow() and not self.made_here(obj):
                raise TileTypeError(
                    f"an element of a Python {type(obj).__name__} is assigned where it depends on run-time control flow",
                    remedy="keep changing values in memory: T.alloc_local((n,), dtype), or a name of its own for each",
                )
        obj[index] = self.settle("item", value, False)

    def augment_item(self, obj: Any, index: Any, op: str, value: Any, k: int) -> None:
        """`obj[index] op= value`; the position is evaluated once."""
        try:
            access = self.access(obj, index)
            if access is None:
                self._set_python_item(obj, index, binary(op, obj[self._python_index(obj, index)], value))
                return
            if not access.sliced:
                mins = tuple(m if isinstance(m, int) else self.trace.freeze(m, "index") for m in access.mins)
                access = access._replace(mins=mins)
                value = binary(op, load(access.buffer, [as_expr(m) for m in access.mins]), value)
            self._store(access, value)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def effect(self, value: Any) -> None:
        """An expression statement: a call, and what holds one with an effect, is executed for its effect."""
        if isinstance(value, Call) or (isinstance(value, Expr) and effects_in(value)):
            self.builder.emit(Evaluate(value, self.builder.span()))
        elif isinstance(value, Construct):
            raise TileSyntaxError(f"{value.what} without `with` or `for` has no effect", remedy=f"write `with {value.what}(...):`")

    # ---------------------------------------------------------------- return, assert, inner functions
    def return_(self, value: Any, k: int) -> Any:
        if self.in_traced_flow():
            raise TileSyntaxError(
                "`return` under run-time control flow", at=self.sites[k], remedy="assign to a variable, and return at the end"
            )
        if self.role == "kernel" and value is not None and not _outputs_only(self.trace, value):
            raise TileSyntaxError(
                "a program returns no value",
                at=self.sites[k],
                remedy="store results into a tensor parameter, or return tensors made by T.empty",
            )
        if self.role == "kernel" and value is None:
            raise TileSyntaxError("`return` in a program", at=self.sites[k], remedy="use `if` around the statements that should not run")
        if self.role != "macro":
            return value
        if isinstance(value, tuple):
            return tuple(self._returned(v) for v in value)
        return self._returned(value)

    def _returned(self, value: Any) -> Any:
        """A macro hands out values; its own scalar-rule variables stay inside."""
        if type(value) is Var and value in self.trace.promoted:
            return self.trace.bind(value.name, load(value, [0]))
        return value

    def assert_(self, test: Any, message: Callable[[], Any] | None, k: int) -> None:
        try:
            condition = truth(test)
            text = str(message()) if message is not None else "assertion failed"
            if is_static(condition):
                if not condition:
                    raise TileAssertionError(text)
                return
            if self.builder.kernel is not None:
                self.builder.emit(Evaluate(make_call("tl.device_assert", [condition], message=text), self.builder.span()))
                return
            kind, parts = StringImm("AssertionError"), [StringImm(text)]
            self.builder.emit(AssertStmt(condition, kind, parts, self.builder.span()))
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def define(self, index: int, defaults: tuple[Any, ...]) -> Any:
        """A function defined inside a kernel: its calls are expanded in place."""
        return self.inner_function(self, self.program.nested[index], defaults)

    inner_function: Callable[[Activation, Program, tuple[Any, ...]], Any]

    # ---------------------------------------------------------------- while
    def while_(self, test: Callable[[], Any], k: int, at: int) -> Iterator[None]:
        """A `while` loop. Its condition is evaluated once here, after its variables are known, and recorded."""
        flow = self.flows[k]
        promote = self.promote(flow.survivors, k)
        builder = self.builder
        span = builder.span()
        frame = self.push_frame("while")
        try:
            condition = truth(test())
        except TileError as err:
            err.locate(self.sites[at])
            raise
        if is_static(condition):
            builder.frames.pop()
            self._static_while(condition, at)
            return
        first = list(frame.stmts)  # statements that evaluating the condition needed: they run before each test
        frame.stmts.clear()
        opened = self.enter_scope(flow, promote)
        self.loops.append((True, len(builder.frames), None))
        yield None
        self.loops.pop()
        self.leave_scope(opened, k)
        builder.frames.pop()
        body = frame.body()
        if first:
            stop = tirx.IfThenElse(tirx.Not(condition), Evaluate(tirx.break_loop(), span), None, span)
            body, condition = seq([*first, stop, body]), as_expr(True)
        builder.emit(tirx.While(condition, body, span))

    def _static_while(self, condition: Any, at: int) -> None:
        if condition:
            raise TileSyntaxError(
                "`while` with a condition that is always true",
                at=self.sites[at],
                remedy="loop with T.serial(n) and `break`, or test a variable",
            )
        warn("`while` with a condition that is never true: its body is skipped", TileWarning, self.sites[at])


def _is_plain(value: Any) -> bool:
    """Is this certainly free of device values?"""
    return is_static(value) and type(value) not in (tuple, list, dict)


def _outputs_only(trace: Trace, value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return all(type(v) is Var and any(v.same_as(o) for o in trace.outputs) for v in values)


def _describe(value: Any) -> str:
    if type(value) is Var:
        return f"{value.name!r}"
    if isinstance(value, TensorRegion):
        return f"a block of {value.source.name!r}"
    if isinstance(value, Expr):
        return "a scalar value"
    return f"{value!r} ({type(value).__name__})"

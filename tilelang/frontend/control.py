"""Control flow that is traced, and the scalar rule: what happens to names under it.

A name assigned in a traced body whose value is needed later, and that holds a scalar at entry, becomes a mutable
variable there (`promote`). After the body, names first bound inside have no value any more (`gone`), except that a name
bound in both branches of an `if` gets a variable that both branches set. Static branches and Python loops change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Location, TileNameError, TileSyntaxError, TileTypeError, TileValueError
from ..ir.builder import Builder, Frame
from ..ir.expr import is_static, join, truth
from ..ir.tvm_api import Evaluate, Expr, IfThenElse, Var, tirx
from .constructs import Construct, Loop, serial_loop
from .rewriter import Flow
from .trace import Trace, value_type

MISSING = object()


class Static:
    """The branch of a condition known while tracing."""

    def __init__(self, taken: bool) -> None:
        self.taken = taken

    def then(self) -> bool:
        return self.taken

    def otherwise(self) -> bool:
        return not self.taken

    def close(self) -> None:
        pass


_STATIC = {True: Static(True), False: Static(False)}


class Scope:
    """What was known when a traced body was entered. kept: objects that names of the flow were bound to; hidden: names
    whose scalars a T.Parallel body may read, not carry; conditional: the body may not run."""

    __slots__ = ("conditional", "flow", "hidden", "kept", "outer", "outer_reads")

    def __init__(self, flow: Flow, env: dict[str, Any], outer: dict[str, Any], outer_reads: set[str]) -> None:
        self.flow = flow
        self.kept = {name: env[name] for name in flow.assigned if name in env}
        self.outer, self.outer_reads = outer, outer_reads
        self.hidden: frozenset[str] = frozenset()
        self.conditional = True


class Control:
    """The control-flow half of an `Activation`."""

    trace: Trace
    builder: Builder
    sites: list[Location]
    flows: dict[int, Flow]
    env: dict[str, Any]

    def start_control(self) -> None:
        self.bound_at: dict[str, Location | None] = {}
        self.gone: dict[str, tuple[Location | None, str]] = {}  # names that lost their value: where they were bound, why
        self.outer: dict[str, Any] = {}  # scalars from outside of a T.Parallel, readable but not carried
        self.outer_reads: set[str] = set()
        self.loops: list[tuple[bool, int, Loop | None]] = []  # traced?, open frames, constructor
        self.depth = 0  # open traced scopes of this activation
        self.older: list[set[int]] = []  # per traced scope: ids of the Python objects that names held at its entry

    # ---------------------------------------------------------------- scopes
    def push_frame(self, kind: str) -> Frame:
        frame = Frame(kind)
        self.builder.frames.append(frame)
        return frame

    def in_traced_flow(self) -> bool:
        return self.depth > 0

    def made_here(self, obj: Any) -> bool:
        """Was this Python object made inside the innermost traced body?"""
        return not self.older or id(obj) not in self.older[-1]

    def promote(self, names: frozenset[str], k: int) -> frozenset[str]:
        """Turn the scalars among these names into variables; the other bound names are returned for a later check."""
        others = []
        at = self.sites[k]
        for name in sorted(names):
            if name in self.outer:
                raise self.carried_error(name)
            value = self.env.get(name, MISSING)
            if value is MISSING or self.trace.is_variable(value):
                continue
            if self.trace.is_scalar(value):
                self.env[name] = self.trace.make_variable(name, (at.file, at.line, at.column, name), value)
            else:
                others.append(name)
        return frozenset(others)

    def enter_scope(self, flow: Flow, others: frozenset[str], parallel: bool = False) -> tuple[Scope, frozenset[str]]:
        scope = Scope(flow, self.env, self.outer, self.outer_reads)
        self.depth += 1
        self.older.append({id(v) for v in self.env.values()})
        if parallel:
            hidden = {n: self.env[n] for n in flow.carried if n in self.env and self.trace.is_scalar(self.env[n])}
            hidden = {n: v for n, v in hidden.items() if not self.trace.is_variable(v)}
            self.outer, self.outer_reads = {**self.outer, **hidden}, set(self.outer_reads)
            scope.hidden = frozenset(hidden)
            for name in hidden:
                del self.env[name]
        return scope, others

    def leave_scope(self, opened: tuple[Scope, frozenset[str]], k: int) -> None:
        """After a traced body: names it bound are gone, unless they are what they were before."""
        scope, others = opened
        self.depth -= 1
        self.older.pop()
        env, flow = self.env, scope.flow
        for name in sorted(flow.assigned):
            value = env.get(name, MISSING)
            before = scope.kept.get(name, MISSING)
            if value is before:
                continue
            if value is MISSING and name in scope.hidden:  # a scalar from outside of T.Parallel that the body did not assign
                env[name] = before
                continue
            if not scope.conditional and value is not MISSING and _is_python(value):
                continue
            if name in others and name in flow.carried:
                raise TileTypeError(
                    f"{name!r} is bound to another object in each iteration of a run-time loop", at=self.bound_at.get(name),
                    remedy="only scalars are carried from one iteration to the next; index one buffer with a stage number instead",
                )  # fmt: skip
            if value is not MISSING or name not in self.gone:
                self.forget(name, "it was bound under run-time control flow" if scope.conditional else "it was bound inside a kernel")
        self.outer, self.outer_reads = scope.outer, scope.outer_reads

    def forget(self, name: str, why: str) -> None:
        self.env.pop(name, None)
        self.gone[name] = (self.bound_at.get(name), why)

    def gone_error(self, name: str) -> TileNameError:
        where, why = self.gone[name]
        line = f" in line {where.line}" if where is not None else ""
        return TileNameError(
            f"{name!r} has no value here: {why}{line}, and that body has ended",
            at=self.builder.location,
            notes=[(where, f"{name} bound here")] if where is not None else [],
            remedy=f"give {name} a value before the loop or branch; it then keeps its last value",
        )

    def carried_error(self, name: str) -> TileValueError:
        return TileValueError(
            f"{name!r} is changed by one iteration of T.Parallel and needed by another; its iterations are independent",
            at=self.builder.location,
            remedy="use T.serial, or combine the elements with T.reduce_sum and the like, T.alloc_reducer or T.atomic_add",
        )

    # ---------------------------------------------------------------- if
    def if_(self, test: Any, k: int, at: int) -> Static | Branch:
        condition = self._condition(test, at)
        return _STATIC[bool(condition)] if is_static(condition) else Branch(self, condition, k)

    def _condition(self, test: Any, at: int) -> Any:
        if is_static(test):
            return bool(test)
        try:
            return truth(test)
        except TileTypeError as err:
            err.locate(self.sites[at])
            raise

    # ---------------------------------------------------------------- loops
    def loop(self, iterable: Any, k: int) -> Iterator[Any]:
        """Iterate in a `for` statement: once, symbolically, over a loop of the language; really over a Python sequence."""
        if type(iterable) is range:
            iterable = serial_loop("range", iterable.start, iterable.stop, iterable.step)
        if isinstance(iterable, Loop):
            return self._traced_loop(iterable, k)
        if isinstance(iterable, Expr):
            raise TileTypeError(
                "iteration over a device value or buffer", at=self.builder.location, remedy="loop over indices: `for i in T.serial(n)`"
            )
        if not hasattr(iterable, "__iter__"):
            raise TileTypeError(
                f"{iterable!r} ({type(iterable).__name__}) cannot be iterated",
                at=self.builder.location,
                remedy="use T.serial(n) or range(n)",
            )
        return self._python_loop(iterable)

    def _python_loop(self, values: Any) -> Iterator[Any]:
        self.loops.append((False, len(self.builder.frames), None))
        yield from values
        self.loops.pop()

    def _traced_loop(self, loop: Loop, k: int) -> Iterator[Any]:
        flow = self.flows[k]
        others = frozenset() if loop.parallel else self.promote(flow.survivors - frozenset(flow.targets), k)
        loop.names = flow.targets
        opened = self.enter_scope(flow, others, loop.parallel)
        item = loop.enter()
        self.loops.append((True, len(self.builder.frames), loop))
        yield (item,) if flow.unpacked and type(item) is Var else item
        self.loops.pop()
        self.builder.location = self.sites[k]
        loop.leave()
        self.leave_scope(opened, k)

    def break_(self, k: int) -> bool:
        return self._jump("break", k)

    def continue_(self, k: int) -> bool:
        return self._jump("continue", k)

    def _jump(self, word: str, k: int) -> bool:
        """True: a jump of Python's own, in a loop over a Python sequence."""
        if not self.loops:
            raise TileSyntaxError(f"`{word}` outside a loop of this function", at=self.sites[k])
        traced, frames, loop = self.loops[-1]
        if not traced:
            if len(self.builder.frames) != frames:
                raise TileSyntaxError(
                    f"`{word}` under a run-time condition in a loop over a Python sequence, which is unrolled while tracing",
                    at=self.sites[k], remedy="loop with T.serial(n) or range(n)",
                )  # fmt: skip
            return True
        if loop is not None:
            if loop.jumps == "none" or (loop.jumps == "continue" and word == "break"):
                raise TileSyntaxError(
                    f"`{word}` in {loop.what}", at=self.sites[k], remedy="use T.serial loops, or `if` around the rest of the body"
                )
            loop.jumped = True
        jump = tirx.break_loop() if word == "break" else tirx.continue_loop()
        self.builder.emit(Evaluate(jump, self.builder.span()))
        return False

    # ---------------------------------------------------------------- with
    def context(self, manager: Any, k: int) -> Any:
        """The manager of a `with` statement, told the names of its targets; bodies that may not run open a scope."""
        if isinstance(manager, Construct):
            flow = self.flows[k]
            manager.names, manager.unpacked = flow.targets, flow.unpacked
            others = self.promote(flow.survivors, k) if manager.conditional else frozenset()
            self.withs.append(self.enter_scope(flow, others))
            self.withs[-1][0].conditional = manager.conditional
            if not manager.conditional:
                self.depth -= 1  # a kernel's body always runs
            return manager
        if not hasattr(manager, "__enter__"):
            raise TileTypeError(f"{manager!r} cannot be used in `with`", at=self.builder.location)
        return manager

    def leave(self, manager: Any, k: int) -> None:
        if isinstance(manager, Construct):
            if not manager.conditional:
                self.depth += 1
            self.leave_scope(self.withs.pop(), k)

    @property
    def withs(self) -> list[tuple[Scope, frozenset[str]]]:
        return self.__dict__.setdefault("_withs", [])


class Branch:
    """An `if` on a device condition while its two bodies are traced."""

    def __init__(self, owner: Control, condition: Expr, k: int) -> None:
        self.owner, self.condition, self.k = owner, condition, k
        self.flow = owner.flows[k]
        self.span = owner.builder.span()
        self.frames: list[Frame] = []
        self.ends: list[dict[str, Any]] = []
        owner.promote(self.flow.survivors, k)
        self.before = {n: owner.env.get(n, MISSING) for n in self.flow.assigned}

    def _open(self) -> bool:
        owner = self.owner
        owner.depth += 1
        owner.older.append({id(v) for v in owner.env.values()})
        self.frames.append(owner.push_frame("if"))
        return True

    def _close(self) -> None:
        owner = self.owner
        owner.depth -= 1
        owner.older.pop()
        owner.builder.frames.pop()
        self.ends.append({n: owner.env.get(n, MISSING) for n in self.flow.assigned})
        for name, value in self.before.items():
            if value is MISSING:
                owner.env.pop(name, None)
            else:
                owner.env[name] = value

    then = _open

    def otherwise(self) -> bool:
        self._close()
        return self._open()

    def close(self) -> None:
        self._close()
        if len(self.ends) == 1:
            self.ends.append(self.before)
        owner = self.owner
        at = owner.sites[self.k]
        for name in sorted(self.flow.assigned):
            self._merge(name, at)
        bodies = [frame.body() if frame.allocs or frame.stmts else None for frame in self.frames]
        if not any(bodies):
            return
        nothing = self.frames[0].body()
        owner.builder.emit(IfThenElse(self.condition, bodies[0] or nothing, bodies[1] if len(bodies) > 1 else None, self.span))

    def _merge(self, name: str, at: Location) -> None:
        """The value of a name after the branches met."""
        owner = self.owner
        yes, no = (end[name] for end in self.ends)
        bound = yes is not MISSING and no is not MISSING
        if yes is no or (bound and is_static(yes) and is_static(no) and type(yes) is type(no) and yes == no):
            if yes is not MISSING:
                owner.env[name] = yes
            return
        scalars = all((v is not MISSING and owner.trace.is_scalar(v)) or owner.trace.is_variable(v) for v in (yes, no))
        if not scalars or name not in self.flow.survivors:
            why = "it was bound under a run-time condition" if not bound else "the branches of a run-time condition bind it differently"
            owner.forget(name, why)
            return
        yes, no = owner.trace.read(yes), owner.trace.read(no)
        variable = owner.trace.declare(name, (at.file, at.line, at.column, name), _common_type(yes, no))
        for frame, value in zip(self.frames, (yes, no), strict=True):
            owner.builder.frames.append(frame)
            owner.trace.store(variable, value)
            owner.builder.frames.pop()
        owner.env[name] = variable


def _common_type(a: Any, b: Any) -> str:
    """The type that holds both; a literal takes the side of an expression of its kind."""
    return join(value_type(a), value_type(b))


def _is_python(value: Any) -> bool:
    """Is this a value of Python alone, which outlives the kernel that bound it?"""
    return isinstance(value, (bool, int, float, str, type(None))) or callable(value)

"""The state shared by all activations of one function being traced, and what is known about its buffers.

In: the builder. Out: facts of buffers without a walk through TVM for each access; the variables made by the scalar rule
and the types they turned out to need (`hints`), for which the trace is started again (`Retrace`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import InternalError
from ..ir.builder import Builder, writing
from ..ir.dialect import VAR
from ..ir.expr import convert, join, literal_type, representable, type_of
from ..ir.rewrite import walk
from ..ir.tvm_api import Analyzer, Bind, Call, Expr, FloatImm, IntImm, TensorLoad, Var, decl_buffer, is_buffer, load, shape_of

Site = tuple[str, int, int, str]  # file, line, column, name: where the scalar rule made a variable
Result = TypeVar("Result")


class Retrace(BaseException):
    """A variable of the scalar rule needs a wider type: the trace starts again with the new hint. Never leaves the tracer."""


class BufferFacts(NamedTuple):
    """scope and element type as strings; shape: ints where constant. variable: a mutable scalar (`local.var`, one element)."""

    scope: str
    shape: tuple[Any, ...]
    dtype: str
    variable: bool


class Trace:
    """One attempt to trace one function."""

    def __init__(self, builder: Builder, hints: dict[Site, str]) -> None:
        self.builder = builder
        self.hints = hints
        self.promoted: dict[Var, Site] = {}
        self.analyzer = Analyzer()
        self.outputs: list[Var] = []  # made by T.empty, in order
        self.sliced: dict[int, tuple[Any, tuple[int, ...]]] = {}  # by id of a region (kept alive): its dimensions
        self._facts: dict[Var, BufferFacts | None] = {}

    def facts(self, var: Var) -> BufferFacts | None:
        """Facts of a buffer, or None if `var` is a scalar."""
        try:
            return self._facts[var]
        except KeyError:
            found = None
            if is_buffer(var):
                scope, shape = str(var.scope()), shape_of(var)
                found = BufferFacts(scope, shape, str(var.ty.dtype), scope == VAR and shape == (1,))
            self._facts[var] = found
            return found

    def is_variable(self, value: Any) -> bool:
        if type(value) is not Var:
            return False
        facts = self.facts(value)
        return facts is not None and facts.variable

    # ---------------------------------------------------------------- values
    def read(self, value: Any) -> Any:
        """A variable's value; anything else as it is."""
        return load(value, [0]) if self.is_variable(value) else value

    def bind(self, name: str, value: Expr) -> Expr:
        """An immutable name for `value`, evaluated here. Constants, names and addresses need none."""
        if isinstance(value, (Var, IntImm, FloatImm)):
            return value
        kind = type_of(value)
        if kind in ("void", "handle"):
            return value
        var = Var(name, kind)
        self.builder.emit(Bind(var, value, self.builder.span()))
        return var

    def freeze(self, value: Any, name: str) -> Any:
        """An index or operand that will be used later, or more than once: bound if its value could change until then."""
        if self.is_variable(value):
            return self.bind(name, load(value, [0]))
        if isinstance(value, Expr) and not isinstance(value, (Var, IntImm, FloatImm)) and reads_memory(value):
            return self.bind(name, value)
        return value

    # ---------------------------------------------------------------- the scalar rule
    def is_scalar(self, value: Any) -> bool:
        """May the scalar rule make a variable of it?"""
        if isinstance(value, (bool, int, float, np.generic)):
            return True
        if type(value) is Var:
            return self.facts(value) is None and type_of(value) not in ("handle", "void")
        return isinstance(value, Expr) and type_of(value) not in ("handle", "void")

    def make_variable(self, name: str, site: Site, value: Any) -> Var:
        """A variable that starts as `value`, of the type that the whole trace is known to need."""
        kind = self.hints.get(site) or value_type(value)
        if kind.startswith("uint") and isinstance(value, int) and value < 0:
            kind = "int64"
        variable = self.declare(name, site, kind)
        self.builder.store(variable, convert(value, kind), [0])
        return variable

    def declare(self, name: str, site: Site, kind: str) -> Var:
        variable = decl_buffer((1,), self.hints.get(site, kind), name, VAR)
        self.builder.alloc(variable)
        self.promoted[variable] = site
        return variable

    def store(self, variable: Var, value: Any) -> None:
        """Assign to a variable. One of the scalar rule grows to the type that the new value needs."""
        facts = self.facts(variable)
        if facts is None:
            raise InternalError(f"{variable} is no variable")
        site = self.promoted.get(variable)
        if site is not None:
            needed = wider(facts.dtype, value)
            if needed != facts.dtype:
                self.hints[site] = needed
                raise Retrace
        self.builder.store(variable, convert(value, facts.dtype), [0])


def value_type(value: Any) -> str:
    return type_of(value) if isinstance(value, Expr) else literal_type(plain(value))


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def wider(have: str, value: Any) -> str:
    """The type a variable of type `have` needs to hold `value` with Python's meaning."""
    value = plain(value)
    if isinstance(value, Expr):
        return join(have, type_of(value))
    if isinstance(value, bool) or have.startswith(("float", "bfloat")) or (isinstance(value, int) and representable(value, have)):
        return have if have != "bool" or isinstance(value, bool) else literal_type(value)
    return join(have, literal_type(value))


def reads_memory(value: Expr) -> bool:
    """Does the value depend on memory, or does computing it have an effect?"""
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = True

    walk(value, {(TensorLoad, Call): visit})
    return found


def trace(run: Callable[[Trace], Result], target_kind: str = "auto") -> Result:
    """Run a tracing function, again as long as variables need wider types; types only grow, so this ends."""
    hints: dict[Site, str] = {}
    for _ in range(64):
        builder = Builder(target_kind)
        attempt = Trace(builder, hints)
        try:
            with writing(builder):
                return run(attempt)
        except Retrace:
            continue
    raise InternalError(f"the types of variables do not settle: {hints}")

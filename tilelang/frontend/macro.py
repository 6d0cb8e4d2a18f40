"""`T.macro`: functions whose body is expanded where they are called, and functions defined inside a kernel.

In: a Python function. Out: `Macro`, callable inside kernels. Buffers, blocks and Python values arrive as they are; a
scalar expression is evaluated once; a variable arrives as its value unless the parameter is annotated `T.Ref`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, overload

from ..errors import TileError, TileTypeError
from ..ir.builder import current
from ..ir.expr import is_static
from ..ir.tvm_api import Expr, TensorLoad, Var
from .activation import Activation
from .functions import Traceable, namespace_of
from .operations import Inlined
from .rewriter import Program
from .trace import Trace


class Ref:
    """Annotation of a macro parameter that is passed by reference: a variable, or an element of a buffer."""


_BY_REFERENCE = ("Ref", "T.Ref", "Var", "T.Var")


def _is_reference(annotation: Any) -> bool:
    return annotation is Ref or annotation is Var or (isinstance(annotation, str) and annotation in _BY_REFERENCE)


def bind_argument(trace: Trace, name: str, value: Any, by_reference: bool, references: dict[str, Any]) -> Any:
    """The value of a parameter inside the macro."""
    if by_reference:
        if trace.is_variable(value):
            return value
        if isinstance(value, TensorLoad):
            indices = [trace.freeze(i, f"{name}_index") for i in value.indices]
            references[name] = (value.source, indices)
            return None
        raise TileTypeError(
            f"parameter {name!r} is passed by reference and got {value!r}",
            remedy="pass a variable made by T.alloc_var, or an element such as A[i]",
        )
    if type(value) is Var:
        return trace.freeze(value, name)
    if isinstance(value, Expr) and not hasattr(value, "region"):
        return trace.bind(name, value)
    return value


class Macro(Inlined):
    """A function expanded at its calls. hygienic: its free names mean what they mean where it is defined."""

    def __init__(self, function: types.FunctionType, hygienic: bool = True) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.hygienic = hygienic
        self.signature = inspect.signature(function)
        self.by_reference = {n for n, a in function.__annotations__.items() if _is_reference(a)}

    @functools.cached_property
    def traceable(self) -> Traceable:
        return Traceable(self.function, dynamic=not self.hygienic)

    def inline(self, caller: Activation | None, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        builder = current(f"macro {self.function.__name__}")
        trace: Trace = caller.trace if caller is not None else builder.facts["trace"]
        values, references = bind_arguments(trace, self.signature, self.by_reference, args, keywords, self.function.__name__)
        return expand(
            trace, self.function.__name__,
            lambda: self.traceable.start(trace, "macro", values, None if self.hygienic else caller, references=references),
        )  # fmt: skip

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.inline(None, args, keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> Inlined:
        """A macro of a class, looked up on an instance, gets the instance as its first argument."""
        return self if instance is None else BoundMacro(self, instance)


class BoundMacro(Inlined):
    """A macro with its first argument."""

    def __init__(self, macro: Macro, instance: Any) -> None:
        self.macro, self.instance = macro, instance

    def inline(self, caller: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self.macro.inline(caller, (self.instance, *args), keywords)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.inline(None, args, keywords)


class InnerFunction(Inlined):
    """A function defined inside a kernel: its free names are those of the running activation around it."""

    def __init__(self, owner: Activation, program: Program, defaults: tuple[Any, ...]) -> None:
        self.owner, self.program, self.__name__ = owner, program, program.name
        assert program.code is not None and program.parameters is not None
        self.code = types.FunctionType(program.code, {"__builtins__": __builtins__})
        self.signature = _signature(program, defaults)

    def inline(self, caller: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        trace = self.owner.trace
        values, references = bind_arguments(trace, self.signature, set(), args, keywords, self.program.name)
        activation = Activation(trace, self.program, dict, "macro", self.owner)
        activation.references.update(references)
        activation.env.update(values)
        return expand(trace, self.program.name, lambda: self.code(activation, activation.env))

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.inline(None, args, keywords)


Activation.inner_function = staticmethod(InnerFunction)


def _signature(program: Program, defaults: tuple[Any, ...]) -> inspect.Signature:
    """The signature of an inner function from its syntax and its evaluated defaults."""
    arguments = program.parameters
    assert arguments is not None
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    count = len(arguments.defaults)
    found = []
    for k, a in enumerate(positional):
        at = k - (len(positional) - count)
        default = defaults[at] if at >= 0 else kinds.empty
        found.append(kinds(a.arg, kinds.POSITIONAL_OR_KEYWORD, default=default))
    if arguments.vararg is not None:
        found.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    for k, a in enumerate(arguments.kwonlyargs):
        given = arguments.kw_defaults[k] is not None
        found.append(kinds(a.arg, kinds.KEYWORD_ONLY, default=defaults[count + k] if given else kinds.empty))
    if arguments.kwarg is not None:
        found.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)


def bind_arguments(
    trace: Trace, signature: inspect.Signature, by_reference: set[str], args: tuple[Any, ...], keywords: Mapping[str, Any], name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters to values, and the parameters that stand for an element of a buffer."""
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as err:
        raise TileTypeError(f"call of {name}: {err}", remedy=f"its parameters are {signature}") from None
    bound.apply_defaults()
    references: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        made = bind_argument(trace, parameter, value, parameter in by_reference, references) if not is_static(value) else value
        if parameter in by_reference and is_static(value):
            bind_argument(trace, parameter, value, True, references)
        if parameter not in references:
            values[parameter] = made
    return values, references


def expand(trace: Trace, name: str, run: Callable[[], Any]) -> Any:
    """Run the body of a macro; errors inside it tell from where it was called."""
    builder = trace.builder
    before, builder.target_name = builder.location, None
    try:
        return run()
    except TileError as err:
        if before is not None and err.at is not None and before != err.at:
            err.notes = (*err.notes, (before, f"in the call of {name}"))
        raise
    finally:
        builder.location = before


@overload
def macro(function: Callable[..., Any]) -> Macro: ...
@overload
def macro(function: None = None, *, hygienic: bool = True) -> Callable[[Callable[..., Any]], Macro]: ...
def macro(function: Any = None, *, hygienic: bool = True) -> Any:
    """Make a function a macro: its body is expanded in the kernels that call it.

    function: as `@macro` or `@macro(hygienic=...)`. hygienic=False: free names are looked up at the call first.
    Returns: an object called like the function, inside kernels only. `return` hands values to the caller.
    """
    if function is None:
        return lambda f: macro(f, hygienic=hygienic)
    if isinstance(function, Inlined):
        return function
    if not isinstance(function, types.FunctionType):
        raise TileTypeError(f"T.macro needs a Python function, not {function!r}")
    return Macro(function, hygienic)


__all__ = ["InnerFunction", "Macro", "Ref", "macro", "namespace_of"]

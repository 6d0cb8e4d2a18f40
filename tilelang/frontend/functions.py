"""From a Python function to something that can be traced: its program (cached), its free names, its parameters' annotations.

In: functions of the user. Out: `Kernelised`, which starts an activation of the function in a trace.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import TileNameError, TileTypeError
from .activation import Activation
from .rewriter import Program, rewrite_function
from .source import find_source
from .trace import Trace

# By identity: code objects of different files compare equal when their instructions do. The code is kept so that its id is.
_programs: dict[tuple[int, bool], tuple[types.CodeType, Program]] = {}


def program_of(function: types.FunctionType, dynamic: bool = False) -> Program:
    """The rewritten function; made once for each code object."""
    code = function.__code__
    key = (id(code), dynamic)
    if key not in _programs:
        _programs[key] = (code, rewrite_function(find_source(function), code.co_freevars, dynamic))
    return _programs[key][1]


class Traceable:
    """A function of the user with its rewritten program."""

    def __init__(self, function: types.FunctionType, dynamic: bool = False) -> None:
        self.function = function
        self.program = program_of(function, dynamic)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        code = self.program.code
        assert code is not None
        closure = tuple(cells[n] for n in code.co_freevars)
        self.code = types.FunctionType(code, function.__globals__, function.__name__, None, closure)

    def namespace(self) -> Mapping[str, Any]:
        return namespace_of(self.function)

    def start(self, trace: Trace, role: str, arguments: Mapping[str, Any], parent: Activation | None = None, **slots: Any) -> Any:
        """Run the function in `trace`; `arguments` are the values of its parameters. Returns what it returns."""
        activation = Activation(trace, self.program, self.namespace, role, parent)
        for name, value in slots.items():
            setattr(activation, name, value)
        activation.env.update(arguments)
        if role == "eager":
            trace.builder.facts["activation_env"] = activation.env
        return self.code(activation, activation.env)


def namespace_of(function: types.FunctionType) -> dict[str, Any]:
    """Globals and closure of a function: where its free names and its string annotations are looked up."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def annotations_of(function: types.FunctionType, frame_names: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Parameter annotations as values; strings are evaluated in the function's names, then in its definer's (`frame_names`)."""
    found: dict[str, Any] = {}
    names: dict[str, Any] | None = None
    for name, given in function.__annotations__.items():
        value = given
        if isinstance(value, str) and name != "return":
            if names is None:
                names = {**frame_names(), **namespace_of(function)}
            value = _evaluate(value, name, function, names)
        found[name] = value
    return found


def _evaluate(text: str, name: str, function: types.FunctionType, names: dict[str, Any]) -> Any:
    try:
        return eval(text, names)
    except NameError as err:
        if text.isidentifier():  # the plain name of an element type, such as "float32"
            return text
        raise TileNameError(f"annotation {text!r} of parameter {name!r} of {function.__name__}: {err}") from None
    except SyntaxError:
        raise TileTypeError(
            f"annotation {text!r} of parameter {name!r} of {function.__name__} is no Python expression",
            remedy="write T.Tensor(shape, dtype), T.int32 or T.ptr",
        ) from None


def caller_names(depth: int) -> Callable[[], Mapping[str, Any]]:
    """The local names of the frame `depth` calls above the caller, looked up when needed."""
    frame = sys._getframe(depth + 1)
    return lambda: frame.f_locals


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)

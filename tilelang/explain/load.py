"""From `file.py:name` to a program.

In: a path and the name of a program, of a factory that returns one, or of a function under `@tilelang.jit`, with the
factory's arguments. Out: the `PrimFunc`. The file is imported like a module, not run as a script.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import TileNameError, TileTypeError, TileValueError
from ..ir.tvm_api import PrimFunc


class TileFileNotFoundError(TileValueError, FileNotFoundError):
    """A program's file that does not exist."""


def split_target(text: str) -> tuple[Path, str]:
    """`file.py:name` as (path, name); the name is "" if there is none. Colons of drive letters stay in the path."""
    head, colon, name = text.rpartition(":")
    if colon and head and "/" not in name and "\\" not in name:
        return Path(head), name
    return Path(text), ""


def parse_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """`["M=1024", "dtype=float16"]` as named arguments: Python literals where they are such, else text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise TileValueError(f"argument {pair!r}: expected name=value", remedy="for example --arg M=1024 --arg dtype=float16")
        try:
            out[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            out[name] = text
    return out


def import_file(path: Path) -> ModuleType:
    """The module that a file defines. Modules beside the file can be imported by it."""
    if not path.is_file():
        raise TileFileNotFoundError(f"no file {path}", remedy="give file.py:function, with the path from this folder")
    name = f"_explained_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TileValueError(f"{path} is no Python file", remedy="give file.py:function")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def find(module: ModuleType, name: str, path: Path) -> Any:
    """The object `name` (may be dotted) of a module; without a name, the only program of the file."""
    names = _candidates(module)
    if not name:
        if len(names) == 1:
            return getattr(module, names[0])
        what = f"has {len(names)} programs" if names else "has no program at its top level"
        factories = names or _functions(module)
        raise TileValueError(f"{path} {what}", remedy=f"name one: {_list(path, factories)}" if factories else "give file.py:function")
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = names or _functions(module)
            raise TileNameError(f"{path} defines no {name}", remedy=f"it has {_list(path, known)}" if known else "")
        found = getattr(found, part)
    return found


def _list(path: Path, names: Sequence[str]) -> str:
    return ", ".join(f"{path}:{n}" for n in names)


def _candidates(module: ModuleType) -> list[str]:
    """Names that certainly are programs or jit functions of the module itself."""
    return [n for n, value in vars(module).items() if isinstance(value, PrimFunc) or _jit_of(value) is not None]


def _functions(module: ModuleType) -> list[str]:
    """Names of the module's own functions, which may return programs."""
    return [n for n, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__]


def _jit_of(value: Any) -> Any:
    """The jit function that `value` is, or that it tunes; None for others."""
    if inspect.isclass(value):
        return None
    return next((f for f in (value, getattr(value, "function", None)) if callable(getattr(f, "get_tir", None))), None)


def as_program(value: Any, arguments: Mapping[str, Any] | None = None, name: str = "") -> PrimFunc:
    """The program behind a `PrimFunc`, a compiled kernel, a jit function or a factory called with `arguments`."""
    arguments = dict(arguments or {})
    name = name or getattr(value, "__name__", type(value).__name__)
    if not isinstance(value, PrimFunc) and not isinstance(getattr(value, "prim_func", None), PrimFunc):
        if not callable(value):
            raise TileTypeError(f"{name} is a {type(value).__name__}, neither a program nor a function that returns one")
        value, arguments = _call(value, arguments, name), {}
    value = value if isinstance(value, PrimFunc) else getattr(value, "prim_func", value)
    if not isinstance(value, PrimFunc):
        raise TileTypeError(f"{name} returned a {type(value).__name__}, expected a program", remedy="return a function under @T.prim_func")
    if arguments:
        raise TileTypeError(f"{name} is a program: it takes no arguments here, got {', '.join(arguments)}")
    return value


def _call(function: Any, arguments: Mapping[str, Any], name: str) -> Any:
    """What a factory returns; a jit function is traced only (never tuned), and checks its arguments and `T.const` names."""
    jit = _jit_of(function)
    if jit is None:
        _check_arguments(function, arguments, name)
        return function(**arguments)
    try:
        return jit.get_tir(**arguments)
    except TileTypeError as error:
        error.remedy = "; ".join(filter(None, [error.remedy, "on the command line: --arg NAME=VALUE"]))
        raise


def _check_arguments(function: Any, arguments: Mapping[str, Any], name: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    parameters = signature.parameters.values()
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [n for n in arguments if n not in signature.parameters and not open_ended]
    if unknown:
        raise TileTypeError(f"{name} has no parameter {', '.join(unknown)}", remedy=f"its parameters are {signature}")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [n for n in needed if n not in arguments]
    if missing:
        raise TileTypeError(f"{name}{signature} needs arguments: {', '.join(missing)}", remedy=" ".join(f"--arg {n}=..." for n in missing))

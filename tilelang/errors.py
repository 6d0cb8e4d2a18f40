"""Errors and warnings shown to users: the message, the user's line with a caret, the values, the remedy.

In: a message and, where known, a `Location`. Out: exception classes that are also the builtin exception
a Python programmer expects (`TileValueError` is a `ValueError`, ...). Standard library only.
"""

from __future__ import annotations

import functools
import linecache
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

_PACKAGE = __name__.partition(".")[0] + "."
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Location:
    """A range in a user's source file. Lines and columns count from 1; `end_column` is exclusive."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def excerpt(at: Location, label: str = "") -> str:
    """The source line of `at` with a caret line under it; only the position if the source is not at hand."""
    out = [f"  --> {at}"]
    text = linecache.getline(at.file, at.line).rstrip("\n").expandtabs(1)
    if text:
        number = str(at.line)
        pad = " " * len(number)
        start = max(at.column - 1, 0)
        single = at.end_line in (0, at.line) and at.end_column > at.column
        end = at.end_column - 1 if single else len(text)
        carets = "^" * max(1, min(end, len(text)) - start)
        out += [f" {pad} |", f" {number} | {text}", f" {pad} | {' ' * start}{carets}{' ' + label if label else ''}"]
    elif label:
        out.append(f"      {label}")
    return "\n".join(out)


class TileError(Exception):
    """Base of every error that reaches a user.

    message: what is wrong, with the values. at: the user's line (the tracer fills it in when it is None).
    notes: further lines that matter, as (location, label). remedy: what to do about it.
    """

    def __init__(self, message: str, *, at: Location | None = None, notes: Sequence[tuple[Location, str]] = (), remedy: str = ""):
        super().__init__(message)
        self.message = message
        self.at = at
        self.notes = tuple(notes)
        self.remedy = remedy

    def locate(self, at: Location | None) -> None:
        """Set the position, unless a more precise one is known already."""
        if self.at is None:
            self.at = at

    def __str__(self) -> str:
        parts = [self.message]
        if self.at is not None:
            parts.append(excerpt(self.at))
        parts += [excerpt(where, label) for where, label in self.notes]
        if self.remedy:
            parts.append(f"  help: {self.remedy}")
        return "\n".join(parts)


class TileValueError(TileError, ValueError):
    """A value that the language does not allow here."""


class TileTypeError(TileError, TypeError):
    """An object or element type that the language does not allow here."""


class TileIndexError(TileError, IndexError):
    """A wrong number of indices, or an index that is provably out of range."""


class TileZeroDivisionError(TileError, ZeroDivisionError):
    """A division by a constant zero."""


class TileAttributeError(TileError, AttributeError):
    """A name that the language, or an object of the language, does not have."""


class TileNameError(TileError, NameError, RuntimeError):
    """A name that has no value at this point of the program."""


class TileAssertionError(TileError, AssertionError):
    """Operands of a tile operator that do not fit each other."""


class TileSyntaxError(TileError):
    """Python that has no meaning inside a kernel."""


class TileRuntimeError(TileError, RuntimeError):
    """A use of the language in the wrong place or order."""


class TileUpdateError(TileTypeError, RuntimeError):
    """`buffer += value` on a buffer as a whole."""


class TileNotSupportedError(TileError, NotImplementedError):
    """Part of the language that the chosen target does not have; the message says which target has it."""


class JITNoBuilderError(TileRuntimeError):
    """A statement of the language outside any kernel that is being written."""


class SourceNotFoundError(TileRuntimeError):
    """The Python source of a kernel function cannot be read (typed at a bare prompt, or exec'd)."""


class SimtError(TileRuntimeError):
    """The emulator saw a kernel do something that has no defined result: a race, a read of memory nobody wrote, an access
    outside its allocation, a barrier that not all threads reach."""


class InternalError(RuntimeError):
    """A broken law inside the compiler: always our bug, never the user's."""


class TileWarning(UserWarning):
    """Base of the warnings this package gives about a user's program."""


class UninitializedReadWarning(TileWarning):
    """A buffer is read, and nothing in the program ever writes it."""


class OutOfBoundsWarning(TileWarning):
    """An access is provably outside its tensor: the load gives the safe value, the store is dropped."""


def similar(name: str, names: Iterable[str]) -> str:
    """The words "; did you mean x?" with the names that are close to `name`, in either case; "" if there are none."""
    spellings: dict[str, list[str]] = {}
    for known in names:
        spellings.setdefault(known.lower(), []).append(known)
    near = [known for found in get_close_matches(name.lower(), spellings, n=3, cutoff=0.7) for known in spellings[found]]
    return f"; did you mean {', '.join(near)}?" if near else ""


def cleaned(error: BaseException) -> BaseException:
    """The error without the frames of this package, to be raised by what the user called: a `TileError` says itself where it
    is; of any other one the user's frames are kept."""
    if isinstance(error, TileError):
        error.__cause__, error.__suppress_context__ = None, True
        return error.with_traceback(None)
    kept, frame = [], error.__traceback__
    while frame is not None:
        if not str(frame.tb_frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
            kept.append(frame)
        frame = frame.tb_next
    chain = None
    for one in reversed(kept):
        chain = types.TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(chain)


def for_users(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Decorator of what users call: a `TileError` leaves without the frames below."""

    @functools.wraps(function)
    def call(*args: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return function(*args, **named)
        except TileError as error:
            raise cleaned(error) from None

    return call


def warn(message: str, category: type[Warning], at: Location | None = None, notes: Sequence[tuple[Location, str]] = ()) -> None:
    """Give a warning at the user's line (once per line and text, by Python's own rules)."""
    text = "\n".join([message, *([excerpt(at)] if at else []), *[excerpt(where, label) for where, label in notes]])
    if at is None:
        warnings.warn(text, category, stacklevel=3)
    else:
        warnings.warn_explicit(text, category, at.file, at.line)

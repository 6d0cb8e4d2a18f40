"""Where the Python source of a function is: its syntax tree with positions of the user's file.

In: a Python function. Out: `FunctionSource`, the `ast.FunctionDef` as it stands in the file (a notebook cell is a file
of `linecache`), so that every node's line and column are the user's. Files are parsed once and kept while unchanged.
"""

from __future__ import annotations

import ast
import linecache
import types
from dataclasses import dataclass

from ..errors import Location, SourceNotFoundError


@dataclass(frozen=True)
class FunctionSource:
    """The definition of one function: its file, its node, and the lines of the file (for columns)."""

    file: str
    node: ast.FunctionDef
    lines: tuple[str, ...]

    def location(self, node: ast.AST) -> Location:
        """The range of `node`, columns in characters from 1."""
        line, end_line = getattr(node, "lineno", self.node.lineno), getattr(node, "end_lineno", None) or 0
        column = self._column(line, getattr(node, "col_offset", 0))
        end_column = self._column(end_line, getattr(node, "end_col_offset", 0) or 0) if end_line else 0
        return Location(self.file, line, column, end_line, end_column)

    def _column(self, line: int, offset: int) -> int:
        """Python counts bytes of UTF-8, people count characters."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if not text.isascii():
            offset = len(text.encode("utf-8")[:offset].decode("utf-8", "ignore"))
        return offset + 1


_files: dict[str, tuple[tuple[str, ...], dict[tuple[str, int], ast.FunctionDef]]] = {}


def _first_line(node: ast.FunctionDef) -> int:
    """The line that Python records for a function: its first decorator's, if it has one."""
    return min([node.lineno, *[d.lineno for d in node.decorator_list]])


def _parsed(file: str) -> tuple[tuple[str, ...], dict[tuple[str, int], ast.FunctionDef]]:
    linecache.checkcache(file)
    lines = tuple(linecache.getlines(file))
    known = _files.get(file)
    if known is not None and known[0] == lines:
        return known
    try:
        tree = ast.parse("".join(lines), file)
    except (SyntaxError, ValueError) as err:
        raise SourceNotFoundError(f"{file} has changed and is no longer valid Python: {err}") from None
    functions = {(n.name, _first_line(n)): n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    _files[file] = (lines, functions)
    return _files[file]


def find_source(function: types.FunctionType) -> FunctionSource:
    """The definition of `function`. Raises `SourceNotFoundError` if its text is not at hand or has changed since."""
    code = function.__code__
    file, name = code.co_filename, code.co_name
    lines, functions = _parsed(file)
    if not lines:
        raise SourceNotFoundError(
            f"the source of {name!r} cannot be read (Python says it is in {file!r}, line {code.co_firstlineno})",
            remedy="define it in a file or a notebook cell; functions made by exec or typed at a bare prompt keep no source",
        )
    node = functions.get((name, code.co_firstlineno))
    if node is None or not _same_parameters(node, code):
        raise SourceNotFoundError(
            f"the source of {name!r} is not at {file}:{code.co_firstlineno} any more",
            remedy="the file changed after it was imported: import it again. A lambda cannot be a kernel: use def",
        )
    return FunctionSource(file, node, lines)


def _same_parameters(node: ast.FunctionDef, code: types.CodeType) -> bool:
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return names == list(code.co_varnames[: len(names)])

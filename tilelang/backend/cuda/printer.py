"""What every part of the statement printer writes with: lines, indentation, the user's positions.

In: texts, and the kernel they belong to. Out: `lines`. `Statements` is the one that knows all statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ...errors import InternalError
from ...ir.kernel import KernelRegion
from ...ir.tvm_api import Stmt, Var, location_of
from .expressions import Expressions
from .operators import Operators

INDENT = "  "


class Printer:
    """Lines of one kernel. e: prints expressions; o: prints calls of operators."""

    def __init__(self, expressions: Expressions, operators: Operators, kernel: KernelRegion) -> None:
        self.e, self.o, self.kernel = expressions, operators, kernel
        self.lines: list[str] = []
        self.depth = 1
        self.shared: Mapping[Var, int] = {}  # byte offset of each shared buffer in the block's dynamic memory
        self.static_arrays = False  # is there other shared memory before it?
        self.warpgroup = Var("warpgroup", "int32")  # the number of the thread's
        self.only_warpgroup: int | None = None  # that number, in a part of the block that is one warpgroup
        self.prologue: dict[str, None] = {}  # lines that the body wants at the kernel's beginning
        self.noted = [(-1, "")]  # for every comment: the number of lines with it, the position it names

    def statement(self, stmt: Stmt) -> None:
        """Print one statement."""
        raise InternalError(f"no printer of statements: {stmt}")

    def line(self, text: str) -> None:
        self.lines.append(f"{INDENT * self.depth}{text}")

    def open(self, head: str = "") -> None:
        """`head {`: a block, with names of its own."""
        self.line(f"{head} {{".lstrip())
        self.enter()

    def close(self, tail: str = "}") -> None:
        self.leave()
        self.line(tail)

    def enter(self) -> None:
        """What follows is inside a block."""
        self.depth += 1
        self.e.names.enter()

    def leave(self) -> None:
        self.e.names.leave()
        self.depth -= 1

    def note(self, stmt: Any) -> None:
        """A comment with the user's line, once for a run of lines that come from it."""
        at = location_of(stmt)
        where = f"{PurePath(at.file).name}:{at.line}" if at else ""
        if self.noted[-1][0] == len(self.lines) and where not in ("", self.noted[-1][1]):  # nothing stands under the comment before
            self.noted.pop()
            self.lines.pop()
        if where not in ("", self.noted[-1][1]):
            self.line(f"// {where}")
            self.noted.append((len(self.lines), where))

    def linear_thread(self) -> str:
        """The number of the thread in its block."""
        (x, ex), (y, ey), (z, ez) = self.kernel.threads
        terms = [self.e.names.of(x)] if ex > 1 else []
        terms += [f"{ex} * {self.e.names.of(y)}"] if ey > 1 else []
        terms += [f"{ex * ey} * {self.e.names.of(z)}"] if ez > 1 else []
        return "0" if not terms else terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"

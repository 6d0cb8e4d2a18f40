"""State of the code generator: names, constants, sites, indentation; where each buffer lives.

In: nodes of the program. Out: lines of Python and the namespace they run in.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import TileNotSupportedError
from ...ir.access import Access
from ...ir.dtype_table import info, numpy_type
from ...ir.tvm_api import Var, dtype_of, location_of
from . import values
from .report import Site


@dataclass(frozen=True)
class Value:
    """The Python text of an expression. uniform: the same in all lanes (a Python int or bool, or a NumPy scalar). low, high:
    bounds of a uniform integer where they are known. lead: depends on variables of loops that run all at once."""

    text: str
    dtype: str
    uniform: bool
    low: int | None = None
    high: int | None = None
    fresh: bool = True  # False: the text names memory that a later statement may change


GLOBAL, REGISTERS, SHARED = "global", "registers", "shared"


@dataclass(frozen=True)
class Place:
    """Where a buffer lives: Python name of its memory object, its kind, strides in elements as Values or ints.
    scattered: the memory begins elsewhere in every lane (`memory.Scattered`). large: offsets may leave 32 bits."""

    name: str
    kind: str
    strides: tuple[Any, ...]
    dtype: str
    scattered: bool = False
    large: bool = False


_HELPERS = {
    name: getattr(values, name)
    for name in (
        "both", "minus", "inv", "wrap", "floordiv", "floormod", "truncdiv", "truncmod", "shift_left", "shift_right", "popcount", "clz",
        "float_to_int", "double_to_half", "reinterpret", "select", "choose", "maximum", "minimum", "function",
    )
}  # fmt: skip


class Scope:
    """One generated module: `lines`, `namespace`, `sites`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.namespace: dict[str, Any] = {"np": np, **_HELPERS}
        self.sites: list[Site] = []
        self.taken: set[str] = set(keyword.kwlist) | set(self.namespace)
        self.names: dict[Any, Value] = {}
        self.places: dict[Var, Place] = {}
        self.constants: dict[tuple[str, str], str] = {}
        self.span: Any = None
        self.counter = 0
        self.vector = 0  # of the sites that are made (`Site.vector`)

    # ---------------------------------------------------------------- text
    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, hint: str) -> str:
        """A new Python name that resembles `hint`."""
        base = re.sub(r"\W", "_", hint) or "v"
        if base[0].isdigit() or base[0] == "_":
            base = "v" + base
        name, k = base, 1
        while name in self.taken:
            name, k = f"{base}_{k}", k + 1
        self.taken.add(name)
        return name

    def temp(self, hint: str = "t") -> str:
        self.counter += 1
        return self.fresh(f"{hint}{self.counter}_")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    # ---------------------------------------------------------------- namespace
    def kind(self, dtype: str) -> str:
        """Name of the NumPy type of one lane of `dtype`."""
        base = info(dtype).base
        found = numpy_type(base)
        if found is None:
            raise TileNotSupportedError(f"values of {dtype} in the emulator", at=self.at())
        self.namespace.setdefault(f"t_{base}", np.dtype(found).type)
        self.taken.add(f"t_{base}")
        return f"t_{base}"

    def constant(self, value: float, dtype: str) -> str:
        """Name of a float constant."""
        key = (repr(float(value)), dtype)
        if key not in self.constants:
            name = self.fresh("c")
            kind = np.dtype(numpy_type(info(dtype).base)).type
            with np.errstate(all="ignore"):
                self.namespace[name] = kind(value)
            self.constants[key] = name
        return self.constants[key]

    def object(self, value: Any, hint: str) -> str:
        """Name of any Python object."""
        name = self.fresh(hint)
        self.namespace[name] = value
        return name

    def site(self, what: str, buffer: str = "") -> str:
        """Name of the site of an access in the current statement."""
        name = f"s{len(self.sites)}"
        self.taken.add(name)
        site = Site(self.at(), what, buffer, self.vector)
        self.sites.append(site)
        self.namespace[name] = site
        return name

    def at(self) -> Any:
        return location_of(self.span) if self.span is not None else None


def element_type(buffer: Var) -> str:
    return dtype_of(buffer)


__all__ = ["GLOBAL", "REGISTERS", "SHARED", "Access", "Place", "Scope", "Value", "element_type"]

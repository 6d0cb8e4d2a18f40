"""Named integers that record what is computed with them: how a layout shows its formula without any compiler.

In: a name. Out: an object with the integer operators whose text is the expression, with the parentheses Python needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LEVELS = {"|": 0, "^": 1, "&": 2, "<<": 3, ">>": 3, "+": 4, "-": 4, "*": 5, "//": 5, "%": 5}
_ATOM = 9


class Symbol:
    """A named integer, or an expression of some."""

    __slots__ = ("level", "text")

    def __init__(self, text: str, level: int = _ATOM) -> None:
        self.text = text
        self.level = level

    def __repr__(self) -> str:
        return self.text


def _operator(sign: str, reflected: bool) -> Callable[[Symbol, Any], Symbol]:
    level = _LEVELS[sign]

    def apply(self: Symbol, other: Any) -> Symbol:
        left, right = (other, self) if reflected else (self, other)
        first, second = (x if isinstance(x, Symbol) else Symbol(str(x), _ATOM if x >= 0 else _LEVELS["-"]) for x in (left, right))
        texts = (
            f"({first})" if first.level < level else first.text,
            f"({second})" if second.level <= level else second.text,
        )
        return Symbol(f"{texts[0]} {sign} {texts[1]}", level)

    return apply


for _sign, _name in {
    "|": "or", "^": "xor", "&": "and", "<<": "lshift", ">>": "rshift", "+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod",
}.items():  # fmt: skip
    setattr(Symbol, f"__{_name}__", _operator(_sign, False))
    setattr(Symbol, f"__r{_name}__", _operator(_sign, True))


def coordinates(rank: int) -> list[Symbol]:
    """The names of logical coordinates: i, j, k, l, or i0, i1, ... for more than four."""
    return [Symbol(name) for name in coordinate_names(rank)]


def coordinate_names(rank: int) -> list[str]:
    return ["ijkl"[k] if rank <= 4 else f"i{k}" for k in range(rank)]

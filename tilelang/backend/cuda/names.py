"""C++ names for the variables of a kernel: the user's own, made unique and legal.

In: variables and the names they carry. Out: identifiers; the same variable always gets the same one.
"""

from __future__ import annotations

import re

from ...ir.tvm_api import Var

# ruff: noqa: SIM905

# Words of C++ and names that the generated text or its header uses.
RESERVED = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr const_cast continue
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return
    short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename union unsigned using virtual void volatile wchar_t while xor xor_eq tl smem half_t bfloat16_t printf threadIdx blockIdx
    blockDim gridDim warpSize int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t min max abs exp log sin cos tan pow
    sqrt floor ceil round trunc erf half j0 j1 jn y0 y1 yn gamma main assert""".split()
)


class Names:
    """Names of one kernel, unique where they are visible: what a block declares is free again behind it."""

    def __init__(self) -> None:
        self._of: dict[Var, str] = {}
        self._used: set[str] = set()
        self._scopes: list[tuple[list[Var], list[str]]] = [([], [])]  # variables and names of the open blocks, outermost first

    def enter(self) -> None:
        """A block begins."""
        self._scopes.append(([], []))

    def leave(self) -> None:
        """The innermost block ends."""
        variables, names = self._scopes.pop()
        self._used.difference_update(names)
        for var in variables:
            self._of.pop(var, None)

    def of(self, var: Var) -> str:
        """The name of a variable; a new one belongs to the innermost block."""
        found = self._of.get(var)
        return found if found is not None else self.declare(var)

    def declare(self, var: Var) -> str:
        """A new name for a variable whose declaration is printed now, in the innermost block."""
        return self.alias(var, self.fresh(str(var.name)))

    def same(self, a: Var, b: Var) -> bool:
        """Have both variables one name?"""
        return self._of.get(a) is not None and self._of.get(a) == self._of.get(b)

    def alias(self, var: Var, text: str) -> str:
        """Let a variable be spelt as a text that has its value."""
        self._of[var] = text
        self._scopes[-1][0].append(var)
        return text

    def fresh(self, wanted: str, everywhere: bool = False) -> str:
        """A name nobody has, as close to `wanted` as possible, in the innermost block or everywhere."""
        base = re.sub(r"\W", "_", wanted) or "v"
        if base[0].isdigit() or base in RESERVED or base.startswith("__"):
            base = f"v_{base.lstrip('_')}"
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        if not everywhere:
            self._scopes[-1][1].append(name)
        return name

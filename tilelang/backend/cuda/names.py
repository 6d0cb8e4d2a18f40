"""C++ names for the variables of a kernel: the user's own, made unique and legal.

In: variables and the names they carry. Out: identifiers; the same variable always gets the same one.
"""

from __future__ import annotations

import re
from typing import Any

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
    """One scope of unique names."""

    def __init__(self) -> None:
        self._of: dict[Var, str] = {}
        self._used: set[str] = set()

    def of(self, var: Var) -> str:
        """The name of a variable."""
        found = self._of.get(var)
        if found is None:
            found = self._of[var] = self.fresh(str(var.name))
        return found

    def fresh(self, wanted: str) -> str:
        """A name nobody has, as close to `wanted` as possible."""
        base = re.sub(r"\W", "_", wanted) or "v"
        if base[0].isdigit() or base in RESERVED or base.startswith("__"):
            base = f"v_{base.lstrip('_')}"
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name

    def known(self, var: Any) -> bool:
        return var in self._of

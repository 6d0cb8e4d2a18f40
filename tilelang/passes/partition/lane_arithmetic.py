"""Arithmetic of a thread in forms that are quick on the hardware; no value changes.

In: a program of THREADS. Out: the same, in which

* quotients and remainders of `x + y` do without y, or are y, where x and the divisor are multiples of some g and y is less than that: with
  the lane of a vector loop in y, all lanes load one scale, and compute with it as a pack; with the number of the register, all registers;
* a whole number of few bits becomes a 16-bit float through its bits: with m bits of mantissa, the bits of 2^m or'ed with x < 2^m are the
  number 2^m + x, and subtracting 2^m is exact. That is one logical operation and half of a packed subtraction, beside a conversion at half
  of their rate (CUDA C++ Programming Guide, throughput of native arithmetic instructions). A whole number that the program subtracts next
  is part of the same subtraction.
"""

from __future__ import annotations

from typing import Any

from ...ir.context import PassContext
from ...ir.rewrite import Descend, rewrite, substitute, uses
from ...ir.tvm_api import (
    Analyzer,
    Bind,
    Cast,
    Expr,
    FloatImm,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    Var,
    const,
    dtype_of,
    is_expr,
    tirx,
)  # fmt: skip
from ..analysis.facts import holds_load, type_range

# By type: bits of the number 2^m, and m, the bits of its mantissa.
_WHOLE = {"bfloat16": (0x4300, 7), "float16": (0x6400, 10)}


def lane_arithmetic(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Rewrite the arithmetic of all threads."""
    rules = _Rules()
    table = {
        For: rules.loop, tirx.FloorDiv: rules.quotient, tirx.FloorMod: rules.remainder, tirx.Div: rules.quotient, tirx.Mod: rules.remainder,
        Cast: rules.cast, tirx.Sub: rules.difference, Bind: rules.bind,
    }  # fmt: skip
    return func.with_body(rewrite(func.body, table))


class _Rules:
    """lanes: variables of the vector loops around the expression. values: of names that depend on these. ranges: of names of integers."""

    def __init__(self) -> None:
        self.lanes: set[Var] = set()
        self.values: dict[Var, Expr] = {}
        self.ranges: dict[Var, tuple[int, int]] = {}

    def loop(self, node: For, descend: Descend) -> Any:
        if isinstance(node.extent, IntImm) and isinstance(node.min, IntImm):
            self.ranges[node.loop_var] = int(node.min), int(node.min) + max(1, int(node.extent)) - 1
        if node.kind == ForKind.VECTORIZED:
            self.lanes.add(node.loop_var)
        result = descend.children(node)
        self.lanes.discard(node.loop_var)
        return result

    def bind(self, node: Bind, descend: Descend) -> Bind:
        result = descend.children(node)
        if is_expr(result.value) and type_range(dtype_of(result.value)) is not None:
            self.ranges[node.var] = self._range(result.value)
            value = substitute(result.value, self.values)
            if any(uses(value, lane) for lane in self.lanes) and not holds_load(value):
                self.values[node.var] = value
        return result

    # ---------------------------------------------------------------- positions
    def quotient(self, node: Any, descend: Descend) -> Expr:
        node = descend.children(node)
        found = self._split(node)
        if found is None:
            return node
        high, _ = found
        return const(0, dtype_of(node)) if high is None else type(node)(high, node.b)

    def remainder(self, node: Any, descend: Descend) -> Expr:
        node = descend.children(node)
        found = self._split(node)
        if found is None:
            return node
        high, low = found
        return low if high is None or _divides(int(node.b), high) else type(node)(high, node.b) + low

    def _split(self, node: Any) -> tuple[Expr | None, Expr] | None:
        """(x, y) where the dividend is x + y, x (None for 0) a multiple of some g that divides the divisor, and 0 <= y < g: then y changes
        nothing of the quotient, and is added to the remainder."""
        if not isinstance(node.b, IntImm) or int(node.b) < 2:
            return None
        divisor, terms = int(node.b), _terms(substitute(node.a, self.values))
        unit = divisor
        while unit > 1:
            high = [t for t in terms if _divides(unit, t)]
            low = [t for t in terms if not any(t.same_as(h) for h in high)]
            bounds = [self._range(t) for t in low]
            if low and sum(least for least, _ in bounds) >= 0 and sum(most for _, most in bounds) < unit:
                floor = isinstance(node, tirx.FloorDiv | tirx.FloorMod) or all(self._range(t)[0] >= 0 for t in high)
                return (_sum(high) if high else None, _sum(low)) if floor else None
            unit = unit // 2 if unit % 2 == 0 else 1
        return None

    # ---------------------------------------------------------------- numbers
    def cast(self, node: Cast, descend: Descend) -> Expr:
        return self._small(descend.children(node), 0)

    def difference(self, node: Any, descend: Descend) -> Expr:
        """float(x) - c, before the cast alone is looked at."""
        taken = node.b
        if isinstance(node.a, Cast) and isinstance(taken, FloatImm) and float(taken.value).is_integer() and taken.value >= 0:
            cast = descend.children(node.a)
            result = self._small(cast, int(taken.value))
            return type(node)(self._small(cast, 0), taken) if result.same_as(cast) else result
        return descend.children(node)

    def _small(self, node: Cast, taken: int) -> Expr:
        """`node - taken` through the bits of the number, `node` itself where that is not possible."""
        dtype, value = dtype_of(node), node.value
        if dtype not in _WHOLE or type_range(dtype_of(value)) is None or dtype_of(value) == "bool" or isinstance(value, IntImm):
            return node
        one, mantissa = _WHOLE[dtype]
        low, high = self._range(value)
        offset = (1 << mantissa) + taken
        if low < 0 or high >= 1 << mantissa or offset >= 2 << mantissa:
            return node
        wide = value if dtype_of(value) == "uint16" else Cast("uint16", value)
        bits = tirx.BitwiseOr(wide, const(one, "uint16"))
        return tirx.Sub(tirx.reinterpret(dtype, bits), const(float(offset), dtype))

    def _range(self, value: Expr) -> tuple[int, int]:
        """Bounds of an integer expression, from its form and types alone."""
        whole = type_range(dtype_of(value))
        assert whole is not None
        if isinstance(value, Var):
            return self.ranges.get(value, whole)
        if isinstance(value, IntImm):
            return int(value), int(value)
        if isinstance(value, Cast) and type_range(dtype_of(value.value)) is not None:
            return _inside(self._range(value.value), whole)
        if isinstance(value, tirx.BitwiseAnd):
            least = [high for low, high in map(self._range, (value.a, value.b)) if low >= 0]
            return (0, min(least)) if least else whole
        if isinstance(value, tirx.RShift):
            (low, high), (by, most) = self._range(value.a), self._range(value.b)
            return (0, high >> by) if low >= 0 and 0 <= by <= most < 64 else whole
        if isinstance(value, tirx.FloorMod | tirx.FloorDiv) and isinstance(value.b, IntImm) and int(value.b) > 0:
            (low, high), divisor = self._range(value.a), int(value.b)
            if isinstance(value, tirx.FloorDiv):
                return low // divisor, high // divisor
            return (low % divisor, high % divisor) if low // divisor == high // divisor else (0, divisor - 1)
        if isinstance(value, tirx.Add | tirx.Mul):
            (a, b), (c, d) = self._range(value.a), self._range(value.b)
            ends = [a + c, b + d] if isinstance(value, tirx.Add) else [x * y for x in (a, b) for y in (c, d)]
            return _inside((min(ends), max(ends)), whole)
        return whole


def _terms(value: Expr) -> list[Expr]:
    return [*_terms(value.a), *_terms(value.b)] if isinstance(value, tirx.Add) else [value]


def _sum(terms: list[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _divides(count: int, value: Expr) -> bool:
    found = Analyzer().modular_set(value)
    return int(found.coeff) % count == 0 and int(found.base) % count == 0


def _inside(found: tuple[int, int], whole: tuple[int, int]) -> tuple[int, int]:
    """Bounds before a conversion or an operation that may wrap around."""
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole

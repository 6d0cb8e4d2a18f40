"""Arithmetic of a thread in forms that are quick on the hardware; no value changes.

In: a program of THREADS. Out: the same, in which

* quotients and remainders of `x + lane` in a vector loop over `lane` do without the lane, where x and the divisor are multiples of the
  number of lanes: then all lanes load one scale, and compute with it as a pack;
* a whole number of few bits becomes a 16-bit float through its bits: with m bits of mantissa, the bits of 2^m or'ed with x < 2^m are the
  number 2^m + x, and subtracting 2^m is exact. That is one logical operation and half of a packed subtraction, beside a conversion at half
  of their rate (CUDA C++ Programming Guide, throughput of native arithmetic instructions). A whole number that the program subtracts next
  is part of the same subtraction.
"""

from __future__ import annotations

from typing import Any

from ..ir.context import PassContext
from ..ir.rewrite import Descend, rewrite, substitute, uses
from ..ir.tvm_api import (
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
    linear_coefficients,
    tirx,
)  # fmt: skip
from .facts import holds_load, type_range

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
    """lanes: variables of the vector loops around the expression, with their number of lanes. values: of names that depend on these.
    ranges: of names of integers."""

    def __init__(self) -> None:
        self.lanes: dict[Var, int] = {}
        self.values: dict[Var, Expr] = {}
        self.ranges: dict[Var, tuple[int, int]] = {}

    def loop(self, node: For, descend: Descend) -> Any:
        vector = node.kind == ForKind.VECTORIZED and isinstance(node.extent, IntImm) and isinstance(node.min, IntImm) and int(node.min) == 0
        if vector:
            self.lanes[node.loop_var] = int(node.extent)
        result = descend.children(node)
        self.lanes.pop(node.loop_var, None)
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
        found = self._without_lane(node)
        return node if found is None else type(node)(found[0], node.b)

    def remainder(self, node: Any, descend: Descend) -> Expr:
        node = descend.children(node)
        found = self._without_lane(node)
        if found is None:
            return node
        rest, lane = found
        return lane if _divides(int(node.b), rest) else type(node)(rest, node.b) + lane

    def _without_lane(self, node: Any) -> tuple[Expr, Var] | None:
        """(x, lane) where the dividend is x + lane and stays between two multiples of the divisor in all lanes."""
        if not isinstance(node.b, IntImm) or int(node.b) < 1:
            return None
        dividend = substitute(node.a, self.values)
        for lane, count in self.lanes.items():
            if int(node.b) % count or not uses(dividend, lane):
                continue
            linear = linear_coefficients(dividend, [lane])
            if linear is None or linear[0] != [1] or uses(linear[1], lane) or not _divides(count, linear[1]):
                continue
            floor = isinstance(node, tirx.FloorDiv | tirx.FloorMod)
            if floor or self._range(linear[1])[0] >= 0:
                return linear[1], lane
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
        if isinstance(value, tirx.FloorMod) and isinstance(value.b, IntImm) and int(value.b) > 0:
            return 0, int(value.b) - 1
        if isinstance(value, tirx.Add | tirx.Mul):
            (a, b), (c, d) = self._range(value.a), self._range(value.b)
            ends = [a + c, b + d] if isinstance(value, tirx.Add) else [x * y for x in (a, b) for y in (c, d)]
            return _inside((min(ends), max(ends)), whole)
        return whole


def _divides(count: int, value: Expr) -> bool:
    found = Analyzer().modular_set(value)
    return int(found.coeff) % count == 0 and int(found.base) % count == 0


def _inside(found: tuple[int, int], whole: tuple[int, int]) -> tuple[int, int]:
    """Bounds before a conversion or an operation that may wrap around."""
    return found if whole[0] <= found[0] and found[1] <= whole[1] else whole

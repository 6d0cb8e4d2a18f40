"""The range of an integer expression from the ranges of its variables, and whether its 32-bit arithmetic may leave 32 bits.

In: ranges of variables. Out: for an expression the least and the greatest value it can have in unbounded integers. Intervals
only: what `i - i` is, is not seen. Wide enough is all that is asked: an expression that cannot leave 32 bits by its intervals
cannot leave them at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir.dialect import IF_THEN_ELSE, op_name
from ...ir.tvm_api import Call, Cast, Expr, IntImm, TensorLoad, Var, dtype_of, tirx
from .facts import COMPARISONS, is_pure_call, type_range

Interval = tuple[int, int]
ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)
_BITS = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)


@dataclass
class Judgement:
    """interval: of the mathematical value. wraps: may 32-bit signed arithmetic in it overflow? data: does it depend on
    memory, or on a call that is no function of its operands?"""

    interval: Interval
    wraps: bool
    data: bool


class IndexRanges:
    """Ranges of variables, filled in program order. A variable that is not there may have any value of its type."""

    def __init__(self) -> None:
        self.known: dict[Var, Interval] = {}
        self.data: set[Var] = set()  # names of values from memory
        self._wraps = self._data = False

    def judge(self, expr: Expr) -> Judgement:
        self._wraps = self._data = False
        interval = self._interval(expr)
        return Judgement(interval, self._wraps, self._data)

    def bind(self, var: Var, found: Judgement) -> None:
        """`var` has the judged value; if it overflowed or is data, all that is known is its type."""
        if found.data:
            self.data.add(var)
        if not found.wraps:
            self.known[var] = found.interval

    def count(self, var: Var, low: Any, extent: Any) -> None:
        """low <= var < low + extent."""
        first, many = (self.judge(e) if not isinstance(e, int) else Judgement((e, e), False, False) for e in (low, extent))
        self.known[var] = first.interval[0], first.interval[1] + max(many.interval[1], 1) - 1

    # ---------------------------------------------------------------- intervals
    def _interval(self, expr: Any) -> Interval:
        if isinstance(expr, IntImm):
            return int(expr), int(expr)
        if isinstance(expr, Var):
            self._data = self._data or expr in self.data
            return self.known.get(expr) or _of_type(expr)
        if isinstance(expr, ARITHMETIC):
            return self._arithmetic(expr)
        if isinstance(expr, (tirx.FloorDiv, tirx.Div)):
            return _quotient(self._interval(expr.a), self._interval(expr.b))
        if isinstance(expr, (tirx.FloorMod, tirx.Mod)):
            return _remainder(self._interval(expr.a), self._interval(expr.b))
        if isinstance(expr, tirx.Min | tirx.Max):
            (a, b), (c, d) = self._interval(expr.a), self._interval(expr.b)
            return (min(a, c), min(b, d)) if isinstance(expr, tirx.Min) else (max(a, c), max(b, d))
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, tirx.Select):
            self._interval(expr.condition)
            return _union(self._interval(expr.true_value), self._interval(expr.false_value))
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, _BITS):
            return self._bits(expr)
        if isinstance(expr, (*COMPARISONS, tirx.And, tirx.Or)):
            for operand in (expr.a, expr.b):
                self._interval(operand)  # for what it reads
            return 0, 1
        if isinstance(expr, tirx.Not):
            self._interval(expr.a)
            return 0, 1
        if isinstance(expr, tirx.Broadcast):
            return self._interval(expr.value)
        if isinstance(expr, tirx.Ramp):
            first, steps = self._interval(expr.base), [s * (int(expr.lanes) - 1) for s in self._interval(expr.stride)]
            return self._result((first[0] + min(0, *steps), first[1] + max(0, *steps)), dtype_of(expr).partition("x")[0])
        self._data = self._data or isinstance(expr, TensorLoad)
        return _of_type(expr)

    def _arithmetic(self, expr: Any) -> Interval:
        (a, b), (c, d) = self._interval(expr.a), self._interval(expr.b)
        if isinstance(expr, tirx.Add):
            found = a + c, b + d
        elif isinstance(expr, tirx.Sub):
            found = a - d, b - c
        else:
            corners = (a * c, a * d, b * c, b * d)
            found = min(corners), max(corners)
        return self._result(found, dtype_of(expr))

    def _result(self, found: Interval, dtype: str) -> Interval:
        limits = type_range(dtype.partition("x")[0])
        if limits is None or (limits[0] <= found[0] and found[1] <= limits[1]) or dtype == "int64":
            return found
        if dtype != "int32":
            return limits  # wraps by its nature
        self._wraps = True
        return found

    def _cast(self, expr: Any) -> Interval:
        limits = type_range(dtype_of(expr))
        if type_range(dtype_of(expr.value)) is None:  # a float
            self._data = True
            return _of_type(expr)
        found = self._interval(expr.value)
        return found if limits is None or (limits[0] <= found[0] and found[1] <= limits[1]) else limits

    def _call(self, expr: Call) -> Interval:
        if op_name(expr) == IF_THEN_ELSE:
            self._interval(expr.args[0])
            return _union(self._interval(expr.args[1]), self._interval(expr.args[2]))
        self._data = self._data or not is_pure_call(expr)
        return _of_type(expr)

    def _bits(self, expr: Any) -> Interval:
        (a, b), (c, d) = self._interval(expr.a), self._interval(expr.b)
        if isinstance(expr, tirx.BitwiseAnd) and (a >= 0 or c >= 0):
            return 0, min(high for low, high in ((a, b), (c, d)) if low >= 0)
        if isinstance(expr, tirx.LShift) and c >= 0 and d < 32:
            return self._result((min(a, a << d), max(b, b << d)), dtype_of(expr))
        if isinstance(expr, tirx.RShift) and c >= 0 and d < 64:
            return min(a >> c, a >> d), max(b >> c, b >> d)
        return _of_type(expr)


def _of_type(expr: Expr) -> Interval:
    return type_range(dtype_of(expr).partition("x")[0]) or (-(1 << 64), 1 << 64)


def _union(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])


def _quotient(a: Interval, b: Interval) -> Interval:
    """Floor or truncated; a divisor of zero gives zero."""
    if b[0] > 0:
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    size = max(abs(a[0]), abs(a[1]))
    return 0 if a[0] >= 0 and b[0] >= 0 else -size, size


def _remainder(a: Interval, b: Interval) -> Interval:
    if b[0] > 0 and a[0] >= 0:
        return a if a[1] < b[0] else (0, min(a[1], b[1] - 1))
    size = max(abs(b[0]), abs(b[1]))
    return 0 if b[0] >= 0 and a[0] >= 0 else -size, size

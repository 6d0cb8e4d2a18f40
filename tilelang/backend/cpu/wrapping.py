"""Integer arithmetic that wraps around, as NumPy's and the hardware's does.

TVM tells LLVM that sums, differences and products of 32 and 64 bits never overflow, so that an overflowing one may become
anything: hash functions and random number generators would break. In: operands of one integer type. Out: the same
operation on wider integers (32 bits), or on halves (64 bits), where nothing overflows; LLVM finds the plain instruction again.
Arithmetic that is proved to fit its type keeps LLVM's assumption, which vector code needs.
"""

from __future__ import annotations

from typing import Any

from ...ir.dialect import ATTR_THREAD_EXTENT
from ...ir.rewrite import walk
from ...ir.tvm_api import AttrStmt, Bind, Expr, For, PrimFunc, Stmt, Var, const, dtype_of, is_buffer, is_expr, tirx
from ...passes.analysis.facts import sizes_of, type_range
from ...passes.analysis.index_ranges import IndexRanges
from .expressions import cast, named

_HALF = 32


class Overflow:
    """Tells which arithmetic may leave its type; `note` has to see loops and names in the program's order."""

    def __init__(self, func: PrimFunc) -> None:
        self.ranges = IndexRanges()
        self.ranges.known.update(sizes_of(func))

    def note(self, node: Stmt) -> None:
        """Learn the range of the variable that a statement defines."""
        if isinstance(node, For):
            self.ranges.count(node.loop_var, node.min, node.extent)
        elif isinstance(node, Bind) and is_expr(node.value) and not is_buffer(node.var):
            self.ranges.bind(node.var, self.ranges.judge(node.value))
        elif isinstance(node, AttrStmt) and node.attr_key == ATTR_THREAD_EXTENT:
            self.ranges.count(node.node.var, 0, node.value)

    def may_wrap(self, node: Any) -> bool:
        """May this sum, difference or product leave its type? In 64 bits positions and extents cannot."""
        dtype = dtype_of(node).partition("x")[0]
        if dtype.startswith("uint"):
            return True
        if not dtype.startswith("int"):
            return False
        found = self.ranges.judge(node)
        limits = type_range(dtype)
        fits = limits is not None and limits[0] <= found.interval[0] and found.interval[1] <= limits[1]
        return found.wraps or (not fits and (dtype != "int64" or found.data or self._any_unknown(node)))

    def _any_unknown(self, node: Any) -> bool:
        names: list[Var] = []
        walk(node, {Var: names.append})
        return any(v not in self.ranges.known and not is_buffer(v) for v in names)


def wrapping(make: Any, a: Expr, b: Expr) -> Expr:
    """`make(a, b)` modulo 2^bits; make: tirx.Add, Sub or Mul. Types below 32 bits and vectors of 64 bits are left as they are."""
    dtype = dtype_of(a)
    base, _, lanes = dtype.partition("x")
    if base in ("int32", "uint32"):
        wide = ("int64" if base == "int32" or make is tirx.Sub else "uint64") + (f"x{lanes}" if lanes else "")
        return tirx.Cast(dtype, make(tirx.Cast(wide, a), tirx.Cast(wide, b)))
    if dtype not in ("int64", "uint64"):
        return make(a, b)
    if make is tirx.Mul:
        return cast(_named2(a, b, _multiply), dtype)
    carry = 0
    if make is tirx.Sub:
        b, carry = tirx.bitwise_not(b), 1
    return cast(_named2(a, b, lambda x, y: _add(x, y, carry)), dtype)


def _named2(a: Expr, b: Expr, use: Any) -> Expr:
    return named(cast(a, "uint64"), lambda x: named(cast(b, "uint64"), lambda y: use(x, y), "wide"), "wide")


def _low(x: Expr) -> Expr:
    return x & const((1 << _HALF) - 1, "uint64")


def _high(x: Expr) -> Expr:
    return x >> const(_HALF, "uint64")


def _join(high: Expr, low: Expr) -> Expr:
    return (high << const(_HALF, "uint64")) | low


def _add(x: Expr, y: Expr, carry: int) -> Expr:
    low = _low(x) + _low(y) + const(carry, "uint64")
    return named(low, lambda low: _join(_high(x) + _high(y) + _high(low), _low(low)), "low")


def _multiply(x: Expr, y: Expr) -> Expr:
    def combine(low: Expr) -> Expr:
        crossed = _low(_low(x) * _high(y)) + _low(_high(x) * _low(y)) + _high(low)
        return _join(crossed, _low(low))

    return named(_low(x) * _low(y), combine, "low")

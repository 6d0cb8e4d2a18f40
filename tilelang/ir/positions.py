"""Questions about index arithmetic, which is exact: the analyzer's unbounded integers are right for it.

In: indices and extents as a program writes them. Out: simpler ones, and yes (proved) or no. Two things are kept from the analyzer: a
divisor that may be 0, by which the language gives 0 while the analyzer's `k * n // n` is `k`; and what memory holds is a constant only
inside of one expression or of two of the same moment. Values that may wrap are for `passes/analysis/facts.py`.
"""

from __future__ import annotations

from typing import Any

from .rewrite import walk
from .tvm_api import Analyzer, Expr, IntImm, const, dtype_of, ffi, is_expr, tirx

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def simplified(value: Any, analyzer: Any = None) -> Any:
    """An index in simpler form. analyzer: one that knows the ranges of variables."""
    return (analyzer or Analyzer()).simplify(value) if is_expr(value) and _divides(value) else value


def same(a: Any, b: Any) -> bool:
    """Are two indices of the same moment always equal?"""
    if not (is_expr(a) and is_expr(b)):
        return (not (is_expr(a) or is_expr(b)) and a == b) or surely(_equal(a, b))
    return bool(ffi.structural_equal(a, b)) or (dtype_of(a) == dtype_of(b) and surely(_equal(a, b)))


def surely(condition: Expr, analyzer: Any = None) -> bool:
    """Is a comparison of indices proved? analyzer: as in `simplified`."""
    return _divides(condition) and bool((analyzer or Analyzer()).can_prove(condition))


def multiple_of(value: Any, count: int) -> bool:
    """Is an index or extent always a multiple of `count`?"""
    if isinstance(value, int | IntImm):
        return int(value) % count == 0
    return surely(tirx.EQ(tirx.FloorMod(value, const(count, dtype_of(value))), const(0, dtype_of(value))))


def _equal(a: Any, b: Any) -> Expr:
    """That the difference is 0: the analyzer orders the factors of sums, not those of the two sides of a comparison."""
    dtype = dtype_of(a if is_expr(a) else b)
    first, second = (side if is_expr(side) else const(side, dtype) for side in (a, b))
    return tirx.EQ(first - second, const(0, dtype))


def _divides(expr: Expr) -> bool:
    """Is every divisor in it a constant other than 0?"""
    found: list[Any] = []
    walk(expr, {_DIVISIONS: lambda node: found.append(node.b)})
    return all(isinstance(divisor, IntImm) and int(divisor) for divisor in found)

"""The offset of an access in parts that change at different rates, so that the compiler computes each as rarely as it can.

In: an offset in elements. Out: the parts, slowest first: what a loop leaves alone, what its loops change, and last what is a constant once
the unrolled loops are. As steps of a pointer they become a register, an addition in a loop, and the immediate operand of an instruction;
as one 32-bit sum they do not, because a compiler that must keep the wrapping of the sum cannot take it apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.rewrite import walk
from ...ir.tvm_api import Call, Cast, Expr, IntImm, TensorLoad, Var, const, dtype_of, tirx
from ...passes.analysis.facts import Facts

FIXED, LOOP, MIXED, UNROLLED = range(4)


def rate(value: Any, rates: Mapping[Var, int]) -> int:
    """How often a value changes. FIXED: while no name in it is bound anew; LOOP: in loops; UNROLLED: constant in each copy of an
    unrolled loop's body; MIXED: in those, but not constant."""
    found: set[int] = set()
    walk(value, {Var: lambda v: found.add(rates.get(v, FIXED)), (TensorLoad, Call): lambda node: found.add(LOOP)})
    if found <= {UNROLLED}:
        return UNROLLED
    return MIXED if found & {MIXED, UNROLLED} else max(found)


def parts(offset: Expr, rates: Mapping[Var, int], facts: Facts, small: bool) -> list[Expr]:
    """The parts of an offset that are not zero, slowest first, with the UNROLLED one always last; their sum is the offset. One part where
    there is nothing to separate, or where a part alone may leave 32 bits. small: no part can, the memory is small."""
    groups: dict[int, Expr] = {}
    constant = 0
    for factor, term in _terms(offset, 1):
        if term is None:
            constant += factor
            continue
        kind = rate(term, rates)
        scaled = term if factor == 1 else tirx.Mul(term, const(factor, dtype_of(term)))
        groups[kind] = tirx.Add(groups[kind], scaled) if kind in groups else scaled
    if constant:
        number = const(constant, dtype_of(offset))
        groups[UNROLLED] = tirx.Add(groups[UNROLLED], number) if UNROLLED in groups else number
    if len(groups) < 2 or not (small or all(_fits(part, facts) for part in groups.values())):
        return [offset]
    groups.setdefault(UNROLLED, const(0, dtype_of(offset)))
    return [groups[kind] for kind in sorted(groups)]


def _terms(value: Any, factor: int) -> list[tuple[int, Any]]:
    """A sum of products with constants: (constant, term) pairs; the term of a constant alone is None."""
    if isinstance(value, IntImm):
        return [(int(value) * factor, None)]
    if isinstance(value, tirx.Add):
        return _terms(value.a, factor) + _terms(value.b, factor)
    if isinstance(value, tirx.Sub):
        return _terms(value.a, factor) + _terms(value.b, -factor)
    if isinstance(value, tirx.Mul):
        for one, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(other, IntImm):
                return _terms(one, factor * int(other))
    return [(factor, value)]


def _fits(part: Expr, facts: Facts) -> bool:
    """Is the part, computed in its own type, exact? 64 bits are enough for any offset."""
    if dtype_of(part) == "int64" or isinstance(part, Cast):
        return True
    return facts.fits(part)

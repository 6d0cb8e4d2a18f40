"""Symbols that occur only inside extents such as `m + 2 * n` get their value from those extents.

In: a program whose parameters may have such shapes. Out: the same in which every symbol is either a whole extent of a
parameter, which TVM's calling code binds, or computed and checked at the entry. Extents with a division by a symbol are checked
there too: TVM's calling code would divide by zero. All of it is computed in 64 bits: 2 * n may be more than 32 bits hold.
"""

from __future__ import annotations

from typing import Any

from ...errors import TileValueError
from ...ir.context import PassContext
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    AssertStmt,
    Bind,
    Expr,
    IntImm,
    PrimFunc,
    Stmt,
    StringImm,
    Var,
    const,
    decl_buffer,
    dtype_of,
    is_buffer,
    linear_coefficients,
    seq,
    tirx,
)  # fmt: skip
from ..analysis.facts import type_range
from .widen_indices import widened


def solve_symbols(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass. Raises TileValueError for a symbol that no extent determines."""
    bound = {dim for param in func.params for dim in _dims(param) if isinstance(dim, Var)} | set(func.params)
    table: dict[Var, Expr] = {}
    equations: list[tuple[Expr, Var]] = []  # an extent, the variable that holds its actual value

    def actual(dim: Any, name: str) -> Any:
        if isinstance(dim, IntImm | Var):
            return dim
        if _plain(dim, bound):
            return widened(dim)
        equations.append((dim, Var(name, "int64")))
        return equations[-1][1]

    for param in func.params:
        shape, strides = (_of_one_type([actual(d, f"{param.name}_{what}{k}") for k, d in enumerate(dims)]) for dims, what in _faces(param))
        if not all(a.same_as(b) for a, b in zip([*shape, *strides], _dims(param), strict=True)):
            table[param] = decl_buffer(shape, dtype_of(param), param.name, param.scope(), strides=strides or None)
    if not table:
        return func
    solutions = _solutions(equations, bound)
    agree = [_expect(tirx.EQ(widened(dim), value), f"an extent is not {dim}") for dim, value in equations]
    body = seq([*solutions, *agree, substitute(func.body, table)])
    return PrimFunc([table.get(p, p) for p in func.params], body, func.ret_type, func.attrs, func.span)


def _solutions(equations: list[tuple[Expr, Var]], bound: set[Var]) -> list[Stmt]:
    """One definition for each symbol, from an extent in which it is the only unknown one."""
    binds: list[Stmt] = []
    waiting = list(equations)
    while waiting:
        ready = next((e for e in waiting if len(_symbols(e[0]) - bound) < 2), None)
        if ready is None:
            unknown = sorted({s.name for dim, _ in waiting for s in _symbols(dim) - bound})
            raise TileValueError(
                f"no extent of a parameter determines {', '.join(unknown)}: {', '.join(str(dim) for dim, _ in waiting)}",
                remedy="make all but one of the symbols an extent of its own",
            )
        waiting.remove(ready)
        dim, value = ready
        for symbol in _symbols(dim) - bound:
            parts = linear_coefficients(dim, [symbol])
            if parts is None or parts[0] == [0]:
                raise TileValueError(
                    f"the extent {dim} of a parameter does not determine {symbol.name}", remedy="use a linear form such as 2 * n + m"
                )
            (factor,), rest = parts
            solved, exact = tirx.FloorDiv(value - widened(rest), const(factor, "int64")), Var(str(symbol.name), "int64")
            most = type_range(dtype_of(symbol)) or (0, 0)
            fits = tirx.And(exact >= const(0, "int64"), exact <= const(most[1], "int64"))
            binds += [Bind(exact, solved), _expect(fits, f"{symbol.name} would be negative, or more than its type holds")]
            binds.append(Bind(symbol, exact if dtype_of(symbol) == "int64" else tirx.Cast(dtype_of(symbol), exact)))
            bound.add(symbol)
    return binds


def _of_one_type(dims: list[Any]) -> list[Any]:
    """TVM's calling code computes with extents in the type of the first one."""
    wide = any(dtype_of(dim) == "int64" for dim in dims)
    return [const(int(dim), "int64") if wide and isinstance(dim, IntImm) and dtype_of(dim) != "int64" else dim for dim in dims]


def _expect(condition: Expr, message: str) -> Stmt:
    return AssertStmt(condition, StringImm("ValueError"), [StringImm(message)])


def _faces(param: Var) -> tuple[tuple[list[Any], str], tuple[list[Any], str]]:
    if not is_buffer(param):
        return ([], ""), ([], "")
    return (list(param.ty.shape), "extent"), (list(param.ty.strides), "stride")


def _dims(param: Var) -> list[Any]:
    (shape, _), (strides, _) = _faces(param)
    return [*shape, *strides]


def _plain(dim: Any, bound: set[Var]) -> bool:
    """Can TVM's calling code compute it? All symbols are bound, and no divisor may be zero."""
    divisors: list[Any] = []
    if not isinstance(dim, int | IntImm):
        walk(dim, {(tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod): lambda node: divisors.append(node.b)})
    return not _symbols(dim) - bound and all(isinstance(d, IntImm) and int(d) != 0 for d in divisors)


def _symbols(dim: Any) -> set[Var]:
    found: set[Var] = set()
    if not isinstance(dim, int | IntImm):
        walk(dim, {Var: found.add})
    return found

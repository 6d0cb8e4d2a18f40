"""Transposition in registers: a square of vectors is turned by log2(lanes) rounds of two-source shuffles.

In: functions that load a vector of a row and store a vector of a column. Out: straight-line statements.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.tvm_api import Bind, Expr, Stmt, Var, tirx


def transpose_square(lanes: int, dtype: str, load_row: Callable[[int], Expr], store_column: Callable[[int, Expr], Stmt]) -> list[Stmt]:
    """`lanes` vectors in, `lanes` vectors out: the vector given to store_column(c) holds element c of every row.

    lanes must be a power of two. A round with distance s exchanges the off-diagonal s-by-s squares of each pair of rows
    (r, r + s): the recursive transposition of a block matrix, all levels of one size at once.
    """
    kind = f"{dtype}x{lanes}"
    stmts: list[Stmt] = []

    def named(value: Expr, name: str) -> Var:
        var = Var(name, kind)
        stmts.append(Bind(var, value))
        return var

    rows = [named(load_row(r), f"row{r}") for r in range(lanes)]
    distance = 1
    while distance < lanes:
        upper = [lanes + c - distance if c & distance else c for c in range(lanes)]
        lower = [lanes + c if c & distance else c + distance for c in range(lanes)]
        turned = list(rows)
        for r in range(lanes):
            if not r & distance:
                a, b = rows[r], rows[r + distance]
                turned[r] = named(tirx.Shuffle([a, b], upper), f"t{distance}_{r}")
                turned[r + distance] = named(tirx.Shuffle([a, b], lower), f"t{distance}_{r + distance}")
        rows = turned
        distance *= 2
    return stmts + [store_column(c, rows[c]) for c in range(lanes)]

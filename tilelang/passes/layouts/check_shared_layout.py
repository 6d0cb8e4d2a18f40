"""A second opinion on a shared layout, by looking at every element.

In: a layout, and the expressions that the program will use for it. Out: nothing, or an InternalError with the first element that is
wrong. The expressions are evaluated with NumPy over the whole tile, so this checks what is emitted, not what was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InternalError
from ...ir.evaluate import evaluate
from ...ir.tvm_api import Expr, Var
from ...layout.shared import SharedLayout
from ...layout.swizzle import CHUNK_BITS

_LARGEST = 1 << 22  # elements that are looked at


def check_shared_layout(name: str, layout: SharedLayout, offset: Callable[[SharedLayout, list[Var]], Expr]) -> None:
    """Every element has a place of its own inside the allocation, and 16-byte chunks of a row that `keeps` promises are whole."""
    variables = [Var(f"i{k}", "int32") for k in range(len(layout.shape))]
    formula = offset(layout, variables)
    shape = (min(layout.shape[0], max(1, _LARGEST * layout.shape[0] // max(1, layout.elements))), *layout.shape[1:])
    index = np.indices(shape, dtype=np.int64)
    found: Any = np.broadcast_to(np.asarray(evaluate(formula, dict(zip(variables, index, strict=True))), np.int64), shape)

    def fail(what: str, wrong: np.ndarray) -> None:
        where = tuple(int(x) for x in np.argwhere(wrong)[0])
        raise InternalError(f"{name} ({layout.name}, shape {layout.shape}): element {where} lies at {int(found[where])}, {what}")

    outside = (found < 0) | (found >= layout.elements)
    if outside.any():
        fail(f"outside of its {layout.elements} elements", outside)
    uses = np.bincount(found.reshape(-1), minlength=layout.elements)
    if uses.max() > 1:
        fail("where another one lies", uses[found] > 1)
    count = CHUNK_BITS // layout.bits if layout.bits <= CHUNK_BITS else 1
    while count > 1 and layout.keeps(count):
        runs = found.reshape(-1, count)
        torn = (runs != runs[:, :1] + np.arange(count)) | (runs[:, :1] % count != 0)
        if torn.any():
            fail(f"which tears {count} neighbours apart", torn.reshape(shape))
        count //= 2

"""The value of an integer expression at many points at once, exactly, with NumPy.

In: an expression of integer operations, and integers or int64 arrays for its variables. Out: an integer or an array.
Layouts are checked and compared by evaluating them over whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..layout import LayoutError
from .dialect import IF_THEN_ELSE, op_name
from .tvm_api import Cast, Expr, IntImm, Var, dtype_of, tirx

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Div: lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),
    tirx.Mod: np.fmod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}


def evaluate(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """The value of `expr` where its variables have these values. Raises LayoutError for a variable without a value and for
    anything that is no integer operation (a load, a float, a call)."""
    if isinstance(expr, IntImm):
        return int(expr)
    if isinstance(expr, Var):
        if expr not in values:
            raise LayoutError(f"a layout may use its own coordinates only, not {expr.name}")
        return values[expr]
    if type(expr) in _BINARY:
        return _BINARY[type(expr)](evaluate(expr.a, values), evaluate(expr.b, values))
    if isinstance(expr, Cast) and dtype_of(expr).startswith(("int", "uint")):
        return evaluate(expr.value, values)
    if isinstance(expr, tirx.Not | tirx.BitwiseNot):
        return (np.logical_not if isinstance(expr, tirx.Not) else np.invert)(evaluate(expr.a, values))
    if isinstance(expr, tirx.Select):
        return np.where(*(evaluate(e, values) for e in (expr.condition, expr.true_value, expr.false_value)))
    if op_name(expr) == IF_THEN_ELSE:
        return np.where(*(evaluate(e, values) for e in expr.args))
    raise LayoutError(f"a layout is made of integer operations; {expr} is none")

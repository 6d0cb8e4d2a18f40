"""Integer expressions evaluated over whole arrays of variable values with NumPy: the enumeration behind proofs about indices.

In: an expression over integer variables, an array for each variable (any shapes that broadcast). Out: the array of its
values, exactly as the machine computes them for values that fit their types. An expression that reads memory, calls
something unknown or names another variable raises `UnknownValueError`: the caller then assumes the worst.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ir.dialect import IF_THEN_ELSE, LIKELY, op_name
from ..ir.tvm_api import Call, Cast, IntImm, Var, dtype_of, tirx

Array = Any  # a NumPy array of integers or bools


class UnknownValueError(Exception):
    """The expression depends on something that is not enumerated."""


def _truncated(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_BINARY: dict[Any, Callable[[Array, Array], Array]] = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply, tirx.Min: np.minimum, tirx.Max: np.maximum,
    tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod, tirx.Div: _truncated, tirx.Mod: np.fmod,
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal, tirx.EQ: np.equal, tirx.NE: np.not_equal,
    tirx.And: np.logical_and, tirx.Or: np.logical_or,
}  # fmt: skip
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "bitwise_xor": np.bitwise_xor, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
}  # fmt: skip
_BITWISE_NODES = {
    node: _BITWISE[name]
    for name, kind in (("bitwise_xor", "BitwiseXor"), ("bitwise_and", "BitwiseAnd"), ("bitwise_or", "BitwiseOr"),
                       ("shift_left", "LShift"), ("shift_right", "RShift"))
    if (node := getattr(tirx, kind, None)) is not None
}  # fmt: skip


def values(expr: Any, env: Mapping[Var, Array]) -> Array:
    """The values of `expr` for the variables' values in `env`. Raises UnknownValueError."""
    if isinstance(expr, int | IntImm):
        return np.asarray(int(expr), dtype=np.int64)
    if isinstance(expr, Var):
        if expr not in env:
            raise UnknownValueError(expr.name)
        return env[expr]
    binary = _BINARY.get(type(expr)) or _BITWISE_NODES.get(type(expr))
    if binary is not None:
        return _binary(expr, binary, env)
    if isinstance(expr, tirx.Not):
        return np.logical_not(values(expr.a, env))
    if isinstance(expr, Cast):
        return _cast(expr, env)
    if isinstance(expr, tirx.Select):
        return np.where(values(expr.condition, env), values(expr.true_value, env), values(expr.false_value, env))
    if isinstance(expr, Call):
        return _call(expr, env)
    raise UnknownValueError(type(expr).__name__)


def _binary(expr: Any, function: Callable[[Array, Array], Array], env: Mapping[Var, Array]) -> Array:
    a, b = values(expr.a, env), values(expr.b, env)
    if isinstance(expr, _DIVISIONS) and not np.all(b):
        raise UnknownValueError("division by zero")
    return function(a, b)


def _cast(expr: Cast, env: Mapping[Var, Array]) -> Array:
    """Between integer types only, of values that the type holds."""
    found, dtype = values(expr.value, env), dtype_of(expr)
    if dtype == "bool":
        return found != 0
    if not dtype.startswith(("int", "uint")) or not dtype.lstrip("uint").isdigit():
        raise UnknownValueError(f"cast to {dtype}")
    bits, signed = int(dtype.lstrip("uint")), dtype.startswith("int")
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if found.size and (int(found.min()) < low or int(found.max()) > high):
        raise UnknownValueError(f"value outside {dtype}")
    return found.astype(np.int64)


def _call(expr: Call, env: Mapping[Var, Array]) -> Array:
    name = op_name(expr)
    if name == LIKELY:
        return values(expr.args[0], env)
    if name == IF_THEN_ELSE:
        return np.where(values(expr.args[0], env), values(expr.args[1], env), values(expr.args[2], env))
    function = _BITWISE.get(name.rpartition(".")[2])
    if function is None or len(expr.args) != 2:
        raise UnknownValueError(name or "call")
    return function(values(expr.args[0], env), values(expr.args[1], env))

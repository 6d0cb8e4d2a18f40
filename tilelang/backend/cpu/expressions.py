"""Small constructors for the expressions this backend writes: bit patterns, named subexpressions, typed constants."""

from __future__ import annotations

from typing import Any

from ...ir.dialect import op_name
from ...ir.tvm_api import Expr, FloatImm, Var, const, tirx


def reinterpret(value: Expr, dtype: str) -> Expr:
    """The same bits as another type of the same size; there and back again is the value itself."""
    if str(value.ty.dtype) == dtype:
        return value
    if op_name(value) == "tirx.reinterpret" and str(value.args[0].ty.dtype) == dtype:
        return value.args[0]
    return tirx.call_intrin(dtype, "tirx.reinterpret", value)


def bits_of(value: Expr) -> Expr:
    """float32 -> uint32."""
    return reinterpret(value, "uint32")


def float_of(bits: Expr) -> Expr:
    """uint32 -> float32."""
    return reinterpret(bits, "float32")


def let(name: Var, value: Expr, body: Expr) -> Expr:
    """`body` with `name` standing for `value`, computed once."""
    return tirx.Let(name, value, body)


def named(value: Expr, use: Any, name: str = "t") -> Expr:
    """`use(x)` where x is `value` computed once; constants and variables are used directly."""
    if isinstance(value, (Var, FloatImm)):
        return use(value)
    var = Var(name, str(value.ty.dtype))
    return tirx.Let(var, value, use(var))


def f32(value: float) -> Expr:
    return const(value, "float32")


def cast(value: Expr, dtype: str) -> Expr:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)

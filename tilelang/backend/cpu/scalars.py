"""Scalar arithmetic becomes what LLVM computes exactly as the language says.

In: a LOOPS program. Out: the same without operations that are undefined, missing or wrong below: integer division by
zero gives 0, shifts of a whole word or more give 0 (or the sign), float-to-integer casts truncate and saturate (NaN is 0),
bfloat16 and floats of 8 bits and less are computed in float32; functions become arithmetic. Every type rounds after each
operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import TileNotSupportedError
from ...ir.context import PassContext
from ...ir.dialect import attr, op_name
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    AttrStmt,
    Bind,
    Call,
    Cast,
    Expr,
    FloatImm,
    For,
    IntImm,
    PrimFunc,
    Stmt,
    const,
    dtype_of,
    is_expr,
    tirx,
)  # fmt: skip
from ...passes.analysis.facts import type_range
from . import math
from .bfloat import is_bfloat, narrow_bfloat, widen
from .expressions import bits_of, cast, f32, float_of, named, reinterpret
from .names import hoist_names
from .small_floats import decode, encode, is_small_float
from .storage import widen_storage
from .wrapping import Overflow, wrapping

HALF = ("float16", "bfloat16")
FLOAT_OPS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
WRAPPING = (tirx.Add, tirx.Sub, tirx.Mul)
COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
INT_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


def legalize_scalars(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """The pass (slot "last")."""
    overflow = Overflow(func)

    def operation(node: Any, descend: Descend) -> Expr:
        if isinstance(node, WRAPPING) and overflow.may_wrap(node):
            return wrapping(type(node), descend(node.a), descend(node.b))
        return _float_operation(node, descend)

    def bind(node: Bind, descend: Descend) -> Stmt:
        overflow.note(node)
        return _bind(node, descend)

    def scope(node: Stmt, descend: Descend) -> Stmt:
        overflow.note(node)
        return descend.children(node)

    rules: dict[Any, Callable[[Any, Descend], Any]] = {
        (For, AttrStmt): scope,
        FloatImm: _float_constant,
        Cast: _cast_rule,
        INT_DIVISIONS: _division,
        FLOAT_OPS: operation,
        COMPARISONS: _comparison,
        (tirx.LShift, tirx.RShift): _shift,
        tirx.Select: _select,
        Call: _call,
        Bind: bind,
    }
    func = widen_storage(func)
    return func.with_body(hoist_names(rewrite(func.body, rules)))


def _lanes(dtype: str) -> int:
    base, _, lanes = dtype.rpartition("x")
    return int(lanes) if base and lanes.isdigit() else 1


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _bits(value: Expr) -> Expr:
    """The bit pattern of a small float or bfloat16, as an unsigned integer."""
    return reinterpret(value, "uint16" if is_bfloat(dtype_of(value)) else "uint8")


def is_packed(dtype: str) -> bool:
    """Types whose arithmetic is done in float32 here."""
    return is_small_float(dtype) or is_bfloat(dtype)


# ---------------------------------------------------------------- casts
def convert(value: Expr, dtype: str) -> Expr:
    """`value` as `dtype`, as the language defines casts; scalars and vectors."""
    source = dtype_of(value)
    if source == dtype:
        return value
    if is_bfloat(source):
        return convert(widen(value, _lanes(source)), dtype)
    if is_small_float(source):
        return convert(decode(_bits(value), source), dtype)
    if is_bfloat(dtype):
        lanes = _lanes(dtype)
        return narrow_bfloat(narrow(value) if lanes == 1 else cast(value, f"float32x{lanes}"), lanes)
    if _lanes(dtype) > 1:
        if any(is_small_float(d.rpartition("x")[0]) for d in (source, dtype)):
            raise TileNotSupportedError(f"cast of the vector type {source} to {dtype} on the CPU", remedy="cast element by element")
        return tirx.Cast(dtype, value)
    if is_small_float(dtype):
        return reinterpret(encode(narrow(value), dtype), dtype)
    if source == "float64" and dtype in HALF:
        return tirx.Cast(dtype, narrow(value))
    if is_float(source) and dtype.startswith(("int", "uint")):
        return _float_to_int(value, dtype)
    return tirx.Cast(dtype, value)


def narrow(value: Expr) -> Expr:
    """float32 from any scalar; float64 is rounded to odd, so that a later rounding to fewer bits is the only one."""
    if dtype_of(value) != "float64":
        return cast(value, "float32")

    def odd(x: Expr) -> Expr:
        def fix(y: Expr) -> Expr:
            bits = bits_of(y)
            wide = tirx.Cast("float64", y)
            even = (bits & const(1, "uint32")) == const(0, "uint32")
            inexact = tirx.And(even, tirx.And(wide != x, tirx.Not(tirx.isnan(x))))
            outward = tirx.abs(wide) > tirx.abs(x)
            moved = tirx.Select(outward, bits - const(1, "uint32"), bits + const(1, "uint32"))
            return float_of(tirx.Select(inexact, moved, bits))

        return named(tirx.Cast("float32", x), fix, "y")

    return named(value, odd, "x")


def _float_to_int(value: Expr, dtype: str) -> Expr:
    """Truncation; types narrower than 32 bits take the low bits of an int32 (as C does), wider ones saturate."""
    value = value if dtype_of(value) in ("float32", "float64") else tirx.Cast("float32", value)
    bits = int(dtype.lstrip("uint"))
    whole = dtype if bits >= 32 else "int32"
    unsigned = whole.startswith("u")
    bits = max(bits, 32)
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    source = dtype_of(value)

    def saturate(x: Expr) -> Expr:
        bottom, top = const(float(low), source), const(float(high + 1), source)
        inside = tirx.And(x >= bottom, x < top)
        zero = const(0.0, source)
        edge = tirx.Select(x >= top, const(high, whole), tirx.Select(x < bottom, const(low, whole), const(0, whole)))
        return tirx.Select(inside, tirx.Cast(whole, tirx.Select(inside, x, zero)), edge)

    return cast(named(value, saturate, "x"), dtype)


def _cast_rule(node: Any, descend: Descend) -> Expr:
    return convert(descend(node.value), dtype_of(node))


def _float_constant(node: Any, descend: Descend) -> Expr:
    dtype = dtype_of(node)
    return convert(f32(float(node.value)), dtype) if is_packed(dtype) else node


def _bind(node: Any, descend: Descend) -> Any:
    """A name. TVM's analyser takes the bounds of a converted integer for those of the number before, and fails where they are
    outside of the type; the call of a function has no bounds."""
    value = descend(node.value)
    value = _without_bounds(value) if is_expr(value) and dtype_of(value).startswith(("int", "uint")) else value
    return node if value.same_as(node.value) else Bind(node.var, value, node.span)


def _without_bounds(value: Expr) -> Expr:
    """The same integer, of which TVM's analyser knows its type alone if it would know more than is true."""
    casts: list[Any] = []
    walk(value, {Cast: lambda cast: casts.append(cast) if _loses_values(cast) else None})
    if not casts:
        return value
    dtype = dtype_of(value)
    return reinterpret(tirx.Cast(dtype[1:] if dtype.startswith("u") else f"u{dtype}", value), dtype)  # the same bits twice


def _loses_values(node: Any) -> bool:
    """Is this a conversion between integers whose target does not have all values of its source?"""
    low, high = (type_range(dtype_of(e).partition("x")[0]) for e in (node.value, node))
    return low is not None and high is not None and not (high[0] <= low[0] and low[1] <= high[1])


# ---------------------------------------------------------------- operators
def _wide(value: Expr) -> Expr:
    """float32 of the same number of lanes."""
    lanes = _lanes(dtype_of(value))
    return convert(value, "float32" if lanes == 1 else f"float32x{lanes}")


def _float_operation(node: Any, descend: Descend) -> Expr:
    dtype = dtype_of(node)
    if isinstance(node, tirx.Div) and not is_float(dtype):
        return _division(node, descend)
    if not is_packed(dtype):
        return descend.children(node)
    return convert(type(node)(_wide(descend(node.a)), _wide(descend(node.b))), dtype)


def _comparison(node: Any, descend: Descend) -> Expr:
    a, b, make = descend(node.a), descend(node.b), type(node)
    floating = is_float(dtype_of(node.a))
    if is_packed(dtype_of(node.a)):
        a, b = _wide(a), _wide(b)
    if make is tirx.NE and floating:  # TVM asks LLVM for "ordered and not equal": false for NaN
        return tirx.Not(tirx.EQ(a, b))
    return make(a, b)


def _select(node: Any, descend: Descend) -> Expr:
    dtype = dtype_of(node)
    if not is_packed(dtype) or _lanes(dtype) > 1:
        return descend.children(node)
    a, b = _bits(descend(node.true_value)), _bits(descend(node.false_value))
    return reinterpret(tirx.Select(descend(node.condition), a, b), dtype)


def _division(node: Any, descend: Descend) -> Expr:
    """Integer division that cannot trap: x // 0 is 0, x % 0 is 0, the most negative number // -1 wraps."""
    dtype = dtype_of(node)
    if is_float(dtype):
        return _float_operation(node, descend)
    a, b, make = descend(node.a), descend(node.b), type(node)
    if _lanes(dtype) == 1:
        a, b = _without_bounds(a), _without_bounds(b)
    if isinstance(b, IntImm):
        if int(b) == 0:
            return const(0, dtype)
        return make(a, b)
    if _lanes(dtype) > 1:
        return make(a, b)
    quotient = make in (tirx.FloorDiv, tirx.Div)
    zero, one = const(0, dtype), const(1, dtype)

    def safe(x: Expr) -> Callable[[Expr], Expr]:
        def build(y: Expr) -> Expr:
            if dtype.startswith("uint"):
                divisor = tirx.Select(y == zero, one, y)
                return tirx.Select(y == zero, zero, make(x, divisor))
            minus = const(-1, dtype)
            trap = tirx.Or(y == zero, y == minus)
            special = tirx.Select(y == zero, zero, wrapping(tirx.Sub, zero, x) if quotient else zero)
            return tirx.Select(trap, special, make(x, tirx.Select(trap, one, y)))

        return build

    return named(a, lambda x: named(b, safe(x), "divisor"), "dividend")


def _shift(node: Any, descend: Descend) -> Expr:
    """Shifts by the width or more (or by a negative amount) move every bit out."""
    dtype, make = dtype_of(node), type(node)
    a, b = descend(node.a), descend(node.b)
    bits = int(dtype.lstrip("uint")) if _lanes(dtype) == 1 else 0
    if not bits or (isinstance(b, IntImm) and 0 <= int(b) < bits):
        return make(a, b)
    keeps_sign = make is tirx.RShift and dtype.startswith("int")

    def guarded(y: Expr) -> Expr:
        inside = tirx.And(y >= const(0, dtype), y < const(bits, dtype))
        if keeps_sign:
            return make(a, tirx.Select(inside, y, const(bits - 1, dtype)))
        return tirx.Select(inside, make(a, tirx.Select(inside, y, const(0, dtype))), const(0, dtype))

    return named(b, guarded, "amount")


# ---------------------------------------------------------------- functions
# Functions that LLVM has as instructions: name of TVM's operator -> TVM's constructor.
_SAME_NAME = ("floor", "ceil", "trunc", "round", "nearbyint", "sqrt", "isnan", "isinf", "isfinite", "copysign")
ARITHMETIC = {"fabs": "abs", "abs": "abs", **{name: name for name in _SAME_NAME}}


def _call(node: Any, descend: Descend) -> Expr:
    """Calls of functions; everything else (pointers, memory operators) only has its operands rewritten."""
    name = op_name(node)
    family, _, function = name.rpartition(".")
    if family not in ("tirx", "prim") and name != "tl.math":
        return descend.children(node)
    if function == "likely":  # a hint that LLVM's code generator does not know
        return descend(node.args[0])
    if function == "if_then_else" and is_packed(dtype_of(node)):
        a, b = (_bits(descend(v)) for v in node.args[1:])
        return reinterpret(tirx.if_then_else(descend(node.args[0]), a, b), dtype_of(node))
    if function == "clz":  # LLVM's instruction, as TVM asks for it, gives anything for 0
        return named(descend(node.args[0]), lambda x: _leading_zeros(x, node), "x")
    if function == "reinterpret" and not hasattr(node.ty, "dtype"):  # an integer as an address
        return descend.children(node)
    if function == "reinterpret":
        return reinterpret(descend(node.args[0]), dtype_of(node))
    if name == "tl.math":
        function = str(attr(node, "name"))
    elif function not in math.POLYNOMIAL and function not in math.LIBRARY and function not in ARITHMETIC:
        return descend.children(node)
    return elementwise(function, [descend(a) for a in node.args], dtype_of(node))


def _leading_zeros(value: Expr, node: Any) -> Expr:
    dtype = dtype_of(value)
    count = Call(node.op, [value], attrs=node.attrs, ret_ty=node.ty, span=node.span)
    return tirx.Select(value == const(0, dtype), const(int(dtype.lstrip("uint")), dtype_of(node)), count)


def elementwise(function: str, args: list[Expr], dtype: str) -> Expr:
    """A function of the language on scalars. Half types and smaller compute in float32 and round once."""
    if any(is_small_float(dtype_of(a)) or dtype_of(a) in HALF for a in args):
        args = [convert(a, "float32") if is_float(dtype_of(a)) else a for a in args]
        return convert(elementwise(function, args, "float32" if is_float(dtype) else dtype), dtype)
    if dtype == "float32" and function in math.POLYNOMIAL:
        return math.POLYNOMIAL[function](args[0])
    if function in EXTRA:
        return EXTRA[function](args, dtype)
    if function in math.LIBRARY:
        return cast(math.libm(function, *args), dtype)
    if function in ARITHMETIC:
        return getattr(tirx, ARITHMETIC[function])(*args)
    raise TileNotSupportedError(f"the function {function} on {dtype} has no CPU form")


def _sigmoid64(args: list[Expr], dtype: str) -> Expr:
    """By the exponential of -|x|, which does not overflow."""
    one, zero = const(1.0, dtype), const(0.0, dtype)

    def main(x: Expr) -> Expr:
        e = cast(math.libm("exp", zero - tirx.abs(x)), dtype)
        return named(e, lambda e: tirx.Select(x < zero, e, one) / (one + e), "e")

    return named(args[0], main, "x")


EXTRA: dict[str, Callable[[list[Expr], str], Expr]] = {
    "rsqrt": lambda a, d: const(1.0, d) / tirx.sqrt(a[0]),
    "sigmoid": _sigmoid64,
    "exp10": lambda a, d: math.libm("pow", const(10.0, "float64"), a[0]),
}

"""Scalar and vector expressions: the promotion rules of the language, in one place.

In: Python numbers, expressions, variables (`local.var` buffers read as their value). Out: typed TVM expressions.
Two Python values stay Python. An int literal is int32 (int64 or uint64 if it does not fit), a float literal float32
(float64 if it does not fit); next to a value of the same kind a literal takes that value's type with all its digits.
Nothing here can reach TVM's constructors with a missing value, a wrong kind or unequal lanes: those end the process there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError, TileZeroDivisionError
from .constants import constant, literal_type
from .constants import representable as representable
from .dialect import VAR, make_call
from .dtype_table import TypeInfo, info, resolve
from .effects import effects_in
from .tvm_api import Call, Cast, Expr, FloatImm, IntImm, Span, TensorRegion, Var, const, is_buffer, load, tirx, tvm_ir

Number = (bool, int, float, np.integer, np.floating, np.bool_)


# ---------------------------------------------------------------- what a value is
def is_static(value: Any) -> bool:
    """Is this a compile-time Python value (no expression, no buffer)?"""
    return not isinstance(value, (Expr, Var, TensorRegion))


def type_of(value: Expr) -> str:
    """Element type of an expression as a string that hashes and compares like one."""
    ty = value.ty
    if isinstance(ty, tvm_ir.PrimType):
        return ty.dtype
    return "handle" if isinstance(ty, tvm_ir.PointerType) else "void"


def as_value(value: Any) -> Any:
    """An operand as a Python number or an expression; variables are read, other memory is an error."""
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Expr):
        return value if type(value.ty) is tvm_ir.PrimType else _read(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, TensorRegion):
        return _read(value)
    if value is None:
        raise TileTypeError(
            "None is no scalar value of the language",
            remedy="statements such as T.copy give None; T.atomic_* return the old value with return_prev=True",
        )
    raise TileTypeError(
        f"{value!r} ({type(value).__name__}) is no scalar value of the language",
        remedy="use Python numbers, element accesses such as A[i, j], and expressions of them",
    )


def _read(value: Any) -> Expr:
    if isinstance(value, TensorRegion):
        if all(isinstance(r.extent, IntImm) and int(r.extent) == 1 for r in value.region):
            return load(value.source, [r.min for r in value.region])
        raise TileTypeError(f"a block of {value.source.name} is no scalar value", remedy="index one element, or use a tile operator")
    if isinstance(value, Var) and is_buffer(value):
        if value.scope() == VAR:
            return load(value, [0])
        raise TileTypeError(
            f"buffer {value.name} of shape {tuple(value.shape)} is no scalar value", remedy=f"index an element, e.g. {value.name}[i]"
        )
    if type_of(value) == "void":
        raise TileTypeError("this call returns no value")
    return value


def as_expr(value: Any, span: Span | None = None) -> Expr:
    """Any operand as an expression; Python numbers become constants of their literal type."""
    found = as_value(value)
    return found if isinstance(found, Expr) else constant(found, literal_type(found), span)


def as_extent(value: Any, what: str) -> Any:
    """An extent or index: a Python int where constant, otherwise an integer expression."""
    found = as_value(value) if isinstance(value, (Expr, TensorRegion, *Number)) else value
    if isinstance(found, IntImm):
        return int(found)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, Expr) and info(type_of(found)).is_integer:
        return found
    kind = f"of type {type_of(found)}" if isinstance(found, Expr) else type(value).__name__
    raise TileTypeError(f"{what} is {value!r} ({kind}); an integer is needed")


# ---------------------------------------------------------------- promotion
def join(a: str, b: str) -> str:
    """The common type of two operands."""
    if a == b:
        return str(a)
    one, two = info(a), info(b)
    lanes = max(one.lanes, two.lanes)
    if one.lanes != two.lanes and min(one.lanes, two.lanes) != 1:
        raise TileTypeError(f"operands have {one.lanes} and {two.lanes} lanes ({a} and {b})")
    base = _join_scalars(info(one.base), info(two.base))
    return base if lanes == 1 else f"{base}x{lanes}"


def _join_scalars(one: TypeInfo, two: TypeInfo) -> str:
    if one.name == two.name:
        return one.name
    if "handle" in (one.kind, two.kind):
        raise TileTypeError(f"no arithmetic between {one.name} and {two.name}")
    if one.kind == "bool" or two.kind == "bool":
        return two.name if one.kind == "bool" else one.name
    if "float" in (one.kind, two.kind):
        if one.kind != two.kind:
            return one.name if one.kind == "float" else two.name
        if one.bits != two.bits:
            return one.name if one.bits > two.bits else two.name
        return "float16" if one.bits == 16 else "float32"  # bfloat16 with float16; two kinds of float8
    if one.bits != two.bits:
        return one.name if one.bits > two.bits else two.name
    return one.name if one.kind == "uint" else two.name


def convert(value: Any, name: Any, span: Span | None = None) -> Expr:
    """`value` in type `name` (C's conversions: to integers truncating, to bool `!= 0`); a scalar fills all lanes."""
    name = name if type(name) is str else str(resolve(name)).replace("tfloat32", "float32")
    found = as_value(value)
    if not isinstance(found, Expr):
        return constant(found, name, span)
    return _cast(found, name, span)


def _cast(value: Expr, name: str, span: Span | None = None) -> Expr:
    have = type_of(value)
    if have == name:
        return value
    source, target = info(have), info(name)
    if source.lanes != target.lanes:
        if source.lanes != 1:
            raise TileTypeError(f"a value of {source.lanes} lanes ({have}) cannot become {name}")
        return tirx.Broadcast(_cast(value, target.base, span), target.lanes)
    if "handle" in (source.kind, target.kind):
        if source.kind == "handle" and isinstance(value.ty, tvm_ir.PointerType) and target.kind == "handle":
            return value
        raise TileTypeError(f"no conversion from {have} to {name}", remedy="use T.reinterpret for the bits of an address")
    if isinstance(value, IntImm) and target.kind in ("int", "uint", "bool") and target.lanes == 1:
        return constant(int(value), name, span)
    if isinstance(value, IntImm) and target.kind == "float" and abs(int(value)) <= 2048:
        return constant(int(value), name, span)
    if target.kind == "bool":
        return tirx.NE(value, constant(0, have), span)
    return Cast(name, value, span)


def operands(a: Any, b: Any) -> tuple[Expr, Expr, str]:
    """Two operands in their common type, and that type."""
    a, b = as_value(a), as_value(b)
    one = type_of(a) if isinstance(a, Expr) else None
    two = type_of(b) if isinstance(b, Expr) else None
    if one is not None and one == two:
        return a, b, str(one)
    if one is None:
        one = _beside(a, two)
    if two is None:
        two = _beside(b, one)
    name = join(one, two)
    left = constant(a, name) if not isinstance(a, Expr) else a if one == name else _cast(a, name)
    right = constant(b, name) if not isinstance(b, Expr) else b if two == name else _cast(b, name)
    return left, right, name


def _as_int32(left: Expr, right: Expr, name: str) -> tuple[Expr, Expr, str]:
    """Two bool operands as integers, for arithmetic."""
    name = name.replace("bool", "int32")
    return _cast(left, name), _cast(right, name), name


def _beside(value: Any, other: str | None) -> str:
    """Type of a literal next to a value of type `other`: any float fits a float64, otherwise it is `literal_type`."""
    return "float64" if isinstance(value, float) and other is not None and info(other).base == "float64" else literal_type(value)


# ---------------------------------------------------------------- operators
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor, "**": operator.pow,
    "@": operator.matmul, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "max": max, "min": min,
}  # fmt: skip
_COMPARE = {"==": tirx.EQ, "!=": tirx.NE, "<": tirx.LT, "<=": tirx.LE, ">": tirx.GT, ">=": tirx.GE}
_ARITHMETIC = {"+": tirx.Add, "-": tirx.Sub, "*": tirx.Mul, "max": tirx.Max, "min": tirx.Min}
_BITWISE = {"&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor"}
_FOLD = {k: _PYTHON[k] for k in ("+", "-", "*", "max", "min", "&", "|", "^")}


def binary(op: str, a: Any, b: Any, span: Span | None = None) -> Any:
    """`a op b`; op is Python's spelling ("+", "//", "<=", "and", ...) or "max", "min". Two Python values stay Python."""
    if is_static(a) and is_static(b):
        return _PYTHON[op](a, b)
    if op in ("==", "!=") and not (_is_operand(a) and _is_operand(b)):
        same = isinstance(a, Var) and isinstance(b, Var) and a.same_as(b)
        return same if op == "==" else not same
    if op in ("and", "or"):
        return _logical(op, a, b, span)
    if op in ("//", "%"):
        return _floor_division(op, a, b, span)
    if op in ("<<", ">>"):
        return _shift(op, a, b, span)
    if op == "/":
        return _true_division(a, b, span)
    if op == "**":
        return power(a, b, span)
    if op == "@":
        raise TileTypeError("`@` has no meaning in a kernel", remedy="use T.gemm(A, B, C)")
    left, right, name = operands(a, b)
    if op in _COMPARE:
        return _compare(op, left, right, name, span)
    if name == "handle":
        raise TileTypeError(f"no arithmetic ({op}) on addresses", remedy="use T.address_of(buffer[i]) or T.access_ptr")
    kind = info(name).kind
    if op in _BITWISE and kind == "float":
        raise TileTypeError(f"`{op}` on {name} values", remedy="bit operations need integers; T.reinterpret gives the bits of a float")
    if kind == "bool" and op not in _BITWISE:
        left, right, name = _as_int32(left, right, name)
    if isinstance(left, IntImm) and isinstance(right, IntImm) and kind != "bool":
        folded = _FOLD[op](int(left), int(right))
        if info(name).low <= folded <= info(name).high:
            return const(folded, name)
    if op in _ARITHMETIC:
        simple = _simplified(op, left, right, kind)
        return _ARITHMETIC[op](left, right, span) if simple is None else simple
    return _bitwise(op, left, right, kind, span)


def _is_operand(value: Any) -> bool:
    """Can this stand in arithmetic? (Comparing anything else follows Python: never equal.)"""
    if isinstance(value, Var) and is_buffer(value):
        return value.scope() == VAR
    return isinstance(value, (Expr, TensorRegion, *Number))


def _simplified(op: str, left: Expr, right: Expr, kind: str) -> Expr | None:
    """x + 0, x - 0, x * 1 on integers; floats are never touched (-0.0 + 0 is not -0.0)."""
    if kind not in ("int", "uint"):
        return None
    if isinstance(right, IntImm):
        value = int(right)
        if (value == 0 and op in ("+", "-")) or (value == 1 and op == "*"):
            return left
    if isinstance(left, IntImm) and ((op == "+" and int(left) == 0) or (op == "*" and int(left) == 1)):
        return right
    return None


def _compare(op: str, left: Expr, right: Expr, name: str, span: Span | None) -> Expr:
    if isinstance(left, IntImm) and isinstance(right, IntImm):
        return IntImm("bool", int(_PYTHON[op](int(left), int(right))))
    if info(name).kind == "bool":  # TVM's code generation compares bool operands as floats
        left, right, name = _as_int32(left, right, name)
    if name == "handle":
        if op not in ("==", "!="):
            raise TileTypeError("addresses have no order")
        left, right = tirx.reinterpret("uint64", left), tirx.reinterpret("uint64", right)
    return _COMPARE[op](left, right, span)


def _bitwise(op: str, left: Expr, right: Expr, kind: str, span: Span | None) -> Expr:
    if kind == "bool":
        return _different(left, right, span) if op == "^" else {"&": tirx.And, "|": tirx.Or}[op](left, right, span)
    return getattr(tirx, _BITWISE[op])(left, right, span)


def _different(left: Expr, right: Expr, span: Span | None) -> Expr:
    """Exclusive or of two bool values."""
    return tirx.And(tirx.Or(left, right, span), tirx.Not(tirx.And(left, right, span), span), span)


def _logical(op: str, a: Any, b: Any, span: Span | None) -> Any:
    for known, other in ((a, b), (b, a)):
        if is_static(known):
            if bool(known) == (op == "and"):
                return truth(other)
            if other is b or not effects_in(as_expr(other)):  # what stands on the left is evaluated in any case
                return op == "or"
    return (tirx.And if op == "and" else tirx.Or)(as_expr(truth(a)), as_expr(truth(b)), span)


def truth(value: Any) -> Any:
    """A condition: Python's truth of a Python value, otherwise a bool expression (numbers are compared with 0)."""
    if is_static(value):
        return bool(value)
    if isinstance(value, Var) and is_buffer(value) and value.scope() != VAR:
        raise TileTypeError(f"buffer {value.name} as a condition", remedy="test an element, or use T.any_of / T.all_of")
    return _cast(found, _like("bool", found)) if isinstance(found := as_value(value), Expr) else bool(found)


def _like(base: str, value: Expr) -> str:
    lanes = info(type_of(value)).lanes
    return base if lanes == 1 else f"{base}x{lanes}"


def _check_divisor(op: str, right: Expr) -> None:
    if isinstance(right, IntImm) and int(right) == 0:
        raise TileZeroDivisionError(f"division by zero: x {op} 0")


def _true_division(a: Any, b: Any, span: Span | None) -> Expr:
    left, right, name = operands(a, b)
    if info(name).kind != "float":
        raise TileTypeError(
            f"`/` on integers ({name}) is ambiguous", remedy="use // for the floor, or T.cast(x, 'float32') / y for the quotient"
        )
    return tirx.Div(left, right, span)


def _floor_division(op: str, a: Any, b: Any, span: Span | None) -> Expr:
    left, right, name = operands(a, b)
    kind = info(name).kind
    if kind == "bool":
        left, right, name = _as_int32(left, right, name)
    if kind == "handle":
        raise TileTypeError(f"no arithmetic ({op}) on addresses")
    if kind == "float":
        return _float_modulo(op, left, right, name, span)
    _check_divisor(op, right)
    if isinstance(right, IntImm):
        if isinstance(left, IntImm):
            return const(_PYTHON[op](int(left), int(right)), name)
        if int(right) == 1 and (op == "//" or not effects_in(left)):
            return left if op == "//" else constant(0, name)
    return (tirx.FloorDiv if op == "//" else tirx.FloorMod)(left, right, span)


def _float_modulo(op: str, left: Expr, right: Expr, name: str, span: Span | None) -> Expr:
    """Python's rules: `//` is the floor of the quotient, `%` has the divisor's sign."""
    if op == "//":
        return tirx.floor(tirx.Div(left, right, span))
    rest = math_call("fmod", name, left, right, span=span)
    zero = constant(0, name)
    wrong_sign = tirx.And(tirx.NE(rest, zero), _different(tirx.LT(rest, zero), tirx.LT(right, zero), span))
    return tirx.Select(wrong_sign, tirx.Add(rest, right), rest, span)


def _shift(op: str, a: Any, b: Any, span: Span | None) -> Expr:
    left, right, name = operands(a, b)
    facts = info(name)
    if facts.kind == "bool":
        left, right, name = _as_int32(left, right, name)
        facts = info(name)
    if not facts.is_integer:
        raise TileTypeError(f"`{op}` on {name} values; shifts need integers")
    if isinstance(right, IntImm):
        amount = int(right)
        if not 0 <= amount < facts.bits:
            raise TileValueError(f"shift by {amount}: the amount for {name} is 0 to {facts.bits - 1}")
        if amount == 0:
            return left
        if isinstance(left, IntImm):
            return const(_PYTHON[op](int(left), amount), name)
    return (tirx.shift_left if op == "<<" else tirx.shift_right)(left, right, span)


def power(a: Any, b: Any, span: Span | None = None) -> Any:
    """`a ** b`: integers to a constant power by multiplication; everything else in floating point."""
    if is_static(a) and is_static(b):
        return a**b
    base, exponent = as_value(a), as_value(b)
    exponent = int(exponent) if isinstance(exponent, IntImm) else exponent
    if isinstance(base, Expr) and isinstance(exponent, int) and 0 <= exponent <= 64:
        integral = info(type_of(base)).kind != "float"
        if integral or exponent in (1, 2):
            return _product(base, exponent, span)
    left, right, name = operands(base, exponent)
    if info(name).kind != "float":
        raise TileTypeError(f"`**` on integers ({name}) with this exponent", remedy="cast the base: T.cast(x, 'float32') ** n")
    return tirx.pow(left, right, span)


def _product(base: Expr, exponent: int, span: Span | None) -> Expr:
    """Integer power by squaring (in the base's type, at least int32)."""
    name = type_of(base) if info(type_of(base)).kind == "float" else join(type_of(base), "int32")
    value, result = _cast(base, name), None
    while exponent:
        if exponent & 1:
            result = value if result is None else tirx.Mul(result, value, span)
        exponent >>= 1
        value = tirx.Mul(value, value, span) if exponent else value
    if result is not None:
        return result
    return tirx.Add(tirx.Mul(value, constant(0, name)), constant(1, name), span) if effects_in(value) else constant(1, name)


def unary(op: str, a: Any, span: Span | None = None) -> Any:
    """`-a`, `+a`, `~a`, `not a`."""
    if op == "not":
        return not a if is_static(a) else tirx.Not(truth(a), span)
    if is_static(a):
        return {"-": operator.neg, "+": operator.pos, "~": operator.invert}[op](a)
    value = as_value(a)
    name = type_of(value)
    facts = info(name)
    if facts.kind == "handle":
        raise TileTypeError(f"unary {op} on an address")
    if facts.kind == "bool":
        if op == "~":
            return tirx.Not(value, span)
        value, name = _cast(value, name.replace("bool", "int32")), name.replace("bool", "int32")
    if op == "+":
        return value
    if op == "~":
        if facts.kind == "float":
            raise TileTypeError(f"`~` on {name} values", remedy="bit operations need integers")
        return tirx.bitwise_not(value, span)
    if isinstance(value, IntImm):
        return const(-int(value), name)
    if isinstance(value, FloatImm):
        return FloatImm(name, -value.value, span)
    if facts.kind == "float":  # 0 - x would lose the sign of zero
        return tirx.Mul(value, constant(-1.0, name), span)
    return tirx.Sub(constant(0, name), value, span)


# ---------------------------------------------------------------- choices, vectors, functions
def _branches(condition: Any, a: Any, b: Any) -> tuple[Expr, Expr, Expr]:
    left, right, _ = operands(a, b)
    return as_expr(truth(condition)), left, right


def select(condition: Any, a: Any, b: Any, span: Span | None = None) -> Any:
    """`a` where the condition holds, else `b`; both may be evaluated. A Python condition chooses at once."""
    if is_static(condition):
        return a if condition else b
    cond, left, right = _branches(condition, a, b)
    return tirx.Select(cond, left, right, span)


def if_then_else(condition: Any, a: Any, b: Any, span: Span | None = None) -> Any:
    """Like `select`, but only the chosen side is evaluated: it may guard an access."""
    if is_static(condition):
        return a if condition else b
    cond, left, right = _branches(condition, a, b)
    if info(type_of(cond)).lanes > 1:
        return tirx.Select(cond, left, right, span)
    return tirx.if_then_else(cond, left, right, span)


def vector(lanes: Sequence[Any], span: Span | None = None) -> Expr:
    """Scalars packed into one vector value of their common type."""
    values = [as_expr(v) for v in lanes]
    name = type_of(values[0])
    for value in values[1:]:
        name = join(name, type_of(value))
    if info(name).lanes != 1:
        raise TileTypeError(f"a vector is built from scalars, not from {name}")
    values = [_cast(v, name) for v in values]
    return values[0] if len(values) == 1 else tirx.Shuffle(values, list(range(len(values))), span)


def math_call(function: str, name: str, *values: Expr, span: Span | None = None) -> Call:
    """An elementwise function that TVM has no operator for: `tl.math` with its name, result type `name`."""
    return make_call("tl.math", values, name, span, name=function)

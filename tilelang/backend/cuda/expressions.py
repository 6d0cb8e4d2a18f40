"""Expressions of the program as C++ text.

In: a scalar or vector expression. Out: text of exactly the type that `c_type` names: arithmetic of narrow integers is cast back, since
C++ would leave an `int`. Parentheses stand where C++ needs them. Calls of operators are printed by `operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...errors import InternalError
from ...ir.dialect import SHARED_SCOPES, THREAD_SCOPES, op_name
from ...ir.rewrite import walk
from ...ir.tvm_api import Call, Cast, Expr, FloatImm, IntImm, StringImm, TensorLoad, Var, const, dtype_of, is_buffer, tirx
from ...passes.analysis.facts import Facts
from .addresses import parts
from .cpp_types import HALF, c_type, is_float, is_small_float, literal, split
from .memory import Place, offset_of
from .names import Names

# Precedence of C++ operators; larger binds tighter.
PRIMARY, UNARY, MUL, ADD, SHIFT, RELATION, EQUAL, BIT_AND, BIT_XOR, BIT_OR, AND, OR, CHOICE = 16, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3
Text = tuple[str, int]

_ARITHMETIC = {tirx.Add: ("+", ADD), tirx.Sub: ("-", ADD), tirx.Mul: ("*", MUL)}
_COMPARE = {tirx.EQ: ("==", EQUAL), tirx.NE: ("!=", EQUAL), tirx.LT: ("<", RELATION), tirx.LE: ("<=", RELATION),
            tirx.GT: (">", RELATION), tirx.GE: (">=", RELATION)}  # fmt: skip
_BITS = {tirx.BitwiseAnd: ("&", BIT_AND), tirx.BitwiseOr: ("|", BIT_OR), tirx.BitwiseXor: ("^", BIT_XOR)}
_DIVISION = {tirx.FloorDiv: ("/", "floor_div"), tirx.FloorMod: ("%", "floor_mod"), tirx.Div: ("/", "trunc_div"),
             tirx.Mod: ("%", "trunc_mod")}  # fmt: skip
_WRAPPING = {"+": "wrapping_add", "-": "wrapping_sub", "*": "wrapping_mul"}
_NARROW = ("int8", "uint8", "int16", "uint16")


def wrap(text: Text, least: int) -> str:
    """The text, in parentheses if it binds weaker than `least`."""
    return text[0] if text[1] >= least else f"({text[0]})"


class Expressions:
    """Prints expressions; knows the names of variables, the places of buffers, and what is proven about integers. sizes: see `Facts`.
    `data`: integer variables with values from the user's data. `call`: prints calls of operators."""

    def __init__(self, names: Names, sizes: Mapping[Var, tuple[int, int]]) -> None:
        self.names = names
        self.places: dict[Var, Place] = {}
        self.data: set[Var] = set()
        self.facts = Facts(sizes)
        self.rates: dict[Var, int] = {}  # of loop variables and names, as `addresses.rate` says
        self.call: Callable[[Call], Text] = self._no_call
        self._rules: dict[type, Callable[[Any], Text]] = {
            IntImm: self._int, FloatImm: self._float, StringImm: self._string, Var: self._var, TensorLoad: self._load, Cast: self._cast,
            tirx.Not: self._not, tirx.And: self._and, tirx.Or: self._or, tirx.Select: self._select, tirx.Let: self._let,
            tirx.Min: self._min_max, tirx.Max: self._min_max, tirx.Ramp: self._ramp, tirx.Broadcast: self._broadcast,
            tirx.Shuffle: self._shuffle, tirx.LShift: self._shift, tirx.RShift: self._shift, tirx.BitwiseNot: self._invert,
        }  # fmt: skip
        self._rules |= dict.fromkeys(_ARITHMETIC, self._arithmetic) | dict.fromkeys(_COMPARE, self._compare)
        self._rules |= dict.fromkeys(_BITS, self._bits) | dict.fromkeys(_DIVISION, self._division)

    def _no_call(self, node: Call) -> Text:
        raise InternalError(f"a call in a plain expression: {node}")

    # ---------------------------------------------------------------- entry points
    def print(self, node: Expr) -> Text:
        """Text and precedence."""
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(node)
        if isinstance(node, Call):
            return self.call(node)
        raise InternalError(f"no C++ for {type(node).__name__}: {node}")

    def text(self, node: Expr, least: int = 0) -> str:
        """The expression, in parentheses if it binds weaker than `least`."""
        return wrap(self.print(node), least)

    def argument(self, node: Expr) -> str:
        return self.text(node)

    # ---------------------------------------------------------------- leaves
    def _int(self, node: Any) -> Text:
        value, dtype = int(node), dtype_of(node)
        return literal(value, dtype), UNARY if value < 0 or dtype in _NARROW else PRIMARY

    def _float(self, node: Any) -> Text:
        text = literal(float(node.value), dtype_of(node))
        return text, UNARY if text.startswith("-") else PRIMARY

    def _string(self, node: Any) -> Text:
        return quote(str(node.value)), PRIMARY

    def _var(self, node: Var) -> Text:
        if is_buffer(node):
            place = self.place(node)
            return (f"&{place.name}", UNARY) if place.scalar else (place.name, PRIMARY)
        return self.names.of(node), PRIMARY

    def place(self, buffer: Var) -> Place:
        found = self.places.get(buffer)
        if found is None:
            raise InternalError(f"buffer {buffer.name} ({buffer.scope()}) is used outside the scope of its declaration")
        return found

    def element(self, buffer: Var, indices: Any) -> str:
        """An element as an lvalue."""
        place = self.place(buffer)
        if place.scalar:
            return place.name
        return f"{place.name}[{self.text(offset_of(buffer, list(indices)))}]"

    def address(self, buffer: Var, indices: Any) -> str:
        """The address of an element, as an argument. In memory that threads share it is a pointer that moves in steps."""
        place = self.place(buffer)
        if not place.scalar and buffer.scope() not in THREAD_SCOPES:
            *steps, last = parts(offset_of(buffer, list(indices)), self.rates, self.facts, buffer.scope() in SHARED_SCOPES)
            if steps:
                steps += [] if isinstance(last, IntImm) and int(last) == 0 else [last]
                return " + ".join([place.name, *(self.text(step, MUL) for step in steps)])
        return f"&{self.element(buffer, indices)}"

    def _load(self, node: Any) -> Text:
        lanes = split(dtype_of(node))[1]
        base, element_lanes = split(dtype_of(node.source))
        if lanes == element_lanes:
            return self.element(node.source, node.indices), PRIMARY
        elements = [self.element(node.source, at) for at in lane_indices(node.indices, lanes // element_lanes)]
        return f"tl::make_pack<{c_type(base)}>({', '.join(elements)})", PRIMARY

    # ---------------------------------------------------------------- operators
    def _arithmetic(self, node: Any) -> Text:
        sign, precedence = _ARITHMETIC[type(node)]
        dtype = dtype_of(node)
        base = split(dtype)[0]
        if is_small_float(base):
            return self._through_float(node, f"{{}} {sign} {{}}")
        if sign != "*" and isinstance(node.b, IntImm) and int(node.b) == 0:
            return self.print(node.a)
        if dtype in ("int32", "int64") and self.is_data(node) and not self.facts.fits(node):
            return f"tl::{_WRAPPING[sign]}<{c_type(dtype)}>({self.text(node.a)}, {self.text(node.b)})", PRIMARY
        left = self.text(node.a, precedence)
        right = self.text(_narrow(node.b) if dtype == "int64" else node.b, precedence + (sign in "-*" or is_float(base)))
        if dtype == "uint16" and sign == "*":  # C++ multiplies them as int, which is too small
            left = f"(uint32_t){self.text(node.a, UNARY)}"
        return self._narrowed(f"{left} {sign} {right}", precedence, dtype)

    def is_data(self, node: Expr) -> bool:
        """Does the value come from what the user's data hold, and not from positions in the grid and in loops alone?"""
        found: list[bool] = []
        walk(node, {TensorLoad: lambda e: found.append(True), Var: lambda v: found.append(v in self.data),
                    Call: lambda e: found.append(op_name(e).startswith(("tl.", "tirx.call_")))})  # fmt: skip
        return any(found)

    def _narrowed(self, text: str, precedence: int, dtype: str) -> Text:
        """The result of integer arithmetic back in its own type."""
        if dtype in ("int4", "uint4"):
            return f"tl::to_{dtype}({text})", PRIMARY
        if dtype in _NARROW:
            return f"({c_type(dtype)}){wrap((text, precedence), UNARY)}", UNARY
        return text, precedence

    def _through_float(self, node: Any, form: str) -> Text:
        """Arithmetic of a type that only stores: in float32, rounded once."""
        base, lanes = split(dtype_of(node))
        kind = c_type(base)
        if lanes > 1:
            inner = form.format("(float)a", "(float)b")
            return self.lanewise(node.a, node.b, base, f"{kind}({inner})")
        a, b = (f"(float){self.text(v, UNARY)}" for v in (node.a, node.b))
        return f"{kind}({form.format(a, b)})", PRIMARY

    def lanewise(self, a: Expr, b: Expr, base: str, body: str) -> Text:
        """An operation of two vectors of elements `base`, lane by lane; `body` names the elements a and b."""
        kind = c_type(base)
        return f"tl::map<{kind}>({self.text(a)}, {self.text(b)}, []({kind} a, {kind} b) {{ return {body}; }})", PRIMARY

    def _compare(self, node: Any) -> Text:
        sign, precedence = _COMPARE[type(node)]
        if is_small_float(split(dtype_of(node.a))[0]) and split(dtype_of(node.a))[1] == 1:
            return f"(float){self.text(node.a, UNARY)} {sign} (float){self.text(node.b, UNARY)}", precedence
        return f"{self.text(node.a, precedence + 1)} {sign} {self.text(node.b, precedence + 1)}", precedence

    def _bits(self, node: Any) -> Text:
        sign, precedence = _BITS[type(node)]
        return self.bitwise(sign, precedence, node.a, node.b, dtype_of(node))

    def bitwise(self, sign: str, precedence: int, a: Expr, b: Expr, dtype: str) -> Text:
        # Parentheses around the operands although C++ knows the order: readers do not.
        text = f"{self.text(a, MUL if sign != '&' else UNARY)} {sign} {self.text(b, MUL if sign != '&' else UNARY)}"
        return self._narrowed(text, precedence, dtype)

    def _invert(self, node: Any) -> Text:
        return self.invert(node.a if hasattr(node, "a") else node.value, dtype_of(node))

    def invert(self, value: Expr, dtype: str) -> Text:
        base, lanes = split(dtype)
        if lanes > 1:
            return f"tl::map<{c_type(base)}>({self.text(value)}, []({c_type(base)} a) {{ return ({c_type(base)})~a; }})", PRIMARY
        return self._narrowed(f"~{self.text(value, UNARY)}", UNARY, dtype)

    def _shift(self, node: Any) -> Text:
        return self.shift("<<" if isinstance(node, tirx.LShift) else ">>", node.a, node.b, dtype_of(node))

    def shift(self, sign: str, a: Expr, b: Expr, dtype: str) -> Text:
        base, lanes = split(dtype)
        kind, name = c_type(base), "shift_left" if sign == "<<" else "shift_right"
        if lanes > 1:
            return self.lanewise(a, b, base, f"tl::{name}<{kind}>(a, b)")
        bits = int(base.lstrip("uint"))
        if bits >= 8 and self._is_within(b, bits):
            amount = str(int(b)) if isinstance(b, IntImm) else self.text(b, SHIFT + 1)
            if sign == "<<" and base.startswith("int"):  # C++ leaves a shifted sign undefined
                return f"({kind})((u{kind if kind != 'int' else 'int32_t'}){self.text(a, UNARY)} << {amount})", UNARY
            return self._narrowed(f"{self.text(a, SHIFT)} {sign} {amount}", SHIFT, dtype)
        if bits < 8:
            return f"tl::to_{base}(tl::{name}<int>({self.text(a)}, {self.text(b)}))", PRIMARY
        return f"tl::{name}<{kind}>({self.text(a)}, {self.text(b)})", PRIMARY

    def _is_within(self, amount: Expr, bits: int) -> bool:
        """Is the amount of a shift proved to be less than the width?"""
        low, high = self.facts.bounds(amount)
        return low >= 0 and high < bits

    def _division(self, node: Any) -> Text:
        sign, name = _DIVISION[type(node)]
        return self.division(sign, name, node.a, node.b, dtype_of(node), node)

    def division(self, sign: str, name: str, a: Expr, b: Expr, dtype: str, node: Any = None) -> Text:
        base, lanes = split(dtype)
        kind = c_type(base)
        if is_float(base):
            if is_small_float(base):
                return self._through_float(node, "{} / {}")
            return f"{self.text(a, MUL)} / {self.text(b, MUL + 1)}", MUL
        if lanes > 1:
            return self.lanewise(a, b, base, f"tl::{name}<{kind}>(a, b)")
        if isinstance(b, IntImm) and int(b) > 0 and (base.startswith("uint") or name.startswith("trunc") or self.is_natural(a)):
            return self._narrowed(f"{self.text(a, MUL)} {sign} {self.text(b, MUL + 1)}", MUL, dtype)
        return f"tl::{name}<{kind}>({self.text(a)}, {self.text(b)})", PRIMARY

    def assuming(self, condition: Expr) -> AbstractContextManager[Any]:
        """While a condition on positions holds. From one on data nothing is learned: memory changes, and sums of data wrap around."""
        return nullcontext() if self.is_data(condition) else self.facts.assuming([condition])

    def is_natural(self, value: Expr) -> bool:
        """Is this integer proved to be 0 or more?"""
        return self.facts.bounds(value)[0] >= 0

    def _min_max(self, node: Any) -> Text:
        name = "min" if isinstance(node, tirx.Min) else "max"
        base, lanes = split(dtype_of(node))
        kind = c_type(base)
        form = f"tl::{name}<{kind}>({{}}, {{}})"
        if is_small_float(base):
            return self._through_float(node, f"f{name}f({{}}, {{}})")
        if lanes > 1:
            return self.lanewise(node.a, node.b, base, form.format("a", "b"))
        if base in ("float32", "float64"):
            return f"f{name}{'f' if base == 'float32' else ''}({self.text(node.a)}, {self.text(node.b)})", PRIMARY
        return form.format(self.text(node.a), self.text(node.b)), PRIMARY

    def _not(self, node: Any) -> Text:
        if split(dtype_of(node))[1] > 1:
            return f"tl::map<bool>({self.text(node.a)}, [](bool a) {{ return !a; }})", PRIMARY
        return f"!{self.text(node.a, UNARY)}", UNARY

    def _and(self, node: Any) -> Text:
        return f"{self.text(node.a, EQUAL)} && {self.text(node.b, EQUAL)}" if not _is(node.a, tirx.And) else self._chain(node, "&&"), AND

    def _or(self, node: Any) -> Text:
        return f"{self.text(node.a, EQUAL)} || {self.text(node.b, EQUAL)}" if not _is(node.a, tirx.Or) else self._chain(node, "||"), OR

    def _chain(self, node: Any, sign: str) -> str:
        return f"{self.text(node.a)} {sign} {self.text(node.b, EQUAL)}"

    def _select(self, node: Any) -> Text:
        return self.choice(node.condition, node.true_value, node.false_value)

    def choice(self, condition: Expr, a: Expr, b: Expr) -> Text:
        """The one of two values that a condition chooses; the other one is not evaluated for scalars."""
        if split(dtype_of(a))[1] > 1:
            return f"tl::select({self.text(condition)}, {self.text(a)}, {self.text(b)})", PRIMARY
        return f"{self.text(condition, CHOICE + 1)} ? {self.text(a, CHOICE + 1)} : {self.text(b, CHOICE)}", CHOICE

    def _let(self, node: Any) -> Text:
        name = f"const {c_type(dtype_of(node.var))} {self.names.of(node.var)} = {self.text(node.value)};"
        return f"[&] {{ {name} return {self.text(node.body)}; }}()", PRIMARY

    # ---------------------------------------------------------------- vectors
    def _ramp(self, node: Any) -> Text:
        return f"tl::ramp<{int(node.lanes)}, {c_type(dtype_of(node.base))}>({self.text(node.base)}, {self.text(node.stride)})", PRIMARY

    def _broadcast(self, node: Any) -> Text:
        return f"tl::broadcast<{int(node.lanes)}, {c_type(dtype_of(node.value))}>({self.text(node.value)})", PRIMARY

    def _shuffle(self, node: Any) -> Text:
        lanes = [(v, k) for v in node.vectors for k in range(split(dtype_of(v))[1])]
        chosen = []
        for index in node.indices:
            value, k = lanes[int(index)]
            chosen.append(self.text(value) if split(dtype_of(value))[1] == 1 else f"{self.text(value, PRIMARY)}[{k}]")
        if len(chosen) == 1:
            return chosen[0], CHOICE if split(dtype_of(lanes[int(node.indices[0])][0]))[1] == 1 else PRIMARY
        return f"tl::make_pack<{c_type(split(dtype_of(node))[0])}>({', '.join(chosen)})", PRIMARY

    # ---------------------------------------------------------------- casts
    def _cast(self, node: Any) -> Text:
        return self.cast(node.value, dtype_of(node))

    def cast(self, value: Expr, dtype: str) -> Text:
        """`value` converted to `dtype`."""
        source = dtype_of(value)
        if source == dtype:
            return self.print(value)
        base, lanes = split(dtype)
        if source == "int32" and not isinstance(value, Var | IntImm) and not self.is_data(value):
            value = self.facts.simplify(value)  # positions in values; those in indices are simple already
        if lanes > 1:
            one = convert_text(("x", PRIMARY), split(source)[0], base)[0]
            return f"tl::map<{c_type(base)}>({self.text(value)}, []({c_type(split(source)[0])} x) {{ return {one}; }})", PRIMARY
        if base == "bfloat16" and source in ("int32", "uint32", "int64", "uint64") and self._is_exact_float(value):
            return f"{c_type(base)}((float){self.text(value, UNARY)})", PRIMARY  # nothing to round twice
        return convert_text(self.print(value), source, dtype)

    def _is_exact_float(self, value: Expr) -> bool:
        """Is an integer proved to be exact in float32?"""
        return max(map(abs, self.facts.bounds(value))) <= 1 << 24


def convert_text(value: Text, source: str, dtype: str) -> Text:
    """A scalar text of type `source` converted to `dtype` as the language defines casts."""
    kind = c_type(dtype)
    if source == dtype:
        return value
    if dtype == "bool":
        return f"{wrap(_as_float(value, source), EQUAL + 1)} != 0", EQUAL
    if dtype in ("int4", "uint4"):
        inner = convert_text(value, source, "int32") if is_float(source) else value
        return f"tl::to_{dtype}({inner[0]})", PRIMARY
    if is_float(source) and not is_float(dtype) and dtype != "handle":
        wide = dtype if dtype in ("int32", "uint32", "int64", "uint64") else "int32"
        text = f"tl::to_{wide}({_as_float(value, source)[0]})"
        return (text, PRIMARY) if wide == dtype else (f"({kind}){text}", UNARY)
    if dtype in HALF or is_small_float(dtype):
        return f"{kind}({_as_float(value, source)[0]})", PRIMARY
    text = _as_float(value, source) if dtype == "float64" else value
    return f"({kind}){wrap(text, UNARY)}", UNARY


def _as_float(value: Text, source: str) -> Text:
    """Floats of 16 bits and less as float32; everything else as it is."""
    if source in HALF or is_small_float(source):
        return f"(float){wrap(value, UNARY)}", UNARY
    return value


def lane_indices(indices: Any, lanes: int) -> list[list[Expr]]:
    """The scalar indices of each lane of a vector access."""
    result = []
    for k in range(lanes):
        one = []
        for index in indices:
            if isinstance(index, tirx.Ramp):
                step = int(index.stride) * k if isinstance(index.stride, IntImm) else index.stride * k
                one.append(index.base + step if k else index.base)
            elif isinstance(index, tirx.Broadcast):
                one.append(index.value)
            elif split(dtype_of(index))[1] > 1:
                one.append(tirx.Shuffle([index], [k]))
            else:
                one.append(index)
        result.append(one)
    return result


def quote(text: str) -> str:
    """A C++ string constant."""
    escaped = "".join(_ESCAPES.get(c) or (c if " " <= c <= "~" else "".join(f"\\{b:03o}" for b in c.encode())) for c in text)
    return f'"{escaped}"'


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "?": "\\?"}


def _narrow(value: Expr) -> Expr:
    """The right operand of 64-bit arithmetic without the cast that C++ makes by itself."""
    if isinstance(value, IntImm) and abs(int(value)) < 1 << 31:
        return const(int(value), "int32")
    return value.value if isinstance(value, Cast) and dtype_of(value.value) == "int32" else value


def _is(node: Any, kind: type) -> bool:
    return isinstance(node, kind) and split(dtype_of(node))[1] == 1

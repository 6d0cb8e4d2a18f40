"""Expressions of the program as Python text over lanes.

In: expressions, the name of the mask under which they are evaluated. Out: `Value`s. What is equal in all lanes is computed
once, with Python's integers (wrapped where their bounds are not known to fit) and NumPy's scalars.
"""

from __future__ import annotations

from typing import Any

from ...errors import TileNotSupportedError
from ...ir.dialect import attr, op_name
from ...ir.dtype_table import info
from ...ir.rewrite import uses_memory
from ...ir.tvm_api import (
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    StringImm,
    TensorLoad,
    Var,
    dtype_of,
    is_buffer,
    tirx,
)  # fmt: skip
from . import values
from .scope import GLOBAL, Place, Scope, Value

_ARITHMETIC = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*"}
_COMPARE = {tirx.EQ: "==", tirx.NE: "!=", tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">="}
_BITS = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^"}
_DIVIDE = {tirx.FloorDiv: "floordiv", tirx.FloorMod: "floormod", tirx.Div: "truncdiv", tirx.Mod: "truncmod"}


class Expressions:
    """The compiler of expressions. effects: compiles calls with effects (atomics, shuffles, ...)."""

    def __init__(self, scope: Scope, effects: Any) -> None:
        self.scope, self.effects = scope, effects
        self.rules: list[tuple[Any, Any]] = [
            (IntImm, self._int), (FloatImm, self._float), (Var, self._var), (TensorLoad, self._load), (Cast, self._cast),
            (tuple(_ARITHMETIC), self._arithmetic), (tuple(_COMPARE), self._compare), (tuple(_BITS), self._bits),
            (tuple(_DIVIDE), self._divide), ((tirx.Max, tirx.Min), self._extreme), ((tirx.And, tirx.Or), self._logic),
            (tirx.Not, self._not), (tirx.BitwiseNot, self._bitwise_not), ((tirx.LShift, tirx.RShift), self._shift),
            (tirx.Select, self._select), (tirx.Let, self._let), (tirx.Ramp, self._ramp), (tirx.Broadcast, self._broadcast),
            (tirx.Shuffle, self._shuffle), (Call, self._call), (StringImm, self._string),
        ]  # fmt: skip
        self._cache: dict[type, Any] = {}

    def __call__(self, node: Expr, mask: str) -> Value:
        kind = type(node)
        rule = self._cache.get(kind)
        if rule is None:
            rule = next((r for types, r in self.rules if isinstance(node, types)), None)
            if rule is None:
                raise TileNotSupportedError(f"the emulator has no form of {kind.__name__}: {node}", at=self.scope.at())
            self._cache[kind] = rule
        return rule(node, mask)

    def array(self, value: Value) -> str:
        """Text of the value with its NumPy type, for functions that do not know Python's numbers."""
        return f"{self.scope.kind(value.dtype)}({value.text})" if value.uniform else value.text

    # ---------------------------------------------------------------- leaves
    def _int(self, node: Any, mask: str) -> Value:
        dtype, value = dtype_of(node), int(node)
        if dtype == "bool":
            return Value(str(bool(value)), dtype, True, value, value)
        if dtype.startswith("uint"):
            value &= (1 << info(dtype).bits) - 1
        return Value(f"({value})" if value < 0 else str(value), dtype, True, value, value)

    def _float(self, node: Any, mask: str) -> Value:
        return Value(self.scope.constant(float(node.value), dtype_of(node)), dtype_of(node), True)

    def _string(self, node: Any, mask: str) -> Value:
        return Value(repr(str(node.value)), "handle", True)

    def _var(self, node: Var, mask: str) -> Value:
        if is_buffer(node):
            return self._load_at(node, [IntImm("int32", 0)] * len(node.ty.shape), mask)
        if node not in self.scope.names:
            raise TileNotSupportedError(f"variable {node.name} has no value here", at=self.scope.at())
        return self.scope.names[node]

    # ---------------------------------------------------------------- memory
    def _load(self, node: TensorLoad, mask: str) -> Value:
        return self._load_at(node.source, list(node.indices), mask)

    def _load_at(self, buffer: Var, indices: list[Any], mask: str) -> Value:
        place = self.scope.places[buffer]
        index = self.linear(place, indices, mask)
        site = self.scope.site("read", buffer.name)
        dtype = dtype_of(buffer)
        if place.kind == GLOBAL and index.uniform:
            text = f"{place.name}.load_one(g, {index.text}, {mask}, {site})"
            base = info(dtype)
            if base.is_integer:
                text = f"int({text})"
            elif base.kind == "bool":
                text = f"bool({text})"
            return Value(text, dtype, True, base.low if base.is_integer else None, base.high if base.is_integer else None)  # type: ignore[arg-type]
        return Value(f"{place.name}.load(g, {index.text}, {mask}, {site})", dtype, False, fresh=False)

    def linear(self, place: Place, indices: list[Any], mask: str) -> Value:
        """Offset of an element in elements."""
        if len(indices) != len(place.strides):
            raise TileNotSupportedError(f"{place.name}: {len(indices)} indices for {len(place.strides)} dimensions", at=self.scope.at())
        total: Value | None = None
        for index, stride in zip(indices, place.strides, strict=True):
            value = self(index, mask)
            if place.large and not value.uniform:
                value = Value(f"{value.text}.astype({self.scope.kind('int64')})", "int64", False)
            term = value if stride == 1 else self._combine("*", value, self._stride(stride, mask), "int64")
            total = term if total is None else self._combine("+", total, term, "int64")
        if total is None:
            total = Value("0", "int32", True, 0, 0)
        if place.scattered:
            site = self.scope.site("access at an address", place.name)
            return Value(f"{place.name}.at(g, {total.text}, {mask}, {site})", "int64", False)
        return total

    def _stride(self, stride: Any, mask: str) -> Value:
        return Value(str(stride), "int32", True, stride, stride) if isinstance(stride, int) else self(stride, mask)

    def _combine(self, operator: str, a: Value, b: Value, dtype: str) -> Value:
        """Index arithmetic: uniform parts in Python's integers, which do not overflow."""
        low, high = _bounds(operator, a, b)
        text = f"({a.text} {operator} {b.text})"
        if low is not None and low == high:
            text = str(low) if low >= 0 else f"({low})"
        elif operator == "*" and "1" in (a.text, b.text):
            text = b.text if a.text == "1" else a.text
        elif operator == "+" and "0" in (a.text, b.text):
            text = b.text if a.text == "0" else a.text
        return Value(text, dtype, a.uniform and b.uniform, low, high)

    # ---------------------------------------------------------------- operators
    def _fit(self, text: str, dtype: str, low: int | None, high: int | None) -> Value:
        """A uniform integer, wrapped into its type unless its bounds show that it fits."""
        facts = info(dtype)
        if low is not None and high is not None and facts.low <= low and high <= facts.high:
            return Value(text, dtype, True, low, high)
        return Value(f"wrap({text}, {facts.bits}, {facts.kind == 'int'})", dtype, True, int(facts.low), int(facts.high))

    def _arithmetic(self, node: Any, mask: str) -> Value:
        a, b, dtype = self(node.a, mask), self(node.b, mask), dtype_of(node)
        operator = _ARITHMETIC[type(node)]
        text = f"({a.text} {operator} {b.text})"
        if a.uniform and b.uniform and info(dtype).is_integer:
            return self._fit(text, dtype, *_bounds(operator, a, b))
        return Value(text, dtype, a.uniform and b.uniform)

    def _compare(self, node: Any, mask: str) -> Value:
        a, b = self(node.a, mask), self(node.b, mask)
        uniform = a.uniform and b.uniform
        text = f"({a.text} {_COMPARE[type(node)]} {b.text})"
        return Value(f"bool{text}" if uniform else text, dtype_of(node), uniform)

    def _bits(self, node: Any, mask: str) -> Value:
        a, b = self(node.a, mask), self(node.b, mask)
        facts = info(dtype_of(node))
        known = (int(facts.low), int(facts.high)) if a.uniform and b.uniform and facts.is_integer else (None, None)
        return Value(f"({a.text} {_BITS[type(node)]} {b.text})", dtype_of(node), a.uniform and b.uniform, *known)

    def _bitwise_not(self, node: Any, mask: str) -> Value:
        a, dtype = self(node.a, mask), dtype_of(node)
        if dtype == "bool":
            return Value(f"inv({a.text})", dtype, a.uniform)
        return self._fit(f"(~{a.text})", dtype, None, None) if a.uniform else Value(f"(~{a.text})", dtype, False)

    def _divide(self, node: Any, mask: str) -> Value:
        a, b, dtype = self(node.a, mask), self(node.b, mask), dtype_of(node)
        uniform = a.uniform and b.uniform
        if info(dtype).kind == "float":
            if type(node) is tirx.Div:
                return Value(f"({a.text} / {b.text})", dtype, uniform)
            raise TileNotSupportedError(f"{type(node).__name__} of {dtype} in the emulator", at=self.scope.at())
        positive = isinstance(node.b, IntImm) and int(node.b) > 0
        if positive and type(node) in (tirx.FloorDiv, tirx.FloorMod):
            text = f"({a.text} {'//' if type(node) is tirx.FloorDiv else '%'} {b.text})"
        else:
            text = f"{_DIVIDE[type(node)]}({a.text}, {b.text})"
        if not uniform:
            return Value(text, dtype, False)
        low: int | None = None
        high: int | None = None
        if positive and type(node) is tirx.FloorMod:
            low, high = 0, int(node.b) - 1
        elif positive and type(node) is tirx.FloorDiv and a.low is not None and a.high is not None:
            low, high = a.low // int(node.b), a.high // int(node.b)
        elif a.low is not None and a.high is not None and a.low >= 0:
            low, high = (-a.high, a.high) if b.low is None or b.low < 0 else (0, a.high)
        return self._fit(text, dtype, low, high)

    def _extreme(self, node: Any, mask: str) -> Value:
        a, b, dtype = self(node.a, mask), self(node.b, mask), dtype_of(node)
        larger = type(node) is tirx.Max
        if a.uniform and b.uniform and info(dtype).kind != "float":
            pick = max if larger else min
            low = pick(a.low, b.low) if a.low is not None and b.low is not None else None
            high = pick(a.high, b.high) if a.high is not None and b.high is not None else None
            return Value(f"{'max' if larger else 'min'}({a.text}, {b.text})", dtype, True, low, high)
        if info(dtype).kind == "float":
            return Value(f"{'maximum' if larger else 'minimum'}({a.text}, {b.text})", dtype, a.uniform and b.uniform)
        return Value(f"np.{'maximum' if larger else 'minimum'}({a.text}, {b.text})", dtype, False)

    def _logic(self, node: Any, mask: str) -> Value:
        """`and`, `or`: the second operand may read memory that only the first makes valid."""
        is_and = type(node) is tirx.And
        a = self(node.a, mask)
        if not uses_memory(node.b):
            b = self(node.b, mask)
            if a.uniform and b.uniform:
                return Value(f"({a.text} {'and' if is_and else 'or'} {b.text})", "bool", True)
            return Value(f"({a.text} {'&' if is_and else '|'} {b.text})", dtype_of(node), False)
        first, inner = self.scope.temp("a"), self.scope.temp("m")
        test = first if is_and else f"inv({first})"
        b = self(node.b, inner)
        text = f"({first} := {a.text}, {inner} := both({mask}, {test}), {first} {'&' if is_and else '|'} ({b.text}))[2]"
        return Value(text, dtype_of(node), a.uniform and b.uniform)

    def _not(self, node: Any, mask: str) -> Value:
        a = self(node.a, mask)
        return Value(f"(not {a.text})", "bool", True) if a.uniform else Value(f"(~{a.text})", dtype_of(node), False)

    def _shift(self, node: Any, mask: str) -> Value:
        a, b, dtype = self(node.a, mask), self(node.b, mask), dtype_of(node)
        facts = info(dtype)
        uniform = a.uniform and b.uniform
        constant = isinstance(node.b, IntImm) and 0 <= int(node.b) < facts.bits
        if type(node) is tirx.RShift:
            text = f"({a.text} >> {b.text})" if constant else f"shift_right({a.text}, {b.text}, {facts.bits})"
        elif constant and not uniform:
            text = f"({a.text} << {b.text})"
        else:
            text = f"shift_left({a.text}, {b.text}, {facts.bits}, {facts.kind == 'int'})"
        if not uniform and (a.uniform or b.uniform) and not constant:  # NumPy's shift functions want arrays of the type
            kind = self.scope.kind(dtype)
            text = text.replace(a.text, f"{kind}({a.text})", 1) if a.uniform else text
        return Value(text, dtype, uniform, int(facts.low) if uniform else None, int(facts.high) if uniform else None)

    # ---------------------------------------------------------------- choices and names
    def _select(self, node: Any, mask: str) -> Value:
        return self._chosen(node.condition, node.true_value, node.false_value, dtype_of(node), mask, False)

    def _chosen(self, condition: Expr, yes: Expr, no: Expr, dtype: str, mask: str, guarded: bool) -> Value:
        c = self(condition, mask)
        if c.uniform:
            a, b = self(yes, mask), self(no, mask)
            uniform = a.uniform and b.uniform
            left, right = (a.text, b.text) if uniform else (self._lanes(a), self._lanes(b))
            known = (min(a.low, b.low), max(a.high, b.high)) if None not in (a.low, b.low, a.high, b.high) and uniform else (None, None)  # type: ignore[type-var]
            return Value(f"({left} if {c.text} else {right})", dtype, uniform, *known, fresh=uniform)
        kind = self.scope.kind(dtype)
        if not (guarded and (uses_memory(yes) or uses_memory(no))):
            a, b = self(yes, mask), self(no, mask)
            pick = "select" if not (a.uniform or b.uniform) else "choose"
            return Value(f"{pick}({c.text}, {a.text}, {b.text}{f', {kind}' if pick == 'choose' else ''})", dtype, False)
        test, inner, outer = self.scope.temp("a"), self.scope.temp("m"), self.scope.temp("m")
        a, b = self(yes, inner), self(no, outer)
        first = f"{a.text} if ({inner} := both({mask}, {test})) is not False else {kind}(0)"
        second = f"{b.text} if ({outer} := both({mask}, inv({test}))) is not False else {kind}(0)"
        return Value(f"choose({test} := ({c.text}), {first}, {second}, {kind})", dtype, False)

    def _lanes(self, value: Value) -> str:
        return f"g.lanes({value.text}, {self.scope.kind(value.dtype)})" if value.uniform else value.text

    def _let(self, node: Any, mask: str) -> Value:
        value = self(node.value, mask)
        name = self.scope.temp(node.var.name)
        self.scope.names[node.var] = Value(name, value.dtype, value.uniform, value.low, value.high)
        body = self(node.body, mask)
        text = value.text if value.fresh else f"{value.text}.copy()"
        return Value(f"({name} := {text}, {body.text})[1]", body.dtype, body.uniform, body.low, body.high, body.fresh)

    # ---------------------------------------------------------------- vectors: a leading axis of lanes of the type
    def _ramp(self, node: Any, mask: str) -> Value:
        base, stride = self(node.base, mask), self(node.stride, mask)
        kind = self.scope.kind(dtype_of(node))
        steps = f"np.arange({int(node.lanes)}, dtype={kind})[:, None]"
        return Value(f"({base.text} + {steps} * {stride.text})", dtype_of(node), False)

    def _broadcast(self, node: Any, mask: str) -> Value:
        value = self(node.value, mask)
        return Value(f"np.repeat({self._lanes(value)}[None], {int(node.lanes)}, 0)", dtype_of(node), False)

    def _shuffle(self, node: Any, mask: str) -> Value:
        parts = [self(v, mask) for v in node.vectors]
        rows = [self._lanes(p) if info(p.dtype).lanes > 1 else f"np.atleast_2d({self._lanes(p)})" for p in parts]
        picks = [int(k) for k in node.indices]
        joined = f"np.concatenate([{', '.join(rows)}])" if len(rows) > 1 else rows[0]
        return Value(f"{joined}[{picks[0] if len(picks) == 1 else picks}]", dtype_of(node), False, fresh=False)

    # ---------------------------------------------------------------- casts and calls
    def _cast(self, node: Any, mask: str) -> Value:
        return self.convert(self(node.value, mask), dtype_of(node))

    def convert(self, value: Value, dtype: str) -> Value:
        """The value as another element type, as the language defines casts."""
        have, want = info(value.dtype), info(dtype)
        if have.name == want.name or (have.base == want.base and want.lanes == 1):
            return value
        kind = self.scope.kind(dtype)
        if want.kind == "bool":
            return Value(f"bool({value.text} != 0)" if value.uniform else f"({value.text} != 0)", dtype, value.uniform)
        if want.is_integer and have.kind == "float":
            text = f"float_to_int({value.text}, {want.base!r})"
            if value.uniform:
                return Value(f"int({text})", dtype, True, int(want.low), int(want.high))
            return Value(text, dtype, False)
        if value.uniform and want.is_integer:
            text = f"int({value.text})" if have.kind == "bool" else value.text
            low, high = (0, 1) if have.kind == "bool" else (value.low, value.high)
            return self._fit(text, dtype, low, high)
        if have.base == "float64" and want.base not in ("float16", "float32"):
            return Value(f"double_to_half({value.text}, {kind})", dtype, False)
        if value.uniform:
            return Value(f"{kind}({value.text})", dtype, True)
        return Value(f"{value.text}.astype({kind})", dtype, False)

    def _call(self, node: Call, mask: str) -> Value:
        name, dtype = op_name(node), dtype_of(node)
        family, _, function = name.rpartition(".")
        if name == "tl.math":
            function = str(attr(node, "name"))
        elif family not in ("tirx", "prim"):
            return self.effects.value(node, name, mask)
        if function == "if_then_else":
            return self._chosen(node.args[0], node.args[1], node.args[2], dtype, mask, True)
        if function == "likely":
            return self(node.args[0], mask)
        if function == "reinterpret":
            value = self(node.args[0], mask)
            text = f"reinterpret({self.array(value)}, {self.scope.kind(dtype)})"
            return self._as_uniform(Value(text, dtype, value.uniform, fresh=value.uniform))
        args = [self(a, mask) for a in node.args] if function in (*values.FUNCTIONS, "popcount", "clz") else []
        if function in ("popcount", "clz"):
            value = Value(f"{function}({self.array(args[0])})", "int32", args[0].uniform)
            return self.convert(self._as_uniform(value), dtype)
        if function in values.FUNCTIONS:
            uniform = all(a.uniform for a in args)
            text = f"function({function!r}, {dtype!r}, {', '.join(self.array(a) for a in args)})"
            if uniform and info(dtype).kind == "float":
                text = f"{self.scope.kind(dtype)}({text})"
            return self._as_uniform(Value(text, dtype, uniform))
        return self.effects.value(node, name, mask)

    def _as_uniform(self, value: Value) -> Value:
        """Uniform integers and bools are Python's."""
        facts = info(value.dtype)
        if value.uniform and facts.is_integer:
            return Value(f"int({value.text})", value.dtype, True, int(facts.low), int(facts.high))
        if value.uniform and facts.kind == "bool":
            return Value(f"bool({value.text})", value.dtype, True)
        return value


def _bounds(operator: str, a: Value, b: Value) -> tuple[int | None, int | None]:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, None
    if operator == "+":
        return a.low + b.low, a.high + b.high
    if operator == "-":
        return a.low - b.high, a.high - b.low
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)

"""What is known about integers at a point of the program: ranges of variables, conditions that hold, proofs from both.

In: bindings and conditions, in program order and scope. Out: bounds, yes/no answers, simpler expressions. TVM's analyzer
computes with unbounded integers, divides by anything and takes a load for a constant; here every part of an expression for
which that would be wrong (memory, arithmetic not proved to fit its type, divisors not proved to differ from 0, narrowing casts,
calls) becomes a variable of its own known only by its type. A variable nothing is known about may have any value of its type.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...ir.access import accesses
from ...ir.annotations import LARGEST_SIZE
from ...ir.dialect import IF_THEN_ELSE, LIKELY
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import (
    Analyzer,
    Call,
    Cast,
    ConstIntBound,
    Expr,
    IntImm,
    ModularSet,
    PrimFunc,
    Range,
    TensorLoad,
    Var,
    const,
    dtype_of,
    ffi,
    is_buffer,
    is_expr,
    tirx,
)  # fmt: skip

_LIMIT = 1 << 62
MAX_LEAVES = 32
_INFINITE = (1 << 63) - 1  # the analyzer's infinity
_OPERATORS = {tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul}
_RING = tuple(_OPERATORS)  # modulo 2^n a wrapped intermediate value still gives the right result
_BITS = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor)
_QUOTIENTS = (tirx.FloorDiv, tirx.Div)
_REMAINDERS = (tirx.FloorMod, tirx.Mod)
COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
# Sets of classes for the questions that are asked most: see `is_buffer` in ir/tvm_api.py.
_ATOMS = frozenset((Var, IntImm))
_TRUTHS = frozenset((*COMPARISONS, tirx.And, tirx.Or, tirx.Not))
_DIVISIONS = frozenset((*_QUOTIENTS, *_REMAINDERS))
_WRAPPING = frozenset((*_RING, *_QUOTIENTS, Call, tirx.LShift))
_OPPOSITE = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT, tirx.EQ: tirx.NE, tirx.NE: tirx.EQ}
_PURE_CALLS = frozenset((IF_THEN_ELSE, LIKELY, "tirx.popcount", "tirx.clz"))


@functools.cache
def type_range(dtype: str) -> tuple[int, int] | None:
    """Least and greatest value of an integer type; None for other types."""
    if dtype == "bool":
        return 0, 1
    for prefix in ("uint", "int"):
        if dtype.startswith(prefix) and dtype[len(prefix) :].isdigit():
            bits = int(dtype[len(prefix) :])
            return (0, (1 << bits) - 1) if prefix == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return None


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a condition that all hold when it does."""
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [condition]


def negated(condition: Expr) -> list[Expr]:
    """Comparisons of integers that hold when `condition` does not (not all that follows, but nothing that does not)."""
    if isinstance(condition, tirx.Or):
        return negated(condition.a) + negated(condition.b)
    if isinstance(condition, tirx.Not):
        return conjuncts(condition.a)
    opposite = _OPPOSITE.get(type(condition))
    if opposite is None or type_range(dtype_of(condition.a)) is None:  # with NaN the opposite need not hold
        return []
    return [opposite(condition.a, condition.b)]


def leaves(expr: Expr, sizes: Mapping[Var, int]) -> int:
    """Variables in `expr`, each counted with the size of its value."""
    found: list[Var] = []
    walk(expr, {Var: found.append})
    return sum(sizes.get(v, 1) for v in found)


def holds_load(expr: Expr) -> bool:
    """Does the value of `expr` depend on memory or on a call whose result may change?"""
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or isinstance(node, TensorLoad) or not is_pure_call(node)

    walk(expr, {(TensorLoad, Call): visit})
    return found


def is_pure_call(node: Any) -> bool:
    """Is this call a function of its operands alone?"""
    name = getattr(node.op, "name", "") if type(node) is Call else ""
    return name in _PURE_CALLS


def sizes_of(func: PrimFunc) -> dict[Var, tuple[int, int]]:
    """Ranges of the symbols in the shapes of the parameters, as far as the check of the arguments ensures them: a symbol that
    stands for a whole extent is an extent, and one of 32 bits at most `LARGEST_SIZE`. A scalar parameter only counts as such."""
    found: dict[Var, tuple[int, int]] = {}
    compound: set[Var] = set()
    for param in func.params:
        for extent in param.ty.shape if is_buffer(param) else ():
            if isinstance(extent, Var):
                found[extent] = 0, LARGEST_SIZE if dtype_of(extent) == "int32" else _LIMIT
            else:
                walk(extent, {Var: compound.add})
    for symbol in compound - set(func.params):  # solved from such extents, which may be sums
        limits = type_range(dtype_of(symbol))
        found.setdefault(symbol, (0, min(limits[1], _LIMIT) if limits else _LIMIT))
    return found


class Facts:
    """An analyzer with the scopes of the program. Used by one traversal, never shared.

    sizes: ranges of variables that are known from the start, those of `sizes_of`."""

    def __init__(self, sizes: Mapping[Var, tuple[int, int]] | None = None) -> None:
        self.analyzer = Analyzer()
        self._data: set[Var] = set()  # names of values from memory
        self._sizes: dict[Var, int] = {}  # leaves in the values of names, names replaced by their values
        self._by_hash: dict[int, list[tuple[Expr, tuple[int, int] | None, Var]]] = {}
        self._stand_ins: set[Var] = set()
        for size, (low, high) in (sizes or {}).items():
            self._bind_interval(size, low, high)

    # ---- what is known
    def bind_range(self, var: Var, low: Any, extent: Any) -> None:
        """low <= var < low + extent. Loads inside are values of now, so they never meet later loads."""
        extent = extent if not isinstance(extent, int) else const(extent, dtype_of(var))
        low = low if not isinstance(low, int) else const(low, dtype_of(var))
        if isinstance(extent, tirx.Sub) and extent.b.same_as(low):  # low <= var < end: what bounds `low` bounds `end - low` too loosely
            least = self.bounds(low)[0]
            if least > -(1 << 30):
                low, extent = const(least, dtype_of(var)), extent.a - const(least, dtype_of(var))
        self.analyzer.bind(var, Range.from_min_extent(self._snapshot(low), self._snapshot(extent)), allow_override=True)

    def bind_value(self, var: Var, value: Expr) -> None:
        """var == value from here on."""
        limits = type_range(dtype_of(var))
        if limits is None:
            return
        data = holds_load(value) or self.any_data(value)
        if data:
            self._data.add(var)
        elif self._small(var, value) and dtype_of(value) == dtype_of(var) and self.sound(value) is value:
            self.analyzer.bind(var, value, allow_override=True)
            return
        low, high = self.bounds(value)
        if (low > limits[0] or high < limits[1]) and high - low < min(_LIMIT, limits[1]):  # the extent fits
            self._bind_interval(var, low, high)

    def bind_summary(self, var: Var, value: Expr) -> None:
        """var == value, of which only the bounds and a power of two that divides it are kept: looking through chains of names costs
        without limit."""
        limits = type_range(dtype_of(var))
        if limits is None:
            return
        known = self.analyzer.modular_set(self._ring(value))
        coeff = int(known.coeff) & -int(known.coeff)
        if coeff > 1:
            self.analyzer.update(var, ModularSet(coeff, int(known.base) % coeff), True)
        self._bind_interval(var, *self.bounds(value))

    def _bind_interval(self, var: Var, low: int, high: int) -> None:
        self.analyzer.update(var, ConstIntBound(max(low, -_INFINITE), min(high, _INFINITE)), True)

    def _small(self, var: Var, value: Expr) -> bool:
        """The analyzer replaces names by their values: a chain of names that are used twice each would double every time."""
        self._sizes[var] = leaves(value, self._sizes)
        return self._sizes[var] <= MAX_LEAVES

    @contextlib.contextmanager
    def assuming(self, conditions: Collection[Expr], changed: Collection[Var] = ()) -> Iterator[None]:
        """Inside the `with` block all conditions hold. Conditions on memory count only if no buffer of theirs is in
        `changed` (what the block writes); comparisons of floats never count (NaN breaks the analyzer's rules)."""
        with contextlib.ExitStack() as stack:
            for condition in conditions:
                for part in conjuncts(condition):
                    usable = self._usable(part, changed)
                    if usable is not None:
                        stack.enter_context(self.analyzer.constraint_scope(usable))
            yield

    def _usable(self, part: Expr, changed: Collection[Var]) -> Expr | None:
        if isinstance(part, Call) and getattr(part.op, "name", "") == LIKELY:
            part = part.args[0]
        if isinstance(part, tirx.Not):
            opposite = negated(part.a)
            part = opposite[0] if len(opposite) == 1 else part
        if not isinstance(part, COMPARISONS) or type_range(dtype_of(part.a)) is None:
            return None
        if any(a.root in changed for a in accesses(part)):
            return None
        return type(part)(self.sound(part.a), self.sound(part.b))

    # ---- questions
    def bounds(self, expr: Expr) -> tuple[int, int]:
        """Least and greatest possible value."""
        low, high = self._interval(self.sound(expr))
        limits = type_range(dtype_of(expr))
        if limits is None:
            return low, high
        return (limits[0] if low <= -_INFINITE else max(low, limits[0])), (limits[1] if high >= _INFINITE else min(high, limits[1]))

    def inside(self, first: Expr, last: Expr, extent: Any) -> tuple[bool, bool]:
        """(is 0 <= first always, is last < extent always)"""
        low, high = self.bounds(first)
        if last is not first:
            _, high = self.bounds(last)
        extent = int(extent) if isinstance(extent, IntImm) else extent
        below = isinstance(extent, int) and high < extent
        return (
            low >= 0 or self.analyzer.can_prove(self.sound(first) >= 0),
            below or self.analyzer.can_prove(tirx.LT(*_same_type(self.sound(last), self.sound(extent)))),
        )

    def never_inside(self, index: Expr, extent: Any) -> bool:
        """Is index outside [0, extent) always? Judged by constant bounds only."""
        low, high = self.bounds(index)
        if high < 0:
            return True
        return isinstance(extent, int | IntImm) and low >= int(extent)

    def multiple_of(self, value: Any, count: int) -> bool:
        """Is the value always a multiple of `count`? For powers of two it does not matter whether sums and products wrap."""
        if not is_expr(value) or isinstance(value, IntImm):
            return int(value) % count == 0
        power = count & (count - 1) == 0
        known = self.analyzer.modular_set(self._ring(value) if power else self.sound(value))
        return int(known.coeff) % count == 0 and int(known.base) % count == 0

    def same(self, a: Expr, b: Expr) -> bool:
        """Are two values of one type always equal?"""
        return dtype_of(a) == dtype_of(b) and bool(self.analyzer.can_prove_equal(self._ring(a), self._ring(b)))

    def fits(self, expr: Any) -> bool:
        """Is the result of this arithmetic surely one that its type has? (That of its operands may wrap.)"""
        if not isinstance(expr, _RING):
            return True
        return self._fits(type(expr)(self.sound(expr.a), self.sound(expr.b)), expr)

    def simplify(self, expr: Expr) -> Expr:
        """A simpler expression of equal value; `expr` itself where the analyzer's rules would not be exact."""
        operand = expr.a if isinstance(expr, COMPARISONS) else expr
        limits = type_range(dtype_of(operand))
        if isinstance(expr, Var | IntImm) or limits is None or _is_unsigned(operand) or not self._exact(expr):
            return expr
        result = self.analyzer.simplify(expr)
        if dtype_of(result) != dtype_of(expr) or self._has_stand_in(result):
            return expr
        return result if self._exact(result) else expr

    def _exact(self, expr: Expr) -> bool:
        """May the analyzer's rules be used on it? They hold in sums and products that wrap, but for nothing else. A simpler form
        has to pass as well: x - 2 < data must not become x < data + 2, which wraps for the greatest data."""
        if _affine(expr):
            return True
        if isinstance(expr, _RING):
            return self._exact(expr.a) and self._exact(expr.b)
        if isinstance(expr, COMPARISONS):
            return all(self.sound(operand) is operand for operand in (expr.a, expr.b))
        return self.sound(expr) is expr

    def _has_stand_in(self, expr: Expr) -> bool:
        """The analyzer replaces names by what they are bound to, where a stand-in may be part of it."""
        found: list[Var] = []
        if self._stand_ins:
            walk(expr, {Var: lambda v: found.append(v) if v in self._stand_ins else None})
        return bool(found)

    # ---- expressions that the analyzer may reason about
    def _ring(self, expr: Any) -> Any:
        """`expr` with sound operands for its sums and products, which may wrap: for what holds modulo powers of two."""
        if _affine(expr):
            return expr
        if not isinstance(expr, _RING) or _is_unsigned(expr):
            return self.sound(expr)
        return type(expr)(self._ring(expr.a), self._ring(expr.b))

    def sound(self, expr: Any) -> Any:
        """`expr` with stand-in variables for what the analyzer would misjudge; `expr` itself if there is nothing. Unsigned values are
        told as int64: the analyzer fails for 0 - x of an unsigned x."""
        if not is_expr(expr) or (type(expr) in _ATOMS and not _is_unsigned(expr)) or (_affine(expr) and self._fits(expr, expr)):
            return expr
        result = rewrite(expr, {Expr: self._sound_node})
        return expr if result.same_as(expr) else result

    def _sound_node(self, node: Expr, descend: Descend) -> Expr:
        if _is_unsigned(node):
            return self._unsigned(node, descend)
        kind = type(node)
        if kind in _ATOMS:
            return node
        limits = type_range(dtype_of(node))
        if kind is TensorLoad or limits is None or (kind is Call and not is_pure_call(node)):
            return self.stand_in(node)
        if kind is Cast:
            return self._cast(node, descend)
        inner = descend.children(node)
        if type(inner) in _TRUTHS:
            return inner
        return self._judged(node, inner)

    def _cast(self, node: Any, descend: Descend) -> Expr:
        if type_range(dtype_of(node.value)) is None:
            return self.stand_in(node)
        value = descend(node.value)
        if not self._fits(value, node):
            return self.stand_in(node)
        return value if dtype_of(value) == dtype_of(node) else node if value.same_as(node.value) else Cast(dtype_of(node), value)

    def _unsigned(self, node: Any, descend: Descend) -> Expr:
        """An unsigned value as int64; what may wrap, or has 64 bits, by its range alone."""
        if isinstance(node, IntImm) and int(node) < _INFINITE:
            return const(int(node), "int64")
        if isinstance(node, Var) and dtype_of(node) != "uint64":
            return Cast("int64", node)
        if isinstance(node, (*_RING, *_QUOTIENTS, *_REMAINDERS, tirx.Min, tirx.Max)):
            return self._judged(node, type(node)(descend(node.a), descend(node.b)))
        if isinstance(node, Cast) and type_range(dtype_of(node.value)) is not None:
            value = descend(node.value)
            if self._fits(value, node):
                return value if dtype_of(value) == "int64" else Cast("int64", value)
        return self.stand_in(node)

    def _judged(self, node: Expr, inner: Any) -> Expr:
        """`inner`, which is `node` of sound parts, if it is sound as well."""
        if type(inner) in _DIVISIONS and not self._divides(inner):
            return self._divided(node, inner)
        return self.stand_in(node) if type(inner) in _WRAPPING and not self._fits(inner, node) else inner

    def _fits(self, value: Expr, node: Expr) -> bool:
        """Is the mathematical value surely one that the type of `node` has? (One that may be infinite for the analyzer is not.)"""
        limits = type_range(dtype_of(node))
        low, high = self._interval(value)
        return limits is not None and max(limits[0], 1 - _INFINITE) <= low and high <= min(limits[1], _INFINITE - 1)

    def _interval(self, value: Any) -> tuple[int, int]:
        """Bounds in unbounded integers. The analyzer knows none of bit operations, which addresses in swizzled tiles are made of."""
        found = self.analyzer.const_int_bound(value)
        low, high = int(found.min_value), int(found.max_value)
        limits = type_range(dtype_of(value)) or (-_INFINITE, _INFINITE)
        if not isinstance(value, (*_RING, *_BITS, *_QUOTIENTS)) or (limits[0] < low and high < limits[1]):
            return low, high
        (a, b), (c, d) = self._interval(value.a), self._interval(value.b)
        if isinstance(value, _QUOTIENTS):
            return (max(low, min(a, 0)), min(high, max(b, 0))) if c > 0 else (low, high)
        if isinstance(value, _BITS):
            size = 1 << max(end if end >= 0 else ~end for end in (a, b, c, d)).bit_length()  # of the least that has both with a sign
            return (-size if min(a, c) < 0 else 0), size - 1
        if -_INFINITE in (a, c) or _INFINITE in (b, d):
            return low, high
        combine = _OPERATORS[type(value)]
        ends = [combine(x, y) for x in (a, b) for y in (c, d)]
        return max(low, min(ends)), min(high, max(ends))

    def _divides(self, node: Any) -> bool:
        """Is the divisor surely not 0? (Nor what the analyzer fails for: a negative modulus, and bounds that contradict each other.)"""
        found = self.analyzer.const_int_bound(node.b)
        low, high = int(found.min_value), int(found.max_value)
        return 0 < low <= high or (low <= high < 0 and isinstance(node, _QUOTIENTS))

    def _divided(self, node: Expr, inner: Any) -> Expr:
        """A quotient or remainder whose divisor may be 0, which gives 0: by its bounds where nothing is negative."""
        (least, most), (low, high) = (self.bounds(operand) for operand in (inner.a, inner.b))
        if least < 0 or low < 0 or most >= _LIMIT:
            return self.stand_in(node)
        return self.stand_in(node, (0, most if isinstance(inner, _QUOTIENTS) else min(most, max(high - 1, 0))))

    def any_data(self, node: Expr) -> bool:
        """Is there a name of a value from memory in it?"""
        variables: list[Var] = []
        walk(node, {Var: variables.append})
        return any(v in self._data for v in variables)

    def stand_in(self, node: Expr, interval: tuple[int, int] | None = None) -> Var:
        """The variable for this part: the same one for equal parts of which the same interval is known (None: that of the type)."""
        key = ffi.structural_hash(node)
        for known, limits, var in self._by_hash.get(key, ()):
            if limits == interval and ffi.structural_equal(known, node):
                return var
        var = Var("part", "int64" if _is_unsigned(node) else dtype_of(node))  # the analyzer knows the range of its type
        known_range = interval or (type_range(dtype_of(node)) if _is_unsigned(node) and dtype_of(node) != "uint64" else None)
        if known_range is not None:
            self._bind_interval(var, *known_range)
        self._by_hash.setdefault(key, []).append((node, interval, var))
        self._stand_ins.add(var)
        return var

    def _snapshot(self, expr: Any) -> Any:
        """`expr` with fresh variables for its loads."""
        if not is_expr(expr) or isinstance(expr, Var | IntImm):
            return expr
        expr = rewrite(expr, {TensorLoad: self._snapshot_node})
        return self.sound(expr)

    def _snapshot_node(self, node: TensorLoad, _: Descend) -> Var:
        var = Var("part", dtype_of(node))
        self._stand_ins.add(var)
        return var


def _is_unsigned(expr: Expr) -> bool:
    return dtype_of(expr).startswith("uint")


def _affine(expr: Expr) -> bool:
    """Only sums and products of signed variables and constants?"""
    kind = type(expr)
    if kind is Var:
        return not str(expr.ty.dtype).startswith("uint")
    if kind is IntImm:
        return not _is_unsigned(expr)
    return kind in _RING and _affine(expr.a) and _affine(expr.b)


def _same_type(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands with one integer type, the wider one."""
    if isinstance(b, int):
        return a, const(b, dtype_of(a))
    if isinstance(a, int):
        return const(a, dtype_of(b)), b
    da, db = dtype_of(a), dtype_of(b)
    if da == db:
        return a, b
    wide = "int64"
    return (a if da == wide else Cast(wide, a)), (b if db == wide else Cast(wide, b))

"""What is known about integers at a point of the program: ranges of variables, conditions that hold, proofs from both.

In: bindings and conditions, in program order and scope. Out: bounds, yes/no answers, simpler expressions. TVM's analyzer
computes with unbounded integers and takes a load for a constant; here every part of an expression for which that would
be wrong (memory, arithmetic that may wrap, narrowing casts, calls) becomes a variable of its own known only by its type.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..ir.access import accesses
from ..ir.dialect import IF_THEN_ELSE, LIKELY
from ..ir.rewrite import Descend, rewrite, walk
from ..ir.tvm_api import Analyzer, Call, Cast, Expr, IntImm, Range, TensorLoad, Var, const, dtype_of, ffi, is_expr, tirx

_LIMIT = 1 << 62
MAX_LEAVES = 32
_EXACT = (tirx.Add, tirx.Sub, tirx.Mul)  # modulo 2^n a wrapped intermediate value still gives the right result
COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
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
    name = getattr(node.op, "name", "") if isinstance(node, Call) else ""
    return name in _PURE_CALLS


def _below_zero(comparison: Expr) -> bool:
    """Is an unsigned number required to be less than 0? The analyzer would compute 0 - 1 and give up."""
    low = comparison.b if isinstance(comparison, tirx.LT) else comparison.a if isinstance(comparison, tirx.GT) else None
    return isinstance(low, IntImm) and int(low) == 0 and dtype_of(low).startswith("uint")


class Facts:
    """An analyzer with the scopes of the program. Used by one traversal, never shared."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self._unknown: set[Var] = set()  # may hold any value of their type
        self._sizes: dict[Var, int] = {}  # leaves in the values of names, names replaced by their values
        self._by_hash: dict[int, list[tuple[Expr, Var]]] = {}
        self._stand_ins: set[Var] = set()

    # ---- what is known
    def bind_range(self, var: Var, low: Any, extent: Any) -> None:
        """low <= var < low + extent. Loads inside are values of now, so they never meet later loads."""
        extent = extent if not isinstance(extent, int) else const(extent, dtype_of(var))
        low = low if not isinstance(low, int) else const(low, dtype_of(var))
        if isinstance(extent, tirx.Sub) and extent.b.same_as(low):  # low <= var < end: what bounds `low` bounds `end - low` too loosely
            least = const(self.bounds(low)[0], dtype_of(var))
            low, extent = least, extent.a - least
        self.analyzer.bind(var, Range.from_min_extent(self._snapshot(low), self._snapshot(extent)), allow_override=True)

    def bind_value(self, var: Var, value: Expr) -> None:
        """var == value from here on."""
        if type_range(dtype_of(var)) is None:
            return
        if not holds_load(value) and self._small(var, value):
            clean = self.sound(value)
            if str(clean.ty.dtype) == dtype_of(var):
                self.analyzer.bind(var, clean, allow_override=True)
                return
        self._unknown.add(var)
        low, high = self.bounds(value)
        limits = type_range(dtype_of(var))
        if limits is not None and (low > limits[0] or high < limits[1]) and high - low < min(_LIMIT, limits[1]):  # the extent fits
            dtype = dtype_of(var)
            self.analyzer.bind(var, Range.from_min_extent(const(low, dtype), const(high - low + 1, dtype)), allow_override=True)

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
        if any(a.root in changed for a in accesses(part)) or _below_zero(part):
            return None
        return type(part)(self.sound(part.a), self.sound(part.b))

    # ---- questions
    def bounds(self, expr: Expr) -> tuple[int, int]:
        """Least and greatest possible value (of the mathematical value, within its type)."""
        found = self.analyzer.const_int_bound(self.sound(expr))
        low, high = int(found.min_value), int(found.max_value)
        limits = type_range(dtype_of(expr))
        return (max(low, limits[0]), min(high, limits[1])) if limits else (low, high)

    def inside(self, first: Expr, last: Expr, extent: Any) -> tuple[bool, bool]:
        """(is 0 <= first always, is last < extent always)"""
        low, high = self.bounds(first)
        if last is not first:
            _, high = self.bounds(last)
        extent = int(extent) if isinstance(extent, IntImm) else extent
        below = isinstance(extent, int) and high < extent
        return (
            low >= 0 or self.analyzer.can_prove(self.sound(first) >= 0),
            below or self.analyzer.can_prove(tirx.LT(*_same_type(self.sound(last), extent))),
        )

    def never_inside(self, index: Expr, extent: Any) -> bool:
        """Is index outside [0, extent) always? Judged by constant bounds only."""
        low, high = self.bounds(index)
        if high < 0:
            return True
        return isinstance(extent, int | IntImm) and low >= int(extent)

    def simplify(self, expr: Expr) -> Expr:
        """A simpler expression of equal value; `expr` itself where the analyzer's rules would not be exact."""
        operand = expr.a if isinstance(expr, COMPARISONS) else expr
        limits = type_range(dtype_of(operand))
        if isinstance(expr, Var | IntImm) or limits is None or dtype_of(operand).startswith("uint"):  # the analyzer fails for 0 - x
            return expr
        if not _affine(expr) and self.sound(expr) is not expr:  # sums alone are exact modulo 2^n
            return expr
        result = self.analyzer.simplify(expr)
        if dtype_of(result) != dtype_of(expr) or self._has_stand_in(result):
            return expr
        return result if _affine(result) or self._no_new_wrap(result, expr) else expr

    def _no_new_wrap(self, result: Expr, given: Expr) -> bool:
        """Does all arithmetic on data in `result` stand in `given` as well, or fit its type? x - 2 < data must not become
        x < data + 2, which wraps for the greatest data."""
        sums = (*_EXACT, Cast, tirx.LShift)
        kept: set[int] = set()
        walk(given, {sums: lambda node: kept.add(ffi.structural_hash(node))})
        found: list[Expr] = []
        walk(result, {sums: lambda node: None if ffi.structural_hash(node) in kept else found.append(node)})
        return all(self._fits_surely(node) for node in found)

    def _fits_surely(self, node: Expr) -> bool:
        """As `_fits`, where names without known bounds may hold any value of their type."""
        limits, bounds = type_range(dtype_of(node)), self.analyzer.const_int_bound(node.value if isinstance(node, Cast) else node)
        if limits is None or (int(bounds.min_value) >= limits[0] and int(bounds.max_value) <= limits[1]):
            return limits is not None
        return not isinstance(node, Cast) and not self._any_unbounded(node)

    def _any_unbounded(self, node: Expr) -> bool:
        """Is there a variable in it that may reach an end of its type?"""
        variables: list[Var] = []
        walk(node, {Var: variables.append})
        return any(v in self._unknown or self._is_unbounded(v) for v in variables)

    def _is_unbounded(self, var: Var) -> bool:
        limits, found = type_range(dtype_of(var)), self.analyzer.const_int_bound(var)
        if limits is None:
            return True
        low, high = max(limits[0], 1 - (1 << 63)), min(limits[1], (1 << 63) - 1)  # the analyzer's infinities
        return int(found.max_value) >= high or (low < 0 and int(found.min_value) <= low)

    def _has_stand_in(self, expr: Expr) -> bool:
        """The analyzer replaces names by what they are bound to, where a stand-in may be part of it."""
        found: list[Var] = []
        if self._stand_ins:
            walk(expr, {Var: lambda v: found.append(v) if v in self._stand_ins else None})
        return bool(found)

    # ---- expressions that the analyzer may reason about
    def sound(self, expr: Any) -> Any:
        """`expr` with stand-in variables for what the analyzer would misjudge; `expr` itself if there is nothing."""
        if not is_expr(expr) or isinstance(expr, Var | IntImm) or (_affine(expr) and not (self._unknown and self.any_unknown(expr))):
            return expr
        result = rewrite(expr, {Expr: self._sound_node})
        return expr if result.same_as(expr) else result

    def _sound_node(self, node: Expr, descend: Descend) -> Expr:
        if isinstance(node, Var | IntImm):
            return node
        limits = type_range(dtype_of(node))
        if isinstance(node, TensorLoad) or limits is None or (isinstance(node, Call) and not is_pure_call(node)):
            return self.stand_in(node)
        inner = descend.children(node)
        if isinstance(inner, Cast) and type_range(dtype_of(inner.value)) is None:
            return self.stand_in(node)
        if isinstance(inner, (*COMPARISONS, tirx.And, tirx.Or, tirx.Not)):
            return inner
        wraps = isinstance(inner, (*_EXACT, Cast, Call, tirx.LShift, tirx.FloorDiv, tirx.Div))
        if wraps and not self._fits(inner, limits):
            return self.stand_in(node)
        return inner

    def _fits(self, node: Expr, limits: tuple[int, int]) -> bool:
        """Is the mathematical value of `node` inside its type? Arithmetic on loop, block and thread variables and sizes
        alone is taken to be: it counts elements that exist."""
        value = node.value if isinstance(node, Cast) else node
        found = self.analyzer.const_int_bound(value)
        if int(found.min_value) >= limits[0] and int(found.max_value) <= limits[1]:
            return True
        return limits[0] < 0 and not isinstance(node, Cast) and not self.any_unknown(node)

    def any_unknown(self, node: Expr) -> bool:
        """Is there a variable in it that may hold any value of its type?"""
        variables: list[Var] = []
        walk(node, {Var: variables.append})
        return any(v in self._unknown for v in variables)

    def stand_in(self, node: Expr) -> Var:
        """The variable for this part: the same one for equal parts."""
        key = ffi.structural_hash(node)
        for known, var in self._by_hash.get(key, ()):
            if ffi.structural_equal(known, node):
                return var
        var = Var("part", dtype_of(node))  # the analyzer knows the range of its type
        self._by_hash.setdefault(key, []).append((node, var))
        self._unknown.add(var)
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


def _affine(expr: Expr) -> bool:
    """Only sums and products of signed variables and constants?"""
    kind = type(expr)
    if kind is Var:
        return not str(expr.ty.dtype).startswith("uint")
    if kind is IntImm:
        return True
    return kind in _EXACT and _affine(expr.a) and _affine(expr.b)


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

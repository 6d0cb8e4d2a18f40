"""Expressions of a kernel: operators, subscripts, attributes and calls on Python values and device values alike.

In: evaluated operands and the position of the expression. Out: Python values where all operands are Python's, device
expressions otherwise. Errors of the language get the position of the expression that raised them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from ..errors import Location, TileAttributeError, TileError, TileSyntaxError, TileTypeError, similar
from ..ir.dtypes import canonical
from ..ir.expr import as_expr, binary, convert, if_then_else, is_static, truth, type_of, unary
from ..ir.tvm_api import Expr, TensorRegion, Var, tirx
from .constructs import serial_loop
from .subscripts import Access, access_buffer, access_region, check_indexable, value_of
from .trace import Trace, reads_memory

_PLAIN = frozenset({int, float, bool, str, type(None), tuple, list, dict})
_BUFFER_NAMES = ("shape", "dtype", "name", "data", "scope", "strides", "access_ptr")
_PACKAGE = __name__.split(".", maxsplit=1)[0]


class Inlined:
    """Base of what a call expands in place: macros and functions defined inside a kernel."""

    def inline(self, caller: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError


class Operations:
    """The expression half of an `Activation`."""

    trace: Trace
    sites: list[Location]

    # ---------------------------------------------------------------- operators
    def binary(self, op: str, a: Any, b: Any, k: int) -> Any:
        try:
            return binary(op, a, b)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def unary(self, op: str, a: Any, k: int) -> Any:
        try:
            return unary(op, a)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def compare(self, op: str, a: Any, b: Any, k: int) -> Any:
        if op == "is":
            return a is b
        if op == "is not":
            return a is not b
        try:
            if op in ("in", "not in"):
                found = self._contains(a, b)
                return found if op == "in" else unary("not", found)
            return binary(op, a, b)
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def _contains(self, item: Any, container: Any) -> Any:
        if is_static(item):
            if not (isinstance(container, (list, tuple)) and not all(map(is_static, container))):
                return item in container
        elif type(item) is Var and (facts := self.trace.facts(item)) is not None and not facts.variable:
            return any(type(c) is Var and c.same_as(item) for c in container)
        if not isinstance(container, (list, tuple, set, frozenset, range)):
            raise TileTypeError(f"`in` with a device value needs a list or tuple of values, not {type(container).__name__}")
        result: Any = False
        for one in container:
            result = binary("or", result, binary("==", item, one))
        return result

    def chain(self, ops: tuple[str, ...], k: int, first: Any, *rest: Callable[[], Any]) -> Any:
        """`a < b < c`: each operand is evaluated once, and not at all after a comparison known to be false."""
        left, result = first, True
        for op, later in zip(ops, rest, strict=True):
            right = self.guarded(later, k)
            result = self._join("and", result, self.compare(op, left, right, k))
            if is_static(result) and not result:
                return result
            left = right
        return result

    def logical(self, op: str, k: int, first: Any, *rest: Callable[[], Any]) -> Any:
        """`and` and `or`: Python's meaning for Python values; device operands to the right are evaluated when needed."""
        result = first
        try:
            for later in rest:
                if is_static(result):
                    if bool(result) == (op == "or"):
                        return result
                    result = later()
                else:
                    result = self._join(op, truth(result), self.guarded(later, k))
            return result
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def _join(self, op: str, a: Any, b: Any) -> Any:
        """A device `and`/`or`; the right side is guarded if evaluating it could touch memory."""
        if not is_static(a) and not is_static(b) and reads_memory(self.trace.read(b)):
            return if_then_else(a, truth(b), False) if op == "and" else if_then_else(a, True, truth(b))
        if is_static(a):
            return (b if is_static(b) else truth(b)) if bool(a) == (op == "and") else a
        return binary(op, a, b if not is_static(b) else bool(b))

    def guarded(self, later: Callable[[], Any], k: int) -> Any:
        """Evaluate an operand that may run conditionally: it must not emit statements."""
        stmts = self.trace.builder.frames[-1].stmts
        before = len(stmts)
        value = later()
        if len(stmts) != before:
            raise TileSyntaxError(
                "a statement (a macro or an assignment) inside a conditional expression",
                at=self.sites[k],
                remedy="call it in a statement of its own",
            )
        return value

    def ternary(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any], k: int) -> Any:
        try:
            condition = truth(test) if not is_static(test) else test
            if is_static(condition):
                return yes() if condition else no()
            return if_then_else(condition, self.guarded(yes, k), self.guarded(no, k))
        except TileError as err:
            err.locate(self.sites[k])
            raise

    # ---------------------------------------------------------------- subscripts and attributes
    slice = builtins.slice

    def getitem(self, obj: Any, index: Any, k: int) -> Any:
        try:
            access = self.access(obj, index)
            if access is not None:
                return self._value(access)
            if isinstance(obj, Expr):
                check_indexable(obj)
            return obj[self._python_index(obj, index)]
        except KeyError:
            if is_static(index):
                raise
            raise TileTypeError(f"a Python dict has no entry for the device value {index}", at=self.sites[k]) from None
        except TileError as err:
            err.locate(self.sites[k])
            raise

    def _value(self, access: Access) -> Any:
        value = value_of(access)
        if access.sliced:
            self.trace.sliced[id(value)] = (value, access.sliced)
        return value

    def access(self, obj: Any, index: Any) -> Access | None:
        """The access to memory that `obj[index]` means; None if `obj` is Python's."""
        if type(obj) is Var and self.trace.facts(obj) is not None:
            return access_buffer(self.trace, obj, index)
        if isinstance(obj, TensorRegion):
            known = self.trace.sliced.get(id(obj))
            return access_region(self.trace, obj, known[1] if known else None, index)
        return None

    def _python_index(self, obj: Any, index: Any) -> Any:
        if str(getattr(obj, "__module__", "")).split(".", maxsplit=1)[0] == _PACKAGE or isinstance(obj, dict):
            return index
        for part in index if isinstance(index, tuple) else (index,):
            if not is_static(part) and isinstance(obj, (list, tuple, str, range)):
                raise TileTypeError(
                    f"a Python {type(obj).__name__} indexed by the device value {part}",
                    remedy="put the values into memory (T.alloc_local, T.alloc_shared), or choose with T.if_then_else",
                )
        return index

    def attribute(self, obj: Any, name: str, k: int) -> Any:
        kind = type(obj)
        if kind is Var:
            facts = self.trace.facts(obj)
            if facts is not None:
                if name == "shape":
                    return facts.shape
                if name == "dtype":
                    return canonical(facts.dtype)
                if facts.variable and not hasattr(obj, name):
                    raise self._no_attribute(obj, name, k)
            elif name == "dtype":
                return canonical(type_of(obj))
        elif kind is TensorRegion:
            if name == "dtype":
                return canonical(str(obj.source.ty.dtype))
            if name == "shape":
                known = self.trace.sliced.get(id(obj))
                extents = [int(r.extent) if hasattr(r.extent, "value") else r.extent for r in obj.region]
                return tuple(extents[axis] for axis in known[1]) if known else tuple(extents)
        elif name == "dtype" and isinstance(obj, Expr):
            return canonical(type_of(obj))
        try:
            return getattr(obj, name)
        except TileError as err:
            err.locate(self.sites[k])
            raise
        except AttributeError:
            if isinstance(obj, Expr):
                raise self._no_attribute(obj, name, k) from None
            raise

    def _no_attribute(self, obj: Any, name: str, k: int) -> TileAttributeError:
        facts = self.trace.facts(obj) if type(obj) is Var else None
        what, known = ("a scalar value", ("dtype",)) if facts is None else (f"buffer {obj.name}", _BUFFER_NAMES)
        what = f"variable {obj.name}" if facts is not None and facts.variable else what
        return TileAttributeError(f"{what} has no attribute {name!r}{similar(name, known)}", at=self.sites[k])

    # ---------------------------------------------------------------- calls
    def call(self, function: Any, k: int, /, *args: Any, **keywords: Any) -> Any:
        builder = self.trace.builder
        before, builder.location = builder.location, self.sites[k]
        try:
            return self._call(function, args, keywords)
        except TileError as err:
            err.locate(self.sites[k])
            raise
        except (TypeError, ValueError) as err:
            told = _told(function, err)
            if told is None:
                raise
            raise TileTypeError(told, at=self.sites[k]) from None
        finally:
            builder.location = before

    def call_as(self, name: str, function: Any, k: int, /, *args: Any, **keywords: Any) -> Any:
        """A call whose value gets a name, which allocations take over."""
        builder = self.trace.builder
        builder.target_name = name
        try:
            return self.call(function, k, *args, **keywords)
        finally:
            builder.target_name = None

    def _call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if isinstance(function, Inlined):
            self.trace.builder.target_name = None
            return function.inline(self, args, keywords)
        if str(getattr(function, "__module__", "")).startswith(_PACKAGE + "."):
            return function(*args, **keywords)
        read = self.trace.read
        args = tuple([read(a) for a in args])
        keywords = {name: read(value) for name, value in keywords.items()}
        special = _BUILTINS.get(id(function))
        if special is not None and not all(type(a) in _PLAIN and (type(a) not in (tuple, list) or _static_items(a)) for a in args):
            return special(self, *args, **keywords)
        return function(*args, **keywords)

    # Python's functions on device values
    def _extremum(self, op: str, *args: Any) -> Any:
        values = list(args[0]) if len(args) == 1 else list(args)
        result = values[0]
        for value in values[1:]:
            result = binary(op, result, value)
        return result

    def _sum(self, values: Any, start: Any = 0) -> Any:
        result = start
        for value in values:
            result = value if is_static(result) and result == 0 and not isinstance(result, float) else binary("+", result, value)
        return result

    def _absolute(self, value: Any) -> Any:
        if is_static(value):
            return abs(value)
        return tirx.abs(as_expr(value))

    def _length(self, value: Any) -> Any:
        if type(value) is Var and (facts := self.trace.facts(value)) is not None:
            return facts.shape[0]
        return len(value)

    def _quantified(self, op: str, values: Any) -> Any:
        result: Any = op == "and"
        for value in values:
            result = self._join(op, result, value)
        return result

    def _range(self, *args: Any) -> Any:
        if all(is_static(a) for a in args):
            return range(*args)
        if len(args) == 1:
            return serial_loop("range", args[0])
        return serial_loop("range", *args)


def _static_items(values: Any) -> bool:
    return all(is_static(v) for v in values)


def _cast(kind: str, python: type) -> Callable[..., Any]:
    def cast(_self: Operations, value: Any = 0, *rest: Any) -> Any:
        if is_static(value):
            return python(value, *rest)
        return truth(value) if kind == "bool" else convert(value, kind)

    return cast


def _told(function: Any, error: TypeError | ValueError) -> str | None:
    """What a plain error of a call means to the user; None if it is the business of the function called."""
    name = getattr(function, "__name__", "this call")
    if "Cannot use and / or / not operator to Expr" in str(error):  # TVM's, of an expression's truth
        return f"{name} asks Python for the truth of a device value, which is not known while the kernel is written"
    depth, frame = 0, error.__traceback__
    while frame is not None:
        depth, frame = depth + 1, frame.tb_next
    ours = str(getattr(function, "__module__", "")).startswith(_PACKAGE + ".")
    return f"T.{error}" if ours and depth == 2 and isinstance(error, TypeError) else None  # raised before its first line


_BUILTINS: dict[int, Callable[..., Any]] = {
    id(max): lambda self, *args, **kw: self._extremum("max", *args) if not kw else max(*args, **kw),
    id(min): lambda self, *args, **kw: self._extremum("min", *args) if not kw else min(*args, **kw),
    id(sum): Operations._sum,
    id(abs): Operations._absolute,
    id(len): Operations._length,
    id(any): lambda self, values: self._quantified("or", values),
    id(all): lambda self, values: self._quantified("and", values),
    id(range): Operations._range,
    id(int): _cast("int32", int),
    id(float): _cast("float32", float),
    id(bool): _cast("bool", bool),
    id(pow): lambda self, a, b: binary("**", a, b),
}

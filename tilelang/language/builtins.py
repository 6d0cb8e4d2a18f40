"""Calls of functions outside the language, addresses of elements, raw statements of TVM.

In: names, values, buffer elements. Out: TVM calls; statements go to the running builder.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import TileNameError, TileTypeError, TileValueError
from ..ir import expr as ex
from ..ir.builder import current, in_kernel
from ..ir.dialect import VAR, make_call
from ..ir.dtypes import canonical
from ..ir.tvm_api import (
    Call,
    Evaluate,
    Expr,
    Op,
    StringImm,
    TensorLoad,
    TensorRegion,
    Var,
    is_buffer,
    load,
    shape_of,
    tirx,
)


# ---------------------------------------------------------------- functions of other languages
def call_extern(*args: Any, dtype: Any = None) -> Expr:
    """Call a function that the target's code can see: `call_extern(dtype, name, *args)` or `call_extern(name, *args, dtype=dtype)`.

    A buffer or slice as argument passes the address of its first element, a string a string constant. dtype "void" or
    "handle" for functions without a value. The function must exist on the target (see `T.import_source`).
    """
    return _extern("T.call_extern", tirx.call_extern, args, dtype)


def call_pure_extern(*args: Any, dtype: Any = None) -> Expr:
    """Like `call_extern`, for a function without side effects."""
    return _extern("T.call_pure_extern", tirx.call_pure_extern, args, dtype)


def _extern(what: str, make: Callable[..., Expr], args: Sequence[Any], dtype: Any) -> Expr:
    if dtype is None:
        if len(args) < 2:
            raise TileTypeError(f"{what} needs a result type and a name", remedy=f'{what}("float32", "name", ...)')
        dtype, *args = args
    if not args or not isinstance(args[0], str):
        raise TileTypeError(f"{what}: {args[0] if args else None!r} is no function name")
    return make(_result_type(dtype), args[0], *[_argument(a, what) for a in args[1:]])


def _result_type(dtype: Any) -> str:
    return "void" if isinstance(dtype, str) and dtype in ("void", "") else canonical(dtype).storage


def _argument(value: Any, what: str) -> Expr:
    """An operand of a foreign function."""
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, TensorRegion) or (isinstance(value, Var) and is_buffer(value) and value.scope() != VAR):
        return address_of(value)
    if isinstance(value, StringImm) or (isinstance(value, Call) and not isinstance(value, TensorLoad)):
        return value
    if value is None:
        raise TileTypeError(f"{what}: None is no argument")
    return ex.as_expr(value)


def call_intrin(dtype: Any, func_name: str, *args: Any) -> Expr:
    """Call an operator of TVM by its name, e.g. `T.call_intrin("float32", "tirx.exp", x)`; the old prefix "tir." is accepted."""
    name = func_name.name if isinstance(func_name, Op) else str(func_name)
    known = {str(n) for n in Op.list_op_names()}
    if name not in known and name.startswith("tir."):
        name = "tirx." + name.removeprefix("tir.")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=2)
        raise TileNameError(f"T.call_intrin: TVM has no operator {name!r}", remedy=f"similar: {', '.join(near)}" if near else "")
    return tirx.call_intrin(_result_type(dtype), name, *[_argument(a, "T.call_intrin") for a in args])


# ---------------------------------------------------------------- addresses
def _element(value: Any, what: str) -> TensorLoad:
    """The element whose address is meant: of a buffer or slice the first one."""
    if isinstance(value, Var) and is_buffer(value):
        return load(value, [0] * len(shape_of(value)))
    if isinstance(value, TensorRegion):
        return load(value.source, [r.min for r in value.region])
    if isinstance(value, TensorLoad):
        return value
    raise TileTypeError(f"{what}: {value!r} is no element of a buffer", remedy="pass A[i, j], or a buffer for its first element")


def address_of(element: Any) -> Expr:
    """Pointer to an element (of a buffer or slice: to its first one)."""
    return tirx.address_of(_element(element, "T.address_of"))


_ACCESS = {"r": 1, "w": 2, "rw": 3, 1: 1, 2: 2, 3: 3}


def access_ptr(base: Any, access_type: Any = "r", *extents: Any, offset: Any = 0, extent: Any = None, ignore_last_ndim: int = 0) -> Expr:
    """Pointer to a region that begins at `base`, with what is done there.

    base: an element, slice or buffer. access_type: "r", "w", "rw" (or 1, 2, 3). extents: of the region from `base`, for the last
    dimensions; extent: their product instead. offset: further elements. ignore_last_ndim: leave the last indices at 0.
    Default extent: the elements from `base` to the end of the buffer.
    """
    what = "T.access_ptr"
    if access_type not in _ACCESS:
        raise TileValueError(f"{what}: access type {access_type!r}; possible are 'r', 'w', 'rw'")
    element = _element(base, what)
    buffer, shape = element.source, shape_of(element.source)
    indices = list(element.indices)
    for axis in range(len(indices) - ignore_last_ndim, len(indices)):
        indices[axis] = 0
    start, total = _linear(buffer, shape, indices), _product(shape)
    if extent is None:
        extent = _product(extents) if extents else ex.binary("-", total, start)
    place = ex.binary("+", start, offset)
    return tirx.tvm_access_ptr(
        str(buffer.ty.dtype), buffer.data, ex.convert(place, "int32"), ex.convert(extent, "int32"), _ACCESS[access_type]
    )


def _product(values: Sequence[Any]) -> Any:
    total: Any = 1
    for value in values:
        total = ex.binary("*", total, value)
    return total


def _linear(buffer: Var, shape: Sequence[Any], indices: Sequence[Any]) -> Any:
    """Offset of an element in elements."""
    row_major = [_product(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = list(buffer.strides) if len(buffer.strides) else row_major
    total: Any = 0
    for index, step in zip(indices, steps, strict=True):
        total = ex.binary("+", total, ex.binary("*", index, step))
    return total


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: int) -> Expr:
    """TVM's raw access pointer. ptype: `T.type_annotation(dtype)` or a dtype; offset, extent in elements; rw_mask 1, 2 or 3."""
    if isinstance(data, Var) and is_buffer(data):
        data = data.data
    if not isinstance(data, Expr) or ex.type_of(data) != "handle":
        raise TileTypeError(f"T.tvm_access_ptr: {data!r} is no storage", remedy="pass buffer.data")
    kind = ptype if isinstance(ptype, Call) else canonical(ptype).storage
    return tirx.tvm_access_ptr(kind, data, ex.as_expr(offset), ex.as_expr(extent), int(rw_mask))


def type_annotation(dtype: Any) -> Expr:
    """An element type as an operand of `T.tvm_access_ptr`."""
    return tirx.type_annotation(canonical(dtype).storage)


# ---------------------------------------------------------------- reductions over threads
def comm_reducer(combiner: Callable[..., Any], identity: Sequence[Any]) -> Any:
    """A commutative reducer for `T.tvm_thread_allreduce`, from a function of two values and its identity.

    Used as `with T.attr(reducer, "reduce_scope", T.reinterpret(T.uint64(0), "handle")):` around the reduction.
    """
    starts = [ex.as_expr(v) for v in identity]
    kinds = [ex.type_of(v) for v in starts]
    count = len(inspect.signature(combiner).parameters)
    if not starts or count != 2 * len(starts):
        raise TileTypeError(f"T.comm_reducer: a function of {count} values with {len(starts)} identities; it takes two for each identity")
    left = [Var(f"x{k}", str(kind)) for k, kind in enumerate(kinds)]
    right = [Var(f"y{k}", str(kind)) for k, kind in enumerate(kinds)]
    found = combiner(*left, *right)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(results) != len(starts):
        raise TileTypeError(f"T.comm_reducer: the function returns {len(results)} values for {len(starts)} identities")
    return tirx.CommReducer(left, right, [ex.convert(r, str(kind)) for r, kind in zip(results, kinds, strict=True)], starts)


def tvm_thread_allreduce(size: Any, *args: Any, dtype: Any = "handle") -> Expr:
    """Combine a value over a thread axis, inside `T.attr(reducer, "reduce_scope", ...)`.

    Operands: `T.uint32(1), value, condition, out[0], thread_var`.
    Every thread along the axis finds the combination of all values whose condition holds in `out[0]`. To be given to `T.evaluate`.
    """
    in_kernel("T.tvm_thread_allreduce")
    if len(args) < 4:
        raise TileTypeError("T.tvm_thread_allreduce needs value, condition, result element and at least one thread variable")
    return tirx.tvm_thread_allreduce(ex.convert(size, "uint32"), *[ex.as_expr(a) for a in args])


# ---------------------------------------------------------------- raw statements
def evaluate(value: Any) -> None:
    """Execute an expression for its effect."""
    builder = current("T.evaluate")
    if value is None:
        return
    found = value if isinstance(value, Expr) and not (isinstance(value, Var) and is_buffer(value)) else ex.as_expr(value)
    builder.emit(Evaluate(found, builder.span()))


def assume(condition: Any) -> None:
    """Promise that the condition holds here; the compiler may use it."""
    if ex.is_static(condition):
        if not condition:
            raise TileValueError("T.assume: the condition is false while tracing")
        return
    builder = current("T.assume")
    if builder.kernel is not None:
        builder.evaluate(make_call("tl.hint", [ex.truth(condition)], span=builder.span(), what="assume"))

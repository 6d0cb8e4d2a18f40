"""Arguments of a call: checked against the signature, every refusal says which parameter, what was expected and what came.

In: a `Signature` and the caller's values. Out: values that the compiled function takes (`Prepared`). The compiled
function makes most checks itself; this module runs when it refuses, and for arrays that need help to be passed.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError
from ..ir.annotations import LARGEST_SIZE
from ..ir.dtype_table import info, numpy_type
from .arrays import (
    NUMPY_OWN,
    ArrayInfo,
    View,
    array_info,
    as_view,
    compact_strides,
    empty,
    is_array,
    is_compact,
    is_torch,
    placeholder,
    torch_module,
)
from .signature import POINTER, SCALAR, TENSOR, Dim, Param, Signature, evaluate, show_dim, show_shape, symbols
from .sub_byte import opened, storage


@dataclass
class Prepared:
    """values: one for each parameter, ready for the compiled function. outputs: those to return. helped: positions of
    parameters that could not be passed as they are. after: what to do when the function has run."""

    values: list[Any]
    outputs: list[Any]
    helped: frozenset[int]
    after: tuple[Callable[[], None], ...] = ()

    def run(self, entry: Callable[..., Any]) -> list[Any]:
        """Call the compiled function; its outputs."""
        entry(*self.values)
        for step in self.after:
            step()
        return self.outputs


class Binder:
    """Symbols of one call with the value each one got, and from where."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def match(self, dim: Dim, actual: int, where: str, param: Param, got: ArrayInfo) -> None:
        """Bind `dim` to the actual extent, or compare it if its value is known."""
        if isinstance(dim, str) and dim not in self.values:
            self.values[dim], self.origin[dim] = actual, where
            return
        unknown = [s for s in dict.fromkeys(symbols(dim)) if s not in self.values]
        if len(unknown) == 1:
            self._solve(dim, unknown[0], actual, where, param)
        try:
            expected = evaluate(dim, self.values)
        except (KeyError, ZeroDivisionError):
            return  # not determined by the arguments so far; the compiled function decides
        if expected == actual:
            return
        why = ", ".join(f"{s} = {self.values[s]} by {self.origin[s]}" for s in dict.fromkeys(symbols(dim)))
        raise TileValueError(
            f"{param.name}: expected shape {show_shape(param.shape)}, got {show_shape(got.shape)}: "
            f"{where} is {actual}, expected {show_dim(dim) if why else expected}{f' = {expected} ({why})' if why else ''}"
        )

    def _solve(self, dim: Dim, symbol: str, actual: int, where: str, param: Param) -> None:
        """The value of the only unknown symbol of a linear extent, such as n in 2 * n + 1: a size, so not negative."""
        try:
            zero, one = (evaluate(dim, {**self.values, symbol: k}) for k in (0, 1))
        except ZeroDivisionError:
            return
        if one == zero:
            return
        value, rest = divmod(actual - zero, one - zero)
        if rest or value < 0:
            known = ", ".join(f"{s} = {self.values[s]} by {self.origin[s]}" for s in dict.fromkeys(symbols(dim)) if s in self.values)
            raise TileValueError(
                f"{param.name}: {where} is {actual}, expected {show_dim(dim)}{f' ({known})' if known else ''}: no size {symbol} gives that"
            )
        if evaluate(dim, {**self.values, symbol: value}) == actual:
            self.values[symbol], self.origin[symbol] = value, where


def prepare(signature: Signature, args: Sequence[Any], device: str = "cpu") -> Prepared:
    """Check and convert the caller's arguments (those that are not outputs), allocate the outputs.

    Raises TileTypeError or TileValueError naming the parameter, the expected and the actual value.
    """
    positions = signature.inputs
    if len(args) != len(positions):
        some = f"; outputs {', '.join(signature.params[k].name for k in signature.out_idx)} are returned" if signature.out_idx else ""
        raise TileValueError(f"{signature.name}: expected {len(positions)} arguments, got {len(args)}", remedy=f"call {signature}{some}")
    binder = Binder()
    values: list[Any] = [None] * len(signature.params)
    arrays: dict[int, ArrayInfo] = {}
    after: list[Callable[[], None]] = []
    for k, value in zip(positions, args, strict=True):
        param = signature.params[k]
        if param.kind == TENSOR and not (value is None and not param.used):
            sub_byte = info(param.dtype).bits < 8 and is_array(value)
            arrays[k] = _check_array(param, _opened(param, value, after) if sub_byte else value, device)
        elif param.kind == SCALAR:
            values[k] = scalar(param, value)
            binder.values[param.name], binder.origin[param.name] = values[k], "the argument"
        elif param.kind == POINTER:
            values[k] = address(param, value, device)
    _bind_all(signature, arrays, binder)
    first = next((value for value in args if is_array(value)), None)
    place = _one_device(signature, arrays) if arrays else device
    for k, param in enumerate(signature.params):
        if k in signature.out_idx:
            values[k] = _output(param, binder, first, device)
            arrays[k] = array_info(values[k], param.name)
        if k in arrays:
            _check_layout(param, arrays[k], binder)
            _check_sizes(signature, binder)
            values[k] = _passable(param, arrays[k])
        elif param.kind == TENSOR:
            shape = tuple(_or_one(d, binder) for d in param.shape)
            values[k] = placeholder(param.dtype, shape, tuple(_or_one(d, binder) for d in param.strides) if param.strides else None, place)
    given = dict(zip(positions, args, strict=True))
    helped = {k for k in positions if values[k] is not given[k]} | {k for k in signature.out_idx if isinstance(values[k], View)}
    return Prepared(values, [arrays[k].keep for k in signature.out_idx], frozenset(helped), tuple(after))


def _one_device(signature: Signature, arrays: dict[int, ArrayInfo]) -> str:
    """The device of the tensors, which must be the same."""
    (first, device), *others = ((signature.params[k].name, got.device) for k, got in arrays.items())
    for name, other in others:
        if other != device:
            raise TileValueError(f"{name}: expected a tensor on {device}, as {first} is, got one on {other}", remedy="move it there")
    return device


# ---------------------------------------------------------------- tensors
def _check_array(param: Param, value: Any, device: str) -> ArrayInfo:
    """Kind, device, dtype and rank of one tensor argument."""
    if value is None:
        raise TileTypeError(
            f"{param.name}: expected {_expected(param)}, got None", remedy="None is only for tensors the program never uses"
        )
    if not is_array(value):
        raise TileTypeError(f"{param.name}: expected {_expected(param)}, got {type(value).__name__} {_short(value)}")
    got = array_info(value, param.name)
    if got.device.split(":")[0] != device:
        raise TileValueError(
            f"{param.name}: expected a tensor on device {device}, got one on {got.device}",
            remedy=f"the kernel was compiled for {device}: move the tensor there",
        )
    if got.dtype != param.dtype:
        raise TileTypeError(f"{param.name}: expected dtype {param.dtype}, got {got.dtype}", remedy=f"parameter {param}")
    if len(got.shape) != len(param.shape):
        raise TileValueError(
            f"{param.name}: expected {len(param.shape)} dimensions, shape {show_shape(param.shape)}, "
            f"got {len(got.shape)}, shape {show_shape(got.shape)}"
        )
    if param.written:
        _check_writable(param, value, got)
    return got


def _opened(param: Param, value: Any, after: list[Callable[[], None]]) -> Any:
    """A tensor of elements of less than 8 bits with a byte for each; one that the program writes is packed again afterwards."""
    value_in_bytes, store = opened(param.name, param.dtype, value)
    if store is not None and param.written:
        _check_writable(param, value, array_info(value, param.name))
        after.append(store)
    return value_in_bytes


def _check_writable(param: Param, value: Any, got: ArrayInfo) -> None:
    if not got.writable:
        raise TileValueError(f"{param.name}: the program writes this tensor, and the array is read-only", remedy="pass a writable array")
    if is_torch(value) and value.requires_grad and torch_module().is_grad_enabled():
        raise TileValueError(
            f"{param.name}: the program writes this tensor, and it requires grad: autograd would not see the change",
            remedy="pass tensor.detach(), or call inside torch.no_grad()",
        )
    overlaps = any(e > 1 and s == 0 for e, s in zip(got.shape, got.strides, strict=True))
    if overlaps and math.prod(got.shape):
        raise TileValueError(
            f"{param.name}: the program writes this tensor, and elements of it share memory (stride 0)", remedy="pass a copy"
        )


def _bind_all(signature: Signature, arrays: dict[int, ArrayInfo], binder: Binder) -> None:
    """Bind plain symbols first, so that compound extents such as 2 * n can be compared wherever they stand; twice, because
    a later one may determine what an earlier one needs."""
    for plain in (True, False, False):
        for k, got in arrays.items():
            param = signature.params[k]
            for axis, (dim, actual) in enumerate(zip(param.shape, got.shape, strict=True)):
                if isinstance(dim, tuple) != plain:
                    binder.match(dim, actual, f"{param.name}.shape[{axis}]", param, got)


def _check_layout(param: Param, got: ArrayInfo, binder: Binder) -> None:
    if param.strides is None:
        if not is_compact(got.shape, got.strides):
            raise TileValueError(
                f"{param.name}: expected contiguous memory (strides {compact_strides(got.shape)}), got strides {got.strides} in elements",
                remedy="pass a contiguous copy, or declare the parameter as T.StridedTensor",
            )
        return
    for axis, (dim, actual) in enumerate(zip(param.strides, got.strides, strict=True)):
        if got.shape[axis] == 1 or 0 in got.shape:
            continue
        if isinstance(dim, str) and dim not in binder.values:
            binder.values[dim], binder.origin[dim] = actual, f"{param.name}.strides[{axis}]"
            continue
        try:
            expected = evaluate(dim, binder.values)
        except (KeyError, ZeroDivisionError):
            continue
        if expected != actual:
            raise TileValueError(
                f"{param.name}: expected strides {show_shape(param.strides)}, got {show_shape(got.strides)}: "
                f"strides[{axis}] is {actual}, expected {expected}"
            )


def _check_sizes(signature: Signature, binder: Binder) -> None:
    for symbol in signature.narrow:
        value = binder.values.get(symbol, 0)
        if abs(value) > LARGEST_SIZE:
            raise TileValueError(
                f"{binder.origin[symbol]} is {value}, and the symbol {symbol} has 32 bits: at most {LARGEST_SIZE}",
                remedy=f'declare it as T.dynamic("{symbol}", "int64")',
            )


def _passable(param: Param, got: ArrayInfo) -> Any:
    if info(param.dtype).bits < 8:
        got = replace(got, dtype=storage(param.dtype))
    # The compiled function compares strides even where they mean nothing.
    return got.keep if got.direct else as_view(got, None if param.strides is None else got.strides)


def _output(param: Param, binder: Binder, like: Any, device: str) -> Any:
    shape = tuple(evaluate(d, binder.values) for d in param.shape)
    if any(e < 0 for e in shape):
        raise TileValueError(f"{param.name}: the size of this output comes out as {shape}")
    return empty(shape, param.dtype, like, device)


def _or_one(dim: Dim, binder: Binder) -> int:
    try:
        return evaluate(dim, binder.values)
    except (KeyError, ZeroDivisionError):
        return 1


def _expected(param: Param) -> str:
    return f"a tensor {param.dtype}{show_shape(param.shape)}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a user's broken __repr__ must not hide the message
        return ""
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---------------------------------------------------------------- scalars and addresses
def scalar(param: Param, value: Any) -> Any:
    """A Python number that fits the parameter exactly (integers) or as a rounding (floats)."""
    if is_array(value) and getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):
        value = value.item()
    kind = info(param.dtype)
    wanted = f"{param.name}: expected {'a bool' if kind.kind == 'bool' else 'an int' if kind.is_integer else 'a number'} ({param.dtype})"
    if isinstance(value, np.generic):
        value = value.item()
    if kind.kind == "float":
        if not isinstance(value, numbers.Real):
            raise TileTypeError(f"{wanted}, got {type(value).__name__} {_short(value)}")
        return float(value)
    if not isinstance(value, numbers.Integral):
        raise TileTypeError(f"{wanted}, got {type(value).__name__} {_short(value)}")
    value = int(value)
    if not kind.low <= value <= kind.high:
        raise TileValueError(f"{param.name}: {value} does not fit {param.dtype} ({kind.low} to {kind.high})")
    # The calling convention has signed 64-bit integers only: the upper half of uint64 travels as its bit pattern.
    return bool(value) if kind.kind == "bool" else value - (1 << 64) if value >> 63 == 1 else value


def address(param: Param, value: Any, device: str) -> Any:
    """A raw address as the compiled function takes it, from an int or from the memory of a tensor."""
    if is_array(value):
        got = array_info(value, param.name)
        if got.device.split(":")[0] != device:
            raise TileValueError(f"{param.name}: expected memory on device {device}, got a tensor on {got.device}")
        if not is_compact(got.shape, got.strides):
            raise TileValueError(f"{param.name}: expected contiguous memory, got strides {got.strides} in elements")
        if param.written:
            _check_writable(param, value, got)
        if 0 in got.shape:
            return ctypes.c_void_p(got.address)
        value = got.address
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TileTypeError(f"{param.name}: expected an address (int) or a tensor, got {type(value).__name__} {_short(value)}")
    if not (int(value) > 0 or not param.used) or int(value) >> 64:
        raise TileValueError(f"{param.name}: {value} is no address", remedy="pass the memory's address, or the tensor itself")
    return ctypes.c_void_p(int(value))


# ---------------------------------------------------------------- the fast way
@dataclass(frozen=True)
class Quick:
    """How to call the compiled function directly. doubts: (position among the caller's arguments, predicate) pairs; an argument
    for which one is true needs `prepare`. outputs: (parameter, maker) pairs in ascending order, each maker giving a fresh array from the
    caller's arguments.
    views: (parameter, maker) pairs for arrays that NumPy does not export; a maker gives None for an array that needs `prepare`."""

    doubts: tuple[tuple[int, Callable[[Any], bool]], ...]
    outputs: tuple[tuple[int, Callable[[Sequence[Any]], Any]], ...]
    views: tuple[tuple[int, Callable[[Any], View | None]], ...] = ()


def quick_call(signature: Signature, args: Sequence[Any], device: str = "cpu") -> Quick | None:
    """The direct way for arguments of the types of `args`, or None if they always need `prepare`. What the doubts leave
    out, the compiled function refuses itself."""
    torch = torch_module()
    doubts: list[tuple[int, Callable[[Any], bool]]] = []
    views: list[tuple[int, Callable[[Any], View | None]]] = []
    for position, (k, value) in enumerate(zip(signature.inputs, args, strict=True)):
        param, kind = signature.params[k], type(value)
        if param.kind == TENSOR:
            if info(param.dtype).bits < 8:
                return None
            strided = param.strides is not None and param.written  # elements may share memory
            doubts += [(position, doubt) for doubt in _size_doubts(signature, param)]
            if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
                doubts.append((position, kind.is_neg))
                if param.written:
                    doubts.append((position, _requires_grad))
                if strided:
                    doubts.append((position, _repeats))
            elif strided or kind is not np.ndarray:
                return None
            elif param.dtype not in NUMPY_OWN:
                views.append((k, _viewer(param)))
        elif param.kind == POINTER:
            return None
        elif info(param.dtype).kind == "float":
            if kind not in (float, int):
                return None
        elif kind is int:
            doubts.append((position, _overflow(param)))
        elif kind is not bool:
            return None
    like = next((value for value in args if is_array(value)), None)
    if device != "cpu" and not is_torch(like):
        return None
    makers = [(k, _maker(signature, signature.params[k], like)) for k in sorted(signature.out_idx)]
    if any(make is None for _, make in makers):
        return None
    if not is_torch(like):
        views += [(k, _viewer(signature.params[k])) for k in signature.out_idx if signature.params[k].dtype not in NUMPY_OWN]
    return Quick(tuple(doubts), tuple((k, make) for k, make in makers if make is not None), tuple(views))


def _size_doubts(signature: Signature, param: Param) -> list[Callable[[Any], bool]]:
    """Do 32-bit symbols stand for more than they hold? The compiled function takes the low 32 bits without a look."""
    doubts: list[Callable[[Any], bool]] = []
    if any(not signature.narrow.isdisjoint(symbols(dim)) for dim in param.shape):
        doubts.append(_has_large_extent)
    if any(not signature.narrow.isdisjoint(symbols(dim)) for dim in param.strides or ()):
        doubts.append(lambda array: max(map(abs, array.stride() if is_torch(array) else array.strides), default=0) > LARGEST_SIZE)
    return doubts


def _has_large_extent(array: Any) -> bool:
    count = array.size if isinstance(array, np.ndarray) else array.numel()
    return not 0 < count <= LARGEST_SIZE and max(array.shape, default=0) > LARGEST_SIZE


def _viewer(param: Param) -> Callable[[Any], View | None]:
    dtype, written = np.dtype(numpy_type(param.dtype)), param.written

    def view(array: Any) -> View | None:
        flags = array.flags
        if array.dtype != dtype or not flags.c_contiguous or not array.size or (written and not flags.writeable):
            return None
        return View(array.ctypes.data, param.dtype, array.shape, None, array)

    return view


def _overflow(param: Param) -> Callable[[Any], bool]:
    low, high = int(info(param.dtype).low), min(int(info(param.dtype).high), (1 << 63) - 1)
    return lambda value: not low <= value <= high


_requires_grad = operator.attrgetter("requires_grad")


def _repeats(tensor: Any) -> bool:
    return 0 in tensor.stride()


def _maker(signature: Signature, param: Param, like: Any) -> Callable[[Sequence[Any]], Any] | None:
    """A function from the caller's arguments to a fresh output, if its extents are constants or extents of arguments."""
    places = {}  # symbol -> (position among the arguments, axis)
    for position, k in enumerate(signature.inputs):
        for axis, dim in enumerate(signature.params[k].shape):
            if isinstance(dim, str):
                places.setdefault(dim, (position, axis))
    if any(isinstance(d, tuple) or (isinstance(d, str) and d not in places) for d in param.shape):
        return None
    if param.strides is not None or info(param.dtype).bits < 8:
        return None
    dims = [places[d] if isinstance(d, str) else d for d in param.shape]
    constant = tuple(d for d in dims if isinstance(d, int))
    allocate = _allocator(param.dtype, like)
    if len(constant) == len(dims):
        return (lambda _: allocate(constant)) if 0 not in constant else None

    def make(args: Sequence[Any]) -> Any:
        return allocate(tuple(d if isinstance(d, int) else args[d[0]].shape[d[1]] for d in dims))

    return make


def _allocator(dtype: str, like: Any) -> Callable[[tuple[int, ...]], Any]:
    sample = empty((1,), dtype, like)
    if is_torch(sample):
        new, kind, device = torch_module().empty, sample.dtype, sample.device
        return lambda shape: new(shape, dtype=kind, device=device)
    return functools.partial(np.empty, dtype=sample.dtype)

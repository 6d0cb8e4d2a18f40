"""Arguments of a call: checked against the signature, every refusal says which parameter, what was expected and what came.

In: a `Signature` and the caller's values. Out: values that the compiled function takes (`Prepared`). The compiled
function makes most checks itself; this module runs when it refuses, and for arrays that need help to be passed.
"""

from __future__ import annotations

import ctypes
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import TileTypeError, TileValueError
from ..ir.annotations import LARGEST_SIZE
from ..ir.dtype_table import info
from .arrays import (
    ArrayInfo,
    View,
    array_info,
    as_view,
    compact_strides,
    empty,
    is_array,
    is_compact,
    is_torch,
    on_stream,
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
        with on_stream(self.values):
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

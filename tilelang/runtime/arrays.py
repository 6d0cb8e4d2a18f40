"""Arrays of callers as plain facts, and as DLPack objects even where their own library refuses to export them.

In: NumPy arrays (also of ml_dtypes types, read-only, empty), torch tensors, any object with `__dlpack__`.
Out: an `ArrayInfo`, and `View`, a DLPack producer over the same memory. Nothing is copied.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import TileTypeError
from ..ir.dtype_table import info, numpy_type
from ..ir.tvm_api import ffi

# Element types that NumPy itself exports through DLPack.
NUMPY_OWN = frozenset(["bool", "float16", "float32", "float64", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))])


@dataclass(frozen=True)
class ArrayInfo:
    """strides in elements. device: "cpu", "cuda:0", ... (as torch writes it). direct: its library's own DLPack export is
    good as it is (on a GPU it also tells its library's current stream). keep: owns the memory."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    address: int
    writable: bool
    direct: bool
    keep: Any


def torch_module() -> Any:
    """torch if the program has imported it, else None: an array can only be a tensor of a library that is loaded."""
    return sys.modules.get("torch")


def is_torch(value: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_array(value: Any) -> bool:
    """Can it be passed for a tensor? (A class that makes such objects cannot.)"""
    return isinstance(value, np.ndarray) or is_torch(value) or hasattr(type(value), "__dlpack__")


def array_info(value: Any, name: str) -> ArrayInfo:
    """The facts of an array; TileTypeError for an object that is none, naming the parameter `name`."""
    if isinstance(value, np.ndarray):
        return _from_numpy(value, name)
    if is_torch(value):
        return _from_torch(value, name)
    if hasattr(type(value), "__dlpack__"):
        return _from_dlpack(value, name)
    raise TileTypeError(
        f"{name}: expected a tensor, got {type(value).__name__}",
        remedy="pass a NumPy array, a torch tensor or another object that supports DLPack",
    )


def _from_numpy(array: np.ndarray, name: str) -> ArrayInfo:
    if isinstance(array, np.ma.MaskedArray):
        raise TileTypeError(f"{name}: a masked array has no plain values", remedy="pass array.filled(...) or array.data")
    if not array.dtype.isnative:
        raise TileTypeError(
            f"{name}: bytes in foreign order (dtype {array.dtype.str})", remedy='convert with array.astype(array.dtype.newbyteorder("="))'
        )
    if array.dtype.hasobject or array.dtype.names is not None or numpy_type(array.dtype.name) is None:
        raise TileTypeError(f"{name}: NumPy dtype {array.dtype} is no element type of the language")
    size = array.itemsize
    if any(s % size for s in array.strides):
        raise TileTypeError(f"{name}: strides of {array.strides} bytes are no multiple of the element's {size} bytes", remedy="pass a copy")
    plain = array.dtype.name in NUMPY_OWN and array.flags.writeable and array.size > 0
    return ArrayInfo(
        array.dtype.name,
        array.shape,
        tuple(s // size for s in array.strides),
        "cpu",
        array.ctypes.data,
        array.flags.writeable,
        plain,
        array,
    )


def _from_torch(tensor: Any, name: str) -> ArrayInfo:
    torch = torch_module()
    if tensor.layout is not torch.strided:
        raise TileTypeError(f"{name}: a tensor of layout {tensor.layout} has no plain memory", remedy="pass tensor.to_dense()")
    if tensor.is_neg() or tensor.is_conj():
        raise TileTypeError(f"{name}: a lazily negated or conjugated view", remedy="pass tensor.resolve_neg().resolve_conj()")
    dtype = str(tensor.dtype).removeprefix("torch.")
    device = str(tensor.device)
    address = tensor.data_ptr() if device != "meta" else 0
    return ArrayInfo(dtype, tuple(tensor.shape), tuple(tensor.stride()), device, address, True, tensor.numel() > 0, tensor)


def _from_dlpack(value: Any, name: str) -> ArrayInfo:
    try:
        kind, index = (int(part) for part in value.__dlpack_device__())
        device = {1: "cpu", 2: f"cuda:{index}", 3: "cpu", 13: f"cuda:{index}"}.get(kind, "another device")
        tensor = ffi.from_dlpack(value)
    except Exception as error:
        raise TileTypeError(f"{name}: its DLPack export failed: {type(error).__name__}: {error}") from error
    shape = tuple(int(e) for e in tensor.shape)
    strides = tuple(int(s) for s in tensor.strides)
    return ArrayInfo(str(tensor.dtype), shape, strides, device, tensor.data_ptr(), True, math.prod(shape) > 0 and device == "cpu", tensor)


# ---------------------------------------------------------------- DLPack without the library's own export
class _DLManagedTensor(ctypes.Structure):
    """`DLManagedTensor` of dlpack.h, flat. The deleter stays NULL, which DLPack allows: the `View` owns everything."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@functools.lru_cache(maxsize=256)
def _layout(
    dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, device: tuple[int, int]
) -> tuple[_DLManagedTensor, Any]:  # fmt: skip
    """What all views of one layout have in common (never written again), and the memory it points into."""
    kind, rank = ffi.dtype(dtype), len(shape)
    dims = (ctypes.c_int64 * (2 * rank))(*shape, *(strides if strides is not None else compact_strides(shape)))
    start = ctypes.addressof(dims)
    return _DLManagedTensor(None, *device, rank, kind.type_code, kind.bits, kind.lanes, start, start + 8 * rank, 0, None, None), dims


CPU = (1, 0)  # DLPack's kDLCPU


class View:
    """Memory as a DLPack producer. The consumer must not outlive it: made for the duration of one call. strides: in
    elements, None for row-major; keep: owns the memory; device: as DLPack numbers them."""

    __slots__ = ("_keep", "_managed")

    def __init__(
        self, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, keep: Any, device: tuple[int, int] = CPU
    ) -> None:  # fmt: skip
        common, dims = _layout(dtype, shape, strides, device)
        self._managed = _DLManagedTensor.from_buffer_copy(common)
        self._managed.data = address
        self._keep = (keep, dims)

    def __dlpack__(self, **_: Any) -> Any:
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._managed.device_type, self._managed.device_id


class GpuView(View):
    """Memory of a GPU."""

    __slots__ = ()

    def __init__(
        self, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, keep: Any, index: int
    ) -> None:  # fmt: skip
        super().__init__(address, dtype, shape, strides, keep, (2, index))  # kDLCUDA


def on_stream(values: Sequence[Any]) -> AbstractContextManager[Any]:
    """The context of a call with these values. A tensor of torch brings its current stream with it, a view does not."""
    torch = torch_module()
    view = next((value for value in values if isinstance(value, GpuView)), None)
    if view is None or torch is None or not torch.cuda.is_available():
        return nullcontext()
    index = view.__dlpack_device__()[1]
    return ffi.use_raw_stream(ffi.device(f"cuda:{index}"), int(torch.cuda.current_stream(index).cuda_stream))


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def is_compact(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Row-major and contiguous; the stride of a dimension of one element is irrelevant, as is all of an empty array."""
    if 0 in shape:
        return True
    return all(e == 1 or s == c for e, s, c in zip(shape, strides, compact_strides(shape), strict=True))


_nothing = (ctypes.c_char * 64)()


def placeholder(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, device: str = "cpu") -> View:
    """A tensor of this shape without memory behind it, for a parameter that the program never touches."""
    return as_view(ArrayInfo(dtype, shape, (), device, ctypes.addressof(_nothing), True, False, _nothing), strides)


def as_view(array: ArrayInfo, strides: tuple[int, ...] | None) -> View:
    """The memory of an array with these strides, None for row-major."""
    if array.device == "cpu":
        return View(array.address, array.dtype, array.shape, strides, array.keep)
    return GpuView(array.address, array.dtype, array.shape, strides, array.keep, device_index(array.device))


def device_index(device: str) -> int:
    """1 of "cuda:1"."""
    return int(device.partition(":")[2] or 0)


def empty(shape: tuple[int, ...], dtype: str, like: Any, device: str = "cpu") -> Any:
    """A fresh array for an output: a torch tensor on the device of `like` if that is one, or of a GPU that is asked for; else a NumPy
    array."""
    if device == "cuda" and not is_torch(like):
        return _empty_on_gpu(shape, dtype)
    if like is not None and is_torch(like):
        torch = torch_module()
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise TileTypeError(f"torch has no element type {dtype} for an output", remedy="pass NumPy arrays, or the output itself")
        return torch.empty(shape, dtype=kind, device=like.device)
    kind = numpy_type(info(dtype).base)
    if kind is None:
        raise TileTypeError(f"NumPy has no element type {dtype} for an output")
    return np.empty(shape, kind)


def _empty_on_gpu(shape: tuple[int, ...], dtype: str) -> Any:
    try:
        import torch  # noqa: PLC0415 (optional)  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise TileTypeError("outputs on a GPU are torch tensors, and torch is not installed", remedy="pass the outputs") from None
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")

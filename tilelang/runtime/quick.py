"""The short way of a call: the compiled function checks tensors itself, so that for argument types known to be safe it is called at once.

In: a `Signature` and one call's arguments. Out: a `Quick` for arguments of the same types: a test of what the function cannot see, and
how to make outputs and pass arrays that their library does not export. Everything else is for `arguments.prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend.base import Argument
from ..ir.annotations import LARGEST_SIZE
from ..ir.dtype_table import info, numpy_type
from .arrays import NUMPY_OWN, View, compact_strides, empty, is_array, is_torch, torch_module
from .signature import POINTER, TENSOR, Param, Signature, symbols

_HALVES_OF_COMPLEX = ("float16", "float32", "float64")  # imaginary parts, which torch may negate lazily


@dataclass(frozen=True)
class Quick:
    """How to call the compiled function directly. accepts: may the caller's arguments be passed so? outputs: (parameter, maker) pairs in
    ascending order, each maker giving a fresh array from the caller's arguments. views: (parameter, maker) pairs for arrays that NumPy
    does not export; a maker gives None for an array that needs `prepare`."""

    accepts: Callable[[Sequence[Any]], bool]
    outputs: tuple[tuple[int, Callable[[Sequence[Any]], Any]], ...]
    views: tuple[tuple[int, Callable[[Any], View | None]], ...] = ()


def quick_call(signature: Signature, args: Sequence[Any], device: str = "cpu") -> Quick | None:
    """The short way for arguments of the types of `args`, or None if they always need `prepare`."""
    torch = torch_module()
    doubts: list[str] = []
    views: list[tuple[int, Callable[[Any], View | None]]] = []
    for position, (k, value) in enumerate(zip(signature.inputs, args, strict=True)):
        param, kind, name = signature.params[k], type(value), f"a{position}"
        if param.kind == TENSOR:
            if info(param.dtype).bits < 8:
                return None
            doubts += _size_doubts(signature, param, name)
            if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
                doubts += _torch_doubts(param, name)
            elif kind is not np.ndarray or (param.written and param.strides is not None):  # its elements may share memory
                return None
            elif param.dtype not in NUMPY_OWN:
                views.append((k, _viewer(param)))
        elif param.kind == POINTER:
            return None
        elif info(param.dtype).kind == "float":
            if kind not in (float, int):
                return None
        elif kind is int:
            doubts.append(f"not {info(param.dtype).low} <= {name} <= {min(int(info(param.dtype).high), (1 << 63) - 1)}")
        elif kind is not bool:
            return None
    like = next((position for position, value in enumerate(args) if is_array(value)), None)
    from_torch = like is not None and is_torch(args[like])
    if device != "cpu" and not from_torch:
        return None
    makers = [(k, _maker(signature, signature.params[k], like, args)) for k in sorted(signature.out_idx)]
    if any(make is None for _, make in makers):
        return None
    if not from_torch:
        views += [(k, _viewer(signature.params[k])) for k in signature.out_idx if signature.params[k].dtype not in NUMPY_OWN]
    accepts = _acceptance([type(value) for value in args], doubts)
    return Quick(accepts, tuple((k, make) for k, make in makers if make is not None), tuple(views))


def builtin_arguments(signature: Signature) -> list[Argument] | None:
    """What a builtin function of the backend must find out of each argument: the doubts of `quick_call`. None if it cannot."""
    found: list[Argument] = []
    for param in signature.params:
        kind = info(param.dtype) if param.kind != POINTER else None
        if kind is None or (param.kind == TENSOR and kind.bits < 8):
            return None
        if param.kind == TENSOR:
            shares = not param.written or param.strides is None
            found.append(Argument("tensor", not param.written, param.dtype not in _HALVES_OF_COMPLEX, shares))
        elif kind.kind == "float":
            found.append(Argument("float"))
        else:
            found.append(Argument("int", low=int(kind.low), high=min(int(kind.high), (1 << 63) - 1)))
    return found


# ---------------------------------------------------------------- the test
def _acceptance(kinds: Sequence[type], doubts: Sequence[str]) -> Callable[[Sequence[Any]], bool]:
    """A function of the arguments (a0, a1, ...): are they of these types, and is no doubt true? As one expression it takes a third of the
    time of a loop over predicates."""
    names = [f"a{k}" for k in range(len(kinds))]
    tests = [*(f"type({name}) is t{k}" for k, name in enumerate(names)), *(f"not ({doubt})" for doubt in doubts)]
    text = f"def accepts(args):\n    if len(args) != {len(kinds)}: return False\n"
    if names:
        text += f"    {', '.join(names)}, = args\n"
    namespace: dict[str, Any] = {**{f"t{k}": kind for k, kind in enumerate(kinds)}, "large": _has_large_extent, "steps": _has_large_stride}
    exec(f"{text}    return {' and '.join(tests) or 'True'}\n", namespace)
    return namespace["accepts"]


def _torch_doubts(param: Param, name: str) -> list[str]:
    """What DLPack does not tell of a tensor of torch: lazy negation, gradients, elements that share memory."""
    doubts = [f"{name}.is_neg()"] if param.dtype in _HALVES_OF_COMPLEX else []
    if param.written:
        doubts.append(f"{name}.requires_grad")
        if param.strides is not None:
            doubts.append(f"0 in {name}.stride()")
    return doubts


def _size_doubts(signature: Signature, param: Param, name: str) -> list[str]:
    """Do 32-bit symbols stand for more than they hold? The compiled function takes the low 32 bits without a look."""
    faces = ((f"large({name})", param.shape), (f"steps({name})", param.strides or ()))
    return [doubt for doubt, dims in faces if any(not signature.narrow.isdisjoint(symbols(dim)) for dim in dims)]


def _has_large_extent(array: Any) -> bool:
    count = array.size if isinstance(array, np.ndarray) else array.numel()
    return not 0 < count <= LARGEST_SIZE and max(array.shape, default=0) > LARGEST_SIZE


def _has_large_stride(array: Any) -> bool:
    return max(map(abs, array.stride() if is_torch(array) else array.strides), default=0) > LARGEST_SIZE


# ---------------------------------------------------------------- views and outputs
def _viewer(param: Param) -> Callable[[Any], View | None]:
    dtype, written = np.dtype(numpy_type(param.dtype)), param.written

    def view(array: Any) -> View | None:
        flags = array.flags
        if array.dtype != dtype or not flags.c_contiguous or not array.size or (written and not flags.writeable):
            return None
        return View(array.ctypes.data, param.dtype, array.shape, None, array)

    return view


def _maker(signature: Signature, param: Param, like: int | None, args: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
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
    if len(constant) == len(dims):
        if 0 in constant:
            return None
        fixed = _allocator(param.dtype, like, args, compact_strides(constant))
        return lambda args: fixed(constant, args)
    allocate = _allocator(param.dtype, like, args)

    def make(args: Sequence[Any]) -> Any:
        return allocate(tuple(d if isinstance(d, int) else args[d[0]].shape[d[1]] for d in dims), args)

    return make


def _allocator(
    dtype: str, like: int | None, args: Sequence[Any], strides: tuple[int, ...] | None = None
) -> Callable[[tuple[int, ...], Sequence[Any]], Any]:  # fmt: skip
    """Makes an array from its shape and the caller's arguments. like: position of the argument on whose device it is to be. strides:
    row-major ones of the shape, where it is known: torch is a third faster with them."""
    sample = empty((1,), dtype, None if like is None else args[like])
    kind = sample.dtype
    if like is not None and is_torch(sample):
        if strides is not None:
            strided = torch_module().empty_strided
            return lambda shape, args: strided(shape, strides, dtype=kind, device=args[like].device)
        new = torch_module().empty
        return lambda shape, args: new(shape, dtype=kind, device=args[like].device)
    return lambda shape, _: np.empty(shape, kind)

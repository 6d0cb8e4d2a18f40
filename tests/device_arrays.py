"""NumPy arrays of every element type to a GPU and back, by way of torch; kernels called with them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilelang.runtime.kernel import JITKernel

# torch reads no arrays of these types: their bytes travel as integers.
_INTEGERS = {"bfloat16": "int16", "float8_e4m3fn": "int8", "float8_e5m2": "int8"}


def to_device(array: np.ndarray) -> Any:
    """A tensor on the current device with the array's values."""
    import torch  # noqa: PLC0415 (only where there is a GPU)

    kind = array.dtype.name
    if kind not in _INTEGERS:
        return torch.from_numpy(np.array(array)).cuda()
    return torch.from_numpy(np.array(array).view(_INTEGERS[kind])).cuda().view(getattr(torch, kind))


def to_host(tensor: Any) -> np.ndarray:
    """The values of a tensor as an array of the same element type."""
    import torch  # noqa: PLC0415

    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in _INTEGERS:
        return tensor.cpu().numpy()
    return tensor.view(getattr(torch, _INTEGERS[kind])).cpu().numpy().view(getattr(ml_dtypes, kind))


def numpy_calls(monkeypatch: Any) -> None:
    """Kernels made until the test ends take NumPy arrays: copied to the device, results copied back into them."""
    setup = JITKernel._setup

    def with_arrays(kernel: JITKernel, *of_kernel: Any) -> None:
        setup(kernel, *of_kernel)
        inner = kernel.__call__

        def on_device(*args: Any, **named: Any) -> Any:
            nonlocal inner
            moved = [to_device(a) if isinstance(a, np.ndarray) else a for a in args]
            result = inner(*moved, **named)
            if kernel.__call__ is not on_device:  # the kernel found a faster function
                inner, kernel.__call__ = kernel.__call__, on_device
            for before, after in zip(args, moved, strict=True):
                if isinstance(before, np.ndarray) and before.flags.writeable:
                    before[...] = to_host(after)
            if isinstance(result, (list, tuple)):
                return type(result)(to_host(r) for r in result)
            return None if result is None else to_host(result)

        kernel.__call__ = on_device

    monkeypatch.setattr(JITKernel, "_setup", with_arrays)

"""The CUDA driver through cuda-bindings: contexts, modules, kernels.

In: machine code. Out: kernels that can be launched. Every device is used through its primary context, which torch, CuPy and
JAX share. Errors carry the driver's name of the failure.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import InternalError, TileRuntimeError
from ...target.device import attribute, bindings, check

_lock = threading.Lock()
_contexts: dict[int, Any] = {}


def _context(device: int) -> Any:
    driver = bindings()
    with _lock:
        if device not in _contexts:
            handle = check(driver.cuDeviceGet(device), f"device {device}")
            _contexts[device] = check(driver.cuDevicePrimaryCtxRetain(handle), f"context of device {device}")
    return _contexts[device]


@contextlib.contextmanager
def context_of(device: int) -> Iterator[None]:
    """The primary context of `device` is this thread's current one inside. Outside it is what it was; a thread that had none keeps it."""
    driver = bindings()
    before = check(driver.cuCtxGetCurrent(), "current context")
    check(driver.cuCtxSetCurrent(_context(device)), f"context of device {device}")
    try:
        yield
    finally:
        if int(before):
            check(driver.cuCtxSetCurrent(before), "leaving a context")


@functools.cache
def launch_function() -> int:
    """The address of the driver's `cuLaunchKernelEx`, which CUDA 12 has."""
    return int(check(bindings().cuGetProcAddress(b"cuLaunchKernelEx", 12000, 0), "cuLaunchKernelEx of the driver")[0])


@functools.cache
def encode_function() -> int:
    """The address of the driver's `cuTensorMapEncodeTiled`."""
    return int(check(bindings().cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0), "cuTensorMapEncodeTiled of the driver")[0])


def load_module(data: bytes) -> Any:
    """A module of machine code in the current context."""
    return check(bindings().cuModuleLoadData(data), "loading machine code")


def get_function(module: Any, name: str, shared: int, device: int, room: Sequence[int]) -> int:
    """The handle of a kernel, allowed to use `shared` bytes of dynamic shared memory. room: bytes that a launch has for each parameter."""
    driver = bindings()
    function = check(driver.cuModuleGetFunction(module, name.encode()), f"kernel {name}")
    limit = attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    if shared > limit:
        raise TileRuntimeError(
            f"{name}: {shared} bytes of shared memory in a block; device {device} has {limit}", remedy="use smaller tiles or fewer stages"
        )
    if shared > 48 * 1024:
        key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(function, key, shared), f"{name}: {shared} bytes of shared memory")
    _check_parameters(function, name, room)
    return int(function)


def _check_parameters(function: Any, name: str, room: Sequence[int]) -> None:
    """A launch reads each parameter's bytes at an address that it is given: with fewer addresses than parameters it would read anywhere,
    and end the process. Drivers before CUDA 12.4 do not tell."""
    ask = getattr(bindings(), "cuFuncGetParamInfo", None)
    try:
        answers = [ask(function, k) for k in range(len(room) + 1)] if ask is not None else []
    except RuntimeError:  # of the bindings, where the driver lacks the function
        return
    sizes = [int(size) for status, _, size in answers if int(status) == 0]
    if sizes and (len(sizes) != len(room) or any(size > place for size, place in zip(sizes, room, strict=True))):
        raise InternalError(f"{name} has parameters of {sizes} bytes, and a launch has room for {list(room)}")

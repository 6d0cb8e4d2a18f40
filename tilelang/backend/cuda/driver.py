"""The CUDA driver through cuda-bindings: contexts, modules, kernels.

In: machine code. Out: kernels that can be launched. Every device is used through its primary context, which torch, CuPy and
JAX share. Errors carry the driver's name of the failure.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from ...errors import TileRuntimeError
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


def get_function(module: Any, name: str, shared: int, device: int) -> int:
    """The handle of a kernel, allowed to use `shared` bytes of dynamic shared memory."""
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
    return int(function)

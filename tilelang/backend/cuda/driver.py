"""The CUDA driver through cuda-bindings: devices, modules, launches.

In: machine code and launch parameters. Out: running kernels. Every device is used through its primary context, which torch, CuPy and
JAX share. Errors carry the driver's name of the failure.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from ...errors import TileNotSupportedError, TileRuntimeError

_lock = threading.Lock()
_contexts: dict[int, Any] = {}


@functools.cache
def bindings() -> Any:
    """The driver's bindings. Raises TileNotSupportedError where they, the driver or a device are missing."""
    try:
        from cuda.bindings import driver  # noqa: PLC0415 (optional)  # pyright: ignore
    except ImportError as error:
        raise TileNotSupportedError(
            f"running on a GPU needs the package cuda-bindings ({error})", remedy="pip install 'tilelang[cuda]'"
        ) from None
    try:
        status, *_ = driver.cuInit(0)
    except Exception as error:  # the bindings raise when libcuda cannot be loaded
        raise TileNotSupportedError(f"no CUDA driver on this machine: {error}", remedy='use target="cpu" or target="simt"') from None
    if int(status) != 0:
        raise TileNotSupportedError(f"the CUDA driver does not start: {status}", remedy='use target="cpu" or target="simt"')
    return driver


def check(result: Any, what: str) -> Any:
    """The value of a driver call; TileRuntimeError with the driver's error name if it failed."""
    status, *values = result
    if int(status) != 0:
        raise TileRuntimeError(f"{what}: {error_text(status)}")
    return values[0] if len(values) == 1 else values


def error_text(status: Any) -> str:
    driver = bindings()
    _, name = driver.cuGetErrorName(status)
    _, text = driver.cuGetErrorString(status)
    return f"{name.decode()} ({text.decode()})" if name and text else str(status)


@functools.cache
def device_count() -> int:
    """Number of GPUs; 0 where driver or bindings are missing."""
    try:
        driver = bindings()
    except TileNotSupportedError:
        return 0
    status, count = driver.cuDeviceGetCount()
    return int(count) if int(status) == 0 else 0


@functools.cache
def capability(device: int) -> tuple[int, int]:
    """Compute capability, e.g. (9, 0)."""
    return attribute(device, "COMPUTE_CAPABILITY_MAJOR"), attribute(device, "COMPUTE_CAPABILITY_MINOR")


@functools.cache
def attribute(device: int, name: str) -> int:
    driver = bindings()
    handle = check(driver.cuDeviceGet(device), f"device {device}")
    key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(driver.cuDeviceGetAttribute(key, handle), f"attribute {name} of device {device}"))


def make_current(device: int) -> None:
    """Make the primary context of `device` this thread's current one."""
    driver = bindings()
    with _lock:
        if device not in _contexts:
            handle = check(driver.cuDeviceGet(device), f"device {device}")
            _contexts[device] = check(driver.cuDevicePrimaryCtxRetain(handle), f"context of device {device}")
    check(driver.cuCtxSetCurrent(_contexts[device]), f"context of device {device}")


def load_module(data: bytes) -> Any:
    """A module of machine code in the current context."""
    return check(bindings().cuModuleLoadData(data), "loading machine code")


def get_function(module: Any, name: str, shared: int, device: int) -> Any:
    """A kernel, allowed to use `shared` bytes of dynamic shared memory."""
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
    return function


def synchronize(device: int) -> None:
    make_current(device)
    check(bindings().cuCtxSynchronize(), "synchronising")

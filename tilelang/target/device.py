"""The GPUs of this machine, asked through the driver. In: nothing. Out: their number, architectures, attributes; the driver's
bindings for those who launch. Nothing is loaded before the first question."""

from __future__ import annotations

import functools
from typing import Any

from ..errors import TileNotSupportedError, TileRuntimeError

# Architectures whose own instructions need the suffix "a".
_SPECIFIC = {(9, 0): "sm_90a", (10, 0): "sm_100a"}


def arch_of(capability: tuple[int, int]) -> str:
    """The architecture to compile for on a device of this compute capability."""
    return _SPECIFIC.get(capability, f"sm_{capability[0]}{capability[1]}")


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

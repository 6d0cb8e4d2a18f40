"""A compiled program on the device: arguments in, kernels launched.

In: a `CudaProgram` and machine code by architecture (compiled at the first call where it is missing). Out: `Launcher`, called with the
program's arguments in parameter order: torch tensors, or any other memory of the device as the runtime prepares it. Kernels go to
torch's current stream of the tensors' device (without torch: the default stream); the call does not wait for them.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import TileAssertionError, TileRuntimeError, TileValueError
from ...ir.dtype_table import FLOATS, INTEGERS, numpy_type
from ...target.device import arch_of, bindings, capability, check, error_text
from . import driver
from .program import CudaProgram, KernelFacts
from .toolchain import Cubin, compile_source

# struct's letter and the padding to 8 bytes, by C++ type.
_FORMATS = {"bool": "?7x", "int8_t": "b7x", "uint8_t": "B7x", "int16_t": "h6x", "uint16_t": "H6x", "int": "i4x", "uint32_t": "I4x",
            "int64_t": "q", "uint64_t": "Q", "float": "f4x", "double": "d", "half_t": "e6x", "bfloat16_t": "H6x"}  # fmt: skip


class Refused(TileValueError):
    """An argument is not what the kernel was compiled for. The runtime finds out what is wrong with it."""

    def __init__(self, name: str = "") -> None:
        super().__init__(f"{name or 'an argument'}: not a tensor of the device, shape and element type that the kernel expects")


class Launcher:
    """Callable with the program's arguments. `arch`: architecture to compile for; "" asks each device. fast, slow: loaded kernels by
    device, of the text that assumes aligned tensors and of the careful one."""

    def __init__(self, program: CudaProgram, arch: str = "", cubins: Mapping[tuple[str, bool], Cubin] | None = None) -> None:
        self.program, self.arch = program, arch
        self.cubins: dict[tuple[str, bool], Cubin] = dict(cubins or {})
        self.fast: dict[int, list[Start]] = {}
        self.slow: dict[int, list[Start]] = {}
        self._lock = threading.Lock()
        self._direct: Callable[..., None] | None = None
        types = {t: sys.intern(t) for t in (*FLOATS, *INTEGERS, "bool", "handle")}
        self._general = self._compile_host(types, _stream_of, lambda: False)

    def __call__(self, *args: Any) -> None:
        (self.direct(tuple(map(type, args))) or self._wrapped)(*args)

    def _wrapped(self, *args: Any) -> None:
        self._general(*[memory(a) for a in args])

    def direct(self, kinds: tuple[type, ...]) -> Callable[..., None] | None:
        """The function that takes arguments of these types as they are, without any wrapping; None if there is none. It checks all that
        must hold for the kernels to run, and raises if it does not."""
        torch = sys.modules.get("torch")
        if torch is None or not all(k in (torch.Tensor, torch.nn.Parameter, int, float, bool) for k in kinds):
            return None
        if self._direct is None:
            types = {t: getattr(torch, t, t) for t in (*FLOATS, *INTEGERS, "bool", "handle")}
            self._direct = self._compile_host(types, torch._C._cuda_getCurrentRawStream, torch.is_grad_enabled)
        return self._direct

    # ---------------------------------------------------------------- host function
    def _compile_host(
        self, types: Mapping[str, Any], current_stream: Callable[[int], int], grad_enabled: Callable[[], bool]
    ) -> Callable[..., None]:
        namespace: dict[str, Any] = {
            **types, "Refused": Refused, "fast": self.fast, "slow": self.slow, "load": self._load, "workspace": workspace,
            "current_stream": current_stream, "current_device": _current_device, "floor_div": _floor_div, "floor_mod": _floor_mod,
            "trunc_div": _trunc_div, "trunc_mod": _trunc_mod, "solve": _solve, "fail": _fail, "address": _address,
            "grad_enabled": grad_enabled,
        }  # fmt: skip
        exec(compile(self.program.host, f"<host part of {self.program.name}>", "exec"), namespace)
        return namespace["call"]

    # ---------------------------------------------------------------- kernels
    def cubin(self, arch: str, careful: bool = False) -> Cubin:
        """Machine code for an architecture, compiled now if it is not there."""
        found = self.cubins.get((arch, careful))
        if found is None:
            text = self.program.careful if careful else self.program.text
            found = self.cubins[arch, careful] = compile_source(text, arch, self.program.flags, self.program.name)
        return found

    def _load(self, device: int, careful: bool) -> list[Start]:
        loaded = self.slow if careful else self.fast
        with self._lock:
            if device not in loaded:
                code = self.cubin(self.arch or arch_of(capability(device)), careful)
                driver.make_current(device)
                module = driver.load_module(code.data)
                loaded[device] = [_Kernel(module, facts, device).starter() for facts in self.program.kernels]
            return loaded[device]


# Starts a kernel: grid in x, y, z, stream, the values of its parameters.
Start = Callable[..., None]


class _Kernel:
    """A loaded kernel of one device."""

    def __init__(self, module: Any, facts: KernelFacts, device: int) -> None:
        self.facts, self.device, self.module = facts, device, module
        self.function = driver.get_function(module, facts.name, facts.shared, device)
        self.parameters = facts.parameters
        self.convert = [(k, _CONVERSIONS[p]) for k, p in enumerate(self.parameters) if p in _CONVERSIONS]
        self.barrier = workspace(8, device, 0, zero=True) if facts.cooperative else None

    def _slot(self) -> tuple[Any, int, Any]:
        """Memory for the values of one launch, and the array of addresses that the driver reads."""
        count = len(self.parameters)
        values = ctypes.create_string_buffer(max(8, 8 * count))
        base = ctypes.addressof(values)
        addresses = (ctypes.c_void_p * max(1, count))(*[base + 8 * k for k in range(count)])
        return values, ctypes.addressof(addresses), addresses

    def starter(self) -> Start:
        """The function that launches. Every launch in flight has a slot of its own, so that threads do not disturb each other."""
        facts, function = self.facts, self.function
        (bx, by, bz), shared = facts.block, facts.shared
        pack = struct.Struct("<" + "".join("Q" if p.endswith("*") else _FORMATS[p] for p in self.parameters)).pack_into
        free: list[tuple[Any, int, Any]] = []
        begin = bindings().cuLaunchCooperativeKernel if facts.cooperative else bindings().cuLaunchKernel
        extra = () if facts.cooperative else (0,)

        def start(x: int, y: int, z: int, stream: int, *values: Any) -> None:
            slot = free.pop() if free else self._slot()
            pack(slot[0], 0, *values)
            (status,) = begin(function, x, y, z, bx, by, bz, shared, stream, slot[1], *extra)
            if status != 0:
                self._again(status, begin, (function, x, y, z, bx, by, bz, shared, stream, slot[1], *extra))
            free.append(slot)

        if not self.convert and self.barrier is None:
            return start

        def convert_and_start(x: int, y: int, z: int, stream: int, *values: Any) -> None:
            changed = list(values) if self.barrier is None else [*values, self.barrier.data_ptr()]
            for k, convert in self.convert:
                changed[k] = convert(changed[k])
            start(x, y, z, stream, *changed)

        return convert_and_start

    def _again(self, status: Any, begin: Any, arguments: tuple[Any, ...]) -> None:
        """A launch failed. A thread that has not used this device yet has no context, or another device's: try in the right one."""
        kind = bindings().CUresult
        if status in (kind.CUDA_ERROR_INVALID_CONTEXT, kind.CUDA_ERROR_CONTEXT_IS_DESTROYED, kind.CUDA_ERROR_INVALID_HANDLE):
            driver.make_current(self.device)
            (status,) = begin(*arguments)
        if status != 0:
            facts, grid = self.facts, tuple(arguments[1:4])
            raise TileRuntimeError(
                f"launch of {facts.name} failed: {error_text(status)}; grid {grid}, block {facts.block}, {facts.shared} bytes of dynamic "
                f"shared memory, device {self.device}"
            )


# ---------------------------------------------------------------- memory
class Memory:
    """Device memory that is no torch tensor, with the methods that the host function calls."""

    __slots__ = ("_address", "_device", "_strides", "dtype", "keep", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], device: int, address: int, keep: Any) -> None:
        self.dtype, self.shape, self._strides = sys.intern(dtype), shape, strides
        self._device, self._address, self.keep = device, address, keep

    requires_grad = False

    def is_neg(self) -> bool:
        return False

    def get_device(self) -> int:
        return self._device

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self._address

    def is_contiguous(self) -> bool:
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self._strides), strict=True):
            if extent != 1 and stride != step and 0 not in self.shape:
                return False
            step *= extent
        return True


def memory(value: Any) -> Any:
    """An argument as the host function takes it: numbers and addresses as they are, arrays as `Memory`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return Memory(dtype, tuple(value.shape), value.stride(), value.get_device(), value.data_ptr(), value)
    if not hasattr(value, "shape"):
        return value
    shape, strides = tuple(int(e) for e in value.shape), tuple(int(s) for s in value.strides)
    if hasattr(value, "address"):  # the facts of an array without elements, or of one that the program never touches
        device = value.keep.get_device() if hasattr(value.keep, "get_device") else -1
        return Memory(value.dtype, shape, strides, device, value.address, value.keep)
    return Memory(str(value.dtype), shape, strides, int(value.device.index), int(value.data_ptr()), value)  # of TVM's FFI, from DLPack


class _Block:
    """Memory from the driver, freed when its last user is gone."""

    def __init__(self, size: int, device: int, zero: bool) -> None:
        driver.make_current(device)
        self.device = device
        self.pointer = check(bindings().cuMemAlloc(max(size, 1)), f"{size} bytes on device {device}")
        if zero:
            check(bindings().cuMemsetD8(self.pointer, 0, max(size, 1)), "clearing memory")

    def data_ptr(self) -> int:
        return int(self.pointer)

    def __del__(self) -> None:
        try:
            bindings().cuMemFree(self.pointer)
        except Exception:  # the interpreter or the driver is shutting down
            return


def workspace(size: int, device: int, stream: int, zero: bool = False) -> Any:
    """`size` bytes on the device, with `data_ptr()`. torch's allocator orders its reuse by the stream; the driver waits on freeing."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        make = torch.zeros if zero else torch.empty
        return make(max(int(size), 1), dtype=torch.uint8, device=f"cuda:{device}")
    return _Block(int(size), device, zero)


def _stream_of(device: int) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.current_stream(device).cuda_stream
    driver.make_current(device)
    return 0


def _current_device() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_available() else 0


def _address(value: Any) -> int:
    """A pointer argument as an integer."""
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else int(value)


# ---------------------------------------------------------------- arithmetic of the host function
def _floor_div(a: int, b: int) -> int:
    return a // b if b else 0


def _floor_mod(a: int, b: int) -> int:
    return a % b if b else 0


def _trunc_div(a: int, b: int) -> int:
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _trunc_mod(a: int, b: int) -> int:
    return a - b * _trunc_div(a, b) if b else 0


def _solve(extent: Callable[[int], int], actual: int) -> int:
    """The n with extent(n) = actual, for an extent that is linear in n; Refused if there is none."""
    zero = extent(0)
    slope = extent(1) - zero
    n = (actual - zero) // slope if slope else 0
    if extent(n) != actual:
        raise Refused()
    return n


def _fail(message: str) -> None:
    raise TileAssertionError(message)


def _bits16(dtype: str) -> Callable[[Any], int]:
    kind = numpy_type(dtype)
    return lambda value: int(np.asarray(value, dtype=np.float32).astype(kind).view(np.uint16))


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bfloat16_t": _bits16("bfloat16"), "uint64_t": lambda v: int(v) & 0xFFFFFFFFFFFFFFFF, "uint32_t": lambda v: int(v) & 0xFFFFFFFF,
}  # fmt: skip

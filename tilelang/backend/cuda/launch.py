"""A compiled program on the device: the host function, the table it reads, machine code loaded where it is needed.

In: a `CudaProgram`, its host function, machine code by architecture (compiled at the first call where it is missing). Out: `Launcher`,
called with the program's arguments in parameter order: what TVM's FFI takes for a tensor, numbers, addresses. Kernels go to torch's
current stream of the tensors' device (without torch: the default stream); the call does not wait for them. docs/host.md has the table.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InternalError, TileRuntimeError, TileValueError
from ...ir.tvm_api import ffi_function, tvm
from ...target.device import arch_of, bindings, capability, check, error_text
from ..base import Argument
from ..llvm import machine_of
from . import driver
from .bulk import MAP_TYPE
from .entry import OTHERWISE, HostFunction, is_possible, python_function
from .host import BARRIER, COOPERATIVE, ENCODE, FAILED, LAUNCH, LOAD, REFUSED, STREAM, WORKSPACE, kernel_word, table_words
from .host_code import HostCode
from .map_encoding import MAP_BYTES
from .program import CudaProgram
from .toolchain import Cubin, compile_source

_launchers: weakref.WeakValueDictionary[int, Launcher] = weakref.WeakValueDictionary()  # by the address of their table
# The driver's answers to a launch by a thread without a context, or with another device's.
_NO_CONTEXT = ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_INVALID_HANDLE")
_launch_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _Config(ctypes.Structure):
    """`CUlaunchConfig` of cuda.h."""

    _fields_ = [("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
                ("stream", ctypes.c_uint64), ("attributes", ctypes.c_uint64), ("count", ctypes.c_uint32)]  # fmt: skip


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute` of cuda.h: a number of 4 bytes, at byte 8 a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint32 * 16)]


# Of cuda.h: CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
_COOPERATIVE_ID, _DEPENDENT_ID = 2, 6
_DEPENDENT_LAUNCH = (9, 0)  # first compute capability with it


class _ThreadState(threading.local):
    """Of the call that a thread makes. raised: the exception of a callback; TVM may pass on another one of its own class.
    workspaces: memory that the call holds."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self.workspaces: list[Any] = []


def machine_code(program: CudaProgram, arch: str, careful: bool = False) -> Cubin:
    """One of the program's texts compiled for an architecture."""
    return compile_source(program.careful if careful else program.text, arch, program.flags, program.name)


class Launcher:
    """Callable with the program's arguments. arch: architecture to compile for; "" asks each device. cubins: machine code by architecture
    and whether it is the careful text's. plain: makes the launcher of the program without bulk copies, when a tensor comes that they
    cannot move."""

    def __init__(
        self, program: CudaProgram, host: HostCode, arch: str = "", cubins: Mapping[tuple[str, bool], Cubin] | None = None,
        plain: Callable[[], Launcher] | None = None,
    ) -> None:  # fmt: skip
        _register()
        self._make_plain = plain
        self.program, self.host, self.arch = program, host, arch
        self.cubins: dict[tuple[str, bool], Cubin] = dict(cubins or {})
        self._lock = threading.Lock()
        self._state = _ThreadState()
        self._barriers: dict[tuple[int, bool, int, int], Any] = {}
        self._keep: list[Any] = []  # what words of the table point to
        self.words = (ctypes.c_int64 * table_words(len(program.kernels)))()
        self.table = ctypes.addressof(self.words)
        self._function = self._native()
        _launchers[self.table] = self

    def __call__(self, *args: Any) -> None:
        try:
            if self._function(*args) == OTHERWISE:
                self.plain(*args)
        except BaseException:  # an interruption may come out of a callback, too
            raised = self._raised()
            if raised is None:
                raise
            raise raised from None

    def _raised(self) -> BaseException | None:
        """The exception of a callback in the call that has just ended."""
        raised, self._state.raised = self._state.raised, None
        return raised

    def python_function(
        self, kinds: tuple[type, type], arguments: Sequence[Argument], otherwise: Callable[..., Any],
        failed: Callable[[Sequence[Any], BaseException], Any],
    ) -> Callable[..., Any] | None:  # fmt: skip
        """A builtin function of the program's arguments for tensors of a class, and of one subclass: see `entry.py`. otherwise: called with
        arguments that it does not take. failed: called with the arguments and what the call raised. None if there is no such function."""
        if not self.program.takes_tensors or self._holds_memory or not is_possible(kinds[0]):
            return None
        tell = lambda args, error: failed(args, self._raised() or error)  # noqa: E731
        host = HostFunction(self.host.function, self.table, machine_of(self.host.text), self)
        return python_function(host, kinds, arguments, otherwise, tell)

    def _native(self) -> Callable[..., Any]:
        """The host function of the program's arguments."""
        function, table, state = self.host.function, self.table, self._state
        if self.program.takes_tensors and not self._holds_memory:
            return functools.partial(function, table)

        def call(*args: Any) -> Any:
            try:
                if self.program.takes_tensors:
                    return function(table, *args)
                device = _current_device()
                return function(table, device, _stream_of(device), *args)
            finally:
                state.workspaces.clear()

        return call

    @property
    def _holds_memory(self) -> bool:
        """May a call have memory of its own, which must be given back?"""
        return any(name in self.program.host for name in (WORKSPACE, BARRIER))

    @functools.cached_property
    def plain(self) -> Launcher:
        """The program without bulk copies."""
        if self._make_plain is None:
            raise InternalError(f"{self.program.name} has bulk copies and nothing to take their place")
        return self._make_plain()

    # ---------------------------------------------------------------- kernels
    def cubin(self, arch: str, careful: bool = False) -> Cubin:
        """Machine code for an architecture, compiled now if it is not there."""
        found = self.cubins.get((arch, careful))
        if found is None:
            found = self.cubins[arch, careful] = machine_code(self.program, arch, careful)
        return found

    def kernel_word(self, device: int, careful: bool, k: int = 0) -> int:
        return kernel_word(device, int(careful), len(self.program.kernels), k)

    def load(self, device: int, careful: bool) -> None:
        """Load the kernels of one text on a device. The function takes them for loaded when the first kernel's word is there, so that is
        written last."""
        with self._lock:
            if self.words[self.kernel_word(device, careful)]:
                return
            code = self.cubin(self.arch or arch_of(capability(device)), careful)
            self.words[LAUNCH], self.words[STREAM] = driver.launch_function(), ffi_function("TVMFFIEnvGetStream")
            if any(MAP_TYPE in facts.parameters for facts in self.program.kernels):
                self.words[ENCODE] = driver.encode_function()
            with driver.context_of(device):
                module = self._kept(driver.load_module(code.data))
                for k, facts in reversed(list(enumerate(self.program.kernels))):
                    word = self.kernel_word(device, careful, k)
                    if facts.cooperative:
                        self.words[COOPERATIVE] = self._attribute(_COOPERATIVE_ID)
                    elif facts.dependent and capability(device) >= _DEPENDENT_LAUNCH:
                        self.words[word + 1] = self._attribute(_DEPENDENT_ID)
                    room = [MAP_BYTES if p == MAP_TYPE else 8 for p in facts.parameters]
                    self.words[word] = driver.get_function(module, facts.name, facts.shared, device, room)

    def _attribute(self, number: int) -> int:
        """The address of a launch attribute that is set."""
        return ctypes.addressof(self._kept(_Attribute(number, 0, (ctypes.c_uint32 * 16)(1))))

    def _kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value

    def failed(self, device: int, careful: bool, k: int, status: int, config: int, parameters: int) -> None:
        """A launch was refused. A thread that has not used this device yet has no context, or another device's: launch in the right one."""
        kinds = bindings().CUresult
        if status in [int(getattr(kinds, name)) for name in _NO_CONTEXT]:
            with driver.context_of(device):
                function = self.words[self.kernel_word(device, careful, k)]
                status = _launch_type(self.words[LAUNCH])(config, function, parameters, None)
        if status != 0:
            facts, asked = self.program.kernels[k], _Config.from_address(config)
            raise TileRuntimeError(
                f"launch of {facts.name} failed: {error_text(kinds(status))}; grid {tuple(asked.grid)}, block {facts.block}, "
                f"{facts.shared} bytes of dynamic shared memory, device {device}"
            )

    def refused(self, k: int, number: int, status: int) -> None:
        """The driver made no tensor map."""
        raise TileRuntimeError(
            f"{self.program.kernels[k].name}: tensor map {number}: {error_text(bindings().CUresult(status))}",
            remedy='compile with pass_configs={"tl.disable_tma_lower": True}',
        )

    def barrier(self, device: int, careful: bool, k: int, stream: int) -> int:
        """The address of memory for a kernel's barrier over the grid, which a launch leaves as it found it. Launches on one stream follow
        each other and share it; those on different streams, and those of a captured graph, may run together."""
        if _is_capturing(stream):
            self._state.workspaces.append(workspace(8, device, zero=True))
            return self._state.workspaces[-1].data_ptr()
        with self._lock:
            key = device, careful, k, stream
            if key not in self._barriers:
                self._barriers[key] = workspace(8, device, zero=True)
            return self._barriers[key].data_ptr()

    def workspace(self, device: int, size: int) -> int:
        """The address of `size` bytes that live until the call ends. Raises TileValueError for a size below 0."""
        if size < 0:
            raise TileValueError(f"{self.program.name}: a workspace of {size} bytes")
        self._state.workspaces.append(workspace(size, device))
        return self._state.workspaces[-1].data_ptr()

    def answer(self, what: Callable[..., Any], values: tuple[int, ...]) -> int:
        """Answers a callback of the host function; an exception is kept for the call."""
        try:
            return what(self, *values) or 0
        except BaseException as error:
            self._state.raised = error
            raise


_ANSWERS = (
    (LOAD, Launcher.load), (FAILED, Launcher.failed), (WORKSPACE, Launcher.workspace), (REFUSED, Launcher.refused),
    (BARRIER, Launcher.barrier),
)  # fmt: skip


@functools.cache
def _register() -> None:
    """Make the callbacks known to TVM (once in a process)."""
    for name, method in _ANSWERS:
        answer = lambda table, *values, method=method: _launchers[table].answer(method, values)  # noqa: E731
        tvm.register_global_func(name, answer, override=True)


# ---------------------------------------------------------------- memory and streams
class _Block:
    """Memory from the driver, freed when its last user is gone."""

    def __init__(self, size: int, device: int, zero: bool) -> None:
        with driver.context_of(device):
            self.pointer = check(bindings().cuMemAlloc(max(size, 1)), f"{size} bytes on device {device}")
            if zero:
                check(bindings().cuMemsetD8(self.pointer, 0, max(size, 1)), "clearing memory")

    def data_ptr(self) -> int:
        return int(self.pointer)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter or the driver is shutting down
            bindings().cuMemFree(self.pointer)


def workspace(size: int, device: int, zero: bool = False) -> Any:
    """`size` bytes on the device, with `data_ptr()`. torch's allocator orders its reuse by the stream; the driver waits on freeing."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        make = torch.zeros if zero else torch.empty
        return make(max(size, 1), dtype=torch.uint8, device=f"cuda:{device}")
    return _Block(size, device, zero)


def _is_capturing(stream: int) -> bool:
    """Is the stream recording a graph?"""
    status, state, *_ = bindings().cuStreamIsCapturing(stream)
    return int(status) == 0 and int(state) != 0


def _current_device() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_available() else 0


def _stream_of(device: int) -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_stream(device).cuda_stream) if torch is not None and torch.cuda.is_available() else 0

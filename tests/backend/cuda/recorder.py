"""A driver that only records, and kernels whose tensors are of the CPU: launching, tried where there is no GPU."""

import contextlib
import ctypes
import itertools
from types import SimpleNamespace

from tilelang.backend.cuda import build, driver, launch, toolchain
from tilelang.compiler.compile import context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.runtime.kernel import JITKernel
from tilelang.runtime.signature import signature_of
from tilelang.target.target import parse_target

SUCCESS, INVALID_VALUE, INVALID_CONTEXT = 0, 1, 201


class Status(int):
    """Stands for the enumeration of the bindings."""

    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_HANDLE = 201, 709, 400


class Recorder:
    """launches: what reached `cuLaunchKernelEx`. answers: its results, one after the other; then success. contexts: devices whose context
    was made current. workspaces: sizes asked for."""

    CUresult = Status

    def __init__(self):
        self.launches, self.answers, self.contexts, self.workspaces = [], [], [], []
        self.capturing = 0
        self.kernels = {}  # handle -> (name, number of parameters)
        self._handles = itertools.count(0x7F0000001000, 64)
        self._entry = launch._launch_type(self._launch)

    @property
    def address(self):
        return ctypes.cast(self._entry, ctypes.c_void_p).value

    def _launch(self, config, function, parameters, extra):
        name, count = self.kernels[function]
        told = launch._Config.from_address(config)
        places = (ctypes.c_void_p * max(count, 1)).from_address(parameters)
        attributes = launch._Attribute.from_address(told.attributes) if told.count else None
        self.launches.append(SimpleNamespace(
            name=name, function=function, grid=tuple(told.grid), block=tuple(told.block), shared=told.shared, stream=told.stream,
            values=[ctypes.string_at(places[k], 8) for k in range(count)], attribute=attributes and (attributes.id, attributes.value[0]),
        ))  # fmt: skip
        return self.answers.pop(0) if self.answers else SUCCESS

    def get_function(self, module, name, shared, device, room):
        parameters = module.decode().partition(f"{name}(")[2].partition(") {")[0]
        handle = next(self._handles)
        self.kernels[handle] = name, len([p for p in parameters.split(",") if p.strip()])
        assert len(room) == self.kernels[handle][1]
        return handle

    def workspace(self, size, device, zero=False):
        self.workspaces.append(size)
        memory = ctypes.create_string_buffer(max(size, 1))
        return SimpleNamespace(data_ptr=lambda: ctypes.addressof(memory), memory=memory)

    @contextlib.contextmanager
    def context_of(self, device):
        self.contexts.append(device)
        yield

    def cuStreamIsCapturing(self, stream):
        return 0, self.capturing

    def cuDeviceGetCount(self):
        return 0, 0

    def cuGetErrorName(self, status):
        return 0, b"CUDA_ERROR_PRETENDED"

    def cuGetErrorString(self, status):
        return 0, b"a pretended failure"


def install(monkeypatch):
    """The recorder in the driver's place."""
    found = Recorder()
    monkeypatch.setattr(launch, "bindings", lambda: found)
    monkeypatch.setattr("tilelang.target.device.bindings", lambda: found)
    monkeypatch.setattr(launch, "capability", lambda device: (9, 0))
    monkeypatch.setattr(launch, "compile_source", lambda text, arch, flags, name: toolchain.Cubin(arch, text.encode()))
    monkeypatch.setattr(launch, "workspace", found.workspace)
    monkeypatch.setattr(driver, "context_of", found.context_of)
    monkeypatch.setattr(driver, "launch_function", lambda: found.address)
    monkeypatch.setattr(driver, "load_module", lambda data: data)
    monkeypatch.setattr(driver, "get_function", found.get_function)
    return found


def kernel_on_cpu(func, out_idx=None, target="cuda", config=None):
    """The program compiled for CUDA, as a kernel that expects its tensors in the memory of the CPU."""
    target = parse_target(target)
    artifact = build.build(lower_to(func, target, config or {}, STAGES[-1].name), context(target, config or {}), "cpu")
    kernel = JITKernel.from_artifact(func, signature_of(func, out_idx), target, {}, artifact)
    kernel._device = "cpu"
    return kernel

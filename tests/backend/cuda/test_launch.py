"""Launching without a GPU: a driver that only records. What reaches it is what the program says; wrong arguments never do."""

import ctypes
import struct
from types import SimpleNamespace

import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import build, driver, launch, toolchain
from tilelang.backend.cuda.launch import Memory, Refused
from tilelang.compiler.compile import context
from tilelang.errors import TileAssertionError, TileRuntimeError, TileTypeError, TileValueError
from tilelang.target.target import Target

from .programs import scalars, two_kernels, vector_add


class Recorder:
    """Stands for the driver's bindings; `status` is what launches return."""

    def __init__(self):
        self.launches = []
        self.status = 0
        self.CUresult = SimpleNamespace(CUDA_ERROR_INVALID_CONTEXT=201, CUDA_ERROR_CONTEXT_IS_DESTROYED=709, CUDA_ERROR_INVALID_HANDLE=400)

    def cuLaunchKernel(self, function, x, y, z, bx, by, bz, shared, stream, addresses, extra):
        name, count = function
        values = []
        for k in range(count):
            place = ctypes.c_void_p.from_address(addresses + 8 * k).value
            values.append(ctypes.string_at(place, 8))
        self.launches.append(SimpleNamespace(name=name, grid=(x, y, z), block=(bx, by, bz), shared=shared, stream=stream, values=values))
        return (self.status,)

    def cuDeviceGetCount(self):
        return 0, 0

    def cuGetErrorName(self, status):
        return 0, b"CUDA_ERROR_PRETENDED"

    def cuGetErrorString(self, status):
        return 0, b"a pretended failure"


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(launch, "bindings", lambda: found)
    monkeypatch.setattr("tilelang.target.device.bindings", lambda: found)
    monkeypatch.setattr(launch, "capability", lambda device: (9, 0))
    monkeypatch.setattr(launch, "compile_source", lambda text, arch, flags, name: toolchain.Cubin(arch, text.encode()))
    monkeypatch.setattr(driver, "make_current", lambda device: None)
    monkeypatch.setattr(driver, "load_module", lambda data: data)
    monkeypatch.setattr(driver, "get_function", lambda module, name, shared, device: (name, _parameters(module, name)))
    return found


def _parameters(module, name):
    head = module.decode().partition(f"{name}(")[2].partition(")")[0]
    return len(head.split(","))


def launcher_of(func):
    """A launcher that has not loaded anything, whatever the cache holds."""
    return launch.Launcher(tilelang.compile(func, target="cuda").artifact.entry.program)


def tensor(dtype, *shape, address=4096, device=0, strides=None):
    steps, step = [], 1
    for extent in reversed(shape):
        steps.insert(0, step)
        step *= extent
    return Memory(dtype, shape, tuple(strides or steps), device, address, None)


def q(value):
    return struct.pack("<Q", value)


def test_grid_block_and_addresses(recorder):
    launcher_of(vector_add())._general(tensor("float16", 16, 1024), tensor("float16", 16, 1024, address=8192))
    (one,) = recorder.launches
    assert (one.name, one.grid, one.block, one.shared) == ("main_kernel", (16, 1, 1), (128, 1, 1), 0)
    assert one.values == [q(4096), q(8192)]


def test_misaligned_and_overlapping_tensors_get_the_careful_kernels(recorder):
    launcher = launcher_of(vector_add())
    for b in (8192 + 2, 4096):
        launcher._general(tensor("float16", 16, 1024), tensor("float16", 16, 1024, address=b))
    assert len(recorder.launches) == 2
    assert launcher.slow.keys() == {0} and not launcher.fast
    launcher._general(tensor("float16", 16, 1024), tensor("float16", 16, 1024, address=8192))
    assert launcher.slow.keys() == launcher.fast.keys() == {0}


def test_scalars_are_packed_by_type(recorder):
    arrays = tensor("int32", 5, 16), tensor("bfloat16", 5, address=8192), tensor("float8_e4m3fn", 5, address=65536)
    launcher_of(scalars())._general(*arrays, 0.5, 7)
    (one,) = recorder.launches
    assert one.grid == (5, 1, 1)
    assert one.values[3][:4] == struct.pack("<f", 0.5) and one.values[4][:4] == struct.pack("<i", 7)


def test_symbols_come_from_shapes_and_workspaces_are_shared(recorder, monkeypatch):
    blocks = []
    monkeypatch.setattr(launch, "workspace", lambda size, device, stream: blocks.append(size) or tensor("uint8", size, address=1 << 20))
    launcher = launcher_of(two_kernels())
    launcher._general(tensor("float32", 200), tensor("float32", 200, address=8192))
    first, second = recorder.launches
    assert first.grid == (2, 1, 1) and second.grid == (4, 1, 1) and blocks == [800]
    assert q(1 << 20) in first.values and q(1 << 20) in second.values


def test_an_empty_grid_launches_nothing(recorder):
    launcher_of(scalars())._general(tensor("int32", 0, 16), tensor("bfloat16", 0), tensor("float8_e4m3fn", 0), 0.5, 7)
    assert recorder.launches == []


@pytest.mark.parametrize(
    "wrong",
    [tensor("float32", 16, 1024), tensor("float16", 16, 1023), tensor("float16", 16384), tensor("float16", 16, 1024, device=-1),
     tensor("float16", 16, 1024, device=1), tensor("float16", 16, 1024, strides=(1, 16))],
)  # fmt: skip
def test_wrong_tensors_are_refused(recorder, wrong):
    launcher = launcher_of(vector_add())
    with pytest.raises(Refused, match="B"):
        launcher._general(tensor("float16", 16, 1024), wrong)
    assert recorder.launches == []


def test_a_failed_launch_names_kernel_and_configuration(recorder):
    recorder.status = 1
    with pytest.raises(TileRuntimeError, match=r"main_kernel failed: CUDA_ERROR_PRETENDED.*grid \(16, 1, 1\), block \(128, 1, 1\)"):
        launcher_of(vector_add())._general(tensor("float16", 16, 1024), tensor("float16", 16, 1024, address=8192))


def test_cpu_tensors_are_refused_by_name_and_device():
    import numpy as np  # noqa: PLC0415

    kernel = tilelang.compile(vector_add(), target="cuda")
    a = np.zeros((16, 1024), np.float16)
    with pytest.raises(TileValueError, match="A: expected a tensor on device cuda, got one on cpu"):
        kernel(a, a)
    with pytest.raises(TileTypeError, match=r"A: .*got None"):
        kernel(None, a)


def test_host_assertions_and_arithmetic(recorder):
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((2 * n + 1,), "float32")):
        assert n % 2 == 0, "n must be even"
        with T.Kernel(T.ceildiv(n, 3), threads=32) as bx:
            A[bx] = 1.0

    launcher = launcher_of(main)
    launcher._general(tensor("float32", 9))
    assert recorder.launches[0].grid == (2, 1, 1)
    with pytest.raises(TileAssertionError, match="n must be even"):
        launcher._general(tensor("float32", 7))
    with pytest.raises(Refused):
        launcher._general(tensor("float32", 8))


def test_saved_artifacts_load(tmp_path, recorder):
    launcher = launcher_of(vector_add())
    launcher.cubin("sm_90a")
    artifact = build._artifact(launcher, context(Target("cuda")), {})
    artifact.save(tmp_path)
    loaded = build.load(tmp_path, context(Target("cuda")))
    assert loaded.source == artifact.source and loaded.entry.cubins.keys() == {("sm_90a", False)}
    loaded.entry._general(tensor("float16", 16, 1024), tensor("float16", 16, 1024, address=8192))
    assert len(recorder.launches) == 1

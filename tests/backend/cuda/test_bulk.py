"""Bulk tensor copies as C++ and on the host: what the kernel says, what the driver is asked to encode, tensors that have no map."""

import ctypes
import re
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import tilelang.language as T
from tilelang.backend.cuda import build, driver, toolchain
from tilelang.compiler.compile import compile_program, context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.errors import TileRuntimeError
from tilelang.target.target import Target

from . import recorder as stub

TARGET = Target("cuda", (("arch", "sm_90a"),))
FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4
)  # fmt: skip


def copies(shape, tile, dtype, strides=None):
    """Each block moves one tile of the last dimensions to shared memory and back; the leading ones are 1 in the tile."""
    lead = len(shape) - len(tile)

    @T.prim_func
    def main(X: T.StridedTensor(shape, strides, dtype) if strides else T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(shape[-1], tile[-1]), threads=128) as b:
            s = T.alloc_shared(tile, dtype)
            bar = T.alloc_barrier(128)
            corner = [0] * lead + [0] * (len(tile) - 1) + [b * tile[-1]]
            T.tma_copy(X[tuple(corner)], s, barrier=bar)
            T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, Y[tuple(corner)])

    return main


class Driver:
    """Records what is to be encoded and numbers the maps. status: its answer."""

    def __init__(self, monkeypatch):
        self.encoded, self.status = [], 0
        self.recorder = stub.install(monkeypatch)
        self.entry = FUNCTION(self.encode)
        monkeypatch.setattr(driver, "encode_function", lambda: ctypes.cast(self.entry, ctypes.c_void_p).value)

    def encode(self, place, kind, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill):
        words = lambda type_, at, count: list((type_ * count).from_address(at)) if count else []  # noqa: E731
        self.encoded.append(SimpleNamespace(
            kind=kind, rank=rank, address=address, swizzle=swizzle, place=place, rest=(interleave, fill),
            dims=words(ctypes.c_uint64, dims, rank), strides=words(ctypes.c_uint64, strides, rank - 1),
            box=words(ctypes.c_uint32, box, rank), steps=words(ctypes.c_uint32, steps, rank),
        ))  # fmt: skip
        ctypes.memmove(place, struct.pack("<16Q", *[len(self.encoded)] * 16), 128)
        return self.status

    def launcher(self, func):
        """The program for tensors in the memory of the CPU."""
        program = lower_to(func, TARGET, {}, STAGES[-1].name)
        return build.build(program, context(TARGET, {}, func), "cpu").entry


@pytest.fixture
def machine(monkeypatch):
    return Driver(monkeypatch)


def array(shape, dtype="float16", offset=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(dtype).reshape(shape)


CASES = [
    ((1024,), (128,), "float32", [128], 0),
    ((64, 96), (64, 32), "float32", [32, 64], 3),
    ((3, 40, 80), (40, 64), "float16", [64, 40, 1], 3),
    ((2, 3, 16, 32), (16, 32), "int8", [32, 16, 1, 1], 1),
    ((2, 3, 2, 8, 64), (8, 64), "uint8", [64, 8, 1, 1, 1], 2),
    ((2, 3, 2, 8, 2), (2, 8, 2), "float64", [2, 8, 2, 1, 1], 0),
]


@pytest.mark.parametrize(("shape", "tile", "dtype", "box", "swizzle"), CASES)
def test_what_the_driver_encodes(machine, shape, tile, dtype, box, swizzle):
    x, y = array(shape, dtype), array(shape, dtype)
    machine.launcher(copies(shape, tile, dtype))(x, y)
    (one,) = machine.recorder.launches
    assert [m.address for m in machine.encoded] == [x.ctypes.data, y.ctypes.data]
    for m in machine.encoded:
        assert m.rank == len(shape) and m.dims == list(shape[::-1]) and m.strides == list(x.strides[::-1][1:])
        assert m.box == box and m.steps == [1] * len(shape) and m.swizzle == swizzle
        assert m.kind == {1: 0, 2: 1, 4: 2, 8: 4}[x.itemsize] and m.rest == (0, 0) and m.place % 64 == 0
    assert one.values == [struct.pack("<Q", 1), struct.pack("<Q", 2)]  # each map is where its parameter is read


def test_sizes_known_at_the_call(machine):
    m, n = T.dynamic("m"), T.dynamic("n")
    launcher = machine.launcher(copies((m, n), (8, 64), "float16"))
    for shape in ((8, 64), (5, 136)):
        launcher(array(shape), array(shape))
    assert [e.dims for e in machine.encoded[::2]] == [[64, 8], [136, 5]]
    assert [e.strides for e in machine.encoded[::2]] == [[128], [272]]


def test_strides_known_at_the_call(machine):
    step = T.dynamic("step")
    launcher = machine.launcher(copies((8, 64), (8, 64), "float16", strides=(step, 1)))
    wide = array((8, 256))
    launcher(wide[:, 64:128], array((8, 64)))
    assert machine.encoded[0].strides == [512] and machine.encoded[0].address == wide.ctypes.data + 128


def plain_launches(machine):
    """The launches, if none took a tensor map."""
    return machine.recorder.launches if not machine.encoded else []


@pytest.mark.parametrize("offset", [2, 8])
def test_a_misaligned_tensor_gets_the_program_without_bulk_copies(machine, offset):
    launcher = machine.launcher(copies((8, 64), (8, 64), "float16"))
    x, y = array((8, 64), offset=offset), array((8, 64))
    launcher(x, y)
    (one,) = plain_launches(machine)
    assert one.values == [struct.pack("<Q", a.ctypes.data) for a in (x, y)]
    assert "tma" not in launcher.plain.program.text + launcher.plain.program.careful
    again = launcher.plain
    launcher(x, y)
    assert launcher.plain is again and not machine.encoded
    launcher(array((8, 64)), y)
    assert len(machine.encoded) == 2


@pytest.mark.parametrize("columns", [65, 68, 100])
def test_rows_of_an_odd_size_get_the_program_without_bulk_copies(machine, columns):
    n = T.dynamic("n")
    launcher = machine.launcher(copies((8, n), (8, 64), "float16"))
    launcher(array((8, columns)), array((8, columns)))
    assert len(plain_launches(machine)) == 1 and plain_launches(machine)[0].grid == (2, 1, 1)


@pytest.mark.parametrize("count", [7, 8, 300])
def test_a_row_that_ends_inside_of_16_bytes(machine, count):
    """The hardware clips in pieces of 16 bytes: it would write beyond the tensor."""
    n = T.dynamic("n")
    launcher = machine.launcher(copies((n,), (128,), "float32"))
    launcher(array((count,), "float32"), array((count,), "float32"))
    assert len(machine.encoded) == (0 if count == 7 else 2) and len(machine.recorder.launches) == 1


def test_overlapping_tensors_get_the_program_without_bulk_copies(machine):
    launcher = machine.launcher(copies((8, 64), (8, 64), "float16"))
    x = array((8, 64))
    launcher(x, x)
    assert len(plain_launches(machine)) == 1


def test_a_map_that_the_driver_refuses_is_an_error(machine):
    launcher = machine.launcher(copies((8, 64), (8, 64), "float16"))
    machine.status = 1
    with pytest.raises(TileRuntimeError, match="main_kernel: tensor map 0: CUDA_ERROR_PRETENDED"):
        launcher(array((8, 64)), array((8, 64)))
    assert not machine.recorder.launches


def test_text():
    text = compile_program(copies((3, 40, 80), (40, 64), "float16"), TARGET).source
    assert "main_kernel(const __grid_constant__ tl::tensor_map X_map, const __grid_constant__ tl::tensor_map Y_map)" in text
    assert "tl::prefetch(X_map);" in text and "tl::fence_barrier_init();" in text
    assert "tl::mbarrier_expect_tx(&bar[0], 5120);" in text
    assert re.search(r"tl::tma_load\(&s\[0\], X_map, &bar\[0\], \w+, 0, 0\);", text)
    store = re.search(r"tl::tma_store\(&s\[0\], Y_map, \w+, 0, 0\);", text)
    others = [text.index(f"tl::{what};") for what in ("fence_proxy_async()", "bulk_commit()", "bulk_wait_read<0>()")]
    assert store and others[0] < store.start() < others[1] < others[2]


@pytest.mark.skipif(not toolchain.available(), reason="no CUDA compiler")
@pytest.mark.parametrize(("shape", "tile", "dtype", "box", "swizzle"), CASES)
def test_compiles(shape, tile, dtype, box, swizzle):
    artifact = compile_program(copies(shape, tile, dtype), TARGET)
    (found,) = artifact.resources()
    assert found.spill_loads == found.spill_stores == found.local == 0


def test_a_loaded_artifact_can_still_do_without(tmp_path, machine):
    func = copies((8, 64), (8, 64), "float16")
    program = lower_to(func, TARGET, {}, STAGES[-1].name)
    build.build(program, context(TARGET, {}, func), "cpu").save(tmp_path)
    launcher = build.load(tmp_path, context(TARGET, {}, func)).entry
    assert "tma" not in launcher.plain.program.text and "tma" in launcher.program.text


def test_a_workspace_of_an_odd_size(machine):
    """Its rows are known when the call is under way, too late to turn to another program."""
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((8, n), "float16"), Y: T.Tensor((8, n), "float16")):
        rows = T.alloc_global((8, 2 * n), "float16")
        with T.Kernel(T.ceildiv(n, 64), threads=128) as b:
            s = T.alloc_shared((8, 64), "float16")
            T.copy(X[0:8, b * 64 : b * 64 + 64], s)
            T.copy(s, rows[0:8, b * 64 : b * 64 + 64])
        with T.Kernel(T.ceildiv(n, 64), threads=128) as b:
            s = T.alloc_shared((8, 64), "float16")
            T.copy(rows[0:8, b * 64 : b * 64 + 64], s)
            T.copy(s, Y[0:8, b * 64 : b * 64 + 64])

    launcher = machine.launcher(main)
    launcher(array((8, 80)), array((8, 80)))
    assert [e.dims for e in machine.encoded] == [[160, 8], [80, 8]] and len(machine.recorder.launches) == 2
    launcher(array((8, 84)), array((8, 84)))
    assert len(machine.encoded) == 2 and len(machine.recorder.launches) == 4

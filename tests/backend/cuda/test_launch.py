"""Launching without a GPU: a driver that only records. What reaches it is what the program says; wrong arguments never do."""

import struct
import threading

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import build
from tilelang.backend.cuda.host import Slot, frame_offsets
from tilelang.compiler.compile import context
from tilelang.errors import TileNotSupportedError, TileRuntimeError, TileTypeError, TileValueError
from tilelang.ir.dtype_table import numpy_type
from tilelang.ir.tvm_api import ffi
from tilelang.target.target import Target

from . import recorder as stub
from .programs import ALL, scalars, two_kernels, vector_add


@pytest.fixture
def recorder(monkeypatch):
    return stub.install(monkeypatch)


def array(dtype, *shape, offset=0):
    """Zeros that begin `offset` bytes behind a multiple of 64."""
    kind = np.dtype(numpy_type(dtype))
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(kind).reshape(shape)


def q(value):
    return struct.pack("<q", value)


def address(tensor):
    return q(tensor.ctypes.data)


def test_grid_block_and_addresses(recorder):
    a, b = array("float16", 16, 1024), array("float16", 16, 1024)
    stub.kernel_on_cpu(vector_add())(a, b)
    (one,) = recorder.launches
    assert (one.name, one.grid, one.block, one.shared, one.stream) == ("main_kernel", (16, 1, 1), (128, 1, 1), 0, 0)
    assert one.values == [address(a), address(b)]


def test_kernels_for_sm_90_are_launched_while_others_run(recorder):
    """CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION is 6 in cuda.h; the kernel waits by itself."""
    for arch, config, attribute in (("sm_90", {}, (6, 1)), ("sm_80", {}, None), ("sm_90", {"tl.disable_dependent_launch": True}, None)):
        kernel = stub.kernel_on_cpu(vector_add(), target=f"cuda -arch={arch}", config=config)
        kernel(array("float16", 16, 1024), array("float16", 16, 1024))
        assert recorder.launches[-1].attribute == attribute
        text = kernel.artifact.source
        assert ("wait_for_kernels_before" in text) == (attribute is not None)
        body = text[text.index("__global__") :]
        if attribute is not None:  # before anything of the tensors
            assert body.index("wait_for_kernels_before") < body.index("B[")


def test_bytes_of_shared_memory(recorder):
    kernel = stub.kernel_on_cpu(ALL["gemm"](), target="cuda -arch=sm_80")
    kernel(array("float16", 128, 128), array("float16", 128, 128), array("float32", 128, 128))
    assert recorder.launches[0].shared == kernel.artifact.entry.program.kernels[0].shared > 0


def test_the_stream_is_the_one_of_the_tensors_device(recorder):
    kernel = stub.kernel_on_cpu(vector_add())
    a, b = array("float16", 16, 1024), array("float16", 16, 1024)
    with ffi.use_raw_stream(ffi.device("cuda:0"), 0x1234):
        kernel(a, b)
        with ffi.use_raw_stream(ffi.device("cuda:1"), 0x5678):
            kernel(a, b)
    kernel(a, b)
    assert [one.stream for one in recorder.launches] == [0x1234, 0x1234, 0]


def test_kernels_are_loaded_once(recorder):
    kernel = stub.kernel_on_cpu(two_kernels())
    for _ in range(3):
        kernel(array("float32", 200), array("float32", 200))
    assert len(recorder.kernels) == 2 and recorder.contexts == [0]
    assert len({one.function for one in recorder.launches}) == 2


def test_misaligned_and_overlapping_tensors_get_the_careful_kernels(recorder):
    kernel = stub.kernel_on_cpu(vector_add())
    both = array("float16", 17, 1024)
    fast = [(array("float16", 16, 1024), array("float16", 16, 1024)), (array("float16", 16, 1024, offset=16), array("float16", 16, 1024))]
    slow = [
        (array("float16", 16, 1024), array("float16", 16, 1024, offset=2)),
        (both[:16], both[:16]),
        (both[:16], both[1:]),
        (both[1:], both[:16]),
    ]
    for pair in fast + slow:
        kernel(*pair)
    functions = [one.function for one in recorder.launches]
    assert len(set(functions[:2])) == len(set(functions[2:])) == 1 and functions[0] != functions[2]


def test_tensors_that_are_only_read_may_overlap(recorder):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                C[i] = A[i] + B[i]

    kernel = stub.kernel_on_cpu(main)
    a, c = array("float32", 64), array("float32", 64)
    kernel(a, a, c)
    kernel(a, array("float32", 64), c)
    assert len({one.function for one in recorder.launches}) == 1


@pytest.mark.parametrize("pair", ["AB", "AC", "AD", "BC", "BD", "CD"])
def test_every_pair_with_a_written_tensor_counts(recorder, pair):
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32"), D: T.Tensor((64,), "float32")
    ):  # fmt: skip
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = A[i] + D[i]
                C[i] = A[i]

    kernel = stub.kernel_on_cpu(main)
    arrays = {name: array("float32", 64) for name in "ABCD"}
    kernel(*arrays.values())
    arrays[pair[1]] = arrays[pair[0]]
    kernel(*arrays.values())
    assert (len({one.function for one in recorder.launches}) == 1) == (pair == "AD")


def test_neighbours_with_strides_do_not_overlap_but_interleaved_ones_do(recorder):
    m, s = T.symbolic("m"), T.symbolic("s")

    @T.prim_func
    def main(A: T.StridedTensor((m, 16), (s, 1), "float32"), B: T.StridedTensor((m, 16), (s, 1), "float32")):
        with T.Kernel(m, threads=16) as bx:
            for i in T.Parallel(16):
                B[bx, i] = A[bx, i]

    kernel = stub.kernel_on_cpu(main)
    both = array("float32", 8, 32)
    for a, b in ((both[:4, :16], both[4:, :16]), (both[:, :16], both[:, 16:]), (both[:0, :16], both[:0, :16])):
        kernel(a, b)
    assert len(recorder.launches) == 2 and len({one.function for one in recorder.launches}) == 2


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [("float32", 0.5, struct.pack("<f", 0.5)), ("float64", 0.1, struct.pack("<d", 0.1)), ("float16", 0.1, struct.pack("<e", 0.1)),
     ("bfloat16", 1.00390625, b"\x80\x3f"), ("bfloat16", 1.01171875, b"\x82\x3f"), ("bfloat16", float("nan"), b"\xc0\x7f"),
     ("bfloat16", -float("inf"), b"\x80\xff"), ("int8", -3, b"\xfd"), ("uint16", 65535, b"\xff\xff"), ("int32", -7, struct.pack("<i", -7)),
     ("uint32", 1 << 31, struct.pack("<I", 1 << 31)), ("int64", -(1 << 40), q(-(1 << 40))), ("uint64", (1 << 64) - 2, q(-2)),
     ("bool", True, b"\1")],
)  # fmt: skip
def test_scalars_are_passed_by_value(recorder, dtype, value, bits):
    @T.prim_func
    def main(A: T.Tensor((4,), dtype), x: dtype):
        with T.Kernel(1, threads=4):
            tx = T.get_thread_binding(0)
            A[tx] = x

    kernel = stub.kernel_on_cpu(main)
    kernel(array(dtype, 4), value)
    kernel(array(dtype, 4), value)
    assert [one.values[1][: len(bits)] for one in recorder.launches] == [bits, bits]


def test_arrays_of_small_floats_and_numbers_together(recorder):
    arrays = array("int32", 5, 16), array("bfloat16", 5), array("float8_e4m3fn", 5)
    stub.kernel_on_cpu(scalars())(*arrays, 0.5, 7)
    (one,) = recorder.launches
    assert one.grid == (5, 1, 1) and one.values[:3] == [address(a) for a in arrays]
    assert one.values[3][:4] == struct.pack("<f", 0.5) and one.values[4][:4] == struct.pack("<i", 7)


def test_symbols_come_from_shapes_and_workspaces_are_shared(recorder):
    kernel = stub.kernel_on_cpu(two_kernels())
    kernel(array("float32", 200), array("float32", 200))
    first, second = recorder.launches
    assert first.grid == (2, 1, 1) and second.grid == (4, 1, 1) and recorder.workspaces == [800]
    assert len(set(first.values) & set(second.values)) == 2  # the workspace and n
    assert not kernel.artifact.entry._state.workspaces  # given back


def test_an_empty_grid_launches_nothing(recorder):
    stub.kernel_on_cpu(scalars())(array("int32", 0, 16), array("bfloat16", 0), array("float8_e4m3fn", 0), 0.5, 7)
    assert recorder.launches == []


WRONG = [
    (array("float32", 16, 1024), TileTypeError, "B: expected dtype float16, got float32"),
    (array("float16", 16, 1023), TileValueError, r"B: expected shape \(16, 1024\), got \(16, 1023\)"),
    (array("float16", 16384), TileValueError, "B: expected 2 dimensions"),
    (array("float16", 1024, 16).T, TileValueError, "B: expected contiguous memory"),
    (None, TileTypeError, "B: .*got None"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG)
def test_wrong_arguments_are_refused_with_the_words_of_the_cpu(recorder, wrong, error, text):
    kernel = stub.kernel_on_cpu(vector_add())
    good = array("float16", 16, 1024)
    messages = []
    for tried in (kernel, kernel, tilelang.compile(vector_add(), target="cpu")):
        with pytest.raises(error, match=text) as caught:
            tried(good, wrong)
        messages.append(str(caught.value))
    assert recorder.launches == [] and len(set(messages)) == 1
    kernel(good, good)
    with pytest.raises(error, match=text):  # when these types are known already
        kernel(good, wrong)
    assert len(recorder.launches) == 1


def test_tensors_elsewhere_are_refused_by_the_function_itself(recorder):
    kernel = tilelang.compile(vector_add(), target="cuda")
    good = array("float16", 16, 1024)
    with pytest.raises(ValueError, match=r"(?s)device_type.*expected cuda"):
        kernel.artifact.entry(good, good)
    with pytest.raises(TileValueError, match="A: expected a tensor on device cuda, got one on cpu"):
        kernel(good, good)
    assert recorder.launches == []


def test_a_failed_launch_names_kernel_and_configuration(recorder):
    recorder.answers = [stub.INVALID_VALUE]
    kernel = stub.kernel_on_cpu(vector_add())
    arrays = array("float16", 16, 1024), array("float16", 16, 1024)
    with pytest.raises(
        TileRuntimeError, match=r"main_kernel failed: CUDA_ERROR_PRETENDED.*grid \(16, 1, 1\), block \(128, 1, 1\), 0 bytes"
    ):
        kernel(*arrays)
    kernel(*arrays)
    assert len(recorder.launches) == 2


def test_a_thread_without_context_launches_again_in_the_right_one(recorder):
    recorder.answers = [stub.INVALID_CONTEXT]
    stub.kernel_on_cpu(vector_add())(array("float16", 16, 1024), array("float16", 16, 1024))
    first, second = recorder.launches
    assert vars(first) == vars(second) and recorder.contexts == [0, 0]  # one for loading, one for launching


def test_errors_of_loading_keep_their_class(recorder, monkeypatch):
    def refuse(data):
        raise TileRuntimeError("no such machine code")

    monkeypatch.setattr("tilelang.backend.cuda.driver.load_module", refuse)
    with pytest.raises(TileRuntimeError, match="no such machine code"):
        stub.kernel_on_cpu(vector_add())(array("float16", 16, 1024), array("float16", 16, 1024))


def test_host_assertions_and_arithmetic(recorder):
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((2 * n + 1,), "float32")):
        assert n % 2 == 0, "n must be even"
        with T.Kernel(T.ceildiv(n, 3), threads=32) as bx:
            A[bx] = 1.0

    kernel = stub.kernel_on_cpu(main)
    kernel(array("float32", 9))
    assert recorder.launches[0].grid == (2, 1, 1)
    with pytest.raises(AssertionError, match="n must be even"):
        kernel(array("float32", 7))
    with pytest.raises(TileValueError, match="no size n gives that"):
        kernel(array("float32", 8))


def test_host_loops_conditions_and_variables(recorder):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        for k in T.serial(n):
            if k % 2 == 0:
                with T.Kernel(k + 1, 2, threads=32) as (bx, by):
                    A[bx] = k + by
            else:
                with T.Kernel(1, 1, k, threads=(4, 2, 1)) as (one, two, three):
                    A[one + two + three] = 7

    stub.kernel_on_cpu(main)(array("int32", 64), 4)
    assert [(one.grid, one.block) for one in recorder.launches] == [
        ((1, 2, 1), (32, 1, 1)), ((1, 1, 1), (4, 2, 1)), ((3, 2, 1), (32, 1, 1)), ((1, 1, 3), (4, 2, 1)),
    ]  # fmt: skip
    assert recorder.launches[2].values[1][:4] == struct.pack("<i", 2)


def test_kernels_get_the_values_of_host_variables(recorder):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        s = 1
        while s < n:
            with T.Kernel(s, threads=32) as bx:
                A[bx] = A[bx] + s
            s = s * 2

    stub.kernel_on_cpu(main)(array("int32", 64), 7)
    assert [(one.grid[0], one.values[1][:4]) for one in recorder.launches] == [(s, struct.pack("<i", s)) for s in (1, 2, 4)]


def test_a_kernel_that_assigns_a_host_variable_is_refused():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        s = n
        if n > 3:
            s = n + 1
        with T.Kernel(1, threads=32):
            s = s + 1
            A[0] = s

    with pytest.raises(TileNotSupportedError, match="s is a variable of the host, and a kernel assigns it"):
        tilelang.compile(main, target="cuda")


@pytest.mark.parametrize(("a", "b", "grid"), [(7, 2, 3), (7, 0, 0), (-7, -1, 7), (-(1 << 31), -1, 0)])
def test_divisions_by_an_argument_end_no_process(recorder, a, b, grid):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), a: T.int32, b: T.int32):
        with T.Kernel(a // b, threads=32) as bx:
            A[bx] = a % b

    stub.kernel_on_cpu(main)(array("int32", 64), a, b)
    assert [one.grid[0] for one in recorder.launches] == [grid] * (grid > 0)


def test_extents_with_a_division_by_a_symbol(recorder):
    n, m = T.symbolic("n"), T.symbolic("m")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((m,), "int32"), C: T.Tensor((n // m,), "int32")):
        with T.Kernel(n, threads=32) as bx:
            C[bx] = A[bx] + B[bx]

    for kernel in (stub.kernel_on_cpu(main), tilelang.compile(main, target="cpu")):
        kernel(array("int32", 8), array("int32", 2), array("int32", 4))
        with pytest.raises(ValueError):
            kernel(array("int32", 8), array("int32", 0), array("int32", 4))
        with pytest.raises(TileValueError, match=r"C: expected shape \(\(n // m\),\)"):
            kernel(array("int32", 8), array("int32", 2), array("int32", 5))
    assert [one.grid for one in recorder.launches] == [(8, 1, 1)]


def test_programs_of_pointers_only(recorder):
    @T.prim_func
    def main(p: T.ptr, n: T.int32):
        A = T.make_tensor(p, (n,), "float32")
        with T.Kernel(n, threads=32) as bx:
            A[bx] = 1.0

    kernel = stub.kernel_on_cpu(main)
    a = array("float32", 3)
    kernel(a, 3)
    kernel(a.ctypes.data, 3)
    assert [(one.grid, one.values[0]) for one in recorder.launches] == [((3, 1, 1), address(a))] * 2


def test_cooperative_kernels(recorder):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            A[bx] = 1.0
            T.sync_grid()
            A[bx] = A[3 - bx] + 1.0

    kernel = stub.kernel_on_cpu(main)
    for _ in range(2):
        kernel(array("float32", 64))
    first, second = recorder.launches
    assert first.attribute == second.attribute == (2, 1)
    assert recorder.workspaces == [8] and first.values[-1] == second.values[-1] != q(0)
    with ffi.use_raw_stream(ffi.device("cuda:0"), 0x1234):  # may run at the same time
        kernel(array("float32", 64))
        kernel(array("float32", 64))
    third, fourth = recorder.launches[2:]
    assert recorder.workspaces == [8, 8] and third.values[-1] == fourth.values[-1] != first.values[-1]
    recorder.capturing = 1  # so may a graph
    kernel(array("float32", 64))
    assert recorder.workspaces == [8, 8, 8] and not kernel.artifact.entry._state.workspaces


def test_outputs_of_the_launcher(recorder):
    kernel = stub.kernel_on_cpu(vector_add(), out_idx=[1])
    a = array("float16", 16, 1024)
    results = [kernel(a) for _ in range(2)]
    assert [one.values for one in recorder.launches] == [[address(a), address(r)] for r in results]


def test_threads_call_one_kernel(recorder):
    kernel = stub.kernel_on_cpu(two_kernels())
    wrong = []

    def work(n):
        a, b = array("float32", n), array("float32", n)
        for _ in range(50):
            kernel(a, b)
        mine = [one for one in recorder.launches if address(a) in one.values or address(b) in one.values]
        if len(mine) != 100 or any(struct.pack("<i", n) not in [v[:4] for v in one.values] for one in mine):
            wrong.append(n)

    threads = [threading.Thread(target=work, args=(100 + k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(recorder.launches) == 400 and recorder.contexts == [0]


def test_saved_kernels_load_without_compiling(tmp_path, recorder, monkeypatch):
    artifact = stub.kernel_on_cpu(vector_add()).artifact
    artifact.entry.cubin("sm_90a")
    artifact.save(tmp_path)
    monkeypatch.setattr("tilelang.backend.cuda.host_code.machine_code", None)
    loaded = build.load(tmp_path, context(Target("cuda")))
    assert (loaded.source, loaded.host_source) == (artifact.source, artifact.host_source)
    assert loaded.entry.cubins.keys() == {("sm_90a", False)}
    loaded.entry(array("float16", 16, 1024), array("float16", 16, 1024))
    assert len(recorder.launches) == 1


def test_without_a_linker_the_host_function_is_compiled_in_memory(tmp_path, recorder, monkeypatch):
    monkeypatch.setattr("tilelang.backend.llvm.shutil.which", lambda name: None)
    artifact = stub.kernel_on_cpu(vector_add()).artifact
    artifact.save(tmp_path)
    assert not (tmp_path / "host.so").exists()
    for one in (artifact, build.load(tmp_path, context(Target("cuda")))):
        one.entry(array("float16", 16, 1024), array("float16", 16, 1024))
    assert len(recorder.launches) == 2


def test_places_of_parameters():
    assert frame_offsets([Slot(), Slot(), Slot(128, 64), Slot()]) == ([0, 1, 8, 24], 25)
    assert frame_offsets([]) == ([], 0)


def test_the_memory_of_an_element_is_out_of_the_hosts_reach():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(A[0], threads=32) as bx:
            A[bx] = 1

    with pytest.raises(TileNotSupportedError, match="its memory is on the device"):
        tilelang.compile(main, target="cuda")

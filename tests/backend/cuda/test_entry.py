"""Kernels as builtin functions of Python: what they take, what they leave to others, whose references they hold."""

import ctypes
import gc
import struct
import sys
import threading
import types
import weakref

import numpy as np
import pytest

import tilelang.language as T
from tilelang.backend.base import Argument
from tilelang.backend.cuda import entry
from tilelang.errors import TileRuntimeError, TileTypeError, TileValueError

from . import recorder as stub
from .programs import two_kernels, vector_add

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not entry.is_possible(torch.Tensor), reason="torch publishes no C table here")


@pytest.fixture
def recorder(monkeypatch):
    return stub.install(monkeypatch)


def half(*shape):
    return torch.zeros(*(shape or (16, 1024)), dtype=torch.float16)


def builtin(func, *args, **options):
    """A kernel that has been called with `args`, and is a builtin function since then."""
    kernel = stub.kernel_on_cpu(func, **options)
    kernel(*args)
    assert isinstance(kernel.__call__, types.BuiltinFunctionType)
    return kernel


def address(tensor):
    return struct.pack("<q", tensor.data_ptr())


def test_tensors_reach_the_driver(recorder):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)
    c = half()
    assert kernel(c, b) is None and kernel(torch.nn.Parameter(a, requires_grad=False), b) is None
    assert [one.values for one in recorder.launches[1:]] == [[address(c), address(b)], [address(a), address(b)]]


def test_what_it_does_not_take_goes_the_long_way(recorder):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)
    array = np.zeros((16, 1024), np.float16)
    kernel(a, B=b)
    kernel(A=a, B=b)
    kernel(array, b)
    kernel(a, array)
    assert [one.values[0] for one in recorder.launches[1:3]] == [address(a)] * 2
    assert recorder.launches[3].values[0] == struct.pack("<q", array.ctypes.data) and len(recorder.launches) == 5


WRONG = {
    "dtype": (lambda: torch.zeros(16, 1024), TileTypeError, "B: expected dtype float16, got float32"),
    "shape": (lambda: half(16, 1023), TileValueError, r"B: expected shape \(16, 1024\), got \(16, 1023\)"),
    "rank": (lambda: half(16384), TileValueError, "B: expected 2 dimensions"),
    "strides": (lambda: half(1024, 16).T, TileValueError, "B: expected contiguous memory"),
    "None": (lambda: None, TileTypeError, "B: .*got None"),
    "a number": (lambda: 3, TileTypeError, "B: expected a tensor.*got int 3"),
    "gradient": (lambda: half().requires_grad_(), TileValueError, "B: .*requires grad"),
    "negated": (lambda: torch._neg_view(half()), TileTypeError, "B: a lazily negated"),
    "elsewhere": (lambda: torch.zeros(16, 1024, dtype=torch.float16, device="meta"), TileValueError, "B: .*got one on meta"),
    "sparse": (lambda: torch.zeros(16, 1024).half().to_sparse(), TileTypeError, "B: a tensor of layout torch.sparse_coo"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_with_the_words_of_the_first_call(recorder, name):
    a, b = half(), half()
    make, error, text = WRONG[name]
    kernel, launches = builtin(vector_add(), a, b), len(recorder.launches)
    for tried in (kernel, stub.kernel_on_cpu(vector_add()), kernel):
        with pytest.raises(error, match=text):
            tried(a, make())
    assert len(recorder.launches) == launches
    kernel(a, b)
    assert len(recorder.launches) == launches + 1


def test_wrong_numbers_of_arguments_and_names(recorder):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)
    for args, named, error, text in (
        ((), {}, TileValueError, "expected 2 arguments, got 0"),
        ((a,), {}, TileValueError, "expected 2 arguments, got 1"),
        ((a, b, b), {}, TileValueError, "expected 2 arguments, got 3"),
        ((a, b), {"B": b}, TileTypeError, "'B' is given twice"),
        ((a,), {"C": b}, TileTypeError, "'C' is no parameter"),
    ):
        with pytest.raises(error, match=text):
            kernel(*args, **named)
    assert len(recorder.launches) == 1


def scaled(dtype):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), x: dtype):
        with T.Kernel(1, threads=4):
            tx = T.get_thread_binding(0)
            A[tx] = A[tx] + T.cast(x, "float32")

    return main


@pytest.mark.parametrize(
    ("dtype", "good", "bits", "bad"),
    [("float32", [0.5, 3, -1.0], ["<f", 0.5, 3.0, -1.0], ["x", None, True]),
     ("int8", [-128, 127, True], ["<b", -128, 127, 1], [128, -129, 0.5]),
     ("uint64", [0, (1 << 64) - 1], ["<Q", 0, (1 << 64) - 1], [-1, 1 << 64]),
     ("bool", [True, False], ["<?", True, False], [2])],
)  # fmt: skip
def test_numbers(recorder, dtype, good, bits, bad):
    a = torch.zeros(4)
    kernel = builtin(scaled(dtype), a, good[0])
    for value in good:
        kernel(a, value)
    form, *expected = bits
    size = struct.calcsize(form)
    assert [one.values[1][:size] for one in recorder.launches[1:]] == [struct.pack(form, value) for value in expected]
    for value in bad:
        first = stub.kernel_on_cpu(scaled(dtype))
        outcomes = []
        for tried in (kernel, first):
            try:
                outcomes.append(tried(a, value))
            except (TypeError, ValueError) as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], value


def test_strided_tensors_whose_elements_share_memory(recorder):
    m, s = T.symbolic("m"), T.symbolic("s")

    @T.prim_func
    def main(A: T.StridedTensor((m, 16), (s, 1), "float32")):
        with T.Kernel(m, threads=16) as bx:
            for i in T.Parallel(16):
                A[bx, i] = 1.0

    kernel = builtin(main, torch.zeros(4, 32)[:, :16])
    with pytest.raises(TileValueError, match=r"A: .*share memory \(stride 0\)"):
        kernel(torch.zeros(1, 16).expand(4, 16))
    assert len(recorder.launches) == 1


def test_errors_of_a_launch_and_of_the_program(recorder):
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32")):
        assert n % 2 == 0, "n must be even"
        with T.Kernel(n, threads=32) as bx:
            A[bx] = 1.0

    kernel = builtin(main, torch.zeros(4))
    with pytest.raises(AssertionError, match="n must be even"):
        kernel(torch.zeros(3))
    recorder.answers = [stub.INVALID_VALUE]
    with pytest.raises(TileRuntimeError, match=r"main_kernel failed: CUDA_ERROR_PRETENDED.*grid \(6, 1, 1\)"):
        kernel(torch.zeros(6))
    kernel(torch.zeros(0))  # nothing to launch
    kernel(torch.zeros(2))
    assert [one.grid[0] for one in recorder.launches] == [4, 6, 2]


def test_errors_of_loading_keep_their_class(recorder, monkeypatch):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)

    def refuse(data):
        raise TileRuntimeError("no such machine code")

    monkeypatch.setattr("tilelang.backend.cuda.driver.load_module", refuse)
    with pytest.raises(TileRuntimeError, match="no such machine code"):
        kernel(b, b)  # one tensor under two names: the careful kernels
    kernel(a, b)


def test_outputs_of_the_launcher(recorder):
    a = half()
    kernel = stub.kernel_on_cpu(vector_add(), out_idx=[1])
    results = [kernel(a) for _ in range(3)]
    assert [one.values for one in recorder.launches] == [[address(a), address(r)] for r in results]
    with pytest.raises(TileValueError, match="A: expected shape"):
        kernel(half(15, 1024))


def test_programs_with_workspaces_stay_functions_of_python(recorder):
    kernel = stub.kernel_on_cpu(two_kernels())
    for _ in range(2):
        kernel(torch.zeros(200), torch.zeros(200))
    assert not isinstance(kernel.__call__, types.BuiltinFunctionType) and not kernel.artifact.entry._state.workspaces


def test_the_lock_is_free_while_the_driver_launches(recorder, monkeypatch):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)
    entered, left, seen = threading.Event(), threading.Event(), []
    record = recorder._launch

    def slow(*args):
        entered.set()
        seen.append(left.wait(60))
        return record(*args)

    other = threading.Thread(target=lambda: (entered.wait(60), left.set()))
    other.start()
    slowly = type(recorder._entry)(slow)
    kernel.artifact.entry.words[0] = ctypes.cast(slowly, ctypes.c_void_p).value
    kernel(a, b)
    other.join()
    assert seen == [True]


def test_references(recorder):
    a, b = half(), half()
    kernel = builtin(vector_add(), a, b)
    wrong = half(16, 1023)

    def calls():
        for _ in range(200):
            kernel(a, b)
            for args in ((a, wrong), (a, 3), (a,)):
                with pytest.raises((TypeError, ValueError)):
                    kernel(*args)

    calls()
    recorder.launches.clear()
    watched = (a, b, wrong, None, True, torch.Tensor, kernel)
    before = [sys.getrefcount(value) for value in watched]
    calls()
    recorder.launches.clear()
    after = [sys.getrefcount(value) for value in watched]
    assert all(abs(x - y) < 50 for x, y in zip(before, after, strict=True)), (before, after)


def test_a_kernel_and_its_function_are_collected(recorder):
    kernel = builtin(vector_add(), half(), half())
    kernel_alive, launcher_alive = weakref.ref(kernel), weakref.ref(kernel.artifact.entry)
    function = kernel.__call__
    del kernel
    gc.collect()
    function(half(), half())  # the function keeps what it needs
    del function
    gc.collect()
    assert kernel_alive() is None and launcher_alive() is None


def test_threads(recorder):
    a, first, *tensors = [half() for _ in range(6)]  # alive to the end: their addresses tell the launches apart
    kernel = builtin(vector_add(), a, first)
    wrong = []

    def work(mine):
        for _ in range(100):
            kernel(a, mine)
            try:
                kernel(a, a.float())
                wrong.append(mine)
            except TypeError:
                pass
        if sum(one.values[1] == address(mine) for one in recorder.launches) != 100:
            wrong.append(mine)

    threads = [threading.Thread(target=work, args=(tensor,)) for tensor in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Lent:
    """A tensor on a GPU that is none: memory of the processor with a device and a stream of its own."""

    def __init__(self, array, device, stream):
        self.array, self.device, self.stream = array, device, stream
        self.words = (ctypes.c_int64 * 6)()
        self.dims = (ctypes.c_int64 * (2 * array.ndim))(*array.shape, *(s // array.itemsize for s in array.strides))
        at = ctypes.addressof(self.dims)
        self.words[:] = [array.ctypes.data, 2 | device << 32, array.ndim | (2 | 16 << 8 | 1 << 16) << 32, at, at + 8 * array.ndim, 0]


def lend(tensor, place):
    if tensor.device < 0:
        return -1
    ctypes.memmove(place, ctypes.addressof(tensor.words), 48)
    return 0


STREAMS = {0: 0x1230, 1: 0x4560}
_lend = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(lend)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def _current(kind, index, place):
    place[0] = STREAMS[index]
    return 0


def publish(kind):
    table = entry.Exchange(1, 2, None, None, None, None, ctypes.cast(_lend, ctypes.c_void_p), ctypes.cast(_current, ctypes.c_void_p))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    kind.table, kind.__dlpack_c_exchange_api__ = table, new(ctypes.addressof(table), b"dlpack_exchange_api", None)


publish(Lent)


def test_streams_and_devices(recorder):
    """The stream is the library's current one on the device of the first tensor; two devices in one call are refused."""
    import tilelang  # noqa: PLC0415
    from tilelang.ir.tvm_api import ffi  # noqa: PLC0415

    launcher = tilelang.compile(vector_add(), target="cuda").artifact.entry
    others, failures = [], []
    kernel = launcher.python_function(
        (Lent, Lent), [Argument("tensor")] * 2, lambda *args: others.append(args), lambda args, error: failures.append(error)
    )
    arrays = [np.zeros((16, 1024), np.float16) for _ in range(2)]
    for device in (0, 1, 0):
        kernel(*(Lent(array, device, 0) for array in arrays))
    with ffi.use_raw_stream(ffi.device("cuda:0"), 0x99):
        kernel(*(Lent(array, 0, 0) for array in arrays))
    assert [one.stream for one in recorder.launches] == [0x1230, 0x4560, 0x1230, 0x1230]
    kernel(Lent(arrays[0], 0, 0), Lent(arrays[1], 1, 0))
    assert len(failures) == 1 and "device" in str(failures[0]) and len(recorder.launches) == 4
    kernel(Lent(arrays[0], -1, 0), Lent(arrays[1], 0, 0))  # its library refuses
    kernel(arrays[0], arrays[1])
    assert len(others) == 2 and len(recorder.launches) == 4

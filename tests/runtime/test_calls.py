"""Calls of kernels: what is accepted works in place, what is wrong is refused with the parameter's name and both values."""

import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilelang.errors import TileTypeError, TileValueError

from .kernels import make

torch = pytest.importorskip("torch")
KERNEL = make()


def arrays(n=4):
    return np.arange(n * 16, dtype=np.float32).reshape(n, 16), np.zeros((n, 16), np.float32)


def check_good():
    a, c = arrays()
    assert KERNEL(a, c, 3) is None
    np.testing.assert_array_equal(c[0], a[0] + 3)
    assert not c[1:].any()


def readonly(array):
    array.flags.writeable = False
    return array


A, C = arrays()
BAD = {
    "dtype": ((A.astype(np.float64), C, 3), TileTypeError, ("A", "float32", "float64")),
    "rank": ((A[0], C, 3), TileValueError, ("A", "2 dimensions", "(n, 16)", "(16,)")),
    "extent": ((np.ones((4, 17), np.float32), C, 3), TileValueError, ("A", "(n, 16)", "(4, 17)", "A.shape[1]")),
    "symbol": ((np.ones((5, 16), np.float32), C, 3), TileValueError, ("C", "n = 5 by A.shape[0]", "4")),
    "columns": ((np.ones((4, 32), np.float32)[:, ::2], C, 3), TileValueError, ("A", "contiguous", "(32, 2)")),
    "rows": ((np.ones((8, 16), np.float32)[::2], C, 3), TileValueError, ("A", "contiguous", "(32, 1)")),
    "transposed": ((np.ones((16, 16), np.float32).T, np.ones((16, 16), np.float32), 3), TileValueError, ("A", "contiguous")),
    "negative rows": ((A[::-1], C, 3), TileValueError, ("A", "(-16, 1)")),
    "negative columns": ((A[:, ::-1], C, 3), TileValueError, ("A", "(16, -1)")),
    "broadcast": ((np.broadcast_to(A[:1], (4, 16)), C, 3), TileValueError, ("A", "(0, 1)")),
    "number for tensor": ((3, C, 3), TileTypeError, ("A", "tensor", "int 3")),
    "tensor for number": ((A, C, A), TileTypeError, ("s", "int32", "ndarray")),
    "float for int": ((A, C, 3.5), TileTypeError, ("s", "int32", "float 3.5")),
    "numpy float for int": ((A, C, np.float32(3)), TileTypeError, ("s", "int32", "float")),
    "int too large": ((A, C, 2**31), TileValueError, ("s", "2147483648", "int32")),
    "int too small": ((A, C, -(2**31) - 1), TileValueError, ("s", "int32")),
    "huge int": ((A, C, 2**70), TileValueError, ("s", "int32")),
    "numpy int too large": ((A, C, np.int64(2**31)), TileValueError, ("s", "int32")),
    "None for tensor": ((None, C, 3), TileTypeError, ("A", "tensor", "None")),
    "None for number": ((A, C, None), TileTypeError, ("s", "NoneType")),
    "text for number": ((A, C, "x"), TileTypeError, ("s", "str")),
    "text for tensor": (("x" * 100, C, 3), TileTypeError, ("A", "str")),
    "bytes for tensor": ((b"x" * 100, C, 3), TileTypeError, ("A", "bytes")),
    "list for tensor": ((A.tolist(), C, 3), TileTypeError, ("A", "list")),
    "dict for tensor": (({}, C, 3), TileTypeError, ("A", "dict")),
    "function for tensor": ((print, C, 3), TileTypeError, ("A", "builtin_function")),
    "type for tensor": ((np.ndarray, C, 3), TileTypeError, ("A", "type")),
    "too few": ((A, C), TileValueError, ("expected 3 arguments, got 2",)),
    "too many": ((A, C, 3, 4), TileValueError, ("expected 3 arguments, got 4",)),
    "none at all": ((), TileValueError, ("expected 3 arguments, got 0",)),
    "byte order": ((A.astype(">f4"), C, 3), TileTypeError, ("A", ">f4")),
    "objects": ((np.ones((4, 16), object), C, 3), TileTypeError, ("A", "object")),
    "records": ((np.ones((4, 16), [("x", "f4")]), C, 3), TileTypeError, ("A",)),
    "half types": ((A.astype(ml_dtypes.bfloat16), C, 3), TileTypeError, ("A", "float32", "bfloat16")),
    "masked": ((np.ma.masked_array(A, mask=True), C, 3), TileTypeError, ("A", "masked")),
    "read-only output": ((A, readonly(C.copy()), 3), TileValueError, ("C", "read-only")),
    "meta": ((torch.ones(4, 16, device="meta"), C, 3), TileValueError, ("A", "cpu", "meta")),
    "sparse": ((torch.ones(4, 16).to_sparse(), C, 3), TileTypeError, ("A", "sparse")),
    "conjugate": ((torch.ones(4, 16, dtype=torch.complex64).conj(), C, 3), TileTypeError, ("A", "conjugated")),
    "lazily negated": ((torch._neg_view(torch.ones(4, 16)), C, 3), TileTypeError, ("A", "negated")),
    "output with gradient": ((A, torch.ones(4, 16, requires_grad=True), 3), TileValueError, ("C", "requires grad")),
    "torch dtype": ((torch.ones(4, 16, dtype=torch.int8), C, 3), TileTypeError, ("A", "float32", "int8")),
    "torch strides": ((torch.ones(16, 4).T, C, 3), TileValueError, ("A", "contiguous")),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
def test_wrong_arguments(name, warm):
    """Refused both by the full check and behind the fast way, and a right call works afterwards."""
    kernel = KERNEL if warm else make()
    if warm:
        check_good()
        KERNEL(torch.ones(4, 16), torch.ones(4, 16), 1)
    args, error, mentions = BAD[name]
    with pytest.raises(error) as caught:
        kernel(*args)
    for text in mentions:
        assert text in str(caught.value)
    check_good()


GOOD = {
    "numpy int": lambda a: (a, np.int32(3)),
    "bool as int": lambda a: (a, True),
    "array of rank 0": lambda a: (a, np.array(3)),
    "tensor of rank 0": lambda a: (a, torch.tensor(3)),
    "read-only": lambda a: (readonly(a.copy()), 3),
    "torch": lambda a: (torch.from_numpy(a), 3),
    "torch with gradient": lambda a: (torch.from_numpy(a).requires_grad_(), 3),
    "torch parameter": lambda a: (torch.nn.Parameter(torch.from_numpy(a)), 3),
    "matrix": lambda a: (np.matrix(a), 3),
    "misaligned": lambda a: (misaligned(a), 3),
    "part of a larger one": lambda a: (np.concatenate([a, a])[:4], 3),
    "own export": lambda a: (Exporter(a), 3),
}


class Exporter:
    """An object that knows DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def misaligned(array):
    """A copy whose address is one past a multiple of the element size."""
    raw = np.zeros(array.nbytes + 64, np.uint8)
    offset = -raw.ctypes.data % 16 + 1
    out = raw[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    assert out.ctypes.data % 4 == 1
    return out


@pytest.mark.parametrize("name", GOOD)
def test_accepted_arguments(name):
    a, c = arrays()
    value, s = GOOD[name](a)
    for _ in range(2):
        c[:] = 0
        KERNEL(value, c, s)
        np.testing.assert_array_equal(c[0], a[0] + int(s))


def test_arrays_that_need_different_help():
    """A small-float array (passed by a view on the fast way) together with a read-only one."""
    kernel = make("bfloat16")
    a, c = np.ones((4, 16), ml_dtypes.bfloat16), np.zeros((4, 16), ml_dtypes.bfloat16)
    for value in (a, readonly(a.copy()), torch.ones(4, 16, dtype=torch.bfloat16)):
        for _ in range(2):
            c[:] = 0
            kernel(value, c, 1)
            assert (c[0] == 1).all()
    for wrong, error in ((a[:, ::-1], TileValueError), (a[:3], TileValueError), (a.astype(np.float16), TileTypeError)):
        with pytest.raises(error, match=r"[AC]: expected"):
            kernel(wrong, c, 1)
    with pytest.raises(TileValueError, match="read-only"):
        kernel(a, readonly(c.copy()), 1)
    kernel(a[:0], c[:0], 1)


def test_misaligned_output():
    a, c = arrays()
    out = misaligned(c)
    KERNEL(misaligned(a), out, 3)
    np.testing.assert_array_equal(out[0], a[0] + 3)


def test_output_with_gradient_inside_no_grad():
    a, _ = arrays()
    c = torch.zeros(4, 16, requires_grad=True)
    with torch.no_grad():
        KERNEL(a, c, 3)
    np.testing.assert_array_equal(c.detach()[0], a[0] + 3)


def test_empty_arrays():
    KERNEL(np.ones((0, 16), np.float32), np.ones((0, 16), np.float32), 3)
    KERNEL(torch.ones(0, 16), torch.ones(0, 16), 3)
    with pytest.raises(TileValueError, match=r"n = 0"):
        KERNEL(np.ones((0, 16), np.float32), np.ones((1, 16), np.float32), 3)


def test_arguments_by_name():
    a, c = arrays()
    KERNEL(a, s=3, C=c)
    np.testing.assert_array_equal(c[0], a[0] + 3)
    with pytest.raises(TileTypeError, match=r"'q' is no parameter"):
        KERNEL(a, c, q=3)
    with pytest.raises(TileTypeError, match=r"'A' is given twice"):
        KERNEL(a, A=a, C=c, s=3)
    with pytest.raises(TileValueError, match=r"expected 3 arguments, got 2; missing C"):
        KERNEL(a, s=3)


def test_aliased_arguments():
    a, _ = arrays()
    before = a.copy()
    KERNEL(a, a, 3)
    np.testing.assert_array_equal(a[0], before[0] + 3)


ELEMENT_TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float64", "bfloat16"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@pytest.mark.parametrize("dtype", [*ELEMENT_TYPES, *SMALL_FLOATS])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_element_types(dtype, library):
    raw = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (4, 16 * numpy_dtype(dtype).itemsize), np.uint8)
    a = raw.view(numpy_dtype(dtype))
    if library == "torch":
        a, c = torch.from_numpy(raw).view(getattr(torch, dtype)), torch.zeros(4, 16, dtype=torch.uint8).to(getattr(torch, dtype))
    else:
        c = np.zeros((4, 16), a.dtype)
    kernel, returning = make(dtype), make(dtype, out_idx=[1])
    bits = (lambda x: x.view(torch.uint8).numpy()) if library == "torch" else (lambda x: x.view(np.uint8))
    for _ in range(2):
        kernel(a, c, 1)
        np.testing.assert_array_equal(bits(c)[0], raw[0])
    out = returning(a, 1)
    assert type(out) is type(a) and out.dtype == a.dtype and tuple(out.shape) == (4, 16)
    np.testing.assert_array_equal(bits(out)[0], raw[0])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "uint8", "uint32", "uint64", "bool"])
def test_range_of_integer_scalars(dtype):
    kernel = make("float32", dtype)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    a, c = arrays()
    for _ in range(2):
        for value in (low, high):
            kernel(a, c, int(value))
            np.testing.assert_array_equal(c[0], a[0] + np.float32(value))
        for value in (int(low) - 1, int(high) + 1):
            with pytest.raises(TileValueError, match=f"{value} does not fit {dtype}"):
                kernel(a, c, value)


def test_float_scalars():
    kernel = make("float32", "float64")
    a, c = arrays()
    for value in (2.5, 2, np.float32(2.5), np.float64(2.5), np.array(2.5), float("inf"), 2**70, True):
        kernel(a, c, value)
        np.testing.assert_array_equal(c[0], (a[0] + np.float32(value)).astype(np.float32))
    for value in ("2.5", None, 1j, [2.5]):
        with pytest.raises(TileTypeError, match=r"s: expected a number"):
            kernel(a, c, value)


def test_strided_tensor():
    kernel = make(strides=True)
    wide = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
    for a in (wide[:, :16], wide[:, 16:], wide[::2, :16], wide[::-1, :16]):
        c = np.zeros((len(a), 16), np.float32)
        kernel(a, c, 1)
        np.testing.assert_array_equal(c[0], a[0] + 1)
    with pytest.raises(TileValueError, match=r"A: expected strides \(sa, 1\), got \(32, 2\)"):
        kernel(wide[:, ::2], np.zeros((4, 16), np.float32), 1)


def test_returned_outputs():
    kernel = make(out_idx=-2)
    assert kernel.out_idx == [1]
    a, _ = arrays()
    out = kernel(a, 3)
    assert isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == (4, 16)
    np.testing.assert_array_equal(out[0], a[0] + 3)
    other = kernel(a, 5)
    assert not np.shares_memory(out, other)
    assert isinstance(kernel(torch.from_numpy(a), 3), torch.Tensor)
    assert kernel(np.ones((0, 16), np.float32), 3).shape == (0, 16)
    with pytest.raises(TileValueError, match=r"expected 2 arguments, got 3.*\n.*C are returned"):
        kernel(a, a, 3)


def test_the_programs_own_error_comes_through():
    kernel = make()
    kernel(*arrays(), 1)

    def failing(*_):
        raise ArithmeticError("from the kernel")

    kernel._entry = failing
    with pytest.raises(ArithmeticError, match=r"from the kernel"):
        kernel(*arrays(), 1)


def test_threads():
    kernel, wrong = make(out_idx=1), []

    def work(seed):
        a = np.full((4, 16), seed, np.float32)
        for k in range(50):
            if not (kernel(a, k)[0] == seed + k).all():
                wrong.append((seed, k))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_no_object_kills_the_process():
    """Objects that the compiled function would misread as tensors, in a process of their own."""
    code = """
import array, ctypes, datetime, io, types
import numpy as np
from tests.runtime.kernels import make
kernel, a, c = make(), np.ones((4, 16), np.float32), np.zeros((4, 16), np.float32)
kernel(a, c, 1)
odd = ["", "x", "x" * 99, b"", b"x" * 99, [], [1.0], (), {}, {1: 2}, set(), print, int, object(), 1j, 2**80, types, io.BytesIO(b"x" * 999),
       array.array("f", [1.0] * 64), memoryview(a), ctypes.c_void_p(8), kernel, kernel.prim_func, kernel.prim_func.params[0],
       kernel.artifact.entry, iter([]), datetime.date(2000, 1, 1), np.dtype("f4"), np.str_("x"), np.datetime64(0, "s"), ..., NotImplemented]
for value in odd:
    for args in ((value, c, 1), (a, value, 1), (a, c, value)):
        try:
            kernel(*args)
        except (TypeError, ValueError):
            pass
        else:
            raise SystemExit(f"accepted {value!r}")
kernel(a, c, 1)
print("alive")
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "alive", done.stderr[-2000:]

"""Memory of a GPU handed to a kernel without its library's own export: device, shape and stream, told without a GPU."""

import ctypes
from types import SimpleNamespace

import pytest

from tilelang.errors import TileValueError
from tilelang.ir.tvm_api import ffi, ffi_function
from tilelang.runtime import arguments, arrays
from tilelang.runtime.arrays import ArrayInfo, as_view, on_stream
from tilelang.runtime.signature import Param, Signature

stream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(ffi_function("TVMFFIEnvGetStream"))


def info(device, shape=(2, 3), dtype="bfloat16"):
    return ArrayInfo(dtype, shape, (3, 1), device, 0x1000, True, False, None)


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:3", 3)])
def test_views_tell_device_shape_and_type(device, index):
    view = as_view(info(device), None)
    tensor = ffi.from_dlpack(view)
    assert view.__dlpack_device__() == (2, index)
    assert (str(tensor.device), tuple(tensor.shape), str(tensor.dtype)) == (f"cuda:{index}", (2, 3), "bfloat16")
    assert tensor.data_ptr() == 0x1000


def test_a_call_with_views_is_on_torchs_current_stream(monkeypatch):
    streams = {0: 0x100, 3: 0x300}
    cuda = SimpleNamespace(is_available=lambda: True, current_stream=lambda index: SimpleNamespace(cuda_stream=streams[index]))
    monkeypatch.setattr(arrays, "torch_module", lambda: SimpleNamespace(cuda=cuda))
    seen = []
    prepared = arguments.Prepared([1, as_view(info("cuda:3"), None)], [], frozenset())
    prepared.run(lambda *_: seen.append((stream(2, 0), stream(2, 3))))
    assert seen == [(None, 0x300)] and stream(2, 3) is None


def test_without_torch_or_without_views_the_stream_stays(monkeypatch):
    monkeypatch.setattr(arrays, "torch_module", lambda: None)
    with ffi.use_raw_stream(ffi.device("cuda:0"), 0x700), on_stream([as_view(info("cuda:0"), None)]):
        assert stream(2, 0) == 0x700
    with ffi.use_raw_stream(ffi.device("cuda:0"), 0x700), on_stream([1, as_view(info("cpu"), None)]):
        assert stream(2, 0) == 0x700


def test_tensors_of_two_devices_are_refused_by_name():
    signature = Signature("main", tuple(Param(name, "tensor", "bfloat16", (2, 3)) for name in "AB"))
    with pytest.raises(TileValueError, match="B: expected a tensor on cuda:0, as A is, got one on cuda:1"):
        arguments._one_device(signature, {0: info("cuda:0"), 1: info("cuda:1")})

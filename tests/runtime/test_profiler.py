"""Timing, generated inputs, comparisons."""

import time

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import TensorSupplyType
from tilelang.engine.param import KernelParam
from tilelang.errors import TileValueError
from tilelang.ir.dtypes import canonical
from tilelang.profiler import do_bench
from tilelang.runtime import supply
from tilelang.testing import set_random_seed
from tilelang.utils.tensor import get_tensor_supply, torch_assert_close

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < n:
                    B[bx * 32 + i] = A[bx * 32 + i] + 1.0

    return tilelang.compile(main, out_idx=[1], target="cpu")


def test_do_bench_measures_milliseconds():
    measured = do_bench(lambda: time.sleep(0.004), warmup=1, rep=20)
    assert 3.9 < measured < 40
    low, high = do_bench(lambda: time.sleep(0.001), warmup=1, rep=10, quantiles=[0.0, 1.0])
    assert 0.9 < low <= high
    assert isinstance(do_bench(lambda: None, warmup=1, rep=1, quantiles=[0.5]), float)
    calls = []
    do_bench(lambda: calls.append(1), _n_warmup=3, _n_repeat=4)
    assert len(calls) == 1 + 5 + 3 + 4
    with pytest.raises(TileValueError, match="return_mode"):
        do_bench(lambda: None, return_mode="best")


def test_profiler_of_a_kernel(kernel):
    profiler = kernel.get_profiler(tensor_supply_type=TensorSupplyType.Normal)
    x = [torch.ones(100)]
    profiler.assert_allclose(lambda a: a + 1, input_tensors=x, atol=0, rtol=0, max_mismatched_ratio=0)
    profiler.assert_allclose(lambda a: [a + 1], input_tensors=[np.ones(100, np.float32)])
    with pytest.raises(AssertionError, match="100 of 100 elements"):
        profiler.assert_allclose(lambda a: a + 2, input_tensors=x)
    with pytest.raises(AssertionError, match="returns 1 outputs, the reference 2"):
        profiler.assert_allclose(lambda a: (a, a), input_tensors=x)
    seen = []
    profiler.manual_assert_close(lambda a: a + 1, x, lambda got, want: seen.append(bool((got == want).all())))
    assert seen == [True]
    assert profiler.do_bench(n_warmup=1, n_repeat=3, input_tensors=x) > 0
    assert profiler.do_bench(lambda a: a + 1, n_warmup=1, n_repeat=3, input_tensors=x, profiler="torch") > 0


def test_symbolic_shapes(kernel):
    profiler = kernel.get_profiler()
    with pytest.raises(TileValueError, match="symbol 'n'"):
        profiler.run_once()
    with pytest.raises(TileValueError, match="no value for symbol 'n'"):
        profiler.do_bench(dynamic_symbolic_constraints={"m": 4})
    assert profiler.do_bench(dynamic_symbolic_constraints={"n": 64}, n_warmup=1, n_repeat=2) > 0


def make(kind, dtype, shape=(4000,)):
    return get_tensor_supply(kind)(KernelParam(canonical(dtype), shape))


@pytest.mark.parametrize("kind, dtype, low, high", [
    ("Auto", "uint8", 0, 2), ("Auto", "int8", -2, 2), ("Auto", "int64", -2, 2), ("Auto", "bool", 0, 1), ("Auto", "float16", -1, 1),
    ("Auto", "float8_e4m3fn", -128, 128), ("Integer", "float32", -2, 2), ("Integer", "bfloat16", -2, 2), ("Integer", "uint32", 0, 2),
    ("Uniform", "float32", -1, 1), ("Zero", "float16", 0, 0), ("One", "int32", 1, 1), ("Normal", "int8", 1, 1), ("Uniform", "int8", 1, 1),
])  # fmt: skip
@pytest.mark.parametrize("with_torch", [True, False])
def test_ranges_of_inputs(kind, dtype, low, high, with_torch, monkeypatch):
    if not with_torch:
        monkeypatch.setattr(supply, "optional_torch", lambda: None)
    value = make(TensorSupplyType[kind], dtype)
    assert isinstance(value, torch.Tensor if with_torch else np.ndarray)
    assert canonical(value.dtype) == dtype
    numbers = value.double().numpy() if with_torch else value.astype(np.float64)
    assert low <= numbers.min() <= numbers.max() <= high
    if high > low:
        assert numbers.min() < low + 0.1 * (high - low)
        assert numbers.max() > high - 0.1 * (high - low)


def test_normal_inputs():
    normal, standard = (make(kind, "float32", (20000,)).numpy() for kind in (TensorSupplyType.Normal, TensorSupplyType.Randn))
    assert abs(normal.mean() + 1) < 0.05
    assert abs(standard.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.05


def test_seed():
    set_random_seed(3)
    first = make(TensorSupplyType.Auto, "float32")
    set_random_seed(3)
    assert torch.equal(first, make(TensorSupplyType.Auto, "float32"))


def test_assert_close():
    a = torch.ones(1000)
    b = a.clone()
    b[:1] = 3
    assert torch_assert_close(a, b, max_mismatched_ratio=0.001)
    b[:2] = 3
    with pytest.raises(AssertionError, match="2 of 1000"):
        torch_assert_close(a, b, max_mismatched_ratio=0.001)
    with pytest.raises(AssertionError, match="shape"):
        torch_assert_close(a, a[:3])
    with pytest.raises(AssertionError, match="dtype"):
        torch_assert_close(a, a.double())
    assert torch_assert_close(a, a.double(), check_dtype=False)
    nan = torch.full((4,), float("nan"))
    assert torch_assert_close(nan, nan)
    with pytest.raises(AssertionError):
        torch_assert_close(nan, nan, equal_nan=False)
    with pytest.raises(AssertionError):
        torch_assert_close(nan, torch.ones(4))
    assert torch_assert_close(np.ones(3), np.ones(3))

"""Tuning: the fastest right configuration wins; the others are skipped with their reasons."""

import time

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.autotune.tuner import within
from tilelang.autotuner import AutoTuner, autotune, get_autotune_inputs, jit, set_autotune_inputs
from tilelang.errors import TileRuntimeError, TileTypeError, TileValueError

N = 64


def factory(n, block, wrong=0.0):
    if block == 7:
        raise ValueError("block 7 is not made")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0 + wrong

    return main


FAST = {"warmup": 0.1, "rep": 0.5}


def test_decorator_returns_the_best_kernel():
    @tilelang.autotune(configs=[{"block": 16}, {"block": 7}, {"block": 64}], ref_prog=lambda a: a + 1, **FAST)
    @tilelang.jit(out_idx=-1, target="cpu")
    def tuned(n, block=32):
        return factory(n, block)

    kernel = tuned(N)
    assert kernel.config in ({"block": 16}, {"block": 64})
    assert kernel.latency > 0
    assert kernel.ref_latency > 0
    assert kernel.get_tuner_result() == (kernel.latency, kernel.config, kernel.ref_latency)
    assert tuned(N) is kernel
    assert (kernel(np.zeros(N, np.float32)) == 1).all()
    assert tuned(N, block=8).config is None, "explicit arguments are not tuned"


def test_wrong_results_are_skipped():
    @tilelang.autotune(configs=lambda n: [{"wrong": 1.0}, {"wrong": 0.0}], ref_prog=lambda a: a + 1, **FAST)
    @tilelang.jit(out_idx=-1, target="cpu")
    def tuned(n, block=32, wrong=0.5):
        return factory(n, block, wrong)

    assert tuned(N).config == {"wrong": 0.0}


def test_no_usable_configuration():
    tuner = AutoTuner.from_kernel(kernel=lambda block: factory(N, block), configs=[{"block": 7}])
    with pytest.raises(TileRuntimeError, match=r"none of 1 configurations is usable\n.*block 7 is not made"):
        tuner.set_compile_args(out_idx=-1, target="cpu").run(**FAST)


def test_tuner_object_and_reserved_key():
    configs = [{"block": 16, "pass_configs": {"tl.unknown": True}}, {"block": 32}]
    tuner = AutoTuner.from_kernel(kernel=lambda block: factory(N, block), configs=configs)
    tuner = tuner.set_compile_args(out_idx=[-1], target="cpu").set_profile_args(
        supply_prog=lambda params: [np.ones(N, np.float32)], skip_check=True
    )
    result = tuner.run(warmup=0.1, rep=0.5, timeout=30)
    assert result.config in configs
    assert result.latency > 0
    assert result.ref_latency is None
    assert result.libcode
    assert result.func.script()
    assert (result.kernel(np.zeros(N, np.float32)) == 1).all()


def test_slow_configurations_are_skipped():
    def slow(block):
        if block == 16:
            time.sleep(3)
        return factory(N, block)

    tuner = AutoTuner.from_kernel(slow, [{"block": 16}, {"block": 32}]).set_compile_args(out_idx=-1, target="cpu")
    result = tuner.run(timeout=1.5, **FAST)
    assert result.config == {"block": 32}
    assert [c for c, _ in result.failures] == [{"block": 16}]


def test_supplied_inputs():
    assert get_autotune_inputs() is None
    with set_autotune_inputs(1, 2):
        assert get_autotune_inputs() == [1, 2]
        with set_autotune_inputs([3]):
            assert get_autotune_inputs() == [3]
        assert get_autotune_inputs() == [1, 2]
    seen = []

    def reference(a):
        seen.append(float(a[0]))
        return a + 1

    tuner = AutoTuner.from_kernel(lambda block: factory(N, block), [{"block": 32}]).set_compile_args(out_idx=-1, target="cpu")
    with set_autotune_inputs(np.full(N, 5, np.float32)):
        tuner.set_profile_args(ref_prog=reference).run(**FAST)
    assert set(seen) == {5.0}


def test_old_form():
    @autotune(configs=[{"block": 16}, {"block": 32}], keys=["block"], warmup=0.1, rep=0.5)
    @jit(
        out_idx=[1],
        supply_type=tilelang.TensorSupplyType.Integer,
        ref_prog=lambda a: a + 1,
        rtol=0,
        atol=0,
        cache_input_tensors=True,
        target="cpu",
    )
    def tuned(block=None):
        return factory(N, block)

    best = tuned()
    assert best.latency > 0
    assert best.config["block"] in (16, 32)
    assert best.ref_latency > 0


def test_eager_kernels_tune_on_the_actual_tensors():
    @tilelang.autotune(configs=[{"block": 16}, {"block": 32}], **FAST)
    @tilelang.jit(target="cpu")
    def tuned(A, block: int = 8):
        M = T.const("M")
        A: T.Tensor((M,), "float32")
        B = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2.0
        return B

    for n in (32, 64, 32):
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(tuned(a), a * 2)
    assert len(tuned._best) == 2


def test_wrong_uses():
    with pytest.raises(TileTypeError, match=r"without configs"):
        tilelang.autotune()
    with pytest.raises(TileTypeError, match=r"put it above @tilelang.jit"):
        tilelang.autotune(configs=[{}])(factory)
    for configs, error in (([], TileValueError), ({"block": 1}, TileTypeError), ([1], TileTypeError), (3, TileTypeError)):
        with pytest.raises(error):
            AutoTuner.from_kernel(factory, configs)


def test_within():
    assert within(5, lambda: 3) == 3
    with pytest.raises(KeyError):
        within(5, lambda: {}[1])
    with pytest.raises(TileRuntimeError, match=r"longer than 0.05 s"):
        within(0.05, lambda: time.sleep(0.5))

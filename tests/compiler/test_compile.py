"""From a program to an artifact: stages, times, and which error a broken stage gives."""

import contextlib
import gc
from dataclasses import replace

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler import compile as driver
from tilelang.errors import InternalError, TileNotSupportedError, TileValueError, TileWarning
from tilelang.knobs import knobs
from tilelang.target.target import Target

CPU = Target("cpu")


@T.prim_func
def double(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
    with T.Kernel(1):
        for i in T.Parallel(64):
            C[i] = A[i] * 2


def test_an_artifact_runs_and_tells_where_the_time_went():
    artifact = driver.compile_program(double, CPU)
    a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    artifact.entry(a, c)
    assert np.array_equal(c, 2 * a)
    names = [stage.name for stage in driver.stages_for(driver.backend_for(CPU))]
    assert set(names) <= set(artifact.seconds) and artifact.seconds["total"] >= sum(artifact.seconds[n] for n in names)
    assert "define" in artifact.source


def test_pythons_collector_waits_for_the_end(monkeypatch):
    seen = []
    build = driver.BACKENDS["cpu"].build
    watched = replace(driver.BACKENDS["cpu"], build=lambda *args: (seen.append(gc.isenabled()), build(*args))[1])
    failing = replace(watched, build=lambda *args: 1 / 0)
    for backend, before in ((watched, True), (watched, False), (failing, True)):
        monkeypatch.setattr(driver, "BACKENDS", {**driver.BACKENDS, "cpu": backend})
        (gc.enable if before else gc.disable)()
        try:
            with contextlib.suppress(ZeroDivisionError):
                driver.compile_program(double, CPU)
            assert gc.isenabled() == before
        finally:
            gc.enable()
    assert seen == [False, False]
    with driver._collector, driver._collector:
        assert not gc.isenabled()
    assert gc.isenabled()


def test_lower_to_stops_after_a_stage():
    assert "T.parallel" in driver.lower_to(double, CPU, None, "lower_tile_ops").script()
    with pytest.raises(TileValueError, match=r"no stage 'nonsense'[\s\S]*lower_tile_ops"):
        driver.lower_to(double, CPU, None, "nonsense")


def test_dump_prints_every_time(capsys):
    with knobs.scoped(dump=("simplify",)):
        for _ in range(2):
            tilelang.compile(double, target="cpu")
            assert capsys.readouterr().err.count("// ---- after simplify\n") == 1


def test_dump_of_an_unknown_stage_is_reported():
    with knobs.scoped(dump=("simplfy",)), pytest.warns(TileWarning, match=r"no stage simplfy; there are check_program, .*simplify"):
        tilelang.compile(double, target="cpu")


def test_a_target_without_backend():
    with pytest.raises(TileNotSupportedError, match="no backend for target vulkan"):
        driver.compile_program(double, Target("vulkan"))


def test_an_exception_in_a_stage_names_the_stage(monkeypatch):
    def broken(func, ctx):
        raise ZeroDivisionError("oops")

    backend = replace(driver.BACKENDS["cpu"], slots={"last": (("broken_pass", broken),)})
    monkeypatch.setattr(driver, "BACKENDS", {"cpu": backend})
    with pytest.raises(InternalError, match="stage broken_pass failed: ZeroDivisionError: oops"):
        driver.compile_program(double, CPU)

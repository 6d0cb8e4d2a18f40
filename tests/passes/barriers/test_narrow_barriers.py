"""Barriers of single warpgroups: where they are enough, and that the emulator would see it if they were not."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from tests.faults.mutations import MUTATIONS
from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.errors import SimtError
from tilelang.ir.dialect import attr, make_call, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import rewrite, walk
from tilelang.ir.tvm_api import Evaluate, PrimFunc, const
from tilelang.passes.roles import specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")
TILES, ROWS, INNER = 5, 128, 64


def program(mirrored=False):
    """C[t] = A[t] @ B, through a shared tile: each of two warpgroups writes and stores its own 64 rows, or (mirrored) the other's."""

    @T.prim_func
    def main(
        A: T.Tensor((TILES * ROWS, INNER), "float16"), B: T.Tensor((INNER, 64), "float16"), C: T.Tensor((TILES * ROWS, 64), "float16")
    ):
        with T.Kernel(TILES, threads=256) as bx:
            a = T.alloc_shared((ROWS, INNER), "float16")
            b = T.alloc_shared((INNER, 64), "float16")
            out = T.alloc_shared((ROWS, 64), "float16")
            c = T.alloc_fragment((ROWS, 64), "float32")
            T.copy(A[bx * ROWS, 0], a)
            T.clear(c)
            for k in T.Pipelined(1, num_stages=2):
                T.copy(B[k * INNER, 0], b)
                T.gemm(a, b, c, policy=T.GemmWarpPolicy.FullRow)
            if mirrored:
                for i, j in T.Parallel(ROWS, 64):
                    out[ROWS - 1 - i, j] = c[i, j]
            else:
                T.copy(c, out)
            T.copy(out, C[bx * ROWS, 0])

    return main


@pytest.fixture(autouse=True)
def _two_workers(monkeypatch):
    monkeypatch.setattr(specialize_warps, "MULTIPROCESSORS", 2)


def final(mirrored=False) -> PrimFunc:
    return lower_to(program(mirrored), HOPPER, {}, STAGES[-1].name)


def barriers(func: PrimFunc) -> list[int]:
    """For each barrier how many warpgroups meet at it by themselves, 0 where all meet."""
    found: list[int] = []
    walk(func.body, {Evaluate: lambda s: found.append(int(attr(s.value, "narrow", 0))) if op_name(s.value) == "tl.sync_threads" else None})
    return found


def result(func: PrimFunc, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What the emulated program computes, and the product."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((TILES * ROWS, INNER)).astype(np.float16), rng.standard_normal((INNER, 64)).astype(np.float16)
    got = np.zeros((TILES * ROWS, 64), np.float16)
    build(func, context(HOPPER, {"tl.simt_seed": seed}, func)).entry(a, b, got)
    return got, a.astype(np.float64) @ b.astype(np.float64)


def test_warpgroups_meet_by_themselves():
    assert barriers(final()) == [2, 2]  # before the tile is written again, and before it is stored


def test_all_meet_where_rows_are_of_others():
    assert 0 in barriers(final(mirrored=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mirrored", [False, True])
def test_values(mirrored, seed):
    got, want = result(final(mirrored), seed)
    if mirrored:
        want = want.reshape(TILES, ROWS, 64)[:, ::-1].reshape(want.shape)
    assert np.allclose(got, want, rtol=1e-2, atol=1e-2)


def test_barriers_of_warpgroups_in_the_place_of_wide_ones_are_seen():
    """What the planner must not do."""

    def narrow(stmt, _):
        if op_name(stmt.value) != "tl.sync_threads" or attr(stmt.value, "narrow", 0):
            return stmt
        ids = {"narrow": 2, "first": 8}
        return Evaluate(make_call("tl.sync_threads", [thread // 128 + 8, const(128, "int32")], span=stmt.span, **ids), stmt.span)

    func = final(mirrored=True)
    thread = _thread(func)
    with pytest.raises(SimtError):
        result(func.with_body(rewrite(func.body, {Evaluate: narrow})))


def _thread(func):
    found = []
    map_kernels(func.body, lambda kernel: (found.append(kernel.threads[0][0]), kernel.to_stmt())[1])
    return found[0]


@pytest.mark.parametrize("kind", ["barrier dropped", "barrier for more threads", "bulk wait dropped", "proxy fence dropped"])
def test_planted_faults(kind):
    place = 0
    while (broken := MUTATIONS[kind](final(), place)) is not None:
        try:
            got, want = result(broken)
            seen = not np.allclose(got, want, rtol=1e-2, atol=1e-2)
        except SimtError:
            seen = True
        assert seen, f"{kind} at place {place} is not seen"
        place += 1
    assert place

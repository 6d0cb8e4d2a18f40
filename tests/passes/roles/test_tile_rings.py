"""What a persistent kernel fetches once a tile: the producer has it ready while the tile before is computed."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from tests.faults.mutations import MUTATIONS
from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.errors import SimtError
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Evaluate, PrimFunc
from tilelang.passes.roles import specialize_warps
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")
ROWS, INNER = 128, 64


def program(tiles=5, steps=1, extra=0):
    """C[t] = A[t] @ (sum of the steps of B): A is fetched once a tile. extra: more shared memory that the kernel has."""

    @T.prim_func
    def main(
        A: T.Tensor((tiles * ROWS, INNER), "float16"),
        B: T.Tensor((steps * INNER, 64), "float16"),
        C: T.Tensor((tiles * ROWS, 64), "float32"),
    ):
        with T.Kernel(tiles, threads=256) as bx:
            a = T.alloc_shared((ROWS, INNER), "float16")
            b = T.alloc_shared((INNER, 64), "float16")
            c = T.alloc_fragment((ROWS, 64), "float32")
            if extra:
                spare = T.alloc_shared((extra // 512, 128), "float32")
                T.fill(spare, 0)
            T.copy(A[bx * ROWS, 0], a)
            T.clear(c)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(B[k * INNER, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[bx * ROWS, 0])

    return main


def arrays(tiles=5, steps=1):
    rng = np.random.default_rng(7)
    a = rng.standard_normal((tiles * ROWS, INNER)).astype(np.float16)
    b = rng.standard_normal((steps * INNER, 64)).astype(np.float16)
    return a, b, a.astype(np.float64) @ b.astype(np.float64).reshape(steps, INNER, 64).sum(0)


@pytest.fixture(autouse=True)
def _two_workers(monkeypatch):
    monkeypatch.setattr(specialize_warps, "MULTIPROCESSORS", 2)


def notes(func: PrimFunc) -> list[str]:
    ctx = context(HOPPER, {})
    specialize_warps.specialize_warps(func, ctx)
    return [n.text for n in ctx.notes if n.subject == specialize_warps.SUBJECT]


def calls(func: PrimFunc, name: str) -> list[str]:
    found: list[str] = []
    walk(func.body, {Evaluate: lambda s: found.append(str(s.value.args[0].source.name)) if op_name(s.value) == name else None})
    return found


def computed(func: PrimFunc, seed: int = 0) -> np.ndarray:
    a, b, want = arrays()
    got = np.zeros(want.shape, np.float32)
    build(func, context(HOPPER, {"tl.simt_seed": seed}, func)).entry(a, b, got)
    return got


def final() -> PrimFunc:
    return lower_to(program(), HOPPER, {}, STAGES[-1].name)


def test_the_tile_has_a_ring():
    made = specialize_warps.specialize_warps(program(), context(HOPPER, {}))
    assert "a producer fetches a into 2 slots" in notes(program())
    assert calls(made, "tl.mbarrier_wait") == ["a_full", "b_full", "a_empty", "b_empty"]
    assert calls(made, "tl.slot_release") == ["b_empty", "a_empty"]


def test_one_slot_where_memory_ends():
    assert "a producer fetches a into 1 slots (shared memory has no room for 2)" in notes(program(extra=184 * 1024))


def test_a_kernel_of_few_tiles_fetches_in_order():
    assert not any("fetches a " in text for text in notes(program(tiles=2)))


@pytest.mark.parametrize("seed", range(3))
def test_it_computes_the_same(seed):
    assert np.allclose(computed(final(), seed), arrays()[2], rtol=1e-3, atol=1e-3)


FAULTS = {
    "wait dropped": "tl.mbarrier_wait", "arrive dropped": "tl.mbarrier_arrive", "expected bytes dropped": "tl.mbarrier_expect_tx",
    "wrong parity": "tl.mbarrier_wait",
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_planted_faults_of_the_ring(kind):
    """Each place at a barrier of `a` is changed once; the emulator reports it, or the values are wrong."""
    func, want = final(), arrays()[2]
    places = [k for k, name in enumerate(calls(func, FAULTS[kind])) if name.startswith("a_")]
    assert places
    for place in places:
        broken = MUTATIONS[kind](func, place)
        assert broken is not None
        try:
            wrong = not np.allclose(computed(broken), want, rtol=1e-3, atol=1e-3)
        except SimtError:
            wrong = True
        assert wrong, f"{kind} at place {place} is not seen"

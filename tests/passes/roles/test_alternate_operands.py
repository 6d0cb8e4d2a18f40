"""Operands in registers by turns: for which loops, how their statements stand, and that they compute what the serial program does."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.errors import SimtError
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call, For
from tilelang.passes.roles import alternate_operands
from tilelang.passes.roles import specialize_warps as passes
from tilelang.passes.roles.rotate_loops import KEY_OFF
from tilelang.passes.roles.specialize_warps import SUBJECT, specialize_warps
from tilelang.passes.waits import relax_waits
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")
ALTERNATED = "w is made beside the product before, in two buffers by turns"
KEPT = "operands are made between the products: "
BK = 64


def unpacked(kind="", rows=64, columns=64, tiles=1, stages=3, threads=128, dim=64):
    """Y = (bytes of W - 3) X^T over n steps along k, n read from the call. kind: what is different."""
    wide = 8 * BK

    @T.prim_func
    def main(
        W: T.Tensor((tiles * rows, wide), "uint8"),
        X: T.Tensor((columns, wide), "float16"),
        n: T.int32,
        Y: T.Tensor((tiles * rows, columns), "float32"),
    ):
        with T.Kernel(tiles, threads=threads) as b:
            raw = T.alloc_shared((rows, BK), "uint8")
            x = T.alloc_shared((columns, BK), "float16")
            w = (T.alloc_shared if kind.startswith("shared") else T.alloc_fragment)((rows, BK), "float16")
            y = T.alloc_fragment((rows, columns), "float32")
            z = T.alloc_fragment((columns, rows), "float32")
            T.clear(y)
            T.clear(z)
            if kind == "part":
                T.clear(w)
            for k in T.Pipelined(n, num_stages=stages):
                if kind != "guard" or k < 8:
                    T.copy(W[b * rows, k * BK], raw)
                    T.copy(X[0, k * BK], x)
                    if kind == "copied":
                        T.copy(raw, w)
                        for i, j in T.Parallel(rows, BK):
                            w[i, j] = w[i, j] - 3
                    else:
                        for i, j in T.Parallel(rows, BK - 8 if kind == "part" else BK):
                            w[i, j] = T.cast(raw[i, j], "float16") - 3
                    if kind == "result":
                        for i, j in T.Parallel(rows, columns):
                            y[i, j] += 1
                    if kind == "several":
                        T.gemm(w, x, y, transpose_B=True)
                    if kind == "shared B":
                        T.gemm(x, w, z, transpose_B=True)
                    else:
                        T.gemm(w, x, y, transpose_B=True)
            if kind == "shared B":
                for i, j in T.Parallel(columns, rows):
                    Y[b * rows + j, i] = z[i, j]
            if kind == "used":
                for i, j in T.Parallel(rows, columns):
                    y[i, j] += w[i, j]
            if kind != "shared B":
                T.copy(y, Y[b * rows, 0])

    return main


def notes(program, config=None):
    ctx = context(HOPPER, config or {})
    specialize_warps(program, ctx)
    return [n.text for n in ctx.notes if n.subject == SUBJECT]


def check(program, n, seed=0, rows=64, tiles=1, columns=64):
    """Small whole numbers: every sum is exact."""
    rng = np.random.default_rng(seed)
    w = rng.integers(0, 8, (tiles * rows, 8 * BK), dtype=np.uint8)
    x = rng.integers(-2, 3, (columns, 8 * BK)).astype("float16")
    y = np.full((tiles * rows, columns), np.nan, "float32")
    tilelang.compile(program, target="simt -arch=sm_90a", pass_configs={"tl.simt_seed": seed})(w, x, n, y)
    np.testing.assert_array_equal(y, (w[:, : n * BK].astype("f8") - 3) @ x[:, : n * BK].astype("f8").T)


# ---------------------------------------------------------------- which, and how
@pytest.mark.parametrize("kind", ["", "copied", "shared A", "shared B"])
def test_alternated(kind):
    assert ALTERNATED in notes(unpacked(kind))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("used", "w is used outside of it"),
        ("part", "w is used outside of it"),
        ("result", "y is needed in every iteration"),
        ("guard", "a condition is around its body"),
    ],
)
def test_declined(kind, why):
    found = notes(unpacked(kind))
    assert KEPT + why in found
    assert ALTERNATED not in found


def test_several_products():
    """Rotation is for these."""
    assert not any(note.startswith(KEPT) or note == ALTERNATED for note in notes(unpacked("several")))


def partly():
    """A fragment of which only some elements are written in each iteration."""

    @T.prim_func
    def main(W: T.Tensor((64, 256), "uint8"), X: T.Tensor((64, 256), "float16"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            raw = T.alloc_shared((64, BK), "uint8")
            x = T.alloc_shared((64, BK), "float16")
            w = T.alloc_fragment((64, BK), "float16")
            y = T.alloc_fragment((64, 64), "float32")
            T.clear(y)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(W[0, k * BK], raw)
                T.copy(X[0, k * BK], x)
                for i, j in T.Parallel(64, BK):
                    if raw[i, j] > 3 or k == 0:
                        w[i, j] = T.cast(raw[i, j], "float16")
                T.gemm(w, x, y, transpose_B=True)
            T.copy(y, Y)

    return main


def test_what_stays_from_the_iteration_before():
    assert KEPT + "w is not filled whole before it is used" in notes(partly())
    rng = np.random.default_rng(0)
    w, x = rng.integers(0, 8, (64, 256), dtype=np.uint8), rng.integers(-2, 3, (64, 256)).astype("float16")
    y = np.full((64, 64), np.nan, "float32")
    tilelang.compile(partly(), target="simt -arch=sm_90a")(w, x, y)
    held, want = np.zeros((64, BK)), np.zeros((64, 64))
    for k in range(4):
        now = w[:, k * BK : (k + 1) * BK].astype("f8")
        held = np.where((now > 3) | (k == 0), now, held)
        want += held @ x[:, k * BK : (k + 1) * BK].astype("f8").T
    np.testing.assert_array_equal(y, want)


def test_too_many_registers():
    found = notes(unpacked(columns=256, rows=128))
    assert KEPT + "two fragments of w would take 360 of 255 registers" in found


def test_too_little_shared_memory():
    """One tile of 128 KB has room, a second one has not."""

    @T.prim_func
    def main(W: T.Tensor((64, 4096), "uint8"), X: T.Tensor((64, 4096), "float16"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            w = T.alloc_shared((64, 1024), "float16")
            x = T.alloc_shared((64, 64), "float16")
            y = T.alloc_fragment((64, 64), "float32")
            T.clear(y)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(X[0, k * 64], x)
                for i, j in T.Parallel(64, 1024):
                    w[i, j] = T.cast(W[i, k * 1024 + j], "float16")
                T.gemm(w[0:64, 0:64], x, y, transpose_B=True)
            T.copy(y, Y)

    assert KEPT + "shared memory has no room for a second w" in notes(main)


def test_switched_off():
    assert KEPT + f"{KEY_OFF} is set" in notes(unpacked(), {KEY_OFF: True})


def test_order_of_the_statements():
    """A product is issued, then the one before it is awaited and its slot released, then the operand is made whose registers that frees."""
    final = lower_to(unpacked(), HOPPER, {}, "relax_waits")
    found = []
    walk(final.body, {For: lambda f: found.append("loop") if str(f.loop_var.name) == "k" else None, Call: lambda c: found.append(_word(c))})
    words = [w for w in found if w]
    begin = words.index("loop")
    loop = words[begin + 1 : begin + 13]
    assert loop[:6] == ["raw_full", "raw_empty", "x_full", "w", "wait 1", "x_empty"]
    assert loop[6:] == ["raw_full", "raw_empty", "x_full", "w_odd", "wait 1", "x_empty"]


def _word(call):
    name = op_name(call)
    if name == "tl.wgmma":
        return str(call.args[1].source.name)
    if name == "tl.wgmma_wait":
        return f"wait {int(call.args[0])}"
    if name in ("tl.mbarrier_wait", "tl.mbarrier_arrive"):
        return str(call.args[0].source.name)
    return ""


# ---------------------------------------------------------------- what they compute
@pytest.mark.parametrize("n", range(8))
def test_trip_counts(n):
    check(unpacked(), n, seed=n)


@pytest.mark.parametrize("n", [0, 1, 4, 5])
@pytest.mark.parametrize("kind", ["shared A", "shared B"])
def test_operands_in_shared_tiles(kind, n):
    check(unpacked(kind, rows=128, threads=256, columns=128), n, seed=n, rows=128, columns=128)


@pytest.mark.parametrize("kind", ["used", "part", "result", "several", "guard"])
def test_what_declines_still_computes(kind):
    rng = np.random.default_rng(1)
    w, x = rng.integers(0, 8, (64, 8 * BK), dtype=np.uint8), rng.integers(-2, 3, (64, 8 * BK)).astype("float16")
    got = {}
    for target in ("simt -arch=sm_90a", "cpu"):
        got[target] = np.full((64, 64), np.nan, "float32")
        tilelang.compile(unpacked(kind), target=target)(w, x, 3, got[target])
    np.testing.assert_array_equal(*got.values())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copied_first(seed):
    check(unpacked("copied", stages=2), 5, seed=seed)


@pytest.mark.parametrize("n", [0, 1, 4, 5])
@pytest.mark.parametrize("kind", ["", "shared A"])
def test_one_block_visits_many_tiles(monkeypatch, kind, n):
    monkeypatch.setattr(passes, "MULTIPROCESSORS", 2)
    program = unpacked(kind, rows=128, tiles=5, threads=256)
    assert ALTERNATED in notes(program)
    check(program, n, seed=n, rows=128, tiles=5)


# ---------------------------------------------------------------- planted faults
def emulated(program, n):
    """Without the caches, which know programs by their text."""
    rng = np.random.default_rng(0)
    w, x = rng.integers(0, 8, (64, 8 * BK), dtype=np.uint8), rng.integers(-2, 3, (64, 8 * BK)).astype("float16")
    for seed in range(4):
        final = lower_to(program, HOPPER, {}, STAGES[-1].name)
        build(final, context(HOPPER, {"tl.simt_seed": seed})).entry(w, x, n, np.full((64, 64), np.nan, "float32"))


def test_no_alarm_without_a_fault():
    emulated(unpacked(stages=2), 8)


def test_one_tile_in_both_halves_is_found(monkeypatch):
    """An operand is made in a tile that a product in flight reads."""
    emulated(unpacked("shared A", stages=2), 4)
    monkeypatch.setattr(alternate_operands, "substitute", lambda node, _: node)
    monkeypatch.setattr(relax_waits, "_clashes", lambda access, group: False)
    monkeypatch.setattr(relax_waits._Relaxer, "disturbed", lambda self, stmt: lambda tile: False)
    with pytest.raises(SimtError, match="writes w while a wgmma is reading it"):
        emulated(unpacked("shared A", stages=2), 4)


def test_a_slot_released_too_early_is_found(monkeypatch):
    """As if the two newest products read later slots: a copy lands where a product still reads."""
    real = alternate_operands.release_slot
    monkeypatch.setattr(alternate_operands, "release_slot", lambda *args: real(*args[:3], 2 * args[3]) if len(args) > 3 else real(*args))
    with pytest.raises(SimtError, match="writes x while a wgmma is reading it"):
        emulated(unpacked(stages=2), 8)


def test_one_fragment_in_both_halves_is_found(monkeypatch):
    """An operand is made in registers that a product in flight reads."""
    monkeypatch.setattr(alternate_operands, "substitute", lambda node, _: node)
    monkeypatch.setattr(relax_waits, "_clashes", lambda access, group: False)
    with pytest.raises(SimtError, match="which a product in flight uses"):
        emulated(unpacked(), 4)


# ---------------------------------------------------------------- tiles that threads copy
@pytest.mark.parametrize("k", [96, 100, 204])
def test_a_tile_that_bulk_copies_cannot_bring(k):
    """Rows of A are no multiples of 16 bytes, except for k = 96."""

    @T.prim_func
    def main(A: T.Tensor((60, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((60, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[0, i * 32], a)
                T.copy(B[i * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[0, 0])

    assert ("a is made beside the product before, in two buffers by turns" in notes(main)) == (k != 96)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, shape).astype("float16") for shape in ((60, k), (k, 64)))
    c = np.full((60, 64), np.nan, "float32")
    tilelang.compile(main, target="simt -arch=sm_90a")(a, b, c)
    np.testing.assert_array_equal(c, a.astype("f8") @ b.astype("f8"))

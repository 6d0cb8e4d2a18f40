"""Atomic additions of shared tiles by bulk copies that add: what they compute on the emulator, and what declines."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

TARGET = "simt -arch=sm_90a"
ADDED = "tma_store that adds"


def adds(shape, tile, blocks, dtype="float32", order=None, kind="plain"):
    """Every block adds its tile, doubled, to the rows of Y that begin at 8 times its number. kind: what is different."""

    @T.prim_func
    def main(X: T.Tensor((blocks, *tile), dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(blocks, threads=128) as b:
            t = T.alloc_shared(tile, dtype)
            for _ in T.serial(2):
                for i, j in T.Parallel(*tile):
                    t[i, j] = X[b, i, j]
                T.atomic_add(Y[b * 8, 0], t, memory_order=order)
            if kind == "reads":
                Y[0, 0] = Y[0, 0] + 0

    return main


def notes(kernel):
    return [n.text for n in kernel.artifact.notes if n.subject == "atomic"]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("shape", "tile"), [
    ((64, 64), (32, 64)),
    ((64, 128), (64, 128)),
    ((50, 64), (32, 64)),  # ragged below
    ((40, 40), (16, 64)),  # and at the right
    ((64, 8), (16, 8)),  # no swizzle
])  # fmt: skip
def test_sums(shape, tile, seed):
    blocks = 3
    kernel = tilelang.compile(adds(shape, tile, blocks), target=TARGET, pass_configs={"tl.simt_seed": seed})
    assert ADDED in notes(kernel)
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, (blocks, *tile)).astype("float32")
    y = rng.integers(-9, 10, shape).astype("float32")
    want = np.zeros((shape[0] + 8 * blocks + tile[0], max(shape[1], tile[1])))
    want[: shape[0], : shape[1]] = y
    for b in range(blocks):
        want[8 * b : 8 * b + tile[0], : tile[1]] += 2 * x[b]
    kernel(x, y)
    np.testing.assert_array_equal(y, want[: shape[0], : shape[1]])


@pytest.mark.parametrize(("options", "reason"), [
    ({"dtype": "int32"}, "bulk copies add float32, not int32"),
    ({"order": "acq_rel"}, "only relaxed additions can be bulk copies"),
    ({"kind": "reads"}, "the kernel also reads Y"),
])  # fmt: skip
def test_what_declines(options, reason):
    kernel = tilelang.compile(adds((64, 64), (32, 64), 1, **options), target=TARGET)
    assert any(n.endswith(f"declined: {reason}") for n in notes(kernel))
    dtype = options.get("dtype", "float32")
    x, y = np.ones((1, 32, 64), dtype), np.ones((64, 64), dtype)
    kernel(x, y)
    np.testing.assert_array_equal(y, np.where(np.arange(64)[:, None] < 32, 3, 1) * np.ones((1, 64)))


def test_switched_off():
    kernel = tilelang.compile(adds((64, 64), (32, 64), 1), target=TARGET, pass_configs={"tl.disable_tma_lower": True})
    assert ADDED not in notes(kernel)

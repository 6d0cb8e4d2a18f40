"""Bulk copies, mbarriers that count bytes, proxies and warpgroup products: right values, and a report for every misuse."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from tilelang.errors import SimtError

from . import engines as e


def half(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def nothing(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    return np.full(shape, np.nan, dtype)


def refused(func: Any, *arrays: np.ndarray, text: str, lines: tuple[str, ...] = (), seed: int = 0) -> None:
    """text: of the message; lines: source lines that the report shows."""
    with pytest.raises(SimtError, match=text) as caught:
        e.run(func, *arrays, seed=seed)
    error = caught.value
    assert error.at is not None
    for line in lines:
        places = [error.at, *(at for at, _ in error.notes)]
        shown = [linecache.getline(p.file, p.line) for p in places]
        assert any(line in s for s in shown), (line, shown)


# ---------------------------------------------------------------- one tile
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("corner", [(0, 0), (50, 40), (-3, -8)])
def test_a_bulk_load(swizzle: int, corner: tuple[int, int], seed: int) -> None:
    """Elements outside of the tensor are zeros, whatever the corner."""
    x, y = half(0, 96, 80), nothing(64, 64)
    e.run(e.one_tile(swizzle=swizzle, reads=swizzle, row=corner[0], column=corner[1]), x, y, seed=seed)
    padded = np.zeros((200, 200), np.float16)
    padded[20:116, 20:100] = x
    np.testing.assert_array_equal(y, padded[20 + corner[0] :, 20 + corner[1] :][:64, :64])


@pytest.mark.parametrize(
    ("fault", "text", "lines"),
    [
        ({"waits": False}, "reads s where (an asynchronous copy has not landed|nobody)|without a wait at its barrier", ("load(s, [row",)),
        ({"bytes": e.BYTES + 128}, "deadlock: 2 of 2 warps wait for ever", ("tl.mbarrier_wait",)),
        ({"bytes": e.BYTES - 128}, "deadlock: 2 of 2 warps wait for ever", ("tl.mbarrier_wait",)),
        ({"expects": False}, "has not landed|the announcement of|without a wait at its barrier", ()),
        ({"arrives": False}, "deadlock: 2 of 2 warps wait for ever", ("tl.mbarrier_wait",)),
        ({"parity": 1}, "reads s where (an asynchronous copy has not landed|nobody)|without a wait at its barrier|deadlock", ()),
        ({"early": True}, "reads s where an asynchronous copy has not landed|without a wait", ("tl.tma_load", "load(s, [row")),
        ({"twice": True}, "has not landed", ("tl.tma_load",)),
        ({"offset": 1040}, "byte 1040 of shared memory, no multiple of 128", ("tl.tma_load",)),
        ({"box": (32, 128)}, "rows of 256 bytes; they are multiples of 16, at most 128", ("tl.tma_load",)),
        ({"box": (1024, 4)}, "at most 5 dimensions of at most 256", ("tl.tma_load",)),
    ],
)  # fmt: skip
def test_faults_of_a_bulk_load(fault: dict[str, Any], text: str, lines: tuple[str, ...]) -> None:
    for seed in range(5):
        refused(e.one_tile(**fault), half(0, 96, 80), nothing(64, 64), text=text, lines=lines, seed=seed)


def test_a_deadlock_says_what_the_barrier_waits_for() -> None:
    arrays = half(0, 96, 80), nothing(64, 64)
    refused(e.one_tile(bytes=e.BYTES + 128), *arrays, text=r"full\[0\], in phase 0, is short of 128 bytes")
    refused(e.one_tile(bytes=e.BYTES - 128), *arrays, text=r"short of the announcement of 128 bytes that were copied")
    refused(e.one_tile(arrives=False), *arrays, text=r"short of 1 of 1 arrivals")


@pytest.mark.parametrize(("swizzle", "reads"), [(128, 0), (0, 128), (128, 64)])
def test_a_swizzle_on_one_side_gives_wrong_values(swizzle: int, reads: int) -> None:
    x, y = half(0, 96, 80), nothing(64, 64)
    e.run(e.one_tile(swizzle=swizzle, reads=reads), x, y)
    assert (y != x[:64, :64]).any()


# ---------------------------------------------------------------- a ring
RING = (half(1, e.ROUNDS, 64, e.WIDTH), nothing(e.ROUNDS, 64, e.WIDTH))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fence", [{}, {"fence": False, "fence_by_reader": True}])
def test_a_ring_with_bulk_stores(seed: int, fence: dict[str, bool]) -> None:
    x, y = (a.copy() for a in RING)
    e.run(e.ring(**fence), x, y, seed=seed)
    np.testing.assert_array_equal(y, x * 2)


@pytest.mark.parametrize(
    ("fault", "text", "lines"),
    [
        ({"waits_free": False}, "while|race on s|has not landed|has read|arrive at full", ()),
        ({"signals": False}, "deadlock", ("tl.mbarrier_wait",)),
        ({"waits_full": False}, "nobody has written|has not landed|without a wait at its barrier full", ()),
        ({"fence": False}, "a bulk store accesses o where thread \\d+ has written, with no proxy fence", ("tl.tma_store", "put(o")),
        ({"barrier": False}, "race on o: .* reads|reads o where nobody", ("tl.tma_store",)),
        ({"closes": False}, "while a bulk store is reading", ("tl.tma_store",)),
        ({"waits_store": False}, "writes o while a bulk store is reading it", ("tl.tma_store", "put(o")),
        ({"meets": False}, "writes o while a bulk store is reading it|race on o: .* writes an element that thread 0 has read", ("put(o",)),
        ({"waits_last": False}, "the block ends while a bulk store is reading o", ("tl.tma_store",)),
        ({"free": 3}, "deadlock", ("tl.mbarrier_wait",)),
        ({"free": 1}, "race on s|whose phase expects|has not landed|deadlock", ()),
        ({"full": 2}, "deadlock", ("tl.mbarrier_wait",)),
        ({"bytes": 64}, "deadlock|has not landed|without a wait", ()),
        ({"stage": 1}, "deadlock|has not landed|without a wait|nobody has written|race on s", ()),
        ({"parity": 1}, "deadlock|race on s|has not landed|whose phase|while", ()),
        ({"elected": False}, "race on s: thread 64 writes an element that .* has read", ("tl.tma_load", "put(o")),
    ],
)  # fmt: skip
def test_faults_of_a_ring(fault: dict[str, Any], text: str, lines: tuple[str, ...]) -> None:
    for seed in range(5):
        refused(e.ring(**fault), *(a.copy() for a in RING), text=text, lines=lines, seed=seed)


# ---------------------------------------------------------------- products
A, B = half(2, 64, 64), half(3, 64, 64)


@pytest.mark.parametrize("kind", ["ss", "rs", "mn"])
@pytest.mark.parametrize("options", [{}, {"clears": True}, {"generic": True}, {"again": True}])
def test_a_product(kind: str, options: dict[str, bool]) -> None:
    c = nothing(64, e.N, dtype=np.float32)
    e.run(e.product_of(kind, **options), A, B, c)
    wide = A.astype(np.float64), B.astype(np.float64)
    np.testing.assert_allclose(c, wide[0] @ (wide[1] if kind == "mn" else wide[1].T), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "fault", "text", "lines"),
    [
        ("ss", {"fence": False}, "before any fence of registers", ("tl.wgmma",)),
        ("ss", {"commits": False}, "register acc\\[0\\], which a product in flight uses", ("tl.wgmma", "load(acc")),
        ("ss", {"waits": None}, "reads register acc\\[0\\], which a product in flight uses", ("tl.wgmma", "load(acc")),
        ("ss", {"waits": 1}, "reads register acc\\[0\\], which a product in flight uses", ("tl.wgmma", "load(acc")),
        ("ss", {"touches": True}, "writes register acc\\[0\\], which a product in flight uses", ("tl.wgmma", "put(acc")),
        ("rs", {"changes": True}, "writes register ra\\[0\\], which a product in flight uses", ("tl.wgmma", "put(ra")),
        ("ss", {"overwrites": True}, "writes sb while a wgmma is reading it|race on sb|no proxy fence", ("put(sb",)),
        ("ss", {"first": True}, "reads register acc\\[0\\], which it has not written", ()),
        ("ss", {"generic": True, "proxy": False}, "a wgmma accesses sb where thread \\d+ has written, with no proxy fence", ("tl.wgmma",)),
        ("ss", {"part": True}, "its warpgroup|of a warpgroup|thread 96 reads register acc", ()),
        ("ss", {"matrix": {"stride": 8192}}, "a wgmma reaches element .* of sb", ("tl.wgmma",)),
        ("mn", {"matrix": {"stride": 65536}}, "a wgmma reaches element .* of sb", ("tl.wgmma",)),
        ("ss", {"shift": 64 * 3}, "inside of a swizzle pattern of 1024 bytes", ("tl.wgmma",)),
    ],
)  # fmt: skip
def test_faults_of_a_product(kind: str, fault: dict[str, Any], text: str, lines: tuple[str, ...]) -> None:
    for seed in range(3):
        refused(e.product_of(kind, **fault), A, B, nothing(64, e.N, dtype=np.float32), text=text, lines=lines, seed=seed)


@pytest.mark.parametrize("matrix", [{"swizzle": 64}, {"stride": 512}, {"major": "mn"}])
def test_a_matrix_described_wrongly_gives_wrong_values(matrix: dict[str, Any]) -> None:
    c = nothing(64, e.N, dtype=np.float32)
    try:
        e.run(e.product_of("ss", matrix=matrix), A, B, c)
    except SimtError:
        return
    assert not np.allclose(c, A.astype(np.float64) @ B.astype(np.float64).T, atol=1e-2)

"""The small grid visits every tile of the old one exactly once, in the order that was asked for."""

from __future__ import annotations

import itertools

import pytest

from tilelang.ir.evaluate import evaluate
from tilelang.ir.kernel import KernelRegion
from tilelang.ir.tvm_api import Bind, Evaluate, For, IntImm, SeqStmt, Var
from tilelang.passes.roles.persistent_grid import persistent

NOTHING = Evaluate(IntImm("int32", 0))


def kernel(extents, **annotations):
    blocks = tuple((Var(name, "int32"), e) for name, e in zip("xyz", extents, strict=False))
    threads = tuple((Var(f"t{k}", "int32"), 128 if k == 0 else 1) for k in range(3))
    return KernelRegion(blocks, threads, NOTHING, annotations)


def visits(grid, workers):
    """For every worker the tiles (x, y, ...) in its order."""
    loop = grid.loop(NOTHING, None)
    assert isinstance(loop, For) and isinstance(loop.body, SeqStmt)
    tile, *binds = [s for s in loop.body.seq if isinstance(s, Bind)]
    found = []
    for worker in range(workers):
        here = {grid.block: worker}
        numbers = [int(evaluate(tile.value, {**here, loop.loop_var: k})) for k in range(int(evaluate(loop.extent, here)))]
        found.append([tuple(int(evaluate(b.value, {tile.var: number})) for b in binds) for number in numbers])
    return found


@pytest.mark.parametrize("extents", [(7,), (5, 3), (3, 2, 4), (1, 9)])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("swizzle", [None, [2, "row"], [3, "column"]])
def test_every_tile_once(extents, workers, swizzle):
    grid = persistent(kernel(extents, **({"use_swizzle": swizzle} if swizzle else {})), workers)
    assert grid is not None and grid.blocks[0][1] == workers
    tiles = list(itertools.chain(*visits(grid, workers)))
    assert sorted(tiles) == sorted(itertools.product(*(range(e) for e in extents)))


def test_the_old_order():
    """Every other round is dealt out backwards."""
    grid = persistent(kernel((3, 2)), 2)
    assert grid is not None
    assert visits(grid, 2) == [[(0, 0), (0, 1), (1, 1)], [(1, 0), (2, 0), (2, 1)]]


@pytest.mark.parametrize("tiles", range(5, 12))
def test_tiles_that_become_lighter_are_shared_fairly(tiles):
    grid = persistent(kernel((tiles,)), 4)
    assert grid is not None
    work = [sum(tiles - x for (x,) in mine) for mine in visits(grid, 4)]
    assert sum(work) == tiles * (tiles + 1) // 2
    assert max(work) - min(work) <= 4  # dealt out in one direction, the first block has 3 more in every round


def test_panels():
    """Down two rows before the next column; the second panel backwards."""
    grid = persistent(kernel((3, 4), use_swizzle=[2, "row"]), 1)
    assert grid is not None
    (order,) = visits(grid, 1)
    assert order == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (1, 2), (1, 3), (0, 2), (0, 3)]


def test_few_tiles_stay_as_they_are():
    assert persistent(kernel((4, 2)), 8) is None
    assert persistent(kernel(()), 1) is None


def test_a_number_of_tiles_that_the_call_knows():
    n = Var("n", "int32")
    grid = persistent(kernel((n, 2)), 4)
    assert grid is not None
    assert [int(evaluate(grid.blocks[0][1], {n: value})) for value in (0, 1, 2, 50)] == [0, 2, 4, 4]


def test_extents_of_64_bits():
    """Tiles are counted in 64 bits; the indices keep the type that the program knows."""
    m = Var("m", "int64")
    grid = persistent(kernel((3, m), use_swizzle=[2, "row"]), 2)
    assert grid is not None
    loop = grid.loop(NOTHING, None)
    assert isinstance(loop, For)
    assert loop.loop_var.ty.dtype == loop.min.ty.dtype == loop.extent.ty.dtype == "int64"
    assert isinstance(loop.body, SeqStmt)
    tile, *binds = [s for s in loop.body.seq if isinstance(s, Bind)]
    assert tile.var.ty.dtype == tile.value.ty.dtype == "int64"
    assert [b.var.ty.dtype for b in binds] == [b.value.ty.dtype for b in binds] == ["int32", "int32"]
    tiles = [tuple(int(evaluate(b.value, {tile.var: t, m: 4})) for b in binds) for t in range(12)]
    assert sorted(tiles) == sorted(itertools.product(range(3), range(4)))

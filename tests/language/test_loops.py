"""Loop constructors and the tile scheduler: the order in which indices are visited, against Python."""

import itertools

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import TileError, TileTypeError, TileValueError
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import tirx

from ..frontend.test_scalar_rule import execute

SIZE = 512
Log = T.Tensor((SIZE,), "int32")


def visited(function):
    """The numbers that a program appends to its log (entry 0 counts them)."""
    log = np.zeros(SIZE, np.int32)
    execute(function, log)
    return log[1 : 1 + log[0]].tolist()


@T.macro
def append(L, value):
    L[0] += 1
    L[L[0]] = value


@pytest.mark.parametrize("args", [(5,), (2, 7), (1, 9, 3), (9, 1, -2), (3, 3), (5, 2), (0, 10, 10)])
@pytest.mark.parametrize("kind", ["serial", "Serial", "unroll", "range"])
def test_ranges(kind, args):
    make = range if kind == "range" else getattr(T, kind)

    def f(L: Log):
        for i in make(*args):
            append(L, i)

    assert visited(f) == list(range(*args))


@pytest.mark.parametrize("args", [(0, 9, 2), (9, 0, -4), (4, 4, 1), (7, 2, 3)])
def test_run_time_bounds(args):
    def inside(L: Log):
        with T.Kernel(1, threads=1):
            bounds = T.alloc_local((3,), "int32")
            for k, value in enumerate(args):
                bounds[k] = value
            for i in range(bounds[0], bounds[1], args[2]):
                append(L, i)

    assert visited(inside) == list(range(*args))


def test_grid_and_break_in_unroll():
    def f(L: Log):
        for i, j in T.grid(2, 3):
            append(L, i * 10 + j)
        for i in T.unroll(8):
            if L[i] > 10:
                break
            append(L, i)

    values = visited(f)
    assert values[:6] == [0, 1, 2, 10, 11, 12]
    log = [6, *values[:6]]
    expected = []
    for i in range(8):
        if (log + expected)[i] > 10:
            break
        expected.append(i)
        log[0] += 1
    assert values[6:] == expected


def persistent(domain, wave, worker, group):
    """The order that the language defines, written down directly."""
    last = domain[-1]
    size = max(1, min(group, last))
    outer = [list(range(-(-last // size))), *[list(range(e)) for e in domain[:-1]], list(range(size))]
    tiles = list(itertools.product(*outer))
    for k in range(worker, len(tiles), wave):
        strip, *rest, lane = tiles[k]
        if strip * size + lane < last:
            yield (*rest, strip * size + lane)


@pytest.mark.parametrize(
    ("domain", "wave", "worker", "group"), [((5, 7), 6, 2, 8), ((5, 7), 4, 0, 3), ((2, 3, 5), 3, 1, 2), ((9,), 2, 1, 4)]
)
def test_persistent(domain, wave, worker, group):
    def f(L: Log):
        for index in T.Persistent(domain, wave, worker, group):
            coords = index if isinstance(index, tuple) else (index,)
            value = 0
            for part in coords:
                value = value * 10 + part
            append(L, value)

    expected = [int("".join(map(str, t))) for t in persistent(domain, wave, worker, group)]
    assert visited(f) == expected


@pytest.mark.parametrize("column_major", [True, False])
@pytest.mark.parametrize(("m", "n", "workers", "width"), [(3, 5, 2, 2), (4, 4, 3, 1), (2, 7, 1, 3)])
def test_tile_scheduler(m, n, workers, width, column_major):
    def f(L: Log):
        with T.Kernel(1, threads=1):
            for worker in range(workers):
                tiles = T.PersistentTileScheduler(m, n, workers, width, column_major)
                tiles.init(worker)
                while tiles.valid():
                    append(L, tiles.m_idx * 10 + tiles.n_idx)
                    tiles.next_tile()

    along, across = (m, n) if column_major else (n, m)
    order = [(p, s) for first in range(0, across, width) for p in range(along) for s in range(first, min(first + width, across))]
    order = [(p, s) if column_major else (s, p) for p, s in order]
    assert visited(f) == [a * 10 + b for worker in range(workers) for a, b in order[worker::workers]]


def test_annotations_and_kinds():
    @T.prim_func
    def f(L: Log):
        with T.Kernel(1):
            for i in T.Pipelined(2, 8, num_stages=3, order=[1, 0], stage=[0, 1]):
                L[i] = i
            for i, j in T.Parallel(4, 8, coalesced_width=2):
                L[i * 8 + j] = 1
            for i in T.vectorized(4):
                L[i] = 2
            for (i,) in T.Parallel(4):
                L[i] = 3

    loops = []
    walk(f.body, {tirx.For: loops.append})
    pipeline = loops[0].annotations["tl.pipeline"]
    assert int(pipeline["num_stages"]) == 3 and [int(v) for v in pipeline["order"]] == [1, 0]
    assert int(loops[0].min) == 2 and int(loops[0].extent) == 6
    assert int(loops[1].annotations["tl.parallel"]) == 2 and int(loops[1].annotations["coalesced_width"]) == 2
    kinds = [int(loop.kind) for loop in loops]
    assert kinds == [int(getattr(tirx.ForKind, k)) for k in ("SERIAL", "PARALLEL", "PARALLEL", "VECTORIZED", "PARALLEL")]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: T.serial(0, 4, 0), TileValueError),
        (lambda: T.serial("4"), TileTypeError),
        (lambda: T.serial(2.5), TileTypeError),
        (T.Parallel, TileTypeError),
        (lambda: T.Parallel(-1), TileValueError),
        (lambda: T.Parallel(4, coalesced_width=0), TileValueError),
        (lambda: T.Pipelined(4, num_stages=-1), TileValueError),
        (lambda: T.Pipelined(4, order=[0, 0], stage=[0, 1]), TileValueError),
        (T.Pipelined, TileTypeError),
        (lambda: T.unroll(4, explicit=True, unroll_factor=2), TileValueError),
        (lambda: T.Persistent([], 2, 0), TileTypeError),
        (lambda: T.Persistent([4], 0, 0), TileValueError),
        (lambda: T.thread_binding(4, "blockIdx.x"), TileValueError),
        (lambda: T.serial(None), TileTypeError),
    ],
)
def test_refused(make, kind):
    with pytest.raises(kind) as info:
        make()
    assert isinstance(info.value, TileError) and "T." in str(info.value)

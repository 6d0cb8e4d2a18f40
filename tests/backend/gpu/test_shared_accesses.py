"""Bank conflicts predicted from the final program: equal to what the emulator counts when it runs it, and to counts known by hand."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tests.fuzz.generator import generate
from tests.fuzz.run import load_program

COUNT = {"tl.simt_counters": True}


def transpose(pad: int, dtype: str, n: int = 64) -> Any:
    @T.prim_func
    def main(X: T.Tensor((n, n), dtype), Y: T.Tensor((n, n), dtype)):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((n, n + pad), dtype)
            for i, j in T.Parallel(n, n):
                s[i, j] = X[i, j]
            for i, j in T.Parallel(n, n):
                Y[i, j] = s[j, i]

    return main


def strided(step: int, dtype: str, threads: int = 64) -> Any:
    @T.prim_func
    def main(X: T.Tensor((threads * step,), dtype), Y: T.Tensor((threads,), dtype)):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((threads * step,), dtype)
            tx = T.get_thread_binding()
            for k in T.serial(step):
                s[k * threads + tx] = X[k * threads + tx]
            Y[tx] = s[tx * step]

    return main


def rows(m: int, n: int, dtype: str) -> Any:
    """A softmax of rows, through shared memory."""

    @T.prim_func
    def main(X: T.Tensor((2 * m, n), dtype), Y: T.Tensor((2 * m, n), dtype)):
        with T.Kernel(2, threads=128) as bx:
            s = T.alloc_shared((m, n), dtype)
            f = T.alloc_fragment((m, n), "float32")
            r = T.alloc_fragment((m,), "float32")
            T.copy(X[bx * m, 0], s)
            T.copy(s, f)
            T.reduce_max(f, r, dim=1)
            for i, j in T.Parallel(m, n):
                f[i, j] = T.exp(f[i, j] - r[i])
            T.reduce_sum(f, r, dim=1)
            for i, j in T.Parallel(m, n):
                s[i, j] = f[i, j] / r[i]
            T.copy(s, Y[bx * m, 0])

    return main


def triangle(n: int = 32) -> Any:
    """Lanes take part one by one."""

    @T.prim_func
    def main(X: T.Tensor((n, n), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((n, n), "float32")
            total = T.alloc_var("float32", 0)
            tx = T.get_thread_binding()
            T.copy(X, s)
            if tx < n:
                for k in T.serial(n):
                    if k <= tx:
                        total = total + s[tx, k]
                Y[tx] = total

    return main


def scaled(m: int = 16, n: int = 128) -> Any:
    """A row that is the same for all rows of a tile."""

    @T.prim_func
    def main(X: T.Tensor((m, n), "float16"), R: T.Tensor((n,), "float16"), Y: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((m, n), "float16")
            row = T.alloc_shared((n,), "float16")
            out = T.alloc_fragment((m, n), "float32")
            T.copy(X, tile)
            T.copy(R, row)
            for i, j in T.Parallel(m, n):
                out[i, j] = T.cast(tile[i, j], "float32") * T.cast(row[j], "float32")
            T.copy(out, Y)

    return main


def gemm(m: int, n: int, k: int, stages: int, dtype: str, ta: bool = False, tb: bool = False, threads: int = 128) -> Any:
    shape_a, shape_b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(A: T.Tensor((3, *shape_a), dtype), B: T.Tensor((3, *shape_b), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared(shape_a, dtype)
            b = T.alloc_shared(shape_b, dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for q in T.Pipelined(3, num_stages=stages):
                T.copy(A[q, 0, 0], a)
                T.copy(B[q, 0, 0], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C)

    return main


PROGRAMS = {
    "transpose_float32": lambda: transpose(0, "float32"), "transpose_padded": lambda: transpose(1, "float32"),
    "transpose_float16": lambda: transpose(0, "float16"), "transpose_int8": lambda: transpose(4, "int8"),
    **{f"stride_{s}_{d}": (lambda s=s, d=d: strided(s, d))
       for s, d in ((1, "float32"), (2, "float32"), (3, "float32"), (32, "float32"), (33, "float32"), (4, "float64"), (2, "float16"))},
    "rows_float32": lambda: rows(4, 256, "float32"), "rows_float16": lambda: rows(4, 256, "float16"),
    "rows_converted": lambda: rows(2, 96, "float32"), "triangle": triangle, "scaled": scaled,
    "gemm_nn": lambda: gemm(64, 64, 32, 2, "float16"), "gemm_tt": lambda: gemm(64, 64, 32, 3, "float16", True, True),
    "gemm_serial": lambda: gemm(32, 64, 64, 0, "bfloat16", False, True, 64), "gemm_tf32": lambda: gemm(64, 32, 32, 2, "float32"),
    "gemm_odd": lambda: gemm(48, 40, 24, 2, "float16"),
}  # fmt: skip


def counted(kernel: Any) -> dict[Any, list[int]]:
    """(passes, conflicts) by line, as the emulator counted them."""
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for site, count in kernel.artifact.entry.counters.rows():
        if count.rounds:
            found[site.at.line][0] += count.rounds
            found[site.at.line][1] += count.conflicts
    return found


def predicted(kernel: Any) -> tuple[dict[Any, list[int]], set[Any]]:
    """(the same as predicted for the whole grid, lines of which something is not exact)."""
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    unsure = set()
    for memory in kernel.memory.kernels:
        for access in memory.accesses:
            if not access.exact or not all(isinstance(b, int) for b in memory.blocks):
                unsure.add(access.line)
                continue
            if access.width:
                found[access.line][0] += access.passes * prod(map(int, memory.blocks))
                found[access.line][1] += access.conflicts * prod(map(int, memory.blocks))
    return found, unsure


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_prediction_equals_the_emulator(name: str) -> None:
    kernel = tilelang.compile(PROGRAMS[name](), target="simt -arch=sm_80", pass_configs=COUNT)
    kernel(*[np.ones(tuple(int(e) for e in p.shape), p.dtype.as_numpy()) for p in kernel.params])
    found, unsure = predicted(kernel)
    assert not unsure
    assert found == counted(kernel)
    assert found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [1, 3, 4])  # programs with shared memory
def test_prediction_equals_the_emulator_on_random_programs(seed: int, tmp_path: Any) -> None:
    program = generate(seed)
    kernel = tilelang.compile(load_program(program.source, tmp_path, seed), target="simt -arch=sm_80", pass_configs=COUNT)
    kernel(*program.arrays())
    found, unsure = predicted(kernel)
    seen = counted(kernel)
    sure = (found.keys() | seen.keys()) - unsure
    assert sure
    assert {line: found[line] for line in sure} == {line: seen[line] for line in sure}


def access(kernel: Any, op: str) -> Any:
    (found,) = [a for a in kernel.memory.kernels[0].accesses if a.op == op]
    return found


def test_counts_known_by_hand() -> None:
    load = access(tilelang.compile(strided(32, "float32"), target="simt"), "load")
    assert (load.width, load.requests, load.passes, load.conflicts) == (4, 2, 64, 62)
    assert (load.bank, load.lanes) == (0, tuple(range(32)))
    assert load.element == "s[tx * 32]"
    pair = access(tilelang.compile(strided(2, "float32"), target="simt"), "load")
    assert (pair.passes, pair.conflicts, pair.bank, pair.lanes) == (4, 2, 0, (0, 16))
    none = access(tilelang.compile(strided(33, "float32"), target="simt"), "load")
    assert (none.conflicts, none.lanes) == (0, ())


def test_iterations_of_a_vector_loop_are_one_access() -> None:
    store = next(a for a in tilelang.compile(rows(4, 512, "float16"), target="simt").memory.kernels[0].accesses if a.op == "store")
    assert (store.buffer, store.width, store.requests, store.passes, store.conflicts) == ("s", 16, 8, 32, 0)


def test_a_load_that_unrolled_iterations_share_is_one() -> None:
    found = tilelang.compile(scaled(), target="simt -arch=sm_80").memory.kernels[0].accesses
    tile, row = (next(a for a in found if a.op == "load" and a.buffer == name) for name in ("tile", "row"))
    assert (tile.width, row.width) == (8, 8)
    assert (tile.requests, row.requests) == (16 * 128 // (4 * 32), 4)


def test_what_depends_on_data_is_not_exact() -> None:
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            s[tx] = X[tx]
            T.sync_threads()
            Y[tx] = s[X[tx]]
            if tx < n:
                s[tx] = 0

    found = tilelang.compile(main, target="simt").memory.kernels[0].accesses
    by_op = {(a.op, a.exact): a for a in found}
    assert by_op["load", False].why == "the element depends on data"
    assert by_op["store", False].why.startswith("a condition depends on data")
    assert by_op["store", True].passes == 2

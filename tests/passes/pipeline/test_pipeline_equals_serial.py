"""Stages never change a result: a fixed set of pipelined programs gives on the emulator, bit by bit, what it gives without stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T

N, TRIPS = 32, 5


def product(stages: int) -> Any:
    @T.prim_func
    def main(A: T.Tensor((N, N * TRIPS - 3), "float16"), B: T.Tensor((N * TRIPS - 3, N), "float16"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((N, N), "float16"), T.alloc_shared((N, N), "float16")
            c = T.alloc_fragment((N, N), "float32")
            T.clear(c)
            for k in T.Pipelined(TRIPS, num_stages=stages):
                T.copy(A[0, k * N], a)
                T.copy(B[k * N, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def condition(stages: int) -> Any:
    """One of two tiles comes in every second iteration only; the other is changed after it was used."""

    @T.prim_func
    def main(A: T.Tensor((TRIPS, N), "float32"), B: T.Tensor((TRIPS, N), "float32"), C: T.Tensor((TRIPS, N), "float32")):
        with T.Kernel(1, threads=N):
            a, b = T.alloc_shared((N,), "float32"), T.alloc_shared((N,), "float32")
            for k in T.Pipelined(TRIPS, num_stages=stages):
                T.copy(A[k, 0], a)
                if k % 2 == 0:
                    T.copy(B[k, 0], b)
                for i in T.Parallel(N):
                    C[k, i] = a[i] * 2 + b[N - 1 - i]
                for i in T.Parallel(N):
                    b[i] = b[i] + 1

    return main


def nested(stages: int) -> Any:
    """Loops of unequal stages, one inside of the other, that share a tile."""

    @T.prim_func
    def main(A: T.Tensor((3, N), "float32"), B: T.Tensor((TRIPS, N), "float32"), C: T.Tensor((3, N), "float32")):
        with T.Kernel(1, threads=N):
            a, b = T.alloc_shared((N,), "float32"), T.alloc_shared((N,), "float32")
            s = T.alloc_fragment((N,), "float32")
            for j in T.Pipelined(3, num_stages=stages):
                T.copy(A[j, 0], a)
                T.copy(a, s)
                for k in T.Pipelined(TRIPS - j, num_stages=max(0, stages - 1)):
                    T.copy(B[k, 0], b)
                    for i in T.Parallel(N):
                        s[i] = s[i] * 0.5 + b[(i + 1) % N] * a[i]
                T.copy(s, C[j, 0])

    return main


def through_memory(stages: int) -> Any:
    """An iteration reads the row that the one before has written to global memory."""

    @T.prim_func
    def main(A: T.Tensor((TRIPS, N), "float32"), B: T.Tensor((TRIPS, N), "float32"), C: T.Tensor((TRIPS, N), "float32")):
        with T.Kernel(1, threads=N):
            a, b = T.alloc_shared((N,), "float32"), T.alloc_shared((N,), "float32")
            for i in T.Parallel(N):
                C[0, i] = A[0, i]
            for k in T.Pipelined(TRIPS - 1, num_stages=stages):
                T.copy(C[k, 0], a)
                T.copy(B[k, 0], b)
                for i in T.Parallel(N):
                    C[k + 1, i] = a[i] * 0.5 + b[i]

    return main


def rows_by_index(stages: int) -> Any:
    """The row to load is read from a table; a reduction follows."""

    @T.prim_func
    def main(A: T.Tensor((TRIPS, N), "float32"), B: T.Tensor((TRIPS, N), "float32"), C: T.Tensor((1, N), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((N,), "float32")
            f, total = T.alloc_fragment((N,), "float32"), T.alloc_fragment((1,), "float32")
            T.clear(total)
            for k in T.Pipelined(TRIPS, num_stages=stages):
                row = T.cast(B[k, 0] * 0, "int32") + (k * 2) % TRIPS
                T.copy(A[row, 0], a)
                T.copy(a, f)
                T.reduce_sum(f, total, dim=0, clear=False)
            for i in T.Parallel(N):
                C[0, i] = total[0] + i

    return main


def arrays(program: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = [(tuple(int(e) for e in p.ty.shape), str(p.ty.dtype)) for p in program.params]
    found = [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]
    found[-1][...] = np.nan
    return found


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("make", [product, condition, nested, through_memory, rows_by_index])
@pytest.mark.parametrize("target", ["simt", "simt -arch=sm_90a"])
def test_stages_change_nothing(make: Any, stages: int, target: str) -> None:
    results = []
    for count in (0, stages):
        given = arrays(make(count))
        tilelang.compile(make(count), target=target)(*given)
        assert not np.isnan(given[-1].astype(np.float64)).any()
        results.append(given[-1])
    assert results[0].tobytes() == results[1].tobytes()

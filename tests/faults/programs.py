"""Kernels into whose lowered form faults are planted, each with arguments and the expected outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelang.language as T

from ..backend.simt import engines
from ..backend.simt import programs as threads


@dataclass(frozen=True)
class Subject:
    """program(): a fresh program. arguments(): fresh inputs and poisoned outputs. expected(*arguments): {position: values}."""

    program: Callable[[], Any]
    arguments: Callable[[], list[Any]]
    expected: Callable[..., dict[int, np.ndarray]]
    tolerance: float = 0.0
    config: tuple[tuple[str, Any], ...] = ()
    arch: str = "sm_90"
    final: bool = False  # program() is at the level THREADS


def _gemm() -> Any:
    m, n, k = 64, 64, 96

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, 1, threads=128):
            a = T.alloc_shared((m, 32), "float16")
            b = T.alloc_shared((32, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(k // 32, num_stages=2):
                T.copy(A[0, ko * 32], a)
                T.copy(B[ko * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def _gemm_arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 96)).astype(np.float16), rng.standard_normal((96, 64)).astype(np.float16)
    return [a, b, np.full((64, 64), np.nan, np.float32)]


def _transpose() -> Any:
    @T.prim_func
    def main(X: T.Tensor((70, 50), "float32"), Y: T.Tensor((50, 70), "float32")):
        with T.Kernel(T.ceildiv(70, 32), T.ceildiv(50, 32), threads=128) as (bx, by):
            s = T.alloc_shared((32, 33), "float32")
            for i, j in T.Parallel(32, 32):
                s[i, j] = X[bx * 32 + i, by * 32 + j]
            for i, j in T.Parallel(32, 32):
                Y[by * 32 + i, bx * 32 + j] = s[j, i]

    return main


def _softmax() -> Any:
    @T.prim_func
    def main(X: T.Tensor((8, 200), "float32"), Y: T.Tensor((8, 200), "float32")):
        with T.Kernel(2, threads=64) as bx:
            s = T.alloc_shared((4, 200), "float32")
            f = T.alloc_fragment((4, 200), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], s)
            T.copy(s, f)
            T.reduce_max(f, top, dim=1)
            for i, j in T.Parallel(4, 200):
                f[i, j] = T.exp(f[i, j] - top[i])
            T.reduce_sum(f, total, dim=1)
            for i, j in T.Parallel(4, 200):
                f[i, j] = f[i, j] / total[i]
            T.copy(f, Y[bx * 4, 0])

    return main


def _softmax_of(x: np.ndarray, _: Any) -> dict[int, np.ndarray]:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return {1: e / e.sum(1, keepdims=True)}


def _two_tiles() -> Any:
    """Two shared tiles that live at the same time, written and read in two rounds."""

    @T.prim_func
    def main(X: T.Tensor((2, 128), "float32"), Z: T.Tensor((2, 128), "float32"), Y: T.Tensor((2, 128), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128,), "float32")
            b = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(2):
                a[tx] = X[k, tx]
                b[tx] = Z[k, tx] * 2.0
                Y[k, tx] = a[127 - tx] + b[(tx + 64) % 128]

    return main


def _attention() -> Any:
    """One block of queries, three of keys; the running maximum rescales."""
    n, d = 64, 32

    @T.prim_func
    def main(
        Q: T.Tensor((n, d), "float16"), K: T.Tensor((96, d), "float16"), V: T.Tensor((96, d), "float16"), O: T.Tensor((n, d), "float32")
    ):
        with T.Kernel(1, threads=64):
            q = T.alloc_shared((n, d), "float16")
            k = T.alloc_shared((32, d), "float16")
            v = T.alloc_shared((32, d), "float16")
            s = T.alloc_fragment((n, 32), "float32")
            p = T.alloc_fragment((n, 32), "float16")
            o = T.alloc_fragment((n, d), "float32")
            top, old, total, part = (T.alloc_fragment((n,), "float32") for _ in range(4))
            T.copy(Q, q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -1e30)
            for b in T.Pipelined(3, num_stages=2):
                T.copy(K[b * 32, 0], k)
                T.copy(V[b * 32, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(top, old)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(n, 32):
                    s[i, j] = T.exp(s[i, j] - top[i])
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(n):
                    total[i] = total[i] * T.exp(old[i] - top[i]) + part[i]
                for i, j in T.Parallel(n, d):
                    o[i, j] *= T.exp(old[i] - top[i])
                T.copy(s, p)
                T.gemm(p, v, o)
            for i, j in T.Parallel(n, d):
                O[i, j] = o[i, j] / total[i]

    return main


def _attention_arguments() -> list[Any]:
    rng = np.random.default_rng(6)
    return [rng.standard_normal((e, 32)).astype(np.float16) for e in (64, 96, 96)] + [np.full((64, 32), np.nan, np.float32)]


def _attention_of(q: Any, k: Any, v: Any, _: Any) -> dict[int, np.ndarray]:
    s = q.astype(np.float64) @ k.astype(np.float64).T
    e = np.exp(s - s.max(1, keepdims=True))
    return {3: e / e.sum(1, keepdims=True) @ v.astype(np.float64)}


def _rows() -> Any:
    """A scan across warps, a fragment read in another order than it is held, a load in every second iteration."""

    @T.prim_func
    def main(X: T.Tensor((4, 128), "int32"), Z: T.Tensor((4, 128), "int32"), Y: T.Tensor((4, 128), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "int32")
            z = T.alloc_shared((128,), "int32")
            f = T.alloc_fragment((128,), "int32")
            g = T.alloc_fragment((128,), "int32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(X[k, 0], s)
                if k % 2 == 0:
                    T.copy(Z[k, 0], z)
                T.copy(s, f)
                T.cumsum(f, dim=0)
                for i in T.Parallel(128):
                    g[i] = f[127 - i] + z[i]
                T.copy(g, Y[k, 0])

    return main


def _rows_arguments() -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.integers(-50, 50, (4, 128)).astype(np.int32) for _ in range(2)] + [np.full((4, 128), 77, np.int32)]


def _hopper_gemm() -> Any:
    """Loads by a warp of their own, products of a warpgroup, a bulk store."""
    m, n, k = 64, 64, 192

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, 64), "float16")
            b = T.alloc_shared((64, n), "float16")
            o = T.alloc_shared((m, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(k // 64, num_stages=2):
                T.copy(A[0, ko * 64], a)
                T.copy(B[ko * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, o)
            T.copy(o, C)

    return main


def _added() -> Any:
    """Three blocks add a tile of theirs, made by threads, to one tensor."""

    @T.prim_func
    def main(X: T.Tensor((3, 32, 64), "float32"), Y: T.Tensor((32, 64), "float32")):
        with T.Kernel(3, threads=128) as b:
            t = T.alloc_shared((32, 64), "float32")
            for i, j in T.Parallel(32, 64):
                t[i, j] = X[b, i, j] * 2
            T.atomic_add(Y[0, 0], t)

    return main


def _slices() -> Any:
    """Four slices of warps, each with its part of K, whose sums blocks add to the result."""

    @T.prim_func
    def main(X: T.Tensor((16, 640), "float16"), W: T.Tensor((16, 640), "float16"), Y: T.Tensor((16, 16), "float32")):
        with T.Kernel(2, threads=128) as part:
            x = T.alloc_shared((16, 64), "float16")
            w = T.alloc_shared((16, 64), "float16")
            y = T.alloc_fragment((16, 16), "float32")
            T.clear(y)
            for k in T.Pipelined(5, num_stages=2):
                T.copy(X[0, part * 320 + k * 64], x)
                T.copy(W[0, part * 320 + k * 64], w)
                T.gemm(x, w, y, transpose_B=True)
            for i, j in T.Parallel(16, 16):
                T.atomic_add(Y[i, j], y[i, j])

    return main


def _slices_arguments() -> list[Any]:
    rng = np.random.default_rng(15)
    return [*(rng.standard_normal((16, 640)).astype(np.float16) for _ in range(2)), np.ones((16, 16), np.float32)]


def _cluster_gemm() -> Any:
    """Two blocks of a cluster: each loads half of the tiles of B for both."""
    m, n, k = 128, 64, 192

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(2, threads=128, cluster_dims=2) as by:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, n), "float16")
            c = T.alloc_fragment((64, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(k // 64, num_stages=2):
                T.copy(A[by * 64, ko * 64], a)
                T.copy(B[ko * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, 0])

    return main


def _cluster_arguments() -> list[Any]:
    rng = np.random.default_rng(13)
    return [rng.standard_normal(shape).astype(np.float16) for shape in ((128, 192), (192, 64))] + [np.full((128, 64), np.nan, np.float16)]


def _hopper_arguments() -> list[Any]:
    rng = np.random.default_rng(8)
    return [rng.standard_normal(s).astype(np.float16) for s in ((64, 192), (192, 64))] + [np.full((64, 64), np.nan, np.float16)]


def _pair(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s, np.float32) for s in shapes[:-1]] + [np.full(shapes[-1], np.nan, np.float32)]


SUBJECTS = {
    "gemm": Subject(
        _gemm, _gemm_arguments, lambda a, b, c: {2: a.astype(np.float64) @ b.astype(np.float64)}, 1e-3,
    ),
    "transpose": Subject(_transpose, lambda: _pair(1, (70, 50), (50, 70)), lambda x, y: {1: x.T}),
    "softmax": Subject(_softmax, lambda: _pair(2, (8, 200), (8, 200)), _softmax_of, 1e-5),
    "two_tiles": Subject(
        _two_tiles, lambda: _pair(3, (2, 128), (2, 128), (2, 128)),
        lambda x, z, y: {2: x[:, ::-1] + np.roll(z * np.float32(2), -64, 1)},
    ),
    "ring": Subject(
        threads.ring, lambda: _pair(4, (threads.ROUNDS, threads.GROUP), (threads.ROUNDS, threads.GROUP)), lambda x, y: {1: x[:, ::-1]},
    ),
    "attention": Subject(_attention, _attention_arguments, _attention_of, 2e-3),
    "rows": Subject(
        _rows, _rows_arguments, lambda x, z, y: {2: np.cumsum(x, 1)[:, ::-1] + z[[0, 0, 2, 2]]},
    ),
    "hopper_gemm": Subject(
        _hopper_gemm, _hopper_arguments, lambda a, b, c: {2: a.astype(np.float64) @ b.astype(np.float64)}, 3e-2, arch="sm_90a",
    ),
    "added": Subject(
        _added, lambda: [*_pair(14, (3, 32, 64), (32, 64))[:1], np.ones((32, 64), np.float32)],
        lambda x, y: {1: 1 + 2 * x.sum(0, dtype=np.float64)}, 1e-5, arch="sm_90a",
    ),
    "slices": Subject(
        _slices, _slices_arguments, lambda x, w, y: {2: 1 + x.astype(np.float64) @ w.astype(np.float64).T}, 1e-3, arch="sm_90a",
    ),
    "cluster_gemm": Subject(
        _cluster_gemm, _cluster_arguments, lambda a, b, c: {2: a.astype(np.float64) @ b.astype(np.float64)}, 3e-2, arch="sm_90a",
    ),
    "bulk_ring": Subject(
        engines.ring,
        lambda: [np.random.default_rng(9).standard_normal((engines.ROUNDS, 64, 64)).astype(np.float16),
                 np.full((engines.ROUNDS, 64, 64), np.nan, np.float16)],
        lambda x, y: {1: x * 2}, final=True,
    ),
    "product": Subject(
        lambda: engines.product_of("rs", clears=True),
        lambda: [np.random.default_rng(k).standard_normal((64, 64)).astype(np.float16) for k in (10, 11)] + [_pair(12, (64, 64))[0]],
        lambda a, b, c: {2: a.astype(np.float64) @ b.astype(np.float64).T}, 1e-3, final=True,
    ),
    "histogram": Subject(
        threads.histogram,
        lambda: [np.random.default_rng(5).integers(0, 99, 4 * threads.N).astype(np.int32), np.zeros(16, np.int32),
                 np.zeros(4 * threads.N, np.int32), np.zeros(1, np.int32)],
        lambda x, h, s, c: {1: np.bincount(x % 16, minlength=16)},
    ),
}  # fmt: skip

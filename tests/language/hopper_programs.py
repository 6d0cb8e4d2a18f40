"""Warp-specialised kernels as people write them by hand: groups of warps, mbarriers, bulk copies, products in flight.

`PROGRAMS`: name -> (program, fresh arguments with a poisoned output at the end, its expected values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilelang.language as T

M, N, K, BM, BN, BK = 128, 128, 256, 128, 128, 64
S, D, BS = 256, 64, 64  # keys, size of a head, keys of a tile


def copies_in_a_group() -> Any:
    """One group copies tiles, the other multiplies; a list of barriers, named by numbers."""
    stages = 2

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=256) as (bx, by):
            As = T.alloc_shared((stages, BM, BK), "float16")
            Bs = T.alloc_shared((stages, BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            T.create_list_of_mbarrier(128, 128, 128, 128)
            with T.ws(1):
                for k in range(K // BK):
                    T.mbarrier_wait_parity(T.get_mbarrier(k % stages + stages), ((k // stages) % 2) ^ 1)
                    T.copy(A[by * BM : (by + 1) * BM, k * BK : (k + 1) * BK], As[k % stages, :, :])
                    T.copy(B[k * BK : (k + 1) * BK, bx * BN : (bx + 1) * BN], Bs[k % stages, :, :])
                    T.mbarrier_arrive(T.get_mbarrier(k % stages))
            with T.ws(0):
                T.clear(Cl)
                for k in range(K // BK):
                    T.mbarrier_wait_parity(T.get_mbarrier(k % stages), (k // stages) % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], Cl)
                    T.mbarrier_arrive(T.get_mbarrier(k % stages + stages))
                T.copy(Cl, C[by * BM, bx * BN])

    return main


def conditions_on_the_thread() -> Any:
    """The roles are chosen by `if tx >= 128`; one thread issues the bulk copies."""
    stages = 2

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=256) as (bx, by):
            As = T.alloc_shared((stages, BM, BK), "float16")
            Bs = T.alloc_shared((stages, BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128] * stages)
            tx = T.get_thread_binding()
            if tx >= 128:
                T.dec_max_nreg(24)
                for k in T.serial(K // BK):
                    T.barrier_wait(empty[k % stages], ((k // stages) % 2) ^ 1)
                    if tx == 128:
                        T.tma_copy(A[by * BM, k * BK], As[k % stages, :, :], barrier=full[k % stages])
                        T.tma_copy(B[k * BK, bx * BN], Bs[k % stages, :, :], barrier=full[k % stages])
                        T.barrier_arrive(full[k % stages])
            else:
                T.inc_max_nreg(240)
                T.clear(Cl)
                for k in T.serial(K // BK):
                    T.barrier_wait(full[k % stages], (k // stages) % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], Cl)
                    T.barrier_arrive(empty[k % stages])
                T.copy(Cl, C[by * BM, bx * BN])

    return main


def bulk_copies_in_a_group() -> Any:
    """Bulk copies by a group of its own, products waited for by hand, registers moved to those who compute."""
    stages = 3

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=256) as (bx, by):
            As = T.alloc_shared((stages, BM, BK), "float16")
            Bs = T.alloc_shared((stages, BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([128] * stages)
            with T.ws(0):
                T.set_max_nreg(240, 1)
                T.clear(Cl)
                for k in T.serial(K // BK):
                    T.mbarrier_wait_parity(full[k % stages], k // stages & 1)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], Cl, wg_wait=-1)
                    T.wait_wgmma(0)
                    T.mbarrier_arrive(empty[k % stages])
                T.copy(Cl, C[by * BM, bx * BN])
            with T.ws(1):
                T.set_max_nreg(24, 0)
                for k in T.serial(K // BK):
                    T.mbarrier_wait_parity(empty[k % stages], (k // stages & 1) ^ 1)
                    T.tma_copy(A[by * BM, k * BK], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[k * BK, bx * BN], Bs[k % stages, :, :], barrier=full[k % stages])
                    T.mbarrier_arrive(full[k % stages])

    return main


def two_consumers() -> Any:
    """One producer, two consumers with half of the rows each."""
    stages = 2

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=384) as (bx, by):
            A0 = T.alloc_shared((stages, 64, BK), "float16")
            A1 = T.alloc_shared((stages, 64, BK), "float16")
            Bs = T.alloc_shared((stages, BK, BN), "float16")
            C0 = T.alloc_fragment((64, BN), "float32")
            C1 = T.alloc_fragment((64, BN), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([256] * stages)
            with T.ws(2):
                T.annotate_producer_reg_dealloc(24)
                for k in range(K // BK):
                    T.mbarrier_wait_parity(empty[k % stages], (k // stages + 1) % 2)
                    T.copy(A[by * BM, k * BK], A0[k % stages, :, :])
                    T.copy(A[by * BM + 64, k * BK], A1[k % stages, :, :])
                    T.copy(B[k * BK, bx * BN], Bs[k % stages, :, :])
                    T.mbarrier_arrive(full[k % stages])
            with T.ws(0):
                T.annotate_consumer_reg_alloc(240)
                T.fill(C0, 0)
                for k in range(K // BK):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(A0[k % stages, :, :], Bs[k % stages, :, :], C0)
                    T.mbarrier_arrive(empty[k % stages])
                T.copy(C0, C[by * BM, bx * BN])
            with T.ws(1):
                T.fill(C1, 0)
                for k in range(K // BK):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(A1[k % stages, :, :], Bs[k % stages, :, :], C1)
                    T.mbarrier_arrive(empty[k % stages])
                T.copy(C1, C[by * BM + 64, bx * BN])

    return main


def ping_pong() -> Any:
    """Two consumers take turns: the second one computes while the first one stores."""
    stages = 2

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=384):
            As = T.alloc_shared((stages, 64, BK), "float16")
            Bs = T.alloc_shared((stages, BK, BN), "float16")
            C0 = T.alloc_fragment((64, BN), "float32")
            C1 = T.alloc_fragment((64, BN), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([128] * stages)
            turn = T.alloc_barrier([128, 128])
            with T.ws(2):
                for it in range(2 * (K // BK)):
                    w = it // (K // BK)
                    k = it % (K // BK)
                    T.mbarrier_wait_parity(empty[it % stages], (it // stages + 1) % 2)
                    T.tma_copy(A[w * 64, k * BK], As[it % stages, :, :], barrier=full[it % stages])
                    T.tma_copy(B[k * BK, 0], Bs[it % stages, :, :], barrier=full[it % stages])
                    T.mbarrier_arrive(full[it % stages])
            with T.ws(0):
                T.clear(C0)
                for k in range(K // BK):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], C0)
                    T.mbarrier_arrive(empty[k % stages])
                T.mbarrier_arrive(turn[0])
                T.copy(C0, C[0, 0])
            with T.ws(1):
                T.clear(C1)
                T.mbarrier_wait_parity(turn[0], 0)
                for k in range(K // BK):
                    it = k + K // BK
                    T.mbarrier_wait_parity(full[it % stages], (it // stages) % 2)
                    T.gemm(As[it % stages, :, :], Bs[it % stages, :, :], C1)
                    T.mbarrier_arrive(empty[it % stages])
                T.copy(C1, C[64, 0])

    return main


def products_in_flight() -> Any:
    """The next tiles are copied while the products of these are in flight."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=128):
            As = T.alloc_shared((2, BM, BK), "float16")
            Bs = T.alloc_shared((2, BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            T.clear(Cl)
            T.copy(A[0, 0], As[0, :, :])
            T.copy(B[0, 0], Bs[0, :, :])
            for k in T.serial(K // BK):
                T.wgmma_gemm(As[k % 2, :, :], Bs[k % 2, :, :], Cl)
                if k + 1 < K // BK:
                    T.wait_wgmma(1)
                    T.copy(A[0, (k + 1) * BK], As[(k + 1) % 2, :, :])
                    T.copy(B[(k + 1) * BK, 0], Bs[(k + 1) % 2, :, :])
                T.wait_wgmma(0)
            T.copy(Cl, C)

    return main


def asynchronous_copies() -> Any:
    """Groups of `T.async_copy`, waited for by number."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, 1, threads=128):
            As = T.alloc_shared((2, BM, BK), "float16")
            Bs = T.alloc_shared((2, BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            T.clear(Cl)
            T.async_copy(A[0, 0], As[0, :, :])
            T.async_copy(B[0, 0], Bs[0, :, :])
            for k in T.serial(K // BK):
                if k + 1 < K // BK:
                    T.async_copy(A[0, (k + 1) * BK], As[(k + 1) % 2, :, :])
                    T.async_copy(B[(k + 1) * BK, 0], Bs[(k + 1) % 2, :, :])
                    T.ptx_wait_group(2)
                else:
                    T.ptx_wait_group(0)
                T.sync_threads()
                T.gemm(As[k % 2, :, :], Bs[k % 2, :, :], Cl)
                T.sync_threads()
            T.copy(Cl, C)

    return main


def bulk_store() -> Any:
    """A bulk load, arithmetic, a fence, a bulk store."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((M, K), "float16")):
        with T.Kernel(K // BK, threads=128) as bx:
            s = T.alloc_shared((M, BK), "float16")
            f = T.alloc_fragment((M, BK), "float16")
            bar = T.alloc_barrier(128)
            T.tma_copy(A[0, bx * BK], s, barrier=bar)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, f)
            for i, j in T.Parallel(M, BK):
                f[i, j] = f[i, j] * 2
            T.copy(f, s)
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(s, B[0, bx * BK])
            T.tma_store_wait()

    return main


def rows_through_a_ring() -> Any:
    """A running maximum over tiles that come through a ring."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float32"), O: T.Tensor((M,), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((2, M, 32), "float32")
            f = T.alloc_fragment((M, 32), "float32")
            m = T.alloc_fragment((M,), "float32")
            c = T.alloc_fragment((M,), "float32")
            T.create_list_of_mbarrier([128, 128, 128, 128])
            with T.ws(1):
                for k in T.serial(K // 32):
                    T.mbarrier_wait_parity(k % 2 + 2, (k // 2 + 1) % 2)
                    T.copy(A[0, k * 32], s[k % 2, :, :])
                    T.mbarrier_arrive(k % 2)
            with T.ws(0):
                T.fill(m, -T.infinity("float32"))
                for k in T.serial(K // 32):
                    T.mbarrier_wait_parity(mbarrier=T.get_mbarrier(k % 2), parity=k // 2 % 2)
                    T.copy(s[k % 2, :, :], f)
                    T.mbarrier_arrive(mbarrier=T.get_mbarrier(k % 2 + 2))
                    T.reduce_max(f, c, dim=1)
                    for i in T.Parallel(M):
                        m[i] = T.max(m[i], c[i])
                T.copy(m, O)

    return main


def an_elected_thread() -> Any:
    """The thread that `T.shuffle_elect` chooses issues the load."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((M, K), "float16")):
        with T.Kernel(K // BK, threads=128) as bx:
            s = T.alloc_shared((M, BK), "float16")
            bar = T.alloc_barrier(1)
            if T.shuffle_elect(128):
                T.tma_copy(A[0, bx * BK], s, barrier=bar)
                T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, B[0, bx * BK])

    return main


def attention() -> Any:
    """Online softmax with keys and values in rings of their own, two warpgroups that compute."""

    @T.prim_func
    def main(
        Q: T.Tensor((128, D), "float16"), Kt: T.Tensor((S, D), "float16"), V: T.Tensor((S, D), "float16"), O: T.Tensor((128, D), "float32")
    ):
        with T.Kernel(1, threads=384):
            Qs = T.alloc_shared((128, D), "float16")
            Ks = T.alloc_shared((2, BS, D), "float16")
            Vs = T.alloc_shared((2, BS, D), "float16")
            s = T.alloc_fragment((128, BS), "float32")
            p = T.alloc_fragment((128, BS), "float16")
            o = T.alloc_fragment((128, D), "float32")
            mx = T.alloc_fragment((128,), "float32")
            mp = T.alloc_fragment((128,), "float32")
            sc = T.alloc_fragment((128,), "float32")
            l = T.alloc_fragment((128,), "float32")
            ls = T.alloc_fragment((128,), "float32")
            kf = T.alloc_barrier([128, 128])
            ke = T.alloc_barrier([256, 256])
            vf = T.alloc_barrier([128, 128])
            ve = T.alloc_barrier([256, 256])
            qf = T.alloc_barrier(128)
            with T.ws(2):
                T.tma_copy(Q[0, 0], Qs, barrier=qf)
                T.mbarrier_arrive(qf)
                for k in T.serial(S // BS):
                    T.mbarrier_wait_parity(ke[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(Kt[k * BS, 0], Ks[k % 2, :, :], barrier=kf[k % 2])
                    T.mbarrier_arrive(kf[k % 2])
                    T.mbarrier_wait_parity(ve[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(V[k * BS, 0], Vs[k % 2, :, :], barrier=vf[k % 2])
                    T.mbarrier_arrive(vf[k % 2])
            with T.ws(0, 1):
                T.fill(o, 0)
                T.fill(l, 0)
                T.fill(mx, -T.infinity("float32"))
                T.mbarrier_wait_parity(qf, 0)
                for k in T.serial(S // BS):
                    T.mbarrier_wait_parity(kf[k % 2], k // 2 % 2)
                    T.gemm(Qs, Ks[k % 2, :, :], s, transpose_B=True, clear_accum=True)
                    T.mbarrier_arrive(ke[k % 2])
                    T.copy(mx, mp)
                    T.reduce_max(s, mx, dim=1, clear=False)
                    for i in T.Parallel(128):
                        sc[i] = T.exp(mp[i] - mx[i])
                    for i, j in T.Parallel(128, BS):
                        s[i, j] = T.exp(s[i, j] - mx[i])
                    T.reduce_sum(s, ls, dim=1)
                    for i in T.Parallel(128):
                        l[i] = l[i] * sc[i] + ls[i]
                    for i, j in T.Parallel(128, D):
                        o[i, j] = o[i, j] * sc[i]
                    T.copy(s, p)
                    T.mbarrier_wait_parity(vf[k % 2], k // 2 % 2)
                    T.gemm(p, Vs[k % 2, :, :], o)
                    T.mbarrier_arrive(ve[k % 2])
                for i, j in T.Parallel(128, D):
                    o[i, j] = o[i, j] / l[i]
                T.copy(o, O)

    return main


def result_for_another_group() -> Any:
    """The result of one group goes to another through shared memory."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(1, 1, threads=256):
            As = T.alloc_shared((BM, K), "float16")
            Bs = T.alloc_shared((K, BN), "float16")
            Cs = T.alloc_shared((BM, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            loaded = T.alloc_barrier(1)
            done = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx == 0:
                T.mbarrier_expect_tx(loaded, 0)
                T.tma_copy(A[0, 0], As, barrier=loaded)
                T.tma_copy(B[0, 0], Bs, barrier=loaded)
                T.mbarrier_arrive(loaded)
            with T.ws(0):
                T.mbarrier_wait_parity(loaded, 0)
                T.warpgroup_arrive()
                T.wgmma_gemm(As, Bs, Cl, clear_accum=True)
                T.warpgroup_commit_batch()
                T.warpgroup_wait(0)
                T.warpgroup_fence_operand(Cl)
                T.copy(Cl, Cs)
                T.fence_proxy_async()
                T.mbarrier_arrive(done)
            with T.ws(1):
                T.mbarrier_wait_parity(done, 0)
                T.copy(Cs, C)

    return main


def _half(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def _products(dtype: Any) -> Callable[[], tuple[list[np.ndarray], np.ndarray]]:
    def make() -> tuple[list[np.ndarray], np.ndarray]:
        rng = np.random.default_rng(0)
        a, b = _half(rng, M, K), _half(rng, K, N)
        return [a, b, np.full((M, N), np.nan, dtype)], a.astype(np.float64) @ b.astype(np.float64)

    return make


def _moved(factor: int) -> Callable[[], tuple[list[np.ndarray], np.ndarray]]:
    def make() -> tuple[list[np.ndarray], np.ndarray]:
        a = _half(np.random.default_rng(1), M, K)
        return [a, np.full_like(a, np.nan)], a * np.float16(factor)

    return make


def _largest() -> tuple[list[np.ndarray], np.ndarray]:
    a = np.random.default_rng(2).standard_normal((M, K)).astype(np.float32)
    return [a, np.full(M, np.nan, np.float32)], a.max(axis=1)


def _attention() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(3)
    q, k, v = _half(rng, M, D) * np.float16(0.3), _half(rng, S, D), _half(rng, S, D)
    weights = np.exp(q.astype(np.float64) @ k.T.astype(np.float64))
    return [q, k, v, np.full((M, D), np.nan, np.float32)], weights / weights.sum(axis=1, keepdims=True) @ v


WITH_PRODUCTS = (
    copies_in_a_group, conditions_on_the_thread, bulk_copies_in_a_group, two_consumers, ping_pong, products_in_flight, asynchronous_copies,
)  # fmt: skip
PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[list[np.ndarray], np.ndarray]]]] = {
    **{make.__name__: (make, _products(np.float32)) for make in WITH_PRODUCTS},
    "result_for_another_group": (result_for_another_group, _products(np.float16)),
    "bulk_store": (bulk_store, _moved(2)),
    "an_elected_thread": (an_elected_thread, _moved(1)),
    "rows_through_a_ring": (rows_through_a_ring, _largest),
    "attention": (attention, _attention),
}

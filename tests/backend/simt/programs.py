"""Programs of single threads for the tests of the emulator."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

N = 256
RING, ROUNDS, GROUP = 2, 6, 128


def reverse(barrier: bool = True) -> Any:
    @T.prim_func
    def main(X: T.Tensor((1000,), "float32"), Y: T.Tensor((1000,), "float32"), n: T.int32):
        with T.Kernel(4, threads=N) as bx:
            s = T.alloc_shared((N,), "float32")
            tx = T.get_thread_binding()
            s[tx] = X[bx * N + tx]
            if barrier:
                T.sync_threads()
            if bx * N + tx < n:
                Y[bx * N + tx] = s[N - 1 - tx] * 2.0

    return main


def rounds(first: bool = True, second: bool = True) -> Any:
    """A tile written and read in turns; a barrier after the stores and one after the loads."""

    @T.prim_func
    def main(X: T.Tensor((4, N), "float32"), Y: T.Tensor((4, N), "float32")):
        with T.Kernel(1, threads=N):
            s = T.alloc_shared((N,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(4):
                s[tx] = X[k, tx]
                if first:
                    T.sync_threads()
                Y[k, tx] = s[(tx + 33) % N]
                if second:
                    T.sync_threads()

    return main


def warp_rows(synchronised: bool = True) -> Any:
    """Lanes of a warp exchange through shared memory with a warp barrier only."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=N):
            s = T.alloc_shared((N,), "int32")
            tx = T.get_thread_binding()
            s[tx] = X[tx]
            if synchronised:
                T.sync_warp()
            Y[tx] = s[tx ^ 1]

    return main


def lanes() -> Any:
    """Shuffles, votes, warp reductions."""

    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((6, 64), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            Y[0, tx] = T.shfl_xor(X[tx], 5)
            Y[1, tx] = T.shfl_down(X[tx], 3, 16)
            Y[2, tx] = T.warp_reduce_max(X[tx])
            Y[3, tx] = T.any_sync(X[tx] > 90)
            Y[4, tx] = T.cast(T.ballot_sync(X[tx] % 2 == 1) % 65536, "int32")
            Y[5, tx] = T.syncthreads_count(X[tx] < 50)

    return main


def histogram() -> Any:
    @T.prim_func
    def main(X: T.Tensor((4 * N,), "int32"), H: T.Tensor((16,), "int32"), S: T.Tensor((4 * N,), "int32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(4, threads=N) as bx:
            h = T.alloc_shared((16,), "int32")
            tx = T.get_thread_binding()
            if tx < 16:
                h[tx] = 0
            T.sync_threads()
            T.atomic_add(h[X[bx * N + tx] % 16], 1)
            T.sync_threads()
            if tx < 16:
                T.atomic_add(H[tx], h[tx])
            S[bx * N + tx] = T.atomic_add(C[0], 1, return_prev=True)

    return main


def leaving() -> Any:
    """Loops that lanes leave at different times."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            total = T.alloc_var("int32", 0)
            for k in T.serial(20):
                if k > X[tx]:
                    break
                if k % 3 == 1:
                    continue
                total += k
            steps = T.alloc_var("int32", 0)
            rest = T.alloc_var("int32", X[tx])
            while rest > 1:
                rest = rest // 2
                steps += 1
            Y[tx] = total * 100 + steps

    return main


def ring(**fault: Any) -> Any:
    """One group of threads fills a ring of stages, the other empties it. fault: what to do differently."""
    arrive, parity = fault.get("arrive", GROUP), fault.get("parity", 1)
    waits_full, waits_free, signals = fault.get("waits_full", True), fault.get("waits_free", True), fault.get("signals", True)

    @T.prim_func
    def main(X: T.Tensor((ROUNDS, GROUP), "float32"), Y: T.Tensor((ROUNDS, GROUP), "float32")):
        with T.Kernel(1, threads=2 * GROUP):
            s = T.alloc_shared((RING, GROUP), "float32")
            full = T.alloc_barrier([arrive] * RING)
            free = T.alloc_barrier([GROUP] * RING)
            tx = T.get_thread_binding()
            with T.ws(1):
                for k in T.serial(ROUNDS):
                    if waits_free:
                        T.barrier_wait(free[k % RING], ((k // RING) & 1) ^ parity)
                    s[k % RING, tx - GROUP] = X[k, tx - GROUP]
                    T.barrier_arrive(full[k % RING])
            with T.ws(0):
                for k in T.serial(ROUNDS):
                    if waits_full:
                        T.barrier_wait(full[k % RING], (k // RING) & 1)
                    Y[k, tx] = s[(k + fault.get("shift", 0)) % RING, GROUP - 1 - tx]
                    if signals:
                        T.barrier_arrive(free[k % RING])

    return main

"""What may be written behind a barrier: by hand-made programs of threads, one question each."""

from __future__ import annotations

import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.access import view_roots
from tilelang.ir.dialect import op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Evaluate
from tilelang.passes.waits.barrier_windows import BARRIER, windows
from tilelang.target.target import parse_target


def found(program, stage="insert_barriers"):
    """For each barrier in program order the names of what may be written behind it; None if nothing is known."""
    func = lower_to(program, parse_target("simt -arch=sm_90a"), {}, stage)
    answers = []

    def kernel(region):
        known = windows(region, view_roots(func.body))
        if known is None:
            answers.append(None)
            return region.to_stmt()
        order = []
        walk(region.body, {Evaluate: lambda e: order.append(e) if op_name(e.value) == BARRIER else None})
        answers.extend(sorted(str(b.name) for b in known[stmt]) for stmt in order)
        return region.to_stmt()

    map_kernels(func.body, kernel)
    return answers


def test_up_to_the_next_barrier():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64,), "float32")
            b = T.alloc_shared((64,), "float32")
            c = T.alloc_shared((64,), "float32")
            t = T.get_thread_binding()
            a[t] = X[t]
            T.sync_threads()
            b[t] = a[63 - t]
            T.sync_threads()
            c[t] = b[63 - t]
            X[t] = c[t]

    assert found(main) == [["b"], ["c"]]


def test_around_a_loop():
    """Behind the barrier at the end of the body stands its beginning, and what follows the loop."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64,), "float32")
            b = T.alloc_shared((64,), "float32")
            c = T.alloc_shared((64,), "float32")
            t = T.get_thread_binding()
            for _ in range(4):
                a[t] = X[t]
                T.sync_threads()
                b[t] = a[63 - t]
                T.sync_threads()
                X[t] = b[63 - t]
            c[t] = X[t]
            X[t] = c[t] + 1

    assert found(main) == [["b"], ["a", "c"]]


def test_either_branch():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64,), "float32")
            b = T.alloc_shared((64,), "float32")
            c = T.alloc_shared((64,), "float32")
            t = T.get_thread_binding()
            a[t] = X[t]
            T.sync_threads()
            if n > 3:
                b[t] = a[63 - t]
                T.sync_threads()
                X[t] = b[63 - t]
            else:
                c[t] = a[63 - t]
                X[t] = c[t]

    assert found(main)[0] == ["b", "c"]


def test_a_barrier_of_some_threads():
    """Who does not meet there may be anywhere."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64,), "float32")
            t = T.get_thread_binding()
            if t < 32:
                a[t] = X[t]
                T.sync_threads(1, 32)
                X[t] = a[31 - t]

    assert found(main) == [None]


def test_tiles_that_share_bytes():
    """A tile may be written where another one lies that is no longer needed."""

    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((64,), "float32")
            b = T.alloc_shared((64,), "float32")
            t = T.get_thread_binding()
            a[t] = X[t]
            T.sync_threads()
            Y[t] = a[63 - t]
            T.sync_threads()
            b[t] = X[t] + 1
            T.sync_threads()
            Y[t] += b[63 - t]

    assert found(main, "plan_shared") == [[], ["a", "b"], []]

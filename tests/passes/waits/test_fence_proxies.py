"""Fences before barriers: where threads wrote what products read, once each."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.target.target import parse_target


def words(program):
    """The final program's fences, barriers, products and bulk stores in program order."""
    names = {"tl.fence_proxy_async": "fence", "tl.sync_threads": "barrier", "tl.wgmma": "product", "tl.tma_store": "store"}
    final = lower_to(program, parse_target("simt -arch=sm_90a"), {}, "fence_proxies")
    found = []
    walk(final.body, {Call: lambda c: found.append(names[op_name(c)]) if op_name(c) in names else None})
    return found


def product(kind):
    """kind: what happens to the result."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            o = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            if kind == "bulk store":
                T.copy(c, o)
                T.copy(o, C)
            else:
                for i, j in T.Parallel(64, 64):
                    C[i, j] = c[i, j]

    return main


def test_what_threads_wrote_is_fenced():
    assert words(product("plain")) == ["fence", "barrier", "product"]


def test_one_fence_is_enough():
    """A bulk store has one of its own. The barrier before it is for the bytes that the result shares with an operand."""
    assert words(product("bulk store")) == ["fence", "barrier", "product", "fence", "barrier", "fence", "barrier", "store"]


def handed_over(by_hand):
    """One group writes the operands, another multiplies; by_hand: the program fences by itself."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(1):
                T.copy(A, a)
                T.copy(B, b)
                if by_hand:
                    T.fence_proxy_async()
                T.mbarrier_arrive(full)
            with T.ws(0):
                T.mbarrier_wait_parity(full, 0)
                T.gemm(a, b, c, clear_accum=True)
                T.mbarrier_arrive(empty)
                for i, j in T.Parallel(64, 64):
                    C[i, j] = c[i, j]

    return main


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_writer_fences_before_it_arrives(by_hand):
    """Once, whoever asks for it; the reader, which writes nothing that a product reads, arrives without."""
    assert [w for w in words(handed_over(by_hand)) if w in ("fence", "product")] == ["fence", "product"]

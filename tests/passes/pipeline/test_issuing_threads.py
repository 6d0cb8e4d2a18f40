"""Which bulk loads single threads issue."""

import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.dialect import attr, op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.target.target import parse_target


def test_conditions():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), n: T.int32, Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(4, threads=128) as b:
            s = T.alloc_shared((16, 64), "float16")
            bar = T.alloc_barrier(128)
            warp = T.get_thread_binding() // 32
            T.tma_copy(X[0:16, 0:64], s, barrier=bar)
            if b < n:
                T.tma_copy(X[16:32, 0:64], s, barrier=bar)
            if warp == 0:
                T.copy(X[0, 0], s)
                if b < n:
                    T.tma_copy(X[32:48, 0:64], s, barrier=bar)
            else:
                T.tma_copy(X[48:64, 0:64], s, barrier=bar)
            T.copy(s, Y[b * 16, 0])

    found = []
    body = lower_to(main, parse_target("simt"), {}, "issuing_threads").body
    walk(body, {Call: lambda call: found.append(attr(call, "tma")) if op_name(call) == "tl.tileop.copy" else None})
    assert found == [None, None, None, "thread", "thread", None]

"""Waits for warpgroup products: where they stand, how many groups stay in flight, when slots are released."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import BufferStore, Call, For, IfThenElse
from tilelang.target.target import parse_target

HOPPER = parse_target("simt -arch=sm_90a")


def events(program, config=None):
    """The final program's statements about products as words, in program order: "wait 1" leaves one group in flight."""
    final = lower_to(program, HOPPER, config or {}, "relax_waits")
    found = []

    def call(node: Call) -> None:
        name = op_name(node)
        if name == "tl.wgmma":
            found.append(f"product {node.args[0].source.name}")
        elif name == "tl.wgmma_commit":
            found.append("commit")
        elif name == "tl.wgmma_wait":
            found.append(" ".join([f"wait {int(node.args[0])}", *(str(r.source.name) for r in node.args[1:])]))
        elif name == "tl.mbarrier_arrive":
            found.append("release")
        elif name == "tl.sync_threads":
            found.append("barrier")

    def loop(node: For) -> None:
        if str(node.loop_var.name) == "i":
            found.append("loop")

    def store(node: BufferStore) -> None:
        found.append(f"store {node.buffer.name}")

    walk(final.body, {Call: call, For: loop, BufferStore: store})
    return found


def after(words, start):
    """The words from the first `start` on, without stores."""
    return [w for w in words[words.index(start) :] if not w.startswith("store")]


def accumulating(stages):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for i in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, i * 64], a)
                T.copy(B[i * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def test_one_group_stays_in_flight_around_the_loop():
    words = after(events(accumulating(3)), "loop")
    assert words[:5] == ["loop", "product c", "commit", "wait 1", "release"]
    assert words[5] == "wait 0 c"


def test_results_are_waited_for_where_they_are_used():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.clear(d)
            T.gemm(b, a, d)
            for y, x in T.Parallel(64, 64):
                C[0, y, x] = c[y, x]
            for y, x in T.Parallel(64, 64):
                C[1, y, x] = d[y, x]

    words = events(main)
    order = [w for w in words if w.startswith(("product", "commit", "wait")) or w == "store C"]
    assert order == ["product c", "commit", "product d", "commit", "wait 1 c", "store C", "wait 0 d", "store C"]


def test_operand_registers_are_not_overwritten():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            b = T.alloc_shared((64, 64), "float16")
            p = T.alloc_fragment((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(B, b)
            T.clear(c)
            for i in T.serial(4):
                for y, x in T.Parallel(64, 64):
                    p[y, x] = A[y, x] * T.cast(i, "float16")
                T.gemm(p, b, c)
            T.copy(c, C)

    words = [w for w in events(main) if w.startswith(("product", "wait", "store p", "loop"))]
    assert words[words.index("loop") :][:4] == ["loop", "wait 0 c", "store p", "product c"]


def test_products_in_a_branch_are_complete_at_its_end():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), N: T.Tensor((1,), "int32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            if N[0] > 0:
                T.gemm(a, a, c)
            T.copy(c, C)

    final = lower_to(main, HOPPER, {}, "relax_waits")
    inside = []

    def branch(node: IfThenElse) -> None:
        held = []
        walk(node.then_case, {Call: lambda c: held.append(op_name(c))})
        if "tl.wgmma" in held:
            inside.append(held.index("tl.wgmma_wait") > held.index("tl.wgmma_commit"))

    walk(final.body, {IfThenElse: branch})
    assert inside == [True]


@pytest.mark.parametrize("stages", [0, 2, 4])
def test_every_group_is_waited_for_before_its_result_leaves(stages):
    words = events(accumulating(stages))
    assert words.count("commit") == 1
    leaves = [k for k, w in enumerate(words) if w.startswith("store ") and w != "store c" and k > words.index("commit")]
    assert leaves and "wait 0 c" in words[words.index("commit") : leaves[-1]]


def test_waits_name_no_registers_that_are_still_written():
    final = lower_to(accumulating(3), HOPPER, {}, "relax_waits")
    waits = []
    walk(final.body, {Call: lambda c: waits.append((int(c.args[0]), len(c.args) - 1)) if op_name(c) == "tl.wgmma_wait" else None})
    assert (1, 0) in waits and (0, 1) in waits

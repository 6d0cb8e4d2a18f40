"""Whole programs whose shared memory is planned and synchronised by the compiler, run by the emulator, which reports races."""

from __future__ import annotations

import numpy as np

import tilelang
import tilelang.language as T
from tests.passes.barriers.test_insert_barriers import local, outline, shared
from tests.passes.programs import kernel
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.context import PassContext
from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import AllocBuffer, IfThenElse, decl_buffer, load, store
from tilelang.passes.barriers.insert_barriers import insert_barriers
from tilelang.passes.memory.plan_shared import plan_shared
from tilelang.target.target import Target, parse_target

SIMT = parse_target("simt")


def run(program, *arrays, config=None):
    compiled = tilelang.compile(program, target="simt", pass_configs=config)
    arrays = [np.array(a) for a in arrays]
    compiled(*arrays)
    return arrays[-1]


def memory(program):
    ctx = context(SIMT)
    plan_shared(lower_to(program, SIMT, None, "insert_barriers"), ctx)
    return ctx.memory[0]


def test_320_kibibytes_in_turn():
    n = 16384

    @T.prim_func
    def main(X: T.Tensor((5, n), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128) as _:
            acc = T.alloc_fragment((n,), "float32")
            a, b, c = T.alloc_shared((n,), "float32"), T.alloc_shared((n,), "float32"), T.alloc_shared((n,), "float32")
            d, e = T.alloc_shared((n,), "float32"), T.alloc_shared((n,), "float32")
            T.clear(acc)
            T.copy(X[0, 0], a)
            for i in T.Parallel(n):
                acc[i] += a[n - 1 - i]
            T.copy(X[1, 0], b)
            for i in T.Parallel(n):
                acc[i] += b[n - 1 - i]
            T.copy(X[2, 0], c)
            for i in T.Parallel(n):
                acc[i] += c[n - 1 - i]
            T.copy(X[3, 0], d)
            for i in T.Parallel(n):
                acc[i] += d[n - 1 - i]
            T.copy(X[4, 0], e)
            for i in T.Parallel(n):
                acc[i] += e[n - 1 - i]
            T.copy(acc, Y)

    x = np.random.default_rng(0).integers(-8, 8, (5, n)).astype(np.float32)
    np.testing.assert_array_equal(run(main, x, np.zeros(n, np.float32)), x.sum(0)[::-1])
    assert memory(main).bytes == 65536


def test_tiles_of_one_iteration_share_bytes():
    @T.prim_func
    def main(X: T.Tensor((8, 256), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64) as _:
            a, b = T.alloc_shared((256,), "float32"), T.alloc_shared((256,), "float32")
            acc = T.alloc_fragment((256,), "float32")
            T.clear(acc)
            for k in T.serial(4):
                T.copy(X[2 * k, 0], a)
                for i in T.Parallel(256):
                    acc[i] += a[255 - i]
                T.copy(X[2 * k + 1, 0], b)
                for i in T.Parallel(256):
                    acc[i] -= b[255 - i]
            T.copy(acc, Y)

    x = np.random.default_rng(0).integers(-8, 8, (8, 256)).astype(np.float32)
    expected = (x[0::2].sum(0) - x[1::2].sum(0))[::-1]
    np.testing.assert_array_equal(run(main, x, np.zeros(256, np.float32)), expected)
    assert memory(main).bytes == 1024


def grouped(other):
    """Group 1 sums rows in a pipelined loop; group 0 reverses one, through shared memory, if `other` is set."""

    @T.prim_func
    def main(X: T.Tensor((6, 128), "float32"), Y: T.Tensor((2, 128), "float32")):
        with T.Kernel(1, threads=256) as _:
            s, u = T.alloc_shared((128,), "float32"), T.alloc_shared((128,), "float32")
            acc, one = T.alloc_fragment((128,), "float32"), T.alloc_fragment((128,), "float32")
            with T.ws(1):
                T.clear(acc)
                for k in T.Pipelined(6, num_stages=3):
                    T.copy(X[k, 0], s)
                    for i in T.Parallel(128):
                        acc[i] += s[127 - i]
                T.copy(acc, Y[1, 0])
            if other:
                with T.ws(0):
                    T.copy(X[0, 0], u)
                    for i in T.Parallel(128):
                        one[i] = u[127 - i]
                    T.copy(one, Y[0, 0])

    return main


def test_pipelined_loop_of_a_thread_group():
    x = np.random.default_rng(0).integers(-8, 8, (6, 128)).astype(np.float32)
    found = run(grouped(True), x, np.zeros((2, 128), np.float32))
    np.testing.assert_array_equal(found, np.stack([x[0, ::-1], x.sum(0)[::-1]]))


def test_versions_are_synchronised_when_the_user_does_the_rest():
    x = np.random.default_rng(1).integers(-8, 8, (6, 128)).astype(np.float32)
    found = run(grouped(False), x, np.zeros((2, 128), np.float32), config={"tl.disable_thread_storage_sync": True})
    np.testing.assert_array_equal(found[1], x.sum(0)[::-1])


def test_branch_on_a_value_that_every_thread_has():
    """Registers marked as replicated make a branch uniform although a shuffle computed them."""
    s, c, flag = shared("s", 64), local("c", 1), local("flag", 1)
    y = decl_buffer((64,), "float32", "Y")

    def body(_, t):
        value = make_call("tl.warp_reduce", [load(y, [t[0]])], "float32", kind="max")
        return [
            AllocBuffer(s), AllocBuffer(c), AllocBuffer(flag, {"tl.alloc": {"replicated": True}}), store(flag, value, [0]),
            store(s, load(y, [t[0]]), [t[0]]), IfThenElse(load(flag, [0]) > 0.0, store(c, load(s, [63 - t[0]]), [0]), None),
        ]  # fmt: skip

    func = kernel([y], body, threads=(64,))
    assert outline(insert_barriers(func, PassContext(Target("cuda"))).body) == "flag s if(B c)"

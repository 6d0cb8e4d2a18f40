"""Which serial loops the device compiler unrolls, and how far."""

import pytest

import tilelang.language as T
from tilelang.compiler.compile import compile_stages, context
from tilelang.ir.dialect import UNROLL_FACTOR
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import For, ForKind
from tilelang.target.target import parse_target


def dots(trips=64, width=8, dtype="float16", kind="plain", dynamic=False):
    """Each thread adds up products of its own row of A and of X, which all blocks read."""

    @T.prim_func
    def main(A: T.Tensor((4, 32, trips * width), dtype), X: T.Tensor((trips * width,), dtype), n: T.int32, Y: T.Tensor((4, 32), "float32")):
        with T.Kernel(4, threads=32) as b:
            t = T.get_thread_binding(0)
            a = T.alloc_local((width,), dtype)
            x = T.alloc_local((width,), dtype)
            s = T.alloc_shared((32,), dtype)
            total = T.alloc_local((1,), "float32")
            T.clear(total)
            for k in T.serial(n if dynamic else trips):
                first = k * width
                for v in T.vectorized(width):
                    a[v] = A[b, t, first + v]
                for v in T.vectorized(width):
                    x[v] = X[first + v]
                if kind == "shared":
                    s[t] = a[0]
                    T.sync_threads()
                    total[0] += s[31 - t]
                    T.sync_threads()
                if kind == "stores":
                    Y[b, t] = a[0]
                for v in T.serial(width):
                    total[0] += T.cast(a[v], "float32") * T.cast(x[v], "float32")
            Y[b, t] = total[0]

    return main


def factors(func, target="cuda -arch=sm_90a"):
    *_, (_, lowered) = compile_stages(func, context(parse_target(target), {}), {})
    found = []

    def loop(node: For) -> None:
        if node.kind == ForKind.SERIAL and str(node.loop_var.name) == "k":
            found.append(int((node.annotations or {}).get(UNROLL_FACTOR, 1)))

    walk(lowered.body, {For: loop})
    return found


@pytest.mark.parametrize(
    ("factor", "options"),
    [
        (4, {}),  # four times 16 bytes of A; X is the same for all blocks
        (8, {"width": 1}),
        (2, {"width": 16}),
        (1, {"width": 32}),  # 64 bytes in one iteration
        (2, {"dtype": "float32"}),
        (2, {"trips": 2}),
        (4, {"dynamic": True}),
        (1, {"kind": "shared"}),  # threads wait for each other in between
        (1, {"kind": "stores"}),
    ],
)
def test_how_far(factor, options):
    assert factors(dots(**options)) == [factor]


def test_loops_without_reads_and_tiles():
    @T.prim_func
    def main(X: T.Tensor((8, 4096), "float32"), Y: T.Tensor((8, 128), "float32")):
        with T.Kernel(8, threads=128) as b:
            x = T.alloc_fragment((128,), "float32")
            y = T.alloc_fragment((128,), "float32")
            T.clear(y)
            for k in T.serial(32):
                T.copy(X[b, k * 128], x)
                for i in T.Parallel(128):
                    y[i] += x[i] * x[i]
            for k in T.serial(16):
                for i in T.Parallel(128):
                    y[i] = y[i] * 0.5 + k
            T.copy(y, Y[b, 0])

    assert factors(main) == [8, 1]  # 4 bytes a thread in each iteration: as many as are ever unrolled

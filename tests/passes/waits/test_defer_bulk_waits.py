"""Where the wait for a bulk store ends up, and that nothing changes for the program."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import lower_to
from tilelang.ir.dialect import ATTR_WS, attr, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.tvm_api import AttrStmt, BufferStore, Evaluate, For, IfThenElse, SeqStmt, While
from tilelang.target.target import parse_target

TARGET = "simt -arch=sm_90a"
SHORT = {"tl.sync_threads": "meet", "tl.tma_store": "store", "tl.bulk_wait": "wait", "tl.mbarrier_arrive": "arrive"}


def outline(func):
    """Loops, conditions, parts, and in them meetings, writes of shared memory, stores, waits until they have read, and until they are done
    ("finish")."""
    found = []

    def visit(stmt):
        if isinstance(stmt, SeqStmt):
            return [w for s in stmt.seq for w in visit(s)]
        if isinstance(stmt, For | While):
            inner = visit(stmt.body)
            return inner if set(inner) <= {"write"} else ["loop(", *inner, ")"]
        if isinstance(stmt, AttrStmt):
            inner = visit(stmt.body)
            return ["part(", *inner, ")"] if stmt.attr_key == ATTR_WS else inner
        if isinstance(stmt, IfThenElse):
            inner = [visit(s) for s in (stmt.then_case, stmt.else_case) if s is not None]
            if set(inner[0]) <= {"store", "wait", "finish"}:
                return inner[0]
            return ["if(", *[w for part in inner for w in part], ")"]
        if isinstance(stmt, Evaluate):
            name = SHORT.get(op_name(stmt.value))
            return ["finish" if name == "wait" and not attr(stmt.value, "read", False) else name] if name else []
        return ["write"] if isinstance(stmt, BufferStore) and stmt.buffer.scope().startswith("shared") else []

    map_kernels(lower_to(func, parse_target(TARGET), {}, "defer_bulk_waits").body, lambda k: found.append(visit(k.body)) or k.to_stmt())
    ((words,),) = [found]
    return " ".join(words)


def values(shape):
    return np.random.default_rng(0).integers(0, 50, shape).astype(np.float16)


def same(func, expected, *arrays):
    for seed in range(3):
        got = [a.copy() for a in arrays]
        tilelang.compile(func, target=TARGET, pass_configs={"tl.simt_seed": seed})(*got)
        np.testing.assert_array_equal(got[-1], expected)


@T.prim_func
def rounds(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((16, 64), "float16")
        for k in T.serial(4):
            T.copy(X[k * 16, 0], s)
            T.copy(s, Y[k * 16, 0])


@T.prim_func
def twice(X: T.Tensor((16, 64), "float16"), Y: T.Tensor((16, 64), "float16"), Z: T.Tensor((16, 64), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((16, 64), "float16")
        T.copy(X, s)
        T.copy(s, Y)
        for i, j in T.Parallel(16, 64):
            s[i, j] = s[i, j] + 1
        T.copy(s, Z)


@T.prim_func
def under_a_condition(X: T.Tensor((64, 64), "float16"), n: T.int32, Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((16, 64), "float16")
        for k in T.serial(4):
            T.copy(X[k * 16, 0], s)
            if k < n:
                T.copy(s, Y[k * 16, 0])


@T.prim_func
def left_early(X: T.Tensor((64, 64), "float16"), n: T.int32, Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((16, 64), "float16")
        for k in T.serial(4):
            T.copy(X[k * 16, 0], s)
            if k == n:
                break
            T.copy(s, Y[k * 16, 0])


@T.prim_func
def by_parts(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=256):
        a, b = T.alloc_shared((16, 64), "float16"), T.alloc_shared((16, 64), "float16")
        with T.ws(0):
            for k in T.serial(2):
                T.copy(X[k * 32, 0], a)
                T.copy(a, Y[k * 32, 0])
        with T.ws(1):
            for k in T.serial(2):
                T.copy(X[k * 32 + 16, 0], b)
                T.copy(b, Y[k * 32 + 16, 0])


@T.prim_func
def slot_of_another_part(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((16, 64), "float16")
        full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
        with T.ws(1):
            for k in T.serial(4):
                T.mbarrier_wait_parity(empty, (k + 1) % 2)
                T.tma_copy(X[k * 16 : k * 16 + 16, 0:64], s, barrier=full)
                T.barrier_arrive(full)
        with T.ws(0):
            for k in T.serial(4):
                T.mbarrier_wait_parity(full, k % 2)
                T.copy(s, Y[k * 16, 0])
                T.barrier_arrive(empty)


def again(place):
    """Each round stores at `place(k)`."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, 64), "float16")
            for k in T.serial(4):
                T.copy(X[k * 16, 0], s)
                T.copy(s, Y[place(k), 0])

    return main


@T.prim_func
def two_stores(X: T.Tensor((64, 128), "float16"), Y: T.Tensor((64, 128), "float16")):
    with T.Kernel(1, threads=128):
        s, t = T.alloc_shared((16, 128), "float16"), T.alloc_shared((16, 64), "float16")
        for k in T.serial(4):
            T.copy(X[k * 16, 0], s)
            T.copy(X[k * 16, 64], t)
            T.copy(s, Y[k * 16, 0])
            T.copy(t, Y[k * 16, 64])


@T.prim_func
def halves(X: T.Tensor((64, 128), "float16"), Y: T.Tensor((64, 128), "float16")):
    with T.Kernel(1, threads=128):
        s, t = T.alloc_shared((16, 64), "float16"), T.alloc_shared((16, 64), "float16")
        for k in T.serial(4):
            T.copy(X[k * 16, 0], s)
            T.copy(X[k * 16, 64], t)
            T.copy(s, Y[k * 16, 0])
            T.copy(t, Y[k * 16, 64])


@T.prim_func
def of_two_threads(X: T.Tensor((16, 64), "float16"), Y: T.Tensor((16, 64), "float16")):
    with T.Kernel(1, threads=256):
        a, b = T.alloc_shared((16, 64), "float16"), T.alloc_shared((16, 64), "float16")
        with T.ws(0):
            T.fill(a, 1)
            T.copy(a, Y)
        with T.ws(1):
            T.copy(X, b)
            T.copy(b, Y)


ROUND = "loop( wait meet write meet {}store ) wait"
OUTLINES = [
    (again(lambda k: k * 16), ROUND.format("")),
    (again(lambda k: 48 - k * 16), ROUND.format("")),
    (again(lambda k: 0), ROUND.format("finish ")),
    (again(lambda k: k * 8), ROUND.format("finish ")),
    (again(lambda k: k % 2 * 16), ROUND.format("finish ")),
    (again(lambda k: T.max(k, 1) * 16), ROUND.format("finish ")),
    (halves, "loop( wait meet write write meet store store ) wait"),
    (two_stores, "loop( wait meet write write meet if( loop( store ) ) finish store ) wait"),
    (of_two_threads, "part( write meet store finish ) meet part( write meet store wait )"),
    (rounds, "loop( wait meet write meet store ) wait"),
    (twice, "write meet store wait meet write meet store wait"),
    (under_a_condition, "loop( wait meet write if( meet store ) ) wait"),
    (left_early, "loop( meet write meet store wait )"),
    # whether the parts' rows interleave is not looked at
    (by_parts, "part( loop( finish meet write meet store ) finish ) meet part( loop( wait meet write meet store ) wait )"),
    (slot_of_another_part, "part( loop( arrive ) ) part( loop( store wait arrive ) )"),
]


@pytest.mark.parametrize(("func", "expected"), OUTLINES)
def test_where_waits_stand(func, expected):
    assert outline(func) == expected


def test_results():
    x, zero = values((64, 64)), np.zeros((64, 64), np.float16)
    for func in (rounds, by_parts, slot_of_another_part):
        same(func, x, x, zero)
    for place in (lambda k: 0, lambda k: k * 8, lambda k: k % 2 * 16):
        expected = zero.copy()
        for k in range(4):
            expected[place(k) : place(k) + 16] = x[16 * k : 16 * k + 16]
        same(again(place), expected, x, zero)
    wide = values((64, 128))
    for func in (halves, two_stores):
        same(func, wide, wide, np.zeros_like(wide))
    same(of_two_threads, x[:16], x[:16], zero[:16])
    tile = x[:16]
    same(twice, tile + 1, tile, zero[:16], zero[:16])


@pytest.mark.parametrize("n", [0, 3, 4])
def test_results_with_a_number(n):
    x = values((64, 64))
    for func in (under_a_condition, left_early):
        y, expected = np.zeros_like(x), np.zeros_like(x)
        expected[: 16 * n] = x[: 16 * n]
        tilelang.compile(func, target=TARGET)(x, n, y)
        np.testing.assert_array_equal(y, expected)

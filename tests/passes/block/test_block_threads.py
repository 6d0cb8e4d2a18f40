"""Blocks of threads without threads: each program against a simulation of its threads in NumPy."""

import numpy as np
import pytest

from tilelang.errors import Location, TileValueError
from tilelang.ir.dialect import ATTR_COLLECTIVE, ATTR_REDUCE_SCOPE, ATTR_WS, make_call
from tilelang.ir.kernel import match_kernel
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    Evaluate,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    Var,
    While,
    const,
    decl_buffer,
    load,
    make_span,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.passes.block.block_threads import block_threads
from tilelang.passes.program.guard_bounds import guard_bounds

from ..programs import CPU, kernel, run


def i32(value):
    return const(value, "int32")


def execute(func, *arrays):
    out = block_threads(func, CPU)
    region_ = match_kernel(out.body)
    threads = {var for var, _ in region_.threads}
    mentioned = []
    walk(region_.body, {Var: lambda v: mentioned.append(v) if v in threads else None})
    assert not mentioned
    return run(guard_bounds(out, CPU), *arrays)


def span(line):
    return make_span(Location("user.py", line, 1))


def test_uniform_program_is_unchanged():
    A = decl_buffer((8,), "int32", "A")

    def body(blocks, threads):
        i = Var("i", "int32")
        return [For(i, 0, 8, ForKind.PARALLEL, store(A, i, [i]), annotations={"tl.parallel": 1})]

    func = kernel([A], body, threads=(64,))
    assert match_kernel(block_threads(func, CPU).body).body.same_as(match_kernel(func.body).body)


@pytest.mark.parametrize("threads", [(32,), (96,), (50,), (1,), (8, 4), (3, 5, 2)])
def test_elementwise_with_three_axes(threads):
    n = int(np.prod(threads))
    A, C = decl_buffer((2 * n,), "int32", "A"), decl_buffer((2 * n,), "int32", "C")
    ex, ey = (*threads, 1, 1)[:2]

    def body(blocks, t):
        i = Var("i", "int32")
        return [Bind(i, blocks[0] * n + t[0] + (t[1] + t[2] * ey) * ex), store(C, load(A, [i]) * 2 + t[1], [i])]

    a = np.arange(2 * n, dtype=np.int32)
    _, c = execute(kernel([A, C], body, (2,), threads), a, np.zeros(2 * n, np.int32))
    np.testing.assert_array_equal(c, a * 2 + np.arange(2 * n) % n // ex % ey)


@pytest.mark.parametrize("n", [32, 64, 40])
def test_tree_reduction_between_barriers(n):
    X, Y = decl_buffer((n, 4), "int32", "X"), decl_buffer((1,), "int32", "Y")
    S, mine = decl_buffer((n,), "int32", "S", "shared"), decl_buffer((1,), "int32", "mine", "local")

    def body(blocks, t):
        tx = t[0]
        k, s = Var("k", "int32"), Var("s", "int32")
        sync = Evaluate(make_call("tl.sync_threads", []))
        half = tirx.RShift(i32(64), s)
        add = store(S, load(S, [tx]) + load(S, [tx + half]), [tx])
        return [
            AllocBuffer(S), AllocBuffer(mine), store(mine, i32(0), [0]),
            For(k, 0, 4, ForKind.SERIAL, store(mine, load(mine, [0]) + load(X, [tx, k]), [0])),
            store(S, load(mine, [0]), [tx]), sync,
            For(s, 0, 7, ForKind.SERIAL, seq([IfThenElse(tirx.And(tx < half, tx + half < n), add, None), sync])),
            IfThenElse(tirx.EQ(tx, i32(0)), store(Y, load(S, [0]), [0]), None),
        ]  # fmt: skip

    x = np.random.default_rng(0).integers(-99, 99, (n, 4)).astype(np.int32)
    assert execute(kernel([X, Y], body, threads=(n,)), x, np.zeros(1, np.int32))[1][0] == x.sum()


def test_automatic_barrier_between_write_and_read_of_another_thread():
    Y, S = decl_buffer((64,), "int32", "Y"), decl_buffer((64,), "int32", "S", "shared")

    def body(blocks, t):
        tx, k = t[0], Var("k", "int32")
        inner = seq([store(S, tx * k, [tx]), store(Y, load(Y, [tx]) + load(S, [63 - tx]), [tx])])
        return [AllocBuffer(S), For(k, 0, 3, ForKind.SERIAL, inner)]

    (y,) = execute(kernel([Y], body, threads=(64,)), np.zeros(64, np.int32))
    np.testing.assert_array_equal(y, (63 - np.arange(64)) * 3)


def test_private_elements_stay_in_one_loop_over_threads():
    Y, S = decl_buffer((64,), "int32", "Y"), decl_buffer((64,), "int32", "S", "shared")

    def body(blocks, t):
        return [AllocBuffer(S), store(S, t[0] * 2, [t[0]]), store(Y, load(S, [t[0]]), [t[0]])]

    out = block_threads(kernel([Y], body, threads=(64,)), CPU)
    loops = []
    walk(out.body, {For: loops.append})
    assert len(loops) == 1


def shfl(value, by, mode, width=32):
    by = i32(by) if isinstance(by, int) else by
    return make_call("tl.shfl", [value, by, i32(width), const(0xFFFFFFFF, "uint32")], "int32", mode=mode)


@pytest.mark.parametrize("mode", ["idx", "up", "down", "xor"])
@pytest.mark.parametrize(("n", "by", "width"), [(64, 1, 32), (64, 5, 8), (50, 16, 32), (32, 31, 32), (96, 3, 16)])
def test_shuffles(mode, n, by, width):
    X, Y = decl_buffer((n,), "int32", "X"), decl_buffer((n,), "int32", "Y")
    func = kernel([X, Y], lambda b, t: [store(Y, shfl(load(X, [t[0]]), by, mode, width) + 1, [t[0]])], threads=(n,))
    x = np.random.default_rng(1).integers(0, 10**6, n).astype(np.int32)
    want = []
    for t in range(n):
        lane, inside = t % 32, t % width
        first = lane - inside
        src = {"idx": first + by % width, "up": lane - by, "down": lane + by, "xor": lane ^ by}[mode]
        ok = {"idx": True, "up": inside - by >= 0, "down": inside + by < width, "xor": src < first + width}[mode]
        src += t - lane
        want.append(x[src] + 1 if ok and src < n else x[t] + 1)
    np.testing.assert_array_equal(execute(func, x, np.zeros(n, np.int32))[1], want)


def test_butterfly_sum_in_a_variable():
    X, Y, s = decl_buffer((64,), "int32", "X"), decl_buffer((64,), "int32", "Y"), decl_buffer((1,), "int32", "s", "local.var")

    def body(blocks, t):
        k = Var("k", "int32")
        step = store(s, load(s, [0]) + shfl(load(s, [0]), tirx.LShift(i32(1), k), "xor"), [0])
        return [AllocBuffer(s), store(s, i32(0), [0]), store(s, load(X, [t[0]]), [0]),
                For(k, 0, 5, ForKind.UNROLLED, step), store(Y, load(s, [0]), [t[0]])]  # fmt: skip

    x = np.arange(64, dtype=np.int32) ** 2
    _, y = execute(kernel([X, Y], body, threads=(64,)), x, np.zeros(64, np.int32))
    np.testing.assert_array_equal(y, np.repeat(x.reshape(2, 32).sum(1), 32))


@pytest.mark.parametrize("n", [96, 45])
@pytest.mark.parametrize("kind", ["any", "all", "ballot", "match_any", "match_all"])
def test_votes(kind, n):
    X, Y = decl_buffer((n,), "int32", "X"), decl_buffer((n,), "int64", "Y")

    def body(blocks, t):
        v = load(X, [t[0]])
        operand = v if kind.startswith("match") else tirx.Cast("int32", v > 0)
        return [store(Y, tirx.Cast("int64", make_call("tl.vote", [operand], "uint32", kind=kind)), [t[0]])]

    x = np.random.default_rng(3).integers(-1, 3, n).astype(np.int32)
    x[32:64] = 2
    want = np.zeros(n, np.int64)
    for t in range(n):
        w = x[t // 32 * 32 : t // 32 * 32 + 32]
        bits = lambda m: int((m.astype(np.int64) << np.arange(len(m))).sum())  # noqa: E731
        full = (1 << len(w)) - 1
        want[t] = {"any": int((w > 0).any()), "all": int((w > 0).all()), "ballot": bits(w > 0), "match_any": bits(w == x[t]),
                   "match_all": full if (w == w[0]).all() else 0}[kind]  # fmt: skip
    np.testing.assert_array_equal(execute(kernel([X, Y], body, threads=(n,)), x, np.zeros(n, np.int64))[1], want)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "bitand", "bitor", "bitxor"])
def test_warp_reduce(kind):
    X, Y = decl_buffer((70,), "int32", "X"), decl_buffer((70,), "int32", "Y")
    reduced = lambda t: make_call("tl.warp_reduce", [load(X, [t])], "int32", kind=kind)  # noqa: E731
    func = kernel([X, Y], lambda b, t: [store(Y, reduced(t[0]), [t[0]])], threads=(70,))
    x = np.random.default_rng(3).integers(-100, 100, 70).astype(np.int32)
    fn = {"sum": np.add, "max": np.maximum, "min": np.minimum,
          "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[kind]  # fmt: skip
    want = np.concatenate([np.full(len(w), fn.reduce(w)) for w in (x[:32], x[32:64], x[64:])])
    np.testing.assert_array_equal(execute(func, x, np.zeros(70, np.int32))[1], want)


def test_block_vote_counts_once():
    X, Y = decl_buffer((96,), "int32", "X"), decl_buffer((1,), "int32", "Y")
    count = lambda t: make_call("tl.block_vote", [tirx.Cast("int32", load(X, [t]) > 0)], "int32", kind="count")  # noqa: E731
    func = kernel([X, Y], lambda b, t: [store(Y, count(t[0]), [0])], threads=(96,))
    x = np.random.default_rng(3).integers(-100, 100, 96).astype(np.int32)
    assert execute(func, x, np.zeros(1, np.int32))[1][0] == (x > 0).sum()


@pytest.mark.parametrize("axis", [0, 1])
def test_allreduce_along_one_axis(axis):
    X, Y, out = decl_buffer((4, 32), "float32", "X"), decl_buffer((4, 32), "float32", "Y"), decl_buffer((1,), "float32", "out", "local")

    def body(blocks, t):
        a, b = Var("a", "float32"), Var("b", "float32")
        reducer = tirx.CommReducer([a], [b], [tirx.Add(a, b)], [FloatImm("float32", 0)])
        call = tirx.tvm_thread_allreduce(const(1, "uint32"), load(X, [t[1], t[0]]), const(1, "bool"), load(out, [0]), t[axis])
        return [AllocBuffer(out), AttrStmt(reducer, ATTR_REDUCE_SCOPE, i32(0), Evaluate(call)), store(Y, load(out, [0]), [t[1], t[0]])]

    x = np.random.default_rng(3).integers(-100, 100, (4, 32)).astype(np.float32)
    _, y = execute(kernel([X, Y], body, threads=(32, 4)), x, np.zeros((4, 32), np.float32))
    np.testing.assert_array_equal(y, np.broadcast_to(x.sum(1 - axis, keepdims=True), x.shape))


def test_divergent_loop_with_shuffle_and_break():
    """for k in range(x): if k == 3: break; s += shfl(k * lane, 0); every thread stops on its own."""
    X, Y, s = decl_buffer((64,), "int32", "X"), decl_buffer((64,), "int32", "Y"), decl_buffer((1,), "int32", "s", "local.var")

    def body(blocks, t):
        k = Var("k", "int32")
        inside = seq([
            IfThenElse(tirx.And(tirx.EQ(k, i32(3)), t[0] < 40), Evaluate(tirx.break_loop()), None),
            IfThenElse(tirx.EQ(k, i32(1)), Evaluate(tirx.continue_loop()), None),
            store(s, load(s, [0]) + shfl(k * 10 + t[0] % 32, 31, "idx"), [0]),
        ])  # fmt: skip
        return [AllocBuffer(s), store(s, i32(0), [0]), For(k, 0, load(X, [t[0]]), ForKind.SERIAL, inside), store(Y, load(s, [0]), [t[0]])]

    x = np.random.default_rng(5).integers(0, 7, 64).astype(np.int32)
    s_, alive = np.zeros(64, np.int64), np.ones(64, bool)
    for k in range(7):
        alive &= k < x
        if k == 3:
            alive &= np.arange(64) >= 40
        if k == 1:
            continue
        for w in (0, 32):
            for t in range(w, w + 32):
                if alive[t]:
                    s_[t] += k * 10 + (31 if alive[w + 31] else t % 32)
    np.testing.assert_array_equal(execute(kernel([X, Y], body, threads=(64,)), x, np.zeros(64, np.int32))[1], s_)


def test_divergent_while_with_vote():
    """while v > 0: v -= 1; c += ballot(v > 2)"""
    X, Y = decl_buffer((32,), "int32", "X"), decl_buffer((32,), "int64", "Y")
    v, c = decl_buffer((1,), "int32", "v", "local.var"), decl_buffer((1,), "int64", "c", "local.var")

    def body(blocks, t):
        vote = make_call("tl.vote", [tirx.Cast("int32", load(v, [0]) > 2)], "uint32", kind="ballot")
        return [AllocBuffer(v), AllocBuffer(c), store(c, const(0, "int64"), [0]), store(v, load(X, [t[0]]), [0]),
                While(load(v, [0]) > 0, seq([store(v, load(v, [0]) - 1, [0]), store(c, load(c, [0]) + tirx.Cast("int64", vote), [0])])),
                store(Y, load(c, [0]), [t[0]])]  # fmt: skip

    x = np.random.default_rng(7).integers(0, 9, 32).astype(np.int32)
    now, total = x.astype(np.int64), np.zeros(32, np.int64)
    while (now > 0).any():
        act = now > 0
        now[act] -= 1
        total[act] += int(((act & (now > 2)).astype(np.int64) << np.arange(32)).sum())
    np.testing.assert_array_equal(execute(kernel([X, Y], body, threads=(32,)), x, np.zeros(32, np.int64))[1], total)


def collective(body):
    return AttrStmt(i32(0), ATTR_COLLECTIVE, i32(1), body)


def test_uniform_variable_around_collectives_stays_single():
    """carry += s[3] between tiles, read inside T.Parallel."""
    Y, S = decl_buffer((3, 4), "int32", "Y"), decl_buffer((4,), "int32", "S", "shared")
    carry = decl_buffer((1,), "int32", "carry", "local.var")

    def body(blocks, t):
        k, i, j = (Var(n, "int32") for n in "kij")
        fill = collective(For(i, 0, 4, ForKind.PARALLEL, store(S, i * k, [i])))
        use = For(j, 0, 4, ForKind.PARALLEL, store(Y, load(S, [j]) + load(carry, [0]), [k, j]), annotations={"tl.parallel": 1})
        return [AllocBuffer(S), AllocBuffer(carry), store(carry, i32(0), [0]),
                For(k, 0, 3, ForKind.SERIAL, seq([fill, use, store(carry, load(carry, [0]) + load(S, [3]), [0])])),
                IfThenElse(tirx.EQ(t[0], i32(5)), store(Y, i32(-1), [0, 0]), None)]  # fmt: skip

    (y,) = execute(kernel([Y], body, threads=(64,)), np.zeros((3, 4), np.int32))
    want = np.arange(4) * np.arange(3)[:, None] + np.array([0, 0, 3])[:, None]
    want[0, 0] = -1
    np.testing.assert_array_equal(y, want)


def test_value_of_a_thread_inside_parallel():
    X, Y, v = decl_buffer((32,), "int32", "X"), decl_buffer((32,), "int32", "Y"), decl_buffer((1,), "int32", "v", "local.var")

    def body(blocks, t):
        i = Var("i", "int32")
        return [AllocBuffer(v), store(v, load(X, [t[0]]) * 3, [0]),
                For(i, 0, 32, ForKind.PARALLEL, store(Y, load(v, [0]) + i, [i]), annotations={"tl.parallel": 1})]  # fmt: skip

    x = np.arange(32, dtype=np.int32)
    np.testing.assert_array_equal(execute(kernel([X, Y], body, threads=(32,)), x, np.zeros(32, np.int32))[1], x * 4)
    with pytest.raises(TileValueError, match=r"differs between threads \(v\)"):
        block_threads(kernel([X, Y], body, threads=(64,)), CPU)


def test_collective_under_a_condition_of_threads_is_refused():
    S = decl_buffer((4,), "int32", "S", "shared")

    def body(blocks, t):
        i = Var("i", "int32")
        fill = AttrStmt(i32(0), ATTR_COLLECTIVE, i32(1), For(i, 0, 4, ForKind.PARALLEL, store(S, i, [i])), span(9))
        return [AllocBuffer(S), IfThenElse(t[0] < 3, fill, None, span(8))]

    with pytest.raises(TileValueError, match=r"not all threads(.|\n)*user.py:9(.|\n)*user.py:8"):
        block_threads(kernel([], body, threads=(64,)), CPU)


def test_warp_specialised_groups():
    Y, S = decl_buffer((256,), "int32", "Y"), decl_buffer((4,), "int32", "S", "shared")

    def body(blocks, t):
        i = Var("i", "int32")
        fill = collective(For(i, 0, 4, ForKind.PARALLEL, store(S, i + 1, [i])))
        return [AllocBuffer(S), AttrStmt([i32(1)], ATTR_WS, i32(0), seq([fill, store(Y, load(S, [t[0] % 4]), [t[0]])]))]

    (y,) = execute(kernel([Y], body, threads=(256,)), np.zeros(256, np.int32))
    np.testing.assert_array_equal(y, np.where(np.arange(256) >= 128, np.arange(256) % 4 + 1, 0))


def test_bindings_cross_barriers():
    """x = X[tx]; y = x + tx; sync; Y[tx] = x + y"""
    X, Y = decl_buffer((40,), "int32", "X"), decl_buffer((40,), "int32", "Y")

    def body(blocks, t):
        x, y, z = (Var(n, "int32") for n in "xyz")
        return [Bind(x, load(X, [t[0]])), Bind(y, x + t[0]), Bind(z, t[0] * 7), Evaluate(make_call("tl.sync_threads", [])),
                store(Y, x + y + z, [t[0]])]  # fmt: skip

    x = np.arange(40, dtype=np.int32) ** 2
    np.testing.assert_array_equal(execute(kernel([X, Y], body, threads=(40,)), x, np.zeros(40, np.int32))[1], 2 * x + np.arange(40) * 8)


def test_uniform_counter_inside_a_threads_loop():
    Y, a, n = decl_buffer((33,), "int32", "Y"), decl_buffer((1,), "int32", "a", "local.var"), decl_buffer((1,), "int32", "n", "local.var")

    def body(blocks, t):
        k = Var("k", "int32")
        step = seq([store(a, load(a, [0]) + t[0], [0]), store(n, load(n, [0]) + 1, [0])])
        return [AllocBuffer(a), AllocBuffer(n), store(a, i32(0), [0]), store(n, i32(0), [0]), For(k, 0, 5, ForKind.SERIAL, step),
                store(Y, load(a, [0]) * 100 + load(n, [0]), [t[0]])]  # fmt: skip

    np.testing.assert_array_equal(execute(kernel([Y], body, threads=(33,)), np.zeros(33, np.int32))[0], np.arange(33) * 500 + 5)


def test_every_thread_executes_an_atomic():
    A = decl_buffer((1,), "int32", "A")
    func = kernel([A], lambda b, t: [Evaluate(make_call("tl.atomic", [region(A, [0], [1]), i32(1)], "int32", kind="add"))], threads=(37,))
    out = block_threads(func, CPU)
    loops = []
    walk(out.body, {For: lambda n: loops.append(int(n.extent))})
    assert loops == [37]

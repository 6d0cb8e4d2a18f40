"""Barriers on hand-built programs of one thread: where they stand and how many."""

from __future__ import annotations

from tests.passes.programs import kernel
from tilelang.ir.context import PassContext
from tilelang.ir.dialect import make_call, op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import (
    AllocBuffer,
    AttrStmt,
    Bind,
    Call,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    Var,
    While,
    decl_buffer,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.passes.barriers.insert_barriers import insert_barriers
from tilelang.target.target import Target

THREADS = 64


def shared(name, *shape, dtype="float32"):
    return decl_buffer(shape, dtype, name, "shared.dyn")


def local(name, *shape):
    return decl_buffer(shape, "float32", name, "local")


def loop(name, extent, make, kind=ForKind.SERIAL):
    var = Var(name, "int32")
    return For(var, 0, extent, kind, seq(make(var)))


def sync(*args):
    return Evaluate(make_call("tl.sync_threads", list(args)))


def outline(stmt):
    """The shape of a program: names of stored buffers, B for a barrier, loops and branches in brackets."""
    if isinstance(stmt, AttrStmt):
        return outline(stmt.body) if stmt.attr_key != "tl.ws" else f"ws({outline(stmt.body)})"
    if hasattr(stmt, "seq"):
        return " ".join(t for t in map(outline, stmt.seq) if t)
    if isinstance(stmt, For):
        return f"for({outline(stmt.body)})"
    if hasattr(stmt, "then_case"):
        other = f" else {outline(stmt.else_case)}" if stmt.else_case is not None else ""
        return f"if({outline(stmt.then_case)}{other})"
    if isinstance(stmt, Evaluate):
        name = op_name(stmt.value)
        if name == "tl.sync_threads":
            return "B" + ",".join(str(a) for a in stmt.value.args)
        return name.rpartition(".")[2]
    if hasattr(stmt, "condition"):
        return f"while({outline(stmt.body)})"
    return stmt.buffer.name if hasattr(stmt, "value") and hasattr(stmt, "buffer") else ""


def run(params, make, threads=(THREADS,), config=None, blocks=(2,)):
    func = kernel(params, make, blocks=blocks, threads=threads)
    result = insert_barriers(func, PassContext(Target("cuda"), config or {}))
    assert count(insert_barriers(result, PassContext(Target("cuda")))) == count(result), "barriers are found sufficient"
    return outline(result.body)


def count(func):
    found = []
    walk(func.body, {Call: lambda c: found.append(c) if op_name(c) == "tl.sync_threads" else None})
    return len(found)


Y = decl_buffer((1024,), "float32", "Y")


def test_read_of_another_threads_element_needs_a_barrier():
    s = shared("s", 64)

    def body(_, t):
        return [AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]), store(Y, load(s, [63 - t[0]]), [t[0]])]

    assert run([Y], body) == "s B Y"


def test_own_element_needs_none():
    s = shared("s", 8, 64)

    def body(_, t):
        return [
            AllocBuffer(s),
            loop("r", 8, lambda r: [store(s, load(Y, [r * 64 + t[0]]), [r, t[0]])]),
            loop("q", 8, lambda q: [store(Y, load(s, [q, t[0]]), [q * 64 + t[0]])]),
        ]

    assert run([Y], body) == "for(s) for(Y)"


def test_divided_indices_of_the_same_thread_need_none():
    s = shared("s", 8, 64)

    def body(_, t):
        def at(r):
            return [(r * 64 + t[0]) // 64, (r * 64 + t[0]) % 64]

        return [
            AllocBuffer(s),
            loop("r", 8, lambda r: [store(s, load(Y, [r * 64 + t[0]]), at(r))]),
            loop("q", 8, lambda q: [store(Y, load(s, at(q)), [q * 64 + t[0]])]),
        ]

    assert run([Y], body) == "for(s) for(Y)"


def test_loop_of_tiles_has_two_barriers():
    a, c = shared("a", 64, 8), local("c", 8)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(c),
            loop("k", 16, lambda k: [
                loop("r", 8, lambda r: [store(a, load(Y, [k * 64 + t[0]]), [t[0], r])]),
                loop("j", 64, lambda j: [store(c, load(c, [0]) + load(a, [j, 0]), [0])]),
            ]),
        ]  # fmt: skip

    assert run([Y], body) == "for(B for(a) B for(c))"


def test_two_versions_save_the_second_barrier():
    a, c = shared("a", 2, 64), local("c", 8)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(c),
            loop("k", 16, lambda k: [
                store(a, load(Y, [k * 64 + t[0]]), [k % 2, t[0]]),
                store(c, load(a, [k % 2, 63 - t[0]]), [0]),
            ]),
        ]  # fmt: skip

    assert run([Y], body) == "for(a B c)"


def test_dynamic_trip_count_with_versions():
    a, c, n = shared("a", 3, 64), local("c", 8), Var("n", "int32")

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(c),
            loop("k", n, lambda k: [store(a, load(Y, [t[0]]), [k % 3, t[0]]), store(c, load(a, [k % 3, 63 - t[0]]), [0])]),
        ]  # fmt: skip

    assert run([Y, n], body) == "for(a B c)"


def test_tree_reduction_with_the_users_barriers_gets_none():
    s = shared("s", 64)

    def body(_, t):
        return [
            AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]), sync(),
            loop("k", 6, lambda k: [
                IfThenElse(t[0] < (32 >> k), store(s, load(s, [t[0]]) + load(s, [t[0] + (32 >> k)]), [t[0]]), None), sync(),
            ]),
            store(Y, load(s, [0]), [t[0]]),
        ]  # fmt: skip

    assert run([Y], body) == "s B for(if(s) B) Y"


def test_tree_reduction_without_them_gets_one_a_step():
    s = shared("s", 64)

    def body(_, t):
        return [
            AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]),
            loop("k", 6, lambda k: [
                IfThenElse(t[0] < (32 >> k), store(s, load(s, [t[0]]) + load(s, [t[0] + (32 >> k)]), [t[0]]), None),
            ]),
            store(Y, load(s, [0]), [t[0]]),
        ]  # fmt: skip

    assert run([Y], body) == "s for(B if(s)) B Y"


def test_barrier_stands_before_a_divergent_branch():
    s = shared("s", 64)

    def body(_, t):
        return [AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]), IfThenElse(t[0] < 3, store(Y, load(s, [63 - t[0]]), [t[0]]), None)]

    assert run([Y], body) == "s B if(Y)"


def test_barrier_stands_inside_a_uniform_branch():
    s = shared("s", 64)

    def body(b, t):
        return [AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]), IfThenElse(b[0] < 1, store(Y, load(s, [63 - t[0]]), [t[0]]), None)]

    assert run([Y], body) == "s if(B Y)"


def test_branch_on_shared_memory_is_read_before_it_changes():
    s, c = shared("s", 1), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(s), AllocBuffer(c), IfThenElse(t[0] == 0, store(s, load(Y, [0]), [0]), None),
            IfThenElse(load(s, [0]) > 0.0, store(c, load(Y, [1]), [0]), None),
            IfThenElse(t[0] == 5, store(s, load(Y, [3]), [0]), None),
        ]  # fmt: skip

    assert run([Y], body) == "if(s) B if(c) B if(s)"


def test_global_memory_of_the_block():
    def body(_, t):
        return [store(Y, load(Y, [t[0] + 64]), [t[0]]), store(Y, load(Y, [63 - t[0]]), [t[0] + 128])]

    assert run([Y], body) == "Y B Y"


def test_atomics_do_not_conflict_with_atomics():
    s = shared("s", 4)

    def add(t):
        return Evaluate(make_call("tl.atomic", [region(s, [t % 4], [1]), load(Y, [t])], kind="add"))

    def body(_, t):
        return [AllocBuffer(s), add(t[0]), add(t[0] + 1), store(Y, load(s, [0]), [t[0]])]

    assert run([Y], body) == "atomic atomic B Y"


def test_asynchronous_copies_count_from_the_wait():
    a, c = shared("a", 3, 64, 4), local("c", 1)

    def copy(k, t):
        return Evaluate(make_call("tl.cp_async", [region(a, [k % 3, t, 0], [1, 1, 4]), region(Y, [k * 4], [4])]))

    def commit():
        return Evaluate(make_call("tl.cp_async_commit", []))

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(c), copy(0, t[0]), commit(), copy(1, t[0]), commit(),
            loop("k", 16, lambda k: [
                Evaluate(make_call("tl.cp_async_wait", [1])), store(c, load(a, [k % 3, 63 - t[0], 0]), [0]), copy(k + 2, t[0]), commit(),
            ]),
        ]  # fmt: skip

    expected = "cp_async cp_async_commit cp_async cp_async_commit for(cp_async_wait B c cp_async cp_async_commit)"
    assert run([Y], body) == expected


def test_warp_specialised_groups():
    s, u, c = shared("s", 128), shared("u", 128), local("c", 1)
    bar = decl_buffer((1,), "uint64", "bar", "shared.barrier")

    def ws(group, *stmts):
        return AttrStmt([group], "tl.ws", 0, seq(stmts))

    def arrive():
        return Evaluate(make_call("tl.mbarrier_arrive", [region(bar, [0], [1])]))

    def body(_, t):
        return [
            AllocBuffer(s), AllocBuffer(u), AllocBuffer(c), AllocBuffer(bar),
            ws(1, store(s, load(Y, [t[0]]), [t[0] - 128]), store(c, load(s, [255 - t[0]]), [0]), arrive()),
            ws(0, Evaluate(make_call("tl.mbarrier_wait", [region(bar, [0], [1]), 0])), store(c, load(s, [127 - t[0]]), [0]),
               store(u, load(Y, [0]), [t[0]])),
            store(Y, load(u, [t[0] // 2]), [t[0]]),
        ]  # fmt: skip

    assert run([Y], body, threads=(256,)) == "ws(s B1,128 c mbarrier_arrive) ws(mbarrier_wait c u) B Y"


def test_groups_without_mbarriers_meet_at_the_blocks_barrier():
    s, c = shared("s", 128), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(s), AllocBuffer(c), AttrStmt([1], "tl.ws", 0, store(s, load(Y, [t[0]]), [t[0] - 128])),
            AttrStmt([0], "tl.ws", 0, store(c, load(s, [t[0]]), [0])),
        ]  # fmt: skip

    assert run([Y], body, threads=(256,)) == "ws(s) B ws(c)"


def test_config_leaves_barriers_to_the_user():
    s = shared("s", 64)

    def body(_, t):
        return [AllocBuffer(s), store(s, load(Y, [t[0]]), [t[0]]), store(Y, load(s, [63 - t[0]]), [t[0]])]

    func = kernel([Y], body, threads=(THREADS,))
    assert count(insert_barriers(func, PassContext(Target("cuda"), {"tl.disable_thread_storage_sync": True}))) == 0


def test_while_with_a_condition_in_shared_memory():
    s = shared("s", 1)

    def body(_, t):
        return [
            AllocBuffer(s), IfThenElse(t[0] == 0, store(s, load(Y, [0]), [0]), None),
            While(load(s, [0]) > 0.0, IfThenElse(t[0] == 3, store(s, load(s, [0]) - 1.0, [0]), None)),
        ]  # fmt: skip

    assert run([Y], body) == "if(s) B while(B if(s) B)"


def test_conflict_of_an_outer_loop_stays_out_of_inner_loops():
    s, c = shared("s", 64), local("c", 64)

    def body(_, t):
        return [
            AllocBuffer(s), AllocBuffer(c),
            loop("k", 4, lambda k: [
                store(s, load(Y, [t[0] + k]), [t[0]]),
                loop("m", 5, lambda m: [loop("j", 64, lambda j: [store(c, load(s, [j]) * (m + 1), [j])])]),
            ]),
        ]  # fmt: skip

    assert run([Y], body) == "for(B s B for(for(c)))"


def test_continue_joins_the_next_iteration():
    s, c = shared("s", 64), local("c", 1)

    def body(b, t):
        return [
            AllocBuffer(s), AllocBuffer(c),
            loop("k", 4, lambda k: [
                store(s, load(Y, [t[0] + k]), [t[0]]),
                IfThenElse(b[0] + k < 3, Evaluate(tirx.continue_loop()), None),
                store(c, load(s, [63 - t[0]]), [0]),
            ]),
        ]  # fmt: skip

    assert run([Y], body) == "for(B s if(continue_loop) B c)"


def test_a_narrow_unsigned_name_in_a_loop():
    """All 256 values of the name are possible: their number does not fit into its type."""
    s, u = shared("s", 64), decl_buffer((64,), "uint8", "U")

    def body(_, t):
        def turn(r):
            v = Var("v", "uint8")
            return [Bind(v, load(u, [r])), store(s, load(Y, [t[0]]), [t[0]]), store(Y, load(s, [63 - t[0]]), [tirx.Cast("int32", v)])]

        return [AllocBuffer(s), loop("r", 4, turn)]

    assert run([Y, u], body).count("B") == 2

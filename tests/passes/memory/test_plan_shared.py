"""The plan of shared memory: who shares bytes, with which barriers, and what is refused."""

from __future__ import annotations

import pytest

from tests.passes.barriers.test_insert_barriers import count, local, loop, outline, shared, sync
from tests.passes.programs import kernel
from tilelang.errors import InternalError, TileValueError
from tilelang.ir.context import PassContext
from tilelang.ir.dialect import make_call
from tilelang.ir.kernel import match_kernel
from tilelang.ir.tvm_api import AllocBuffer, AttrStmt, Evaluate, IfThenElse, decl_buffer, load, region, seq, store
from tilelang.passes.barriers.insert_barriers import insert_barriers
from tilelang.passes.memory.check_plan import check_plan
from tilelang.passes.memory.plan_shared import plan_shared
from tilelang.target.target import parse_target

Y = decl_buffer((1 << 20,), "float32", "Y")


def run(make, threads=(64,), target="cuda", config=None):
    ctx = PassContext(parse_target(target), config or {})
    func = insert_barriers(kernel([Y], make, threads=threads), ctx)
    result = plan_shared(func, ctx)
    return result, ctx.memory[0]


def offsets(plan):
    return {b.name: b.offset for b in plan.buffers}


def fill(buffer, t, n=64):
    """All elements of a (m, 64) buffer."""
    return loop("r", int(buffer.ty.shape[0]), lambda r: [store(buffer, load(Y, [r * n + t]), [r, t])])


def use(buffer, c, t):
    return loop("j", 64, lambda j: [store(c, load(c, [0]) + load(buffer, [0, 63 - j]), [0])])


def in_turn(names, rows=1):
    buffers = [shared(n, rows, 64) for n in names]
    c = local("c", 1)

    def body(_, t):
        stmts = [*map(AllocBuffer, buffers), AllocBuffer(c)]
        for b in buffers:
            stmts += [fill(b, t[0]), use(b, c, t[0])]
        return stmts

    return body


def test_buffers_used_in_turn_share_bytes_behind_a_barrier():
    result, plan = run(in_turn("ab"))
    assert offsets(plan) == {"a": 0, "b": 0} and plan.bytes == 256
    assert outline(result.body) == "for(a) B for(c) B for(b) B for(c)"
    assert plan.buffers[0].sharers == ("b",)


def test_a_word_for_each_warp_is_not_worth_a_barrier():
    a, b, c = shared("a", 32), shared("b", 32), local("c", 1)

    def body(_, t):
        stores = [store(x, load(Y, [t[0] % 32]), [t[0] % 32]) for x in (a, b)]
        reads = [store(c, load(x, [t[0] % 32 ^ 1]), [0]) for x in (a, b)]
        return [AllocBuffer(a), AllocBuffer(b), AllocBuffer(c), stores[0], sync(), reads[0], stores[1], sync(), reads[1]]

    result, plan = run(body)
    assert plan.bytes == 256 and count(result) == 2


def test_three_hundred_kibibytes_in_turn_fit():
    _, plan = run(in_turn("abcde", rows=256))
    assert sum(b.bytes for b in plan.buffers) == 320 * 1024 and plan.bytes == 64 * 1024


def test_a_barrier_of_the_program_is_enough():
    a, b, c = shared("a", 64), shared("b", 64), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b), AllocBuffer(c), store(a, load(Y, [t[0]]), [t[0]]), store(c, load(a, [t[0]]), [0]), sync(),
            store(b, load(Y, [t[0]]), [t[0]]), store(c, load(b, [t[0]]), [0]),
        ]  # fmt: skip

    result, plan = run(body)
    assert plan.bytes == 256 and count(result) == 1


def test_reader_and_writer_in_one_statement_stay_apart():
    a, b = shared("a", 64), shared("b", 64)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b), store(a, load(Y, [t[0]]), [t[0]]),
            store(b, load(a, [63 - t[0]]) * 2.0, [t[0]]), store(Y, load(b, [t[0]]), [t[0]]),
        ]  # fmt: skip

    _, plan = run(body)
    assert sorted(offsets(plan).values()) == [0, 256]


def test_value_carried_by_a_loop_keeps_its_bytes():
    a, b, c = shared("a", 1, 64), shared("b", 1, 64), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b), AllocBuffer(c), fill(a, t[0]),
            loop("k", 4, lambda k: [use(a, c, t[0]), fill(b, t[0]), use(b, c, t[0])]),
        ]  # fmt: skip

    _, plan = run(body)
    assert sorted(offsets(plan).values()) == [0, 256]


def test_buffers_of_single_iterations_share_bytes():
    a, b, c = shared("a", 1, 64), shared("b", 1, 64), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b), AllocBuffer(c),
            loop("k", 4, lambda k: [fill(a, t[0]), use(a, c, t[0]), fill(b, t[0]), use(b, c, t[0])]),
        ]  # fmt: skip

    result, plan = run(body)
    assert plan.bytes == 256
    assert outline(result.body) == "for(B for(a) B for(c) B for(b) B for(c))"


def test_partial_write_in_an_iteration_keeps_the_value():
    a, b, c = shared("a", 1, 64), shared("b", 1, 64), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b), AllocBuffer(c),
            loop("k", 4, lambda k: [
                IfThenElse(t[0] < 8, store(a, load(Y, [t[0]]), [0, t[0]]), None), use(a, c, t[0]), fill(b, t[0]), use(b, c, t[0]),
            ]),
        ]  # fmt: skip

    _, plan = run(body)
    assert plan.bytes == 512


def test_groups_that_meet_at_mbarriers_do_not_share():
    a, b, c = shared("a", 128), shared("b", 128), local("c", 1)
    bar = decl_buffer((1,), "uint64", "bar", "shared.barrier")

    def body(_, t):
        def meet():
            return Evaluate(make_call("tl.mbarrier_arrive", [region(bar, [0], [1])]))

        return [
            AllocBuffer(a), AllocBuffer(b), AllocBuffer(c), AllocBuffer(bar),
            AttrStmt([0], "tl.ws", 0, seq([meet(), store(a, load(Y, [t[0]]), [t[0]]), store(c, load(a, [t[0]]), [0])])),
            AttrStmt([1], "tl.ws", 0, seq([meet(), store(b, load(Y, [t[0]]), [t[0] - 128]), store(c, load(b, [t[0] - 128]), [0])])),
        ]  # fmt: skip

    result, plan = run(body, threads=(256,))
    assert count(result) == 0
    assert sorted(offsets(plan).values()) == [0, 512, 1024] and plan.bytes == 1032


def test_what_a_group_fills_for_another_is_there_from_the_beginning():
    """The first group is done with `own` before it touches `filled`, which the second one may fill much earlier."""
    own, filled, c = shared("own", 128), shared("filled", 128), local("c", 1)
    bar = decl_buffer((1,), "uint64", "bar", "shared.barrier")

    def body(_, t):
        def meet():
            return Evaluate(make_call("tl.mbarrier_arrive", [region(bar, [0], [1])]))

        first = [meet(), store(own, load(Y, [t[0]]), [t[0]]), store(c, load(own, [t[0]]), [0]), meet(), store(c, load(filled, [t[0]]), [0])]
        second = [store(filled, load(Y, [t[0]]), [t[0] - 128]), meet()]
        return [
            AllocBuffer(own), AllocBuffer(filled), AllocBuffer(c), AllocBuffer(bar),
            AttrStmt([0], "tl.ws", 0, seq(first)), AttrStmt([1], "tl.ws", 0, seq(second)),
        ]  # fmt: skip

    _, plan = run(body, threads=(256,))
    assert sorted(offsets(plan).values()) == [0, 512, 1024]


def test_divergent_uses_get_their_barrier_outside():
    a, b, c = shared("a", 64), shared("b", 64), local("c", 1)

    def body(_, t):
        def one(s):
            return seq([store(s, load(Y, [t[0]]), [t[0]]), store(c, load(s, [t[0]]), [0])])

        return [AllocBuffer(a), AllocBuffer(b), AllocBuffer(c), IfThenElse(t[0] < 5, seq([one(a), one(b)]), None), one(b)]

    _, plan = run(body)
    assert plan.bytes == 512  # inside the branch no barrier can stand


def test_over_the_budget_names_buffers_and_numbers():
    a, b = shared("keys", 1024, 64), shared("vals", 1, 64)

    def body(_, t):
        return [AllocBuffer(a), AllocBuffer(b), fill(a, t[0]), fill(b, t[0]), store(Y, load(a, [0, 0]) + load(b, [0, 0]), [t[0]])]

    with pytest.raises(TileValueError) as error:
        run(body)
    for part in ("262400 bytes (keys 262144 + vals 256)", "232448 on sm_90", "29952 bytes too many",
                 "keys of (512, 64) instead of (1024, 64) (131328 bytes)"):  # fmt: skip
        assert part in str(error.value)
    with pytest.raises(TileValueError, match="166912"):
        run(in_turn("a", rows=700), target="cuda -arch=sm_80")


def test_exactly_the_budget_is_allowed():
    _, plan = run(in_turn("a", rows=908))
    assert plan.bytes == 232448 == plan.limit


def test_alignment_on_request_and_reuse_off():
    a, b, c = shared("a", 3), shared("b", 64), local("c", 1)

    def body(_, t):
        return [
            AllocBuffer(a), AllocBuffer(b, {"tl.alloc": {"alignment": 1024, "alignment_reason": "128-byte swizzle"}}), AllocBuffer(c),
            store(a, load(Y, [0]), [0]), store(b, load(a, [0]), [t[0]]), store(c, load(b, [1]), [0]),
        ]  # fmt: skip

    _, plan = run(body)
    found = {x.name: x for x in plan.buffers}
    assert found["b"].offset % 1024 == 0 and found["b"].reason == "128-byte swizzle" and found["a"].alignment == 16
    _, plan = run(in_turn("ab"), config={"tl.disable_shared_memory_reuse": True})
    assert plan.bytes == 512


@pytest.mark.parametrize("facts", [{"offset": 8, "bytes": 256, "alignment": 16}, {"offset": 0, "bytes": 255, "alignment": 16}])
def test_checker_refuses_a_wrong_place(facts):
    a = shared("a", 64)
    launch = match_kernel(kernel([Y], lambda _, t: [AllocBuffer(a, {"tl.alloc": facts}), store(a, 0.0, [t[0]])], threads=(64,)).body)
    with pytest.raises(InternalError, match=r"a at .* bytes for 2048 bits"):
        check_plan(launch, {})


def test_checker_refuses_an_overlap():
    a, b = shared("a", 64), shared("b", 64)

    def body(_, t):
        facts = {"tl.alloc": {"offset": 0, "bytes": 256, "alignment": 16}}
        return [
            AllocBuffer(a, facts), AllocBuffer(b, facts), store(a, load(Y, [t[0]]), [t[0]]), store(b, load(Y, [t[0]]), [t[0]]),
            store(Y, load(a, [t[0]]), [t[0]]),
        ]  # fmt: skip

    launch = match_kernel(kernel([Y], body, threads=(64,)).body)
    with pytest.raises(InternalError, match=r"a at .* and b"):
        check_plan(launch, {})

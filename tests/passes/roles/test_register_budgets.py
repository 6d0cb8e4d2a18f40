"""T.set_max_nreg in thread groups: which numbers become real, and why others do not."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import KERNEL_MIN_BLOCKS, REGISTER_BUDGET, attr, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.passes.roles.register_budgets import SUBJECT, launched, register_budgets
from tilelang.target.target import parse_target


def roles(threads, *asked, within=False):
    """A region for each of the groups: (groups, registers, are they more?)."""

    @T.prim_func
    def main(X: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            t = T.get_thread_binding()
            for groups, count, more in asked:
                if within:
                    if X[0] > 0:
                        with T.ws(*groups):
                            T.set_max_nreg(count, more)
                            X[t] = 1
                else:
                    with T.ws(*groups):
                        T.set_max_nreg(count, more)
                        X[t] = 1

    return main


def looked_at(program, target="simt -arch=sm_90a"):
    """(budgets, blocks to a multiprocessor, note)"""
    ctx = context(parse_target(target), {})
    budgets, blocks = [], []

    def budget(call):
        if op_name(call) == "tl.hint" and attr(call, "what") == REGISTER_BUDGET:
            budgets.append((int(call.args[0]), int(call.args[1])))

    def kernel(region):
        blocks.append(region.annotations.get(KERNEL_MIN_BLOCKS))
        walk(region.body, {Call: budget})
        return region.to_stmt()

    map_kernels(register_budgets(program, ctx).body, kernel)
    return budgets, blocks[0], [n.text for n in ctx.notes if n.subject == SUBJECT]


def test_three_roles():
    budgets, blocks, notes = looked_at(roles(512, ((0,), 24, 0), ((1,), 168, 1), ((2, 3), 160, 1)))
    assert budgets == [(24, 0), (168, 1), (160, 1)]
    assert blocks == 1 and notes == []


@pytest.mark.parametrize(("threads", "registers"), [(128, 240), (256, 240), (384, 168), (512, 128), (1024, 64)])
def test_what_a_launch_gives(threads, registers):
    assert launched(threads) == registers


@pytest.mark.parametrize(("asked", "reason"), [
    ([((0,), 24, 0), ((1, 2), 248, 1)], "248 is no multiple of 8 from 24 to 240"),
    ([((0,), 30, 0)], "30 is no multiple of 8 from 24 to 240"),
    ([((0,), 40, 0), ((1, 2), 240, 1)], "520 are more than the 504 of the launch"),
    ([((0,), 240, 1)], "576 are more than the 504 of the launch"),  # the others keep theirs
    ([((0,), 240, 0)], "240 is more than the 168 of the launch"),
    ([((0,), 24, 1)], "24 is less than the 168 of the launch"),
    ([((0,), 24, 0), ((0, 1), 24, 0)], "warpgroup 0 asks twice"),
])  # fmt: skip
def test_what_the_hardware_would_wait_for_or_refuse(asked, reason):
    budgets, blocks, notes = looked_at(roles(384, *asked))
    assert budgets == [] and blocks is None
    assert notes == [f"as the launch gives them: {reason}"]


def test_in_a_branch_it_is_a_hint():
    budgets, _, notes = looked_at(roles(384, ((0,), 24, 0), within=True))
    assert budgets == [] and notes[0].startswith("as the launch gives them: they are asked for outside of a T.ws region")


def test_elsewhere_it_is_a_hint():
    assert looked_at(roles(384, ((0,), 24, 0)), "simt -arch=sm_90") == ([], None, [])


def test_it_reaches_the_final_program():
    final = lower_to(roles(384, ((0,), 24, 0), ((1, 2), 240, 1)), parse_target("simt -arch=sm_90a"), {}, "relax_waits")
    found = []
    walk(final.body, {Call: lambda c: found.append(int(c.args[0])) if op_name(c) == "tl.hint" else None})
    assert found == [24, 240]

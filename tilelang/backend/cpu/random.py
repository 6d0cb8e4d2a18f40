"""Random numbers of each thread: Philox 4x32-10, counter based, with the numbering that GPU libraries use.

In: a LOOPS program with thread variables and `tl.random` calls. Out: the same with three variables per thread (seed,
sequence, how many numbers were drawn) and arithmetic. The n-th number is word n % 4 of Philox(counter (n / 4, sequence), key
seed), so that it depends on nothing but seed, sequence and n.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.dialect import VAR, attr, op_name
from ...ir.kernel import KernelRegion
from ...ir.rewrite import Descend, rewrite, walk
from ...ir.tvm_api import AllocBuffer, Bind, BufferStore, Call, Evaluate, Expr, Stmt, const, decl_buffer, load, seq, store, tirx
from .expressions import named

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def lower_random(kernel: KernelRegion) -> KernelRegion:
    """The kernel region with its `tl.random` calls lowered; itself if it has none."""
    found: list[Call] = []
    walk(kernel.body, {Call: lambda call: found.append(call) if op_name(call) == "tl.random" else None})
    if not found:
        return kernel
    state = _State(kernel)
    body = rewrite(kernel.body, {(Evaluate, BufferStore, Bind): state.statement})
    cells = [state.seed, state.sequence, state.drawn]
    start: list[Stmt] = []
    for cell in cells:
        start += [AllocBuffer(cell), store(cell, const(0, "uint64"), [0])]
    return kernel.with_body(seq([*start, body]))


class _State:
    """The variables of a thread's generator."""

    def __init__(self, kernel: KernelRegion) -> None:
        self.kernel = kernel
        self.seed, self.sequence, self.drawn = (decl_buffer((1,), "uint64", f"rng_{n}", VAR) for n in ("seed", "sequence", "drawn"))

    def statement(self, node: Any, descend: Descend) -> Stmt:
        """The statement with its draws as values, and after it the count of what it drew."""
        if isinstance(node, Evaluate) and op_name(node.value) == "tl.random" and str(attr(node.value, "what")) == "init":
            return self.start(node.value)
        drawn = 0

        def draw(call: Call, inner: Descend) -> Any:
            nonlocal drawn
            if op_name(call) != "tl.random":
                return inner.children(call)
            what = str(attr(call, "what"))
            value = self.number(drawn) if what == "uint32" else self.real(what, drawn, str(call.ty.dtype))
            drawn += 2 if what == "normal" else 1
            return value

        stmt = rewrite(node, {Call: draw})
        if not drawn:
            return node
        return seq([stmt, store(self.drawn, load(self.drawn, [0]) + const(drawn, "uint64"), [0])])

    def start(self, call: Call) -> Stmt:
        seed, offset, *given = call.args
        sequence = given[0] if given else tirx.Cast("uint64", self.global_thread())
        return seq([store(self.seed, seed, [0]), store(self.sequence, sequence, [0]), store(self.drawn, offset, [0])])

    def global_thread(self) -> Expr:
        """Linear index of the thread in the grid."""
        index: Expr = const(0, "int32")
        for var, extent in reversed((*self.kernel.threads, *self.kernel.blocks)):
            index = index * (const(extent, "int32") if isinstance(extent, int) else tirx.Cast("int32", extent)) + tirx.Cast("int32", var)
        return index

    def number(self, skip: int) -> Expr:
        """uint32: the number `skip` places after the ones drawn so far."""
        n = load(self.drawn, [0]) + const(skip, "uint64")
        counter = n >> const(2, "uint64")
        words = [_low(counter), _high(counter), _low(load(self.sequence, [0])), _high(load(self.sequence, [0]))]
        key = [_low(load(self.seed, [0])), _high(load(self.seed, [0]))]
        word = _low(n & const(3, "uint64"))

        def choose(out: list[Expr]) -> Expr:
            one, two, three = (const(k, "uint32") for k in (0, 1, 2))
            return tirx.Select(word == one, out[0], tirx.Select(word == two, out[1], tirx.Select(word == three, out[2], out[3])))

        return _rounds(words, key, 0, choose)

    def real(self, what: str, skip: int, dtype: str) -> Expr:
        def uniform(k: int) -> Expr:
            scaled = tirx.Cast(dtype, self.number(k)) * const(2.0**-32, dtype)
            return scaled + const(2.0**-33, dtype)

        if what == "uniform":
            return uniform(skip)
        radius = tirx.sqrt(const(-2.0, dtype) * tirx.log(uniform(skip)))
        return radius * tirx.cos(const(2.0 * math.pi, dtype) * uniform(skip + 1))


def _low(value: Expr) -> Expr:
    return tirx.Cast("uint32", value)


def _high(value: Expr) -> Expr:
    return tirx.Cast("uint32", value >> const(32, "uint64"))


def _rounds(words: list[Expr], key: list[Expr], done: int, use: Any) -> Expr:
    """Ten rounds, each word named; `use(four words)` gives the result."""
    if done == ROUNDS:
        return use(words)
    k0, k1 = (k + const(step * done, "uint32") for k, step in zip(key, KEY_STEPS, strict=True))
    first = tirx.Cast("uint64", words[0]) * const(MULTIPLIERS[0], "uint64")
    second = tirx.Cast("uint64", words[2]) * const(MULTIPLIERS[1], "uint64")

    def next_round(p: Expr, q: Expr) -> Expr:
        mixed = [_high(q) ^ words[1] ^ k0, _low(q), _high(p) ^ words[3] ^ k1, _low(p)]
        return named(mixed[0], lambda a: named(mixed[2], lambda c: _rounds([a, mixed[1], c, mixed[3]], key, done + 1, use), "c"), "a")

    return named(first, lambda p: named(second, lambda q: next_round(p, q), "q"), "p")

"""Random thread-level programs: loops over threads against a lockstep interpreter that runs one statement in all threads.

Programs are free of races: shared memory is written at the thread's own element (or a permutation of it) under control flow
that all threads take alike. The seed of a failure is the test's parameter.
"""

import numpy as np
import pytest

from tilelang.ir.dialect import make_call
from tilelang.ir.tvm_api import (
    AllocBuffer,
    Bind,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    Var,
    While,
    const,
    decl_buffer,
    load,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.passes.block.block_threads import block_threads
from tilelang.passes.program.guard_bounds import guard_bounds

from ..programs import CPU, kernel, run

NAMES = "abc"
MASK = 0xFFFF


class Program:
    """A random program as nested tuples. Values are kept in 16 bits, so that nothing overflows."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.threads = int(self.rng.choice([1, 5, 32, 40, 64]))
        self.counter = 0
        shared = [("shared", name, self.expr(), int(self.rng.integers(self.threads))) for name in NAMES[:2]]
        self.body = [*self.block(3, False, False), *shared]

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def expr(self, depth=2):
        kind = self.pick("tx", "var", "var", "x", "const", "op", "op") if depth else self.pick("tx", "var", "x", "const")
        if kind == "op":
            return ("op", self.pick("+", "*", "^", "&"), self.expr(depth - 1), self.expr(depth - 1))
        number = int(self.rng.integers(4))
        return {"tx": ("tx",), "var": ("var", self.pick(*NAMES)), "x": ("x", number), "const": ("const", number * 2)}[kind]

    def uniform(self):
        return ("const", int(self.rng.integers(4)))

    def block(self, depth, diverged, loop):
        return [self.stmt(depth, diverged, loop) for _ in range(self.rng.integers(1, 5))]

    def stmt(self, depth, diverged, loop):
        kinds = ["set", "set", "shfl", "vote", "bind"] + (["leave"] if loop else [])
        kinds += ["shared", "shared", "sync"] if not diverged else []
        kinds += ["if", "for", "uniform_for", "while"] if depth else []
        kind = self.pick(*kinds)
        name = self.pick(*NAMES)
        if kind == "set":
            return ("set", name, self.expr())
        if kind == "bind":
            return ("bind", name, self.pick(*NAMES), self.expr(), self.expr(1))
        if kind == "shfl":
            return ("shfl", name, self.pick("xor", "up", "down", "idx"), self.expr(1), int(self.rng.integers(32)))
        if kind == "vote":
            return ("vote", name, self.expr(1))
        if kind == "shared":
            return ("shared", name, self.expr(), int(self.rng.integers(self.threads)))
        if kind == "sync":
            return ("sync",)
        if kind == "leave":
            return ("if", ("op", "&", self.expr(1), ("const", 1)), [(self.pick("break", "continue"),)], [])
        if kind == "if":
            return ("if", ("op", "&", self.expr(1), ("const", 1)), self.block(depth - 1, True, loop), self.block(depth - 1, True, loop))
        if kind == "uniform_for":  # a break inside would be taken by some threads only: shared memory stays outside
            leaves = bool(self.rng.integers(2))
            return ("for", self.uniform(), self.block(depth - 1, diverged or leaves, leaves))
        if kind == "for":
            return ("for", ("op", "&", self.expr(1), ("const", 3)), self.block(depth - 1, True, True))
        return ("while", self.expr(1), self.block(depth - 1, True, True))


# ---------------------------------------------------------------- lockstep in NumPy
class Lockstep:
    def __init__(self, program, x):
        self.n = program.threads
        self.tx = np.arange(self.n)
        self.x = x
        self.vars = {v: np.zeros(self.n, np.int64) for v in NAMES}
        self.shared = np.zeros(self.n, np.int64)

    def value(self, e):
        kind = e[0]
        if kind == "op":
            a, b = self.value(e[2]), self.value(e[3])
            return {"+": a + b, "*": a * b, "^": a ^ b, "&": a & b}[e[1]] & MASK
        if kind == "var":
            return self.vars[e[1]]
        return self.tx if kind == "tx" else self.x[:, e[1]] if kind == "x" else np.full(self.n, e[1])

    def put(self, name, value, active):
        self.vars[name] = np.where(active, value, self.vars[name])

    def block(self, stmts, active):
        """Runs; returns (threads that go on, threads that broke)."""
        broke = np.zeros(self.n, bool)
        for s in stmts:
            active, b = self.stmt(s, active.copy())
            broke |= b
        return active, broke

    def stmt(self, s, active):
        none = np.zeros(self.n, bool)
        kind = s[0]
        if kind == "set":
            self.put(s[1], self.value(s[2]), active)
        elif kind == "bind":
            bound = self.value(s[3])
            self.put(s[1], self.value(s[4]), active)
            self.put(s[2], bound ^ self.vars[s[1]], active)
        elif kind == "shfl":
            value, lane, first = self.value(s[3]), self.tx % 32, self.tx // 32 * 32
            src = {"xor": lane ^ s[4], "up": lane - s[4], "down": lane + s[4], "idx": np.full(self.n, s[4])}[s[2]]
            ok = (src >= 0) & (src < 32) & (first + src < self.n)
            at = np.where(ok, first + src, self.tx)
            self.put(s[1], np.where(ok & active[at], value[at], value), active)
        elif kind == "vote":
            held = active & (self.value(s[2]) % 2 == 1)
            bits = [(held[w : w + 32].astype(np.int64) << np.arange(len(held[w : w + 32]))).sum() for w in range(0, self.n, 32)]
            self.put(s[1], np.array(bits)[self.tx // 32] & MASK, active)
        elif kind == "shared":
            self.shared = np.where(active, self.value(s[2]), self.shared)
            self.put(s[1], self.shared[(self.tx + s[3]) % self.n], active)
        elif kind == "if":
            taken = self.value(s[1]) != 0
            a, b1 = self.block(s[2], active & taken)
            c, b2 = self.block(s[3], active & ~taken)
            return a | c, b1 | b2
        elif kind in ("break", "continue"):
            return none, active if kind == "break" else none
        elif kind in ("for", "while"):
            self.loop(s, active)
        return active, none

    def loop(self, s, active):
        end = self.value(s[1]) if s[0] == "for" else np.full(self.n, 3)
        running, k = active.copy(), 0
        while True:
            running = running & (k < end)
            if s[0] == "while":
                running = running & (self.value(s[1]) % 2 == 1)
            if not running.any():
                return
            _, broke = self.block(s[2], running)
            running, k = running & ~broke, k + 1


# ---------------------------------------------------------------- the same program as TIR
class Emit:
    def __init__(self, program):
        self.n = program.threads
        self.X = decl_buffer((self.n, 4), "int32", "X")
        self.Y = decl_buffer((3, self.n), "int32", "Y")
        self.vars = {v: decl_buffer((1,), "int32", v, "local.var") for v in NAMES}
        self.S = decl_buffer((self.n,), "int32", "S", "shared")
        self.extra = []
        self.program = program

    def func(self):
        def body(blocks, threads):
            self.tx = threads[0]
            stmts = self.block(self.program.body)
            starts = [s for b in self.vars.values() for s in (AllocBuffer(b), self.set(b, const(0, "int32")))]
            clear = Evaluate(make_call("tl.sync_threads", []))
            ends = [store(self.Y, load(b, [0]), [k, self.tx]) for k, b in enumerate(self.vars.values())]
            return [AllocBuffer(self.S), *self.extra, *starts, store(self.S, const(0, "int32"), [self.tx]), clear, *stmts, *ends]

        return kernel([self.X, self.Y], body, threads=(self.n,))

    def set(self, buffer, value):
        return store(buffer, value, [0])

    def value(self, e):
        if e[0] == "op":
            a, b = self.value(e[2]), self.value(e[3])
            node = {"+": tirx.Add, "*": tirx.Mul, "^": tirx.BitwiseXor, "&": tirx.BitwiseAnd}[e[1]](a, b)
            return tirx.BitwiseAnd(node, const(MASK, "int32"))
        return {"tx": lambda: self.tx, "var": lambda: load(self.vars[e[1]], [0]), "x": lambda: load(self.X, [self.tx, e[1]]),
                "const": lambda: const(e[1], "int32")}[e[0]]()  # fmt: skip

    def block(self, stmts):
        return [t for s in stmts for t in self.stmt(s)]

    def stmt(self, s):
        kind = s[0]
        if kind == "set":
            return [self.set(self.vars[s[1]], self.value(s[2]))]
        if kind == "bind":
            v = Var("bound", "int32")
            first, second = self.vars[s[1]], self.vars[s[2]]
            return [Bind(v, self.value(s[3])), self.set(first, self.value(s[4])), self.set(second, tirx.BitwiseXor(v, load(first, [0])))]
        if kind == "shfl":
            operands = [self.value(s[3]), const(s[4], "int32"), const(32, "int32"), const(-1, "uint32")]
            call = make_call("tl.shfl", operands, "int32", mode=s[2])
            return [self.set(self.vars[s[1]], call)]
        if kind == "vote":
            odd = tirx.EQ(tirx.FloorMod(self.value(s[2]), const(2, "int32")), const(1, "int32"))
            call = make_call("tl.vote", [tirx.Cast("int32", odd)], "uint32", kind="ballot")
            return [self.set(self.vars[s[1]], tirx.BitwiseAnd(tirx.Cast("int32", call), const(MASK, "int32")))]
        if kind == "shared":
            return [store(self.S, self.value(s[2]), [self.tx]), self.set(self.vars[s[1]], load(self.S, [(self.tx + s[3]) % self.n]))]
        if kind == "sync":
            return [Evaluate(make_call("tl.sync_threads", []))]
        if kind in ("break", "continue"):
            return [Evaluate(tirx.break_loop() if kind == "break" else tirx.continue_loop())]
        if kind == "if":
            other = seq(self.block(s[3])) if s[3] else None
            return [IfThenElse(tirx.NE(self.value(s[1]), const(0, "int32")), seq(self.block(s[2])), other)]
        if kind == "for":
            return [For(Var("k", "int32"), 0, self.value(s[1]), ForKind.SERIAL, seq(self.block(s[2])))]
        count = decl_buffer((1,), "int32", "count", "local.var")
        self.extra.append(AllocBuffer(count))
        odd = tirx.EQ(tirx.FloorMod(self.value(s[1]), const(2, "int32")), const(1, "int32"))
        step = self.set(count, load(count, [0]) + 1)
        again = tirx.And(load(count, [0]) < 3, odd)
        return [self.set(count, const(0, "int32")), While(again, seq([step, *self.block(s[2])]))]


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed):
    program = Program(seed)
    x = program.rng.integers(0, 100, (program.threads, 4)).astype(np.int32)
    machine = Lockstep(program, x.astype(np.int64))
    machine.block(program.body, np.ones(program.threads, bool))
    out = guard_bounds(block_threads(Emit(program).func(), CPU), CPU)
    _, y = run(out, x, np.zeros((3, program.threads), np.int32))
    np.testing.assert_array_equal(y, np.stack([machine.vars[v] for v in NAMES]))

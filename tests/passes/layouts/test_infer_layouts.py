"""Layouts of fragments: what decides, what follows, what needs no conversion; and the check that would find a wrong one."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.backend.base import Backend
from tilelang.compiler.pipeline import run as run_stages
from tilelang.errors import InternalError
from tilelang.ir.context import FragmentPlan, PassContext
from tilelang.ir.dialect import LOCAL
from tilelang.ir.tvm_api import For, ForKind, IfThenElse, Var, const, decl_buffer, store, tirx
from tilelang.ir.verify import THREADS
from tilelang.layout.fragment import Fragment
from tilelang.passes.layouts.coalescing import coalesced, replicated
from tilelang.passes.layouts.infer_layouts import infer_layouts
from tilelang.passes.layouts.register_maps import register_map
from tilelang.passes.partition.check_partition import check_coverage, check_layout
from tilelang.target.target import Target
from tilelang.tileop.base import Lowering

STAGES = {"tiles": (("infer_layouts", infer_layouts),)}


def atom(i, j):
    """The accumulator of m16n8k16: (row, column) to (lane, register)."""
    return i % 8 * 4 + j // 2, i // 8 * 2 + j % 2


def accumulator(m, n, warps):
    """Warps along the rows, each with all columns."""

    def place(i, j):
        lane, register = atom(i % 16, j % 8)
        return i // 16 % warps * 32 + lane, (i // (16 * warps) * (n // 8) + j // 8) * 4 + register

    return Fragment((m, n), place)


def wish(call, ctx):
    c = call.args[2].source
    m, n = (int(e) for e in c.ty.shape)
    return {c: accumulator(m, n, ctx.kernel.num_threads // 32)}


MMA = Lowering("mma", "tl.tileop.gemm", lambda call, ctx: "only its layouts", lambda call, ctx: None, wish)


def plans(program, lowerings=(MMA,)):
    """Layouts by name, and the texts of notes about conversions."""
    ctx = PassContext(Target("simt"), lowerings=lowerings)
    func = program.func if hasattr(program, "func") else program
    for _ in run_stages(func, Backend("simt", THREADS, None, None, None, tuple(lowerings), STAGES), ctx):
        pass
    texts = [n for n in ctx.notes if n.subject == "layout"]
    return {b.name: p.layout for b, p in ctx.fragments.items()}, texts


# ---------------------------------------------------------------- what decides
@pytest.mark.parametrize(("shape", "threads", "sharing"), [((4, 768), 128, 32), ((12, 96), 96, 24), ((2, 192), 32, 16), ((8, 64), 64, 16)])
def test_every_row_lies_on_the_same_number_of_threads(shape, threads, sharing):
    owners = coalesced(shape, 32, threads).table[0].reshape(shape)
    assert all(len(set(row.tolist())) == sharing for row in owners)
    assert len(np.unique(owners)) == threads


def test_copies_from_memory_are_coalesced():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((64, 64), "float16")
            T.copy(X, f)
            T.copy(f, Y)

    found, notes = plans(main)
    assert found["f"].owners((0, 7)) == [(0, 7)]
    assert found["f"].owners((0, 8)) == [(1, 0)]
    assert found["f"].owners((16, 0)) == [(0, 8)]
    assert not notes


def test_attention_needs_conversions_for_reductions_and_operands_only():
    @T.prim_func
    def main(Q: T.Tensor((64, 64), "float16"), K: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            m = T.alloc_fragment((64,), "float32")
            scale = T.alloc_fragment((64,), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.clear(o)
            T.gemm(q, k, s, transpose_B=True, clear_accum=True)
            T.reduce_max(s, m, dim=1)
            for i in T.Parallel(64):
                scale[i] = T.exp2(m[i])
            for i, j in T.Parallel(64, 64):
                s[i, j] = T.exp2(s[i, j] - m[i])
            for i, j in T.Parallel(64, 64):
                o[i, j] *= scale[i]
            T.copy(s, p)
            T.gemm(p, k, o)
            T.copy(o, O)

    found, notes = plans(main)
    assert found["s"].is_equal(accumulator(64, 64, 4))
    assert found["p"].is_equal(found["s"])
    assert found["o"].is_equal(found["s"])
    rows = {tuple(t for t, _ in found[name].owners((9,))) for name in ("m", "scale")}
    assert rows == {(4, 5, 6, 7)}  # the four lanes that share row 9 = 8 + 1
    lines = {n.text.split()[0] for n in notes}
    assert lines <= {"s", "p"}, notes  # portable loops of the reduction and of the second product
    loops = [n for n in notes if n.at.line not in (min(x.at.line for x in notes), max(x.at.line for x in notes))]
    assert not loops


def test_one_element_is_on_every_thread():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64,), "float32")
            t = T.alloc_fragment((1,), "float32")
            c = T.alloc_fragment((4,), "float32")
            T.copy(X, f)
            T.reduce_sum(f, t, dim=0)
            c[0] = t[0]
            for i in T.Parallel(64):
                Y[i] = f[i] * c[0]

    found, _ = plans(main)
    assert found["t"].is_equal(replicated((1,), 64))
    assert found["c"].is_equal(replicated((4,), 64))


def test_annotation_comes_first():
    given = Fragment((16, 8), lambda i, j: (i, j))

    @T.prim_func
    def main(X: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((16, 8), "float32")
            g = T.alloc_fragment((16, 8), "float32")
            T.annotate_layout({f: T.Fragment((16, 8), forward_fn=lambda i, j: (i, j))})
            T.copy(X, f)
            for i, j in T.Parallel(16, 8):
                g[i, j] = f[i, j]
            T.copy(g, X)

    found, notes = plans(main)
    assert found["f"].is_equal(given)
    assert found["g"].is_equal(given)
    assert not notes


def test_what_registers_cannot_serve_lives_in_shared_memory():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            f = T.alloc_fragment((64,), "float32")
            both = T.alloc_fragment((64,), "float32")
            T.copy(X, f)
            for k in T.serial(64):
                f[k] = f[k] + 1.0
            with T.ws(0):
                T.copy(X, both)
            with T.ws(1):
                T.copy(both, Y)

    found, notes = plans(main)
    assert not found
    assert sorted(n.text.split(":")[0] for n in notes) == ["both lives in shared memory", "f lives in shared memory"]


# ---------------------------------------------------------------- formulas
@pytest.mark.parametrize(
    "layout",
    [
        coalesced((5, 7), 32, 32), coalesced((4, 768), 32, 128), coalesced((2, 6, 40), 16, 96), coalesced((64, 64), 16, 128),
        coalesced((3, 100), 8, 96), replicated((5,), 32),
        accumulator(64, 64, 4), accumulator(128, 32, 2), Fragment((16,), lambda i: (i * 2, 0)), Fragment((12, 4), lambda i, j: (i, 3 - j)),
        Fragment((16,), lambda i, rep: (i * 4 + rep, 0), replicate=4), Fragment((8, 8), lambda i, j: (i % 4 * 8 + j, i // 4)),
    ],
)  # fmt: skip
def test_formulas_agree_with_the_layout(layout):
    threads = 256
    found = register_map(layout, threads)
    assert found is not None
    first = np.ones(threads, dtype=bool)
    for test in found.first_copy:
        first &= test(np.arange(threads))
    seen = []
    for thread in range(threads):
        used = all(bool(t(np.array([thread]))[0]) for t in found.threads_used)
        for register in range(found.registers):
            coords = tuple(int(c) for c in found.coords(thread, register))
            inside = used and all(0 <= c < e for c, e in zip(coords, layout.shape, strict=True))
            assert inside == (found.held[thread, register] >= 0)
            if inside:
                assert (thread, register) in layout.owners(coords)
                if first[thread]:
                    seen.append(coords)
    assert len(seen) == len(set(seen)) == np.prod(layout.shape)


def test_a_layout_without_formula_is_known_as_such():
    order = np.random.default_rng(0).permutation(64)
    assert register_map(Fragment((64,), lambda i: (order[i], 0 * i)), 64) is None


# ---------------------------------------------------------------- the check
def test_wrong_layouts_are_found():
    registers = decl_buffer((2,), "float32", "r", LOCAL)
    check_layout("f", FragmentPlan(Fragment((8,), lambda i: (i // 2, i % 2)), registers), (8,), 4)
    for place, threads in ((lambda i: (i // 4, i % 2), 4), (lambda i: (i // 2, i % 2), 3), (lambda i: (i // 4, i % 4), 4)):
        with pytest.raises(InternalError):
            check_layout("f", FragmentPlan(Fragment((8,), place), registers), (8,), threads)


@pytest.mark.parametrize(("extent", "limit", "good"), [(2, 20, True), (1, 20, False), (2, 19, False), (2, 32, False)])
def test_wrong_loops_are_found(extent, limit, good):
    thread, step = Var("t", "int32"), Var("s", "int32")
    counter = decl_buffer((20,), "int32", "counter")
    flat = step * 16 + thread
    index = tirx.Min(flat, const(19, "int32"))
    body = IfThenElse(tirx.LT(flat, const(limit, "int32")), store(counter, const(1, "int32"), [index]), None)
    loop = For(step, 0, extent, ForKind.SERIAL, body)
    values = {thread: np.arange(16)}
    if good:
        check_coverage(loop, counter, values, 16, "nest")
    else:
        with pytest.raises(InternalError, match="times"):
            check_coverage(loop, counter, values, 16, "nest")

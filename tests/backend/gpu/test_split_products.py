"""Products of small tiles whose warps divide K: which, in how many slices, and that results stay the same."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values
from tilelang.backend.gpu.split_products import split_products
from tilelang.compiler.compile import context
from tilelang.ir.dialect import attr, op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import AllocBuffer, Call, For, shape_of
from tilelang.target.target import parse_target


def held(M=32, N=16, K=512, BK=128, threads=128):
    """A is made in registers, from numbers of 8 bits, and B is the narrow operand."""

    @T.prim_func
    def main(W: T.Tensor((M, K), "int8"), X: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=threads):
            bytes_shared = T.alloc_shared((M, BK), "int8")
            x = T.alloc_shared((N, BK), "float16")
            w = T.alloc_fragment((M, BK), "float16")
            c = T.alloc_fragment((M, N), "float32")
            T.clear(c)
            for k in T.Pipelined(K // BK, num_stages=2):
                T.copy(W[0, k * BK], bytes_shared)
                T.copy(X[0, k * BK], x)
                for i, j in T.Parallel(M, BK):
                    w[i, j] = T.cast(bytes_shared[i, j], "float16") * T.cast(2, "float16")
                T.gemm(w, x, c, transpose_B=True)
            T.copy(c, C)

    return main


def product(M=16, N=32, K=512, BK=128, threads=128, stages=2, dtype="bfloat16", acc="float32", transposed=True, between="", BN=32):
    @T.prim_func
    def main(X: T.Tensor((M, K), dtype), W: T.Tensor((N, K) if transposed else (K, N), dtype), C: T.Tensor((M, N), acc)):
        with T.Kernel(T.ceildiv(N, BN), threads=threads) as b:
            x = T.alloc_shared((M, BK), dtype)
            w = T.alloc_shared((BN, BK) if transposed else (BK, BN), dtype)
            c = T.alloc_fragment((M, BN), acc)
            T.fill(c, 3)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(X[0, k * BK], x)
                if transposed:
                    T.copy(W[b * BN, k * BK], w)
                else:
                    T.copy(W[k * BK, b * BN], w)
                if between == "twice":
                    T.gemm(x, w, c, transpose_B=transposed)
                T.gemm(x, w, c, transpose_B=transposed, clear_accum=between == "clears")
                if between == "read":
                    for i, j in T.Parallel(M, BN):
                        c[i, j] += 1
            T.copy(c, C[0, b * BN])

    return main


def divided(func, target="simt"):
    """For each product its number of slices; shapes of the buffers that the stage added; for each loop whether a product is inside."""
    slices, before, after = [], [], []
    walk(func.body, {AllocBuffer: lambda s: before.append(str(s.buffer.name))})
    result = split_products(func, context(parse_target(target), {}))
    walk(result.body, {Call: lambda c: slices.append(int(attr(c, "slices", 1))) if op_name(c) == "tl.tileop.gemm" else None})
    walk(result.body, {AllocBuffer: lambda s: after.append((str(s.buffer.name), tuple(shape_of(s.buffer))))})
    return slices, [entry for entry in after if entry[0] not in before]


def test_the_parts_of_a_loop():
    assert divided(product()) == ([4], [("c_parts", (4, 16, 32)), ("c_slices", (4, 16, 32))])


@pytest.mark.parametrize(
    ("slices", "options"),
    [
        (8, {"threads": 256}),
        (2, {"BK": 32}),  # two steps of K in a tile
        (1, {"BK": 16}),
        (1, {"threads": 32}),
        (4, {"N": 64, "BN": 64}),
        (1, {"N": 128, "BN": 128}),  # too many registers for the parts
        (1, {"M": 24}),  # no whole instructions
        (4, {"M": 32}),
        (1, {"M": 64, "BN": 16, "N": 16}),  # warpgroups take 64 rows
        (4, {"dtype": "int8", "acc": "int32"}),
        (1, {"dtype": "float16", "acc": "float16"}),  # an accumulator of another type
        (1, {"between": "read", "BK": 32}),  # a sum over the warps in every iteration would cost more than it saves
    ],
)
def test_how_many_slices(slices, options):
    assert divided(product(**options))[0] == [slices]


def test_on_other_architectures():
    assert divided(product(M=64, BN=16, N=16), "simt -arch=sm_80")[0] == [4]


def where(func):
    """Is the sum of the parts inside the loop over k?"""
    result = split_products(func, context(parse_target("simt"), {}))
    inside: list[str] = []

    def loop(node: For) -> None:
        if str(node.loop_var.name) == "k":
            walk(node.body, {AllocBuffer: lambda s: inside.append(str(s.buffer.name))})

    walk(result.body, {For: loop})
    return "c_slices" in inside


def test_where_the_parts_are_added():
    assert not where(product())
    assert where(product(K=4096, BK=1024, between="read", threads=256))  # a long product, whose result is needed in every iteration
    assert where(product(K=4096, BK=1024, between="clears", threads=256))


def check(target="simt", **options):
    func = product(**options)
    M, K, N = options.get("M", 16), options.get("K", 512), options.get("N", 32)
    dtype, acc = options.get("dtype", "bfloat16"), options.get("acc", "float32")
    x, w = values((M, K), dtype), values((N, K) if options.get("transposed", True) else (K, N), dtype)
    c = np.zeros((M, N), numpy_type(acc))
    run(func, x, w, c, target=target)
    part = options.get("BK", 128)
    terms = x.astype(np.float64), (w.T if options.get("transposed", True) else w).astype(np.float64)
    between = options.get("between", "")
    want = terms[0] @ terms[1] * (2 if between == "twice" else 1) + 3
    if between == "read":
        want += K // part
    if between == "clears":
        want = terms[0][:, -part:] @ terms[1][-part:]
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", ["simt", "simt -arch=sm_90", "simt -arch=sm_80"])
@pytest.mark.parametrize("transposed", [True, False])
def test_results(target, transposed):
    check(target, transposed=transposed, N=64)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 256, "stages": 0}, {"BK": 32, "N": 96}, {"M": 32, "threads": 256}, {"N": 64, "BN": 64}, {"between": "twice"},
        {"dtype": "int8", "acc": "int32"}, {"dtype": "int8", "acc": "int32", "transposed": False}, {"dtype": "float32", "BK": 64},
        {"dtype": "float64", "acc": "float64", "BK": 32}, {"dtype": "float16", "N": 40, "BN": 8}, {"dtype": "float8_e4m3fn"},
        {"K": 2048, "BK": 1024, "between": "read", "threads": 256}, {"K": 2048, "BK": 1024, "between": "clears", "threads": 256},
    ],
)  # fmt: skip
def test_results_of(options):
    check(**options)


@pytest.mark.parametrize("options", [{}, {"threads": 256}, {"M": 16, "N": 8}, {"BK": 32}, {"M": 48}])
@pytest.mark.parametrize("target", ["simt", "simt -arch=sm_80"])
def test_an_operand_in_registers(options, target):
    """Each slice of warps makes its own part of the operand: nothing goes through shared memory."""
    M, N = options.get("M", 32), options.get("N", 16)
    w, x, c = values((M, 512), "int8"), values((N, 512), "float16"), np.zeros((M, N), np.float32)
    notes = run(held(**options), w, x, c, target=target)
    np.testing.assert_array_equal(c, 2 * w.astype(np.float64) @ x.astype(np.float64).T)
    assert any("slices of the warps divide K" in text for text in notes["gemm"])
    assert not any("passes through shared memory" in text for text in notes.get("layout", []))


def test_idle_warps_are_told():
    def told(**options):
        ctx = context(parse_target("simt"), {})
        split_products(product(**options), ctx)
        return [note.text for note in ctx.notes if note.subject == "gemm"]

    idle = "some warps idle: dividing K among them would cost more than it saves"
    assert told(between="read", BK=32, N=16, BN=16) == [idle]
    assert told(between="read", BK=32) == []  # four columns of instructions, four warps
    assert told() == ["4 slices of the warps divide K"]

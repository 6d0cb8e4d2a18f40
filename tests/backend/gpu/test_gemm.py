"""T.gemm on matrix instructions in the emulator: types, transposes, sizes, warps, policies, places of the operands."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu import support
from tests.backend.gpu.support import numpy_type, values
from tilelang.backend.gpu.instr import product
from tilelang.backend.gpu.warps import FULL_COL, FULL_ROW, SQUARE, warp_grid
from tilelang.compiler.compile import compile_stages, context
from tilelang.ir.dialect import attr, op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.target.target import parse_target

TYPES = [
    ("float16", "float16", "float32"), ("float16", "float16", "float16"), ("bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32"), ("float64", "float64", "float64"), ("int8", "int8", "int32"), ("uint8", "int8", "int32"),
    ("float8_e4m3fn", "float8_e4m3fn", "float32"), ("float8_e5m2", "float8_e4m3fn", "float32"),
]  # fmt: skip


PLACES = "shared", "shared", "fragment"


def run(main, *arrays):
    """On an architecture without products of warpgroups; what these lowerings say is left out of the notes."""
    notes = support.run(main, *arrays, target="simt -arch=sm_90")
    others = "wgmma declined", "some warps idle"
    return {subject: [t for t in texts if not t.startswith(others)] for subject, texts in notes.items()}


def program(m, n, k, types=TYPES[0], transposed=(False, False), threads=128, policy=0, places=PLACES, clear=False):
    a_type, b_type, c_type = types
    a_shape = (k, m) if transposed[0] else (m, k)
    b_shape = (n, k) if transposed[1] else (k, n)
    alloc = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}

    @T.prim_func
    def main(A: T.Tensor(a_shape, a_type), B: T.Tensor(b_shape, b_type), C: T.Tensor((m, n), c_type)):
        with T.Kernel(1, threads=threads):
            a = alloc[places[0]](a_shape, a_type)
            b = alloc[places[1]](b_shape, b_type)
            c = alloc[places[2]]((m, n), c_type)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a, b, c, transposed[0], transposed[1], policy=T.GemmWarpPolicy(policy), clear_accum=clear)
            T.copy(c, C)

    return main


def check(m, n, k, types=TYPES[0], transposed=(False, False), clear=False, **settings):
    a, b, c = values((m, k), types[0]), values((k, n), types[1]), values((m, n), types[2])
    expected = a.astype(np.float64) @ b.astype(np.float64) + (0 if clear else c.astype(np.float64))
    a_given, b_given = (np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), transposed, strict=True))
    notes = run(program(m, n, k, types, transposed, clear=clear, **settings), a_given, b_given, c)
    assert notes["gemm"] == ["mma"]
    np.testing.assert_array_equal(c.astype(np.float64), expected.astype(numpy_type(types[2])).astype(np.float64))


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_types(types):
    check(32, 32, 32, types)


@pytest.mark.parametrize("transposed", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("types", [TYPES[0], TYPES[3], TYPES[5]], ids="-".join)
def test_transposes(types, transposed):
    check(32, 24, 64, types, transposed)


@pytest.mark.parametrize("size", [(16, 8, 16), (17, 9, 5), (1, 1, 1), (40, 72, 33), (8, 64, 16), (100, 12, 16)])
def test_sizes_that_instructions_do_not_divide(size):
    check(*size)
    check(*size, transposed=(True, True), clear=True)


@pytest.mark.parametrize("policy", [SQUARE, FULL_ROW, FULL_COL])
@pytest.mark.parametrize("threads", [32, 96, 160, 256])
def test_warps(threads, policy):
    check(64, 48, 16, threads=threads, policy=policy)


@pytest.mark.parametrize("threads", [33, 100])
def test_threads_beyond_the_last_whole_warp_are_idle(threads):
    check(32, 16, 16, threads=threads)


@pytest.mark.parametrize("c", ["shared", "fragment"])
@pytest.mark.parametrize("b", ["shared", "fragment"])
@pytest.mark.parametrize("a", ["shared", "fragment"])
def test_places(a, b, c):
    check(32, 32, 32, places=(a, b, c))
    check(24, 20, 32, places=(a, b, c), transposed=(True, False))


def test_fewer_threads_than_a_warp_use_loops():
    a, b, c = values((4, 4), "float16"), values((4, 4), "float16"), np.zeros((4, 4), np.float32)
    notes = run(program(4, 4, 4, threads=16), a, b, c)
    assert notes["gemm"][-1] == "portable loops" and "a warp of 32 threads" in notes["gemm"][0]
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_condition_clears_at_run_time():
    @T.prim_func
    def main(A: T.Tensor((3, 16, 16), "float16"), B: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((16, 16), "float16")
            b = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(B, b)
            T.fill(c, 7.0)
            for k in T.serial(3):
                T.copy(A[k, :, :], a)
                T.gemm(a, b, c, clear_accum=k == 1)
            T.copy(c, C)

    a, b, c = values((3, 16, 16), "float16"), values((16, 16), "float16"), np.zeros((16, 16), np.float32)
    run(main, a, b, c)
    np.testing.assert_array_equal(c, (a[1] + a[2]).astype(np.float32) @ b.astype(np.float32))


def test_an_accumulator_is_the_register_operand_of_the_next_product():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            s = T.alloc_fragment((64, 32), "float32")
            p = T.alloc_fragment((64, 32), "float16")
            c = T.alloc_fragment((64, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, s, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.copy(s, p)
            T.gemm(p, b, c, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.copy(c, C)

    a, b, c = values((64, 32), "float16"), values((32, 32), "float16"), np.zeros((64, 32), np.float32)
    notes = run(main, a, b, c)
    assert "layout" not in notes  # no value passes through shared memory
    first = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(c, first.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("policy", [SQUARE, FULL_ROW, FULL_COL])
def test_layouts_are_total_and_injective(policy):
    instruction = product("float16", "float16", "float32")
    for warps in range(1, 9):
        for m, n in ((16, 8), (64, 64), (48, 40), (128, 24)):
            grid = warp_grid(m, n, warps, policy, instruction)
            assert grid.count <= warps
            grid.accumulator((m, n)).check(32 * warps)
            grid.left((m, 32)).check(32 * warps)


def test_groups_of_threads_multiply_side_by_side():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c0 = T.alloc_fragment((64, 64), "float32")
            c1 = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.sync_threads()
            with T.ws(0):
                T.gemm(a, b, c0, clear_accum=True)
                T.copy(c0, C[0, :, :])
            with T.ws(1):
                T.gemm(a, b, c1, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                T.reduce_sum(c1, r, dim=1)
                for i, j in T.Parallel(64, 64):
                    c1[i, j] = c1[i, j] - r[i]
                T.copy(c1, C[1, :, :])

    a, b, c = values((64, 32), "float16"), values((32, 64), "float16"), np.zeros((2, 64, 64), np.float32)
    notes = run(main, a, b, c)
    assert notes["gemm"] == ["mma"] * 2 and notes["reduce"] == ["registers and shuffles"]
    product = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(c, [product, product - product.sum(1, keepdims=True)])


def test_two_dimensional_blocks():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=(16, 4)):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a, b, c = values((32, 32), "float16"), values((32, 32), "float16"), np.zeros((32, 32), np.float32)
    run(main, a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("step", "matrices"), [(16, True), (4, False)])
def test_a_slice_at_a_position_of_the_loop(step, matrices):
    """ldmatrix reads rows of 16 bytes: a slice that begins at multiples of that is as good as a tile."""

    @T.prim_func
    def main(A: T.Tensor((16, 64), "float16"), B: T.Tensor((8, 16), "float16"), C: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((16, 64), "float16")
            b = T.alloc_shared((8, 16), "float16")
            c = T.alloc_fragment((16, 8), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for k in T.serial(48 // step + 1):
                T.gemm(a[:, k * step : k * step + 16], b, c, transpose_B=True)
            T.copy(c, C)

    a, b, c = values((16, 64), "float16"), values((8, 16), "float16"), np.zeros((16, 8), np.float32)
    run(main, a, b, c)
    parts = [a[:, k : k + 16].astype(np.float64) @ b.T.astype(np.float64) for k in range(0, 49, step)]
    np.testing.assert_array_equal(c, sum(parts))
    *_, (_, lowered) = compile_stages(main, context(parse_target("simt -arch=sm_90"), {}), {})
    names: list[str] = []
    walk(lowered.body, {Call: lambda call: names.append(str(attr(call, "name"))) if op_name(call) == "tl.instr" else None})
    assert ("ldmatrix.x4" in names) == matrices and "ldmatrix.x2" in names

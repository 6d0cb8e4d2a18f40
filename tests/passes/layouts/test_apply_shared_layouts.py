"""Programs with moved tiles compute what they compute without, on the emulator; the accesses of products are free of bank conflicts."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from tilelang.backend.target import resolve_target
from tilelang.compiler.compile import compile_program, lower_to
from tilelang.errors import InternalError
from tilelang.ir.access import allocations
from tilelang.ir.dialect import ANNOTATION_ALLOC
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import BufferStore, Call, For, ForKind, TensorRegion, const, linear_coefficients, shape_of
from tilelang.layout import Layout, make_swizzled_layout
from tilelang.layout.shared import SharedLayout
from tilelang.passes.layouts.check_shared_layout import check_shared_layout

RNG = np.random.default_rng(5)
SIMT = resolve_target("simt -arch=sm_90")  # without bulk copies and warpgroup products
KINDS = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}


def run(program, *arrays, counted=False):
    """The artifact after one call."""
    artifact = compile_program(program, SIMT, {"tl.simt_counters": counted})
    artifact.entry(*arrays)
    return artifact


def values(shape, dtype):
    return RNG.integers(-3, 4, shape).astype(KINDS.get(dtype, dtype))


# ---------------------------------------------------------------- products
def product(m, n, k, dtype, across, layout=None, stages=2):
    """C = A B over 2 k in two steps; across: A as (k, m), B as (n, k)."""
    down, right = across

    @T.prim_func
    def main(A: T.Tensor((2 * k, m) if down else (m, 2 * k), dtype), B: T.Tensor((n, 2 * k) if right else (2 * k, n), dtype),
             C: T.Tensor((m, n), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((k, m) if down else (m, k), dtype)
            b = T.alloc_shared((n, k) if right else (k, n), dtype)
            c = T.alloc_fragment((m, n), "float32")
            if layout is not None:
                T.annotate_layout({a: layout, b: layout})
            T.clear(c)
            for s in T.Pipelined(2, num_stages=stages):
                if down:
                    T.copy(A[s * k, 0], a)
                else:
                    T.copy(A[0, s * k], a)
                if right:
                    T.copy(B[0, s * k], b)
                else:
                    T.copy(B[s * k, 0], b)
                T.gemm(a, b, c, transpose_A=down, transpose_B=right)
            T.copy(c, C)

    return main


def multiplied(m, n, k, dtype, across, **options):
    """The counts of accesses, after the result has been compared."""
    a = values((2 * k, m) if across[0] else (m, 2 * k), dtype)
    b = values((n, 2 * k) if across[1] else (2 * k, n), dtype)
    c = np.empty((m, n), np.float32)
    artifact = run(product(m, n, k, dtype, across, **options), a, b, c, counted=True)
    left, right = ((x.T if t else x).astype(np.float32) for x, t in zip((a, b), across, strict=True))
    np.testing.assert_array_equal(c, left @ right)
    return [(site.what, site.buffer, count) for site, count in artifact.entry.counters.rows() if count.rounds]


@pytest.mark.parametrize("across", [(False, False), (False, True), (True, False), (True, True)], ids=["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_products_have_no_bank_conflicts(width, dtype, across):
    deep = width if dtype != "float32" else min(width, 64)  # two stages of both operands fit the block
    found = multiplied(width, width, deep, dtype, across)
    assert any(what.startswith("asynchronous") for what, _, _ in found)
    by_rows = [count for what, _, count in found if what.startswith(("ldmatrix", "asynchronous"))]
    assert sum(count.conflicts for count in by_rows) == 0 and sum(count.rounds for count in by_rows) > 0
    if dtype == "bfloat16":
        assert {buffer for what, buffer, _ in found if what.startswith("ldmatrix")} == {"a", "b"}


def test_without_a_layout_there_would_be_conflicts():
    linear = lambda i, j: i * 64 + j  # noqa: E731
    found = multiplied(64, 64, 64, "bfloat16", (False, True), layout=linear)
    assert all(count.conflicts == 7 * (count.rounds - count.conflicts) for what, _, count in found if what.startswith("ldmatrix"))


@pytest.mark.parametrize(
    "layout", [lambda i, j: j * 48 + i, lambda i, j: (47 - i) * 53 + j, make_swizzled_layout], ids=["columns", "odd", "ours"]
)
@pytest.mark.parametrize("stages", [1, 3])
def test_any_layout_of_operands_in_a_pipeline(layout, stages):
    multiplied(48, 48, 48, "bfloat16", (False, False), layout=layout, stages=stages)


# ---------------------------------------------------------------- everything else that touches a tile
LAYOUTS = {
    "columns": ((6, 20), lambda i, j: j * 6 + i),
    "two outputs": ((6, 20), lambda i, j: [j // 4, i * 4 + j % 4]),
    "mirrored": ((5, 12), lambda i, j: (4 - i) * 12 + 11 - j),
    "gaps": ((7, 12), lambda i, j: i * 29 + 2 * j),
    "odd swizzle": ((9, 24), lambda i, j: i * 24 + (j // 8 + i) % 3 * 8 + j % 8),
    "blocks": ((6, 20), lambda i, j: [i // 3, j // 5, i % 3, j % 5]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_the_user(name):
    (rows, columns), forward = LAYOUTS[name]

    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((columns, rows), "float32"), Z: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((rows, columns), "float32")
            T.annotate_layout({tile: T.Layout((rows, columns), forward)})
            T.copy(X, tile)
            for i, j in T.Parallel(rows, columns):
                tile[i, j] = tile[i, j] * 2 + j
            T.sync_threads()
            t = T.get_thread_binding()
            if t < rows:
                T.atomic_add(tile[t, 3], 100.0)
            T.sync_threads()
            for j, i in T.Parallel(columns, rows):
                Y[j, i] = tile[i, j]
            sums = T.alloc_fragment((rows,), "float32")
            T.reduce_sum(tile, sums, dim=1)
            T.copy(sums, Z)

    x = values((rows, columns), "float32")
    y, z = np.empty((columns, rows), np.float32), np.empty(rows, np.float32)
    run(main, x, y, z)
    expected = x * 2 + np.arange(columns, dtype=np.float32)
    expected[:, 3] += 100
    np.testing.assert_array_equal(y, expected.T)
    np.testing.assert_array_equal(z, expected.sum(1))
    flat = np.asarray(Layout((rows, columns), forward).offsets())
    assert Allocation(main, "tile").elements == flat.max() + 1 or name in ("two outputs", "blocks")


class Allocation:
    def __init__(self, program, name):
        func = lower_to(program, SIMT, {}, "relax_waits")
        ((buffer, stmt),) = [(b, s) for b, s in allocations(func.body).items() if b.name == name]
        self.facts = dict(dict(stmt.annotations)[ANNOTATION_ALLOC])
        (self.elements,) = shape_of(buffer)


def test_the_plan_knows_size_and_alignment():
    found = Allocation(product(64, 64, 64, "bfloat16", (False, False)), "a")
    assert found.elements == 2 * 64 * 64 and int(found.facts["bytes"]) == 2 * found.elements
    assert int(found.facts["alignment"]) == 1024 and "128-byte swizzle" in str(found.facts["alignment_reason"])
    assert int(found.facts["offset"]) % 1024 == 0
    assert [int(e) for e in found.facts["logical_shape"]] == [128, 64] and found.facts["shared_layout"] == "128-byte swizzle"


def test_vectors_stay_vectors():
    """A copy through registers moves 16 bytes at a time: each store is a first element and the lane."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({tile: make_swizzled_layout(tile)})
            T.copy(X, tile)
            T.copy(tile, Y)

    stores = []

    def visit(loop):
        if loop.kind == ForKind.VECTORIZED:
            walk(loop.body, {BufferStore: lambda s: stores.append((s, loop)) if s.buffer.name == "tile" else None})

    walk(lower_to(main, SIMT, {}, "apply_shared_layouts").body, {For: visit})
    assert stores
    for stmt, loop in stores:
        assert int(loop.extent) == 8
        found = linear_coefficients(stmt.indices[0], [loop.loop_var])
        assert found is not None and found[0] == [1]
    x, y = values((64, 64), "float16"), np.empty((64, 64), np.float16)
    run(main, x, y)
    np.testing.assert_array_equal(x, y)


def test_the_phase_of_matrix_rows_depends_on_the_lane_alone():
    func = lower_to(product(64, 64, 64, "bfloat16", (False, False)), SIMT, {}, "apply_shared_layouts")
    texts = []

    def visit(call):
        if str((call.attrs or {}).get("name", "")).startswith("ldmatrix"):
            texts.extend(str(r.region[0].min) for r in call.args if isinstance(r, TensorRegion) and r.source.name in ("a", "b"))

    walk(func.body, {Call: visit})
    # One address for all iterations, of which each flips bits: (line + (bits of the lane ^ row of the lane) ^ loop * 2) * 8 + steps.
    assert len(texts) == 2 and all(re.search(r"\^ tx % 8\b.*\^ (s\w*|j\w*) \* 2\) \* 8( \+ \w+ \* 1024)?$", text) for text in texts), texts


def test_printed_tiles_show_logical_indices_in_order(capsys):
    @T.prim_func
    def main(X: T.Tensor((2, 3), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((2, 3), "int32")
            T.annotate_layout({tile: T.Layout((2, 3), lambda i, j: j * 2 + i)})
            T.copy(X, tile)
            T.print(tile)

    run(main, np.arange(6, dtype=np.int32).reshape(2, 3))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("index=")[1].split()[0] + line.rpartition("=")[2] for line in lines] == [f"{k}{k}" for k in range(6)]
    text = compile_program(main, resolve_target("cuda"), {}).source
    (line,) = [line.strip() for line in text.splitlines() if "printf(" in line]
    assert "buffer=tile, index=%d" in line and "p * 3 + p_1" in line and "p_1 * 2 + p" in line


# ---------------------------------------------------------------- the checker
@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (lambda i, j: i * 64 + j + 1, "outside of its 1024 elements"), (lambda i, j: i * 64 + j - 1, "outside"),
        (lambda i, j: i * 64 + j // 2, "where another one lies"),
        (lambda i, j: i * 64 + (j // 8 ^ i % 8) * 8 + (j % 8 ^ 1), "tears 8 neighbours"),
    ],
)  # fmt: skip
def test_the_checker_finds_wrong_places(offset, what):
    layout = SharedLayout((16, 64), 16, swizzle=128)
    with pytest.raises(InternalError, match=what):
        check_shared_layout("tile", layout, lambda _, index: offset(*index))


def test_the_checker_accepts_what_is_right():
    for layout in (SharedLayout((16, 128), 16, 2, 128), SharedLayout((6, 5), 32, padding=3), SharedLayout((3,), 8)):
        check_shared_layout("tile", layout, lambda found, index: found.offset(*index) + const(0, "int32"))


def test_operands_that_pass_through_shared_memory_are_free_of_conflicts_too():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a, b, c = values((64, 64), "float16"), values((64, 64), "float16"), np.empty((64, 64), np.float32)
    artifact = run(main, a, b, c, counted=True)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    found = [
        (site.buffer, count.conflicts)
        for site, count in artifact.entry.counters.rows()
        if site.what.startswith("ldmatrix") and count.rounds
    ]
    assert {buffer for buffer, _ in found} == {"a", "b_shared"} and not any(conflicts for _, conflicts in found)


@pytest.mark.parametrize(("dtype", "rounds"), [("float16", 1), ("float32", 4)])
def test_results_that_pass_through_shared_memory_spread_over_the_banks(dtype, rounds):
    """An accumulator's pairs of neighbours: 8 rows of 16 bytes at once, or in halves 4 rows of 32 bytes, of which two share banks."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            tile = T.alloc_shared((64, 64), dtype)
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, tile)
            T.copy(tile, C)

    a, c = values((64, 64), "float16"), np.empty((64, 64), dtype)
    artifact = run(main, a, c, counted=True)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ a.astype(np.float32)).astype(dtype))
    written = [count for site, count in artifact.entry.counters.rows() if site.what == "write" and site.buffer == "tile"]
    assert sum(count.rounds for count in written) == rounds * sum(count.accesses for count in written)
    read = [count for site, count in artifact.entry.counters.rows() if site.what == "read" and site.buffer == "tile"]
    assert sum(count.conflicts for count in read) == 0


@pytest.mark.parametrize(("dtype", "before"), [("float32", 2048), ("bfloat16", 1024), ("float64", 4096)])
def test_transposing_through_shared_memory(dtype, before):
    """before: rounds of the reads alone with row-major tiles."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), dtype), Y: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), dtype)
            T.copy(X, tile)
            for j, i in T.Parallel(64, 64):
                Y[j, i] = tile[i, j]

    x, y = values((64, 64), dtype), np.empty((64, 64), KINDS.get(dtype, dtype))
    artifact = run(main, x, y, counted=True)
    np.testing.assert_array_equal(y, x.T)
    rounds = sum(count.rounds for site, count in artifact.entry.counters.rows() if site.buffer == "tile")
    assert 0 < rounds <= before // 2


def test_vectors_longer_than_a_chunk_are_cut():
    """16 neighbours of 2 bytes, of which 8 lie together; and float32 results that leave as float16, 8 at a time."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            a, result = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float32")
            T.annotate_layout({a: make_swizzled_layout(a), result: make_swizzled_layout(result)})
            t = T.get_thread_binding()
            for k in T.serial(4):
                for v in T.vectorized(16):
                    a[t, k * 16 + v] = A[t, k * 16 + v]
            T.sync_threads()
            for i, j in T.Parallel(64, 64):
                result[i, j] = a[i, j] * 2
            T.copy(result, C)
            T.copy(a, B)

    a, b, c = values((64, 64), "float16"), np.empty((64, 64), np.float16), np.empty((64, 64), np.float16)
    run(main, a, b, c)
    np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(c, a * 2)
    text = compile_program(main, resolve_target("cuda -arch=sm_90"), {}).source
    assert len(re.findall(r"store_pack\(&?a\b", text)) == 1  # in a loop over two chunks
    assert re.search(r"load_pack<4>\(result\b", text) and not re.search(r"[^&]\bresult\[", text)

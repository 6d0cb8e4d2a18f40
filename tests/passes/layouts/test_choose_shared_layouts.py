"""Which shared tiles get which layout, and the notes where the program stands in the way."""

import pytest

import tilelang.language as T
from tilelang.backend.target import resolve_target
from tilelang.ir.context import PassContext
from tilelang.layout import make_swizzled_layout
from tilelang.passes.layouts.choose_shared_layouts import choose_shared_layouts
from tilelang.passes.roles.specialize_warps import specialize_warps


def chosen(program):
    """({name: name of its layout}, [notes])"""
    ctx = PassContext(resolve_target("simt -arch=sm_90"))
    assert choose_shared_layouts(program, ctx) is program
    return {str(b.name): layout.name for b, layout in ctx.shared_layouts.items()}, [n.text for n in ctx.notes]


def product(m, n, k, dtype="float16", use=None, stages=1, transposed=(False, False)):
    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((stages, *((k, m) if transposed[0] else (m, k))), dtype)
            b = T.alloc_shared((n, k) if transposed[1] else (k, n), dtype)
            other = T.alloc_shared((m, k), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.clear(a)
            T.copy(A, other)
            T.clear(b)
            T.clear(c)
            T.gemm(a[0, :, :], b, c, transpose_A=transposed[0], transpose_B=transposed[1])
            if use is not None:
                use(b)
            T.copy(c, C)

    return main


def test_tiles_of_results_are_swizzled():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16"), D: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, c = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            copied, other = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            stored = T.alloc_shared((64, 64), "float32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, copied)
            for i, j in T.Parallel(64, 64):
                stored[i, j] = c[i, j] + 1
            T.copy(A, other)
            T.copy(copied, C)
            T.copy(stored, D)

    layouts, _ = chosen(main)
    assert layouts == {"a": "128-byte swizzle", "copied": "128-byte swizzle", "stored": "128-byte swizzle", "other": "row-major"}


def test_only_operands_of_products_are_moved():
    layouts, notes = chosen(product(32, 64, 32))
    assert layouts == {"a": "64-byte swizzle", "b": "128-byte swizzle", "other": "row-major"} and not notes


@pytest.mark.parametrize(
    ("dtype", "transposed", "expected"),
    [
        ("float16", (False, False), ("128-byte swizzle", "128-byte swizzle")),
        ("float16", (True, True), ("128-byte swizzle", "128-byte swizzle")),
        ("int8", (False, True), ("64-byte swizzle", "64-byte swizzle")),
        ("float32", (False, True), ("128-byte swizzle", "128-byte swizzle")),
        ("float32", (True, False), ("rows padded by 32 bytes", "rows padded by 32 bytes")),
        ("float64", (False, False), ("rows padded by 32 bytes", "rows padded by 32 bytes")),
    ],
)  # fmt: skip
def test_both_majors(dtype, transposed, expected):
    layouts, _ = chosen(product(64, 64, 64, dtype, transposed=transposed))
    assert (layouts["a"], layouts["b"]) == expected


def test_rows_that_are_no_panels():
    layouts, _ = chosen(product(32, 24, 40))  # rows of 80 and 48 bytes: neighbours are in different banks already
    assert set(layouts.values()) == {"row-major"}
    layouts, _ = chosen(product(20, 32, 32))  # 20 rows are no whole groups of 8
    assert layouts["a"] == "rows padded by 16 bytes"


@pytest.mark.parametrize(
    "use", [lambda b: T.evaluate(T.any_of(b)), lambda b: T.view(b, (64 * 64,)), lambda b: T.evaluate(T.address_of(b[0, 0]))]
)
def test_what_the_program_can_see_stays_with_a_note(use):
    layouts, notes = chosen(product(32, 64, 64, use=use))
    assert layouts["b"] == "row-major" and layouts["a"] == "128-byte swizzle"
    assert len(notes) == 1 and notes[0].startswith("b stays row-major (128-byte swizzle would be used)")


def test_nothing_is_padded_near_the_limit():
    layouts, _ = chosen(product(100, 64, 64, stages=13))
    assert layouts["a"] == "row-major" and layouts["b"] == "128-byte swizzle"
    layouts, _ = chosen(product(128, 64, 64, stages=9))  # a swizzle costs no bytes
    assert layouts["a"] == "128-byte swizzle"


def test_annotated_layouts_win():
    def use(b):
        T.annotate_layout({b: T.Layout((64, 64), lambda i, j: j * 64 + i)})

    assert chosen(product(32, 64, 64, use=use))[0]["b"] == "as annotated"
    assert chosen(product(32, 64, 64, use=lambda b: T.annotate_layout({b: make_swizzled_layout})))[0]["b"] == "128-byte swizzle"
    linear = lambda b: T.annotate_layout({b: lambda i, j: i * 64 + j})  # noqa: E731
    assert chosen(product(32, 64, 64, use=linear))[0]["b"] == "row-major"


def test_tiles_that_parallel_loops_cross_get_rows_of_an_odd_number_of_words():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), H: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            along, across, half = (
                T.alloc_shared((64, 64), "float32"),
                T.alloc_shared((64, 64), "float32"),
                T.alloc_shared((64, 64), "float16"),
            )
            written, odd, transposed = (
                T.alloc_shared((64, 64), "float64"),
                T.alloc_shared((64, 63), "float32"),
                T.alloc_shared((64, 64), "int8"),
            )
            T.copy(A, along)
            T.copy(A, across)
            T.copy(H, half)
            T.clear(transposed)
            T.clear(odd)
            for j, i in T.Parallel(64, 63):
                B[j, i] = across[i, j] + half[i, j] + along[j, i] + odd[i, j % 63]
                written[i, j] = 0
            T.transpose(transposed, B)

    layouts, _ = chosen(main)
    assert layouts == {
        "along": "row-major", "across": "rows padded by 4 bytes", "half": "rows padded by 4 bytes", "written": "rows padded by 8 bytes",
        "odd": "row-major", "transposed": "rows padded by 4 bytes",
    }  # fmt: skip


@pytest.mark.parametrize("through", [False, True])
def test_tiles_from_which_operands_are_made_are_swizzled(through):
    """Where TMA brings them, since threads read them in the order of the operand; directly, or through another fragment."""

    @T.prim_func
    def main(W: T.Tensor((64, 256), "uint8"), X: T.Tensor((64, 512), "float16"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            packed, x = T.alloc_shared((64, 32), "uint8"), T.alloc_shared((64, 64), "float16")
            raw, w, y = T.alloc_fragment((64, 32), "uint8"), T.alloc_fragment((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            T.clear(y)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(W[0, k * 32], packed)
                T.copy(X[0, k * 64], x)
                if through:
                    T.copy(packed, raw)
                    for i, j in T.Parallel(64, 64):
                        w[i, j] = T.cast((raw[i, j // 2] >> (j % 2 * 4)) & 15, "float16")
                else:
                    for i, j in T.Parallel(64, 64):
                        w[i, j] = T.cast((packed[i, j // 2] >> (j % 2 * 4)) & 15, "float16")
                T.gemm(w, x, y, transpose_B=True)
            T.copy(y, Y)

    target = resolve_target("simt -arch=sm_90a")
    ctx = PassContext(target)
    choose_shared_layouts(specialize_warps(main, ctx), ctx)
    assert {str(b.name): layout.name for b, layout in ctx.shared_layouts.items()} == {"packed": "32-byte swizzle", "x": "128-byte swizzle"}
    assert chosen(main)[0]["packed"] == "row-major"

"""Which copies bulk tensor copies can make, why not the others, and of which boxes."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.layout.shared import SharedLayout
from tilelang.passes.pipeline.tma_boxes import boxes_of, bytes_of_copy, sides, tma_reason
from tilelang.passes.roles.specialize_warps import specialize_warps
from tilelang.target.target import parse_target

TARGET = "simt -arch=sm_90a"


def copies_in(func, target=TARGET, config=None):
    """[(call, reason)] of the copies between a tensor and a shared tile, in order."""
    ctx = context(parse_target(target), config)
    found = []

    def of_kernel(kernel):
        walk(kernel.body, {Call: lambda c: found.append((c, kernel)) if c.op.name == "tl.tileop.copy" and sides(c) else None})
        return kernel.to_stmt()

    map_kernels(lower_to(func, ctx.target, config, "check_program").body, of_kernel)
    return [(call, tma_reason(call, kernel, ctx)) for call, kernel in found]


def store(shape, tile, dtype="float16", tile_dtype=None, strides=None, block=None, **hints):
    """A tile that is written to a corner of a tensor."""

    @T.prim_func
    def main(Y: T.StridedTensor(shape, strides, dtype) if strides else T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared(tile, tile_dtype or dtype)
            T.fill(s, 1)
            T.copy(s[tuple(block)] if block else s, Y[tuple([0] * len(shape))], **hints)

    return main


def reason(func, **given):
    ((_, found),) = copies_in(func, **given)
    return found


@pytest.mark.parametrize("given", [
    {"shape": (64, 64), "tile": (64, 64)},
    {"shape": (3, 5, 64), "tile": (4, 64)},
    {"shape": (2, 2, 2, 2, 64), "tile": (64,)},
    {"shape": (64, 64), "tile": (64, 24)},
    {"shape": (T.dynamic("m"), T.dynamic("n")), "tile": (64, 64)},
    {"shape": (64, 64), "tile": (2, 64, 64), "block": (slice(1, 2), slice(0, 64), slice(0, 64))},
    {"shape": (64, 64), "tile": (64, 64), "block": (slice(8, 40), slice(0, 64))},
    {"shape": (64, 64), "tile": (64, 32), "dtype": "bool"},
    {"shape": (64, 64), "tile": (64, 64), "dtype": "float8_e4m3fn", "strides": (80, 1)},
])  # fmt: skip
def test_accepted(given):
    assert reason(store(**given)) is None


@pytest.mark.parametrize(("given", "expected"), [
    ({"shape": (2,) * 5 + (64,), "tile": (64,)}, "Y has 6 dimensions; bulk copies take 1 to 5"),
    ({"shape": (64, 65), "tile": (64, 64)}, "rows of Y end after 130 bytes, which is no multiple of 16"),
    ({"shape": (64, 64), "tile": (64, 64), "strides": (0, 1)}, "a stride of Y is 0 bytes, which is no multiple of 16"),
    ({"shape": (64, 64), "tile": (64, 64), "strides": (128, 2)}, "the last dimension of Y is not contiguous"),
    ({"shape": (7,), "tile": (64,)}, "rows of Y end after 14 bytes, which is no multiple of 16"),
    ({"shape": (64, 100), "tile": (64, 64), "strides": (104, 1)}, "rows of Y end after 200 bytes, which is no multiple of 16"),
    ({"shape": (64, 64), "tile": (64, 64), "strides": (68, 1)}, "a stride of Y is 136 bytes, which is no multiple of 16"),
    ({"shape": (64, 64), "tile": (64, 64), "tile_dtype": "float32"}, "the copy converts float32 to float16"),
    ({"shape": (64, 64), "tile": (64, 4)}, "rows of 8 bytes are no multiple of 16"),
    ({"shape": (64, 64), "tile": (64, 64), "disable_tma": True}, "the program turns bulk copies off"),
    ({"shape": (64, 64), "tile": (64, 64), "block": (slice(0, 64), slice(0, 32))}, "the copy is not of whole rows of s"),
    ({"shape": (64, 64), "tile": (64, 64), "block": (slice(4, 36), slice(0, 64))},
     "the copy does not begin at a multiple of 1024 bytes of s"),
    ({"shape": (64, 24), "tile": (3, 3, 24), "block": (slice(1, 2), slice(0, 3), slice(0, 24))},
     "the copy does not begin at a multiple of 128 bytes of s"),
    ({"shape": (4, 528), "tile": (4, 257 * 8)}, "s is not made of boxes of at most 256 elements along a dimension"),
])  # fmt: skip
def test_reasons(given, expected):
    assert reason(store(**given)) == expected


def test_where_blocks_begin():
    @T.prim_func
    def main(
        X: T.Tensor((256, 256), "float16"), n: T.int32, Y: T.Tensor((256, 256), "float16"), Z: T.Tensor((256, 256), "float16"),
        W: T.Tensor((256, 256), "float16"),
    ):  # fmt: skip
        with T.Kernel(4, 4, threads=128) as (bx, by):
            s = T.alloc_shared((64, 64), "float16")
            row = by * 64
            for k in T.serial(4):
                T.copy(X[row, k * 64 - 64], s)
                T.copy(X[n, bx * 4], s)
                T.copy(X[n, n * 8], s)
                T.copy(s, Y[row, bx * 64 + k * 8])
                T.copy(s, Z[row - 8, bx * 64])
                T.copy(s, W[n, bx * 64])

    inside, before = "the block may begin inside of 16 bytes of a row of X", "the block may begin before "
    assert [r for _, r in copies_in(main)] == [None, inside, None, None, before + "Z", before + "W"]


def test_a_tensor_that_is_stored_in_two_ways():
    @T.prim_func
    def main(Y: T.Tensor((256, 64), "float16"), Z: T.Tensor((256, 64), "float16")):
        with T.Kernel(1, threads=128):
            s, t = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 4), "float16")
            T.fill(s, 1)
            T.fill(t, 1)
            T.copy(s, Y[0, 0])
            T.copy(t, Y[64, 0])
            T.copy(s, Z[0, 0])
            T.copy(s, Z[64, 0])

    assert [r for _, r in copies_in(main)] == ["the kernel also writes Y", "rows of 8 bytes are no multiple of 16", None, None]


def test_where_there_are_none():
    plain = store((64, 64), (64, 64))
    assert reason(plain, target="simt -arch=sm_80") == "sm_80 has no bulk copies (sm_90a has)"
    assert reason(plain, config={"tl.disable_tma_lower": True}) == "the program turns bulk copies off"


def test_other_uses_of_the_tensor():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16"), Z: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            T.copy(X, s)
            T.copy(s, Y)
            T.copy(s, Z)
            X[0, 0] = 1
            s[0, 0] = Z[3, 3]

    assert [r for _, r in copies_in(main)] == ["the kernel also writes X", None, "the kernel also reads Z"]


def test_values_other_than_zero_outside():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            T.annotate_safe_value({X: 3.0})
            s = T.alloc_shared((64, 64), "float16")
            T.copy(X, s)
            T.copy(s, Y)

    assert [r for _, r in copies_in(main)] == ["X has a value of its own outside of the tensor", None]


def test_views_and_layouts_of_the_program():
    @T.prim_func
    def main(Y: T.Tensor((64, 64), "float16"), Z: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s, p = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            T.annotate_layout({p: tilelang.layout.make_padded_layout(p)})
            v = T.reshape(s, (4096,))
            v[0] = 1
            w = T.reshape(s, (64, 64))
            T.copy(w, Y)
            T.copy(p, Z)

    assert [r for _, r in copies_in(main)] == ["w is a view", "p lies in memory rows padded by 16 bytes"]


BOXES = [
    # tensor, tile, swizzle: box of the tensor, boxes along the copied dimensions
    ((64, 256), (64, 256), 128, (64, 64), (1, 4)),
    ((64, 256), (64, 256), 64, (64, 32), (1, 8)),
    ((64, 256), (64, 256), 0, (64, 256), (1, 1)),
    ((512, 64), (512, 64), 128, (256, 64), (2, 1)),
    ((264, 64), (264, 64), 128, (88, 64), (3, 1)),
    ((64, 512), (64, 512), 0, (1, 256), (64, 2)),
    ((4, 16, 64), (4, 16, 64), 128, (1, 16, 64), (4, 1, 1)),
    ((4, 16, 64), (4, 16, 64), 0, (4, 16, 64), (1, 1, 1)),
    ((2, 16, 3, 64), (16, 64), 128, (1, 16, 1, 64), (1, 1)),
]


@pytest.mark.parametrize(("shape", "tile", "swizzle", "box", "counts"), BOXES)
def test_boxes(shape, tile, swizzle, box, counts):
    dims = [0, 1, 2] if len(tile) == 3 else [0, 1] if len(shape) == 2 else [1, 3]

    @T.prim_func
    def main(Y: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared(tile, "float16")
            T.fill(s, 1)
            T.copy(s, Y[tuple(slice(0, e) if d in dims else slice(1, 2) for d, e in enumerate(shape))])

    ((call, found),) = copies_in(main)
    assert found is None and bytes_of_copy(call) == 2 * int(np.prod(tile))
    boxes = boxes_of(call, SharedLayout(tile, 16, swizzle=swizzle))
    assert (boxes.tensor, boxes.counts, boxes.dims) == (box, counts, tuple(dims))
    assert int(np.prod(boxes.shared)) * int(np.prod(counts)) == int(np.prod(tile))


@pytest.mark.parametrize(("width", "slots"), [(32, True), (64, True), (16, False), (40, False)])
def test_slots_of_small_tiles(width, slots):
    """Slot after slot, each must begin where a box may: at a multiple of 128 bytes."""

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), S: T.Tensor((8, width), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            s = T.alloc_shared((2, width), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], a)
                T.copy(S[k * 2, 0], s)
                T.gemm(a, a, c, transpose_B=True)
                for i, j in T.Parallel(64, 64):
                    c[i, j] += s[i % 2, j % width]
            T.copy(c, C)

    rng = np.random.default_rng(0)
    a, s = rng.integers(-2, 3, (64, 256)).astype(np.float16), rng.integers(-2, 3, (8, width)).astype(np.float16)
    c = np.zeros((64, 64), np.float32)
    kernel = tilelang.compile(main, target="simt -arch=sm_90a")
    kernel(a, s, c)
    wide = a.astype(np.float64)
    rows = s.astype(np.float64).reshape(4, 2, width).sum(0)[np.arange(64) % 2][:, np.arange(64) % width]
    np.testing.assert_array_equal(c, wide @ wide.T + rows)
    ctx = context(parse_target("simt -arch=sm_90a"), {})
    specialize_warps(main, ctx)
    told = [note.text for note in ctx.notes if note.text.startswith("a producer fetches")]
    assert len(told) == 1 and ("a, s into" in told[0]) == slots

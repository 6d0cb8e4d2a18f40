"""Copies that bulk tensor copies make, tried on the emulator: every rank, size of element, swizzle, ragged edge."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.ir.dtype_table import numpy_type

TARGET = "simt -arch=sm_90a"


def notes_of(kernel, line_text):
    return [n.text for n in kernel.artifact.notes if n.subject == "copy" and n.text == line_text]


def moves(shape, tile, dtype, dims, first=None, layout=None):
    """Every block loads the tile at its corner and stores it; dims: the tensor's dimension of each of the tile's, counted by the grid.
    first: where the first tile begins."""
    first = first or [0] * len(shape)
    extent = lambda d: (shape[d] - first[d] + tile[dims.index(d)] - 1) // tile[dims.index(d)] if d in dims else shape[d]  # noqa: E731
    counts = [extent(d) for d in range(len(shape))]

    @T.prim_func
    def main(X: T.Tensor(shape, dtype), Y: T.Tensor(shape, dtype)):
        with T.Kernel(int(np.prod(counts)), threads=128) as b:
            s = T.alloc_shared(tile, dtype)
            if layout:
                T.annotate_layout({s: layout(s)})
            bar = T.alloc_barrier(128)
            rest, corner = b, []
            for d in reversed(range(len(shape))):
                step = tile[dims.index(d)] if d in dims else 1
                corner = [rest % counts[d] * step + first[d], *corner]
                rest = rest // counts[d]
            box = tuple(slice(c, c + (tile[dims.index(d)] if d in dims else 1)) for d, c in enumerate(corner))
            T.tma_copy(X[box], s, barrier=bar)
            T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, Y[box])

    return main


def values(shape, dtype):
    kind = np.dtype(numpy_type(dtype))
    size = int(np.prod(shape))
    return np.random.default_rng(size).integers(1, 127, size).astype(kind).reshape(shape)


def check(func, shape, dtype, loads=1, stores=1):
    kernel = tilelang.compile(func, target=TARGET)
    assert len(notes_of(kernel, "tma_load")) == loads and len(notes_of(kernel, "tma_store")) == stores
    x = values(shape, dtype)
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_array_equal(y, x)


CASES = [
    ((300,), (128,), "float32", (0,)),
    ((1024,), (1024,), "float16", (0,)),  # several boxes of one row
    ((40, 96), (16, 32), "float32", (0, 1)),
    ((40, 80), (16, 64), "float16", (0, 1)),
    ((70, 80), (64, 64), "bfloat16", (0, 1)),
    ((16, 144), (8, 128), "int8", (0, 1)),
    ((24, 512), (8, 384), "float16", (0, 1)),  # panels
    ((24, 48), (8, 16), "float16", (0, 1)),  # 32 bytes
    ((24, 64), (8, 32), "float16", (0, 1)),  # 64 bytes
    ((9, 24), (4, 8), "float64", (0, 1)),
    ((600, 16), (512, 16), "uint8", (0, 1)),  # more rows than a box has
    ((3, 40, 64), (16, 64), "float16", (1, 2)),
    ((40, 3, 64), (16, 64), "float16", (0, 2)),  # a singleton dimension in between
    ((5, 12, 32), (2, 8, 32), "float32", (0, 1, 2)),
    ((2, 3, 20, 64), (16, 64), "float16", (2, 3)),
    ((2, 20, 3, 64), (16, 64), "float16", (1, 3)),
    ((2, 2, 2, 10, 32), (8, 32), "int16", (3, 4)),
    ((2, 3, 2, 3, 16), (2, 2, 2, 2, 16), "int32", (0, 1, 2, 3, 4)),
]


@pytest.mark.parametrize(("shape", "tile", "dtype", "dims"), CASES)
def test_moves(shape, tile, dtype, dims):
    check(moves(shape, tile, dtype, dims), shape, dtype)


def test_blocks_that_begin_before_the_tensor():
    """Only loads may."""
    check(moves((20, 80), (16, 64), "float16", (0, 1), first=[-8, -16]), (20, 80), "float16", stores=0)


@pytest.mark.parametrize("layout", [
    tilelang.layout.make_swizzled_layout, tilelang.layout.make_full_bank_swizzled_layout, tilelang.layout.make_half_bank_swizzled_layout,
    tilelang.layout.make_quarter_bank_swizzled_layout, tilelang.layout.make_linear_layout,
])  # fmt: skip
def test_annotated_layouts(layout):
    check(moves((40, 80), (16, 64), "float16", (0, 1), layout=layout), (40, 80), "float16")


def test_zeros_outside_and_nothing_written_outside():
    @T.prim_func
    def main(X: T.Tensor((10, 24), "float16"), Y: T.Tensor((16, 64), "float16"), Z: T.Tensor((10, 24), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, 64), "float16")
            bar = T.alloc_barrier(128)
            T.tma_copy(X[0:16, 0:64], s, barrier=bar)
            T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, Y)
            T.copy(s, Z[0:16, 0:64])

    kernel = tilelang.compile(main, target=TARGET)
    assert len(notes_of(kernel, "tma_store")) == 2
    x, y, z = values((10, 24), "float16"), np.full((16, 64), 7, np.float16), np.zeros((10, 24), np.float16)
    kernel(x, y, z)
    np.testing.assert_array_equal(y, np.pad(x, ((0, 6), (0, 40))))
    np.testing.assert_array_equal(z, x)


def test_a_tile_is_written_again_after_its_store():
    """Each round overwrites the tile that the round before stored."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, 64), "float16")
            for k in T.serial(4):
                T.copy(X[k * 16, 0], s)
                for i, j in T.Parallel(16, 64):
                    s[i, j] = s[i, j] * 2
                T.copy(s, Y[k * 16, 0])

    for seed in range(4):
        kernel = tilelang.compile(main, target=TARGET, pass_configs={"tl.simt_seed": seed})
        assert notes_of(kernel, "tma_store")
        x, y = values((64, 64), "float16"), np.zeros((64, 64), np.float16)
        kernel(x, y)
        np.testing.assert_array_equal(y, 2 * x)


def test_a_ring_of_slots():
    """Loads that land while the slot before is read."""
    stages, rounds = 3, 7

    @T.prim_func
    def main(X: T.Tensor((16 * rounds, 64), "float16"), Y: T.Tensor((16 * rounds, 64), "float16")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((stages, 16, 64), "float16")
            full, empty = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
            with T.ws(1):
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(empty[k % stages], (k // stages + 1) % 2)
                    T.tma_copy(X[k * 16 : k * 16 + 16, 0:64], s[k % stages, 0:16, 0:64], barrier=full[k % stages])
                    T.barrier_arrive(full[k % stages])
            with T.ws(0):
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(full[k % stages], k // stages % 2)
                    for i, j in T.Parallel(16, 64):
                        Y[k * 16 + i, j] = s[k % stages, i, j] + 1
                    T.barrier_arrive(empty[k % stages])

    for seed in range(3):
        kernel = tilelang.compile(main, target=TARGET, pass_configs={"tl.simt_seed": seed})
        assert notes_of(kernel, "tma_load")
        x = values((16 * rounds, 64), "float16")
        y = np.zeros_like(x)
        kernel(x, y)
        np.testing.assert_array_equal(y, x + 1)


def test_by_a_part_of_the_threads():
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float16"), Y: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((16, 64), "float16"), T.alloc_shared((16, 64), "float16")
            with T.ws(0):
                T.copy(X[0:16, 0:64], a)
                T.copy(a, Y[0:16, 0:64])
            with T.ws(1):
                T.copy(X[16:32, 0:64], b)
                T.copy(b, Y[16:32, 0:64])

    check(main, (32, 64), "float16", loads=0, stores=2)


@pytest.mark.parametrize("case", ["odd rows", "misaligned", "empty", "cut rows"])
def test_tensors_that_bulk_copies_cannot_move(case):
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.StridedTensor((8, n), (T.dynamic("step"), 1), "float16"), Y: T.Tensor((8, n), "float16")):
        with T.Kernel(T.ceildiv(n, 64), threads=128) as b:
            s = T.alloc_shared((8, 64), "float16")
            bar = T.alloc_barrier(128)
            T.tma_copy(X[0:8, b * 64 : b * 64 + 64], s, barrier=bar)
            T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, Y[0:8, b * 64 : b * 64 + 64])

    kernel = tilelang.compile(main, target=TARGET)
    assert notes_of(kernel, "tma_load") and notes_of(kernel, "tma_store")
    columns, first = {"odd rows": (83, 0), "misaligned": (80, 1), "empty": (0, 0), "cut rows": (80, 0)}[case]
    x = values(8 * columns + 1, "float16")[first : first + 8 * columns].reshape(8, columns)
    if case == "cut rows":
        x, columns = x[:, :77], 77
    y = np.zeros((8, columns), np.float16)
    kernel(x, y)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("thread", [0, 37])
def test_issued_by_one_thread_of_the_program(arch, thread):
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(4, threads=128) as b:
            s = T.alloc_shared((16, 64), "float16")
            bar = T.alloc_barrier(1)
            t = T.get_thread_binding()
            if t == thread:
                T.tma_copy(X[b * 16 : b * 16 + 16, 0:64], s, barrier=bar)
                T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, Y[b * 16 : b * 16 + 16, 0:64])

    kernel = tilelang.compile(main, target=f"simt -arch={arch}")
    assert len(notes_of(kernel, "tma_load")) == (arch == "sm_90a")
    x = values((64, 64), "float16")
    y = np.zeros_like(x)
    kernel(x, y)
    np.testing.assert_array_equal(y, x)

"""T.copy, T.fill, T.clear: extents, conversions, overlap, errors."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tileop.harness import Program
from tilelang.errors import JITNoBuilderError, TileIndexError, TileTypeError, TileValueError
from tilelang.ir.dialect import tile_call
from tilelang.ir.tvm_api import BufferStore, load, region, tirx
from tilelang.tileop.copy import async_copy, copy, tma_copy
from tilelang.tileop.fill import clear, fill

SCOPES = ("shared.dyn", "shared", "local.fragment", "local")


def block(buffer, *slices):
    """A slice as the front end writes it."""
    mins = [s.start if isinstance(s, slice) else s for s in slices]
    extents = [s.stop - s.start if isinstance(s, slice) else 1 for s in slices]
    return region(buffer, mins, extents)


def extents_written(program, k=0):
    """Extents (src, dst) of the k-th tile operator of a program."""
    stmts = program.body.seq if hasattr(program.body, "seq") else [program.body]
    calls = [tile_call(s) for s in stmts if tile_call(s) is not None]
    return tuple([str(r.extent) for r in arg.region] for arg in calls[k].args[:2])


# ---------------------------------------------------------------- results
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("shape", [(33, 20), (1, 7), (5,), (2, 3, 4)])
def test_round_trip_through_every_scope(scope, shape):
    p = Program()
    a, b = p.param(shape, "float32", "A"), p.param(shape, "float32", "B")
    with p.writing():
        t = p.alloc(shape, "float32", "t", scope)
        copy(a, t)
        copy(t, b)
    x, y = np.random.default_rng(0).standard_normal(shape, np.float32), np.zeros(shape, np.float32)
    p.run(x, y)
    np.testing.assert_array_equal(y, x)


CONVERSIONS = [
    ("float32", "float16"), ("float16", "float32"), ("float32", "int32"), ("float32", "int8"), ("int8", "float32"), ("uint8", "int16"),
    ("int32", "uint8"), ("float64", "float32"), ("int64", "int32"), ("float32", "bfloat16"), ("bfloat16", "float16"), ("bool", "float32"),
    ("float32", "bool"),
]  # fmt: skip


@pytest.mark.parametrize("source,target", CONVERSIONS)
def test_conversion(source, target):
    def numpy(name):
        return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)

    p = Program()
    a, b = p.param((9, 5), source, "A"), p.param((9, 5), target, "B")
    with p.writing():
        t = p.alloc((9, 5), target, "t")
        copy(a, t)
        copy(t, b)
    values = np.random.default_rng(1).uniform(-100, 100, (9, 5))
    values = np.abs(values) if "uint8" in (source, target) else values
    values[0, 0] = 0
    x = values.astype(numpy(source))
    y = np.zeros((9, 5), numpy(target))
    p.run(x, y)
    np.testing.assert_array_equal(y, x.astype(np.float32).astype(numpy(target)) if source == "bfloat16" else x.astype(numpy(target)))


def test_matching_of_unit_dimensions():
    p = Program()
    a, c, d = p.param((6, 8), "float32", "A"), p.param((8, 6), "float32", "C"), p.param((6, 1, 8), "float32", "D")
    with p.writing():
        row = p.alloc((8,), "float32", "row")
        copy(block(a, slice(2, 3), slice(0, 8)), row)
        copy(row, block(c, slice(0, 8), slice(4, 5)))
        copy(row, block(d, 5, 0, slice(0, 8)))
    x, y, z = np.arange(48, dtype=np.float32).reshape(6, 8), np.zeros((8, 6), np.float32), np.zeros((6, 1, 8), np.float32)
    p.run(x, y, z)
    want_c, want_d = np.zeros((8, 6)), np.zeros((6, 1, 8))
    want_c[:, 4], want_d[5, 0] = x[2], x[2]
    np.testing.assert_array_equal(y, want_c)
    np.testing.assert_array_equal(z, want_d)


def test_corners_take_the_other_extents():
    p = Program()
    a = p.param((4, 40, 50), "float32", "A")
    with p.writing():
        s, ring = p.alloc((8, 16), "float32", "s"), p.alloc((2, 8, 16), "float32", "ring")
        flat = p.param((40, 50), "float32", "F")
        copy(load(a, [1, 8, 16]), s)
        copy(s, load(a, [2, 0, 0]))
        copy(load(flat, [8, 16]), block(ring, 1, slice(0, 8), slice(0, 16)))
        copy(load(flat, [8, 16]), region(ring, [0, 3, 0], [2, 1, 16]))
    assert extents_written(p, 0) == (["1", "8", "16"], ["8", "16"])
    assert extents_written(p, 1) == (["8", "16"], ["1", "8", "16"])
    assert extents_written(p, 2) == (["8", "16"], ["1", "8", "16"])
    assert extents_written(p, 3) == (["2", "16"], ["2", "1", "16"])


def test_regions_of_different_rank_are_aligned_right():
    p = Program()
    a, b = p.param((32, 64), "float32", "A"), p.param((32, 64), "float32", "B")
    with p.writing():
        s = p.alloc((16, 64), "float32", "s")
        copy(region(a, [0, 0], [1, 64]), region(s, [0, 0], [16, 64]))
        copy(region(a, [0, 0], [10, 64]), s)
        copy(region(s, [0, 0], [16, 64]), region(b, [0, 0], [10, 64]))
    assert extents_written(p, 0) == (["16", "64"], ["16", "64"])
    assert extents_written(p, 1) == (["16", "64"], ["16", "64"])  # the inner scope's extents hold
    assert extents_written(p, 2) == (["16", "64"], ["16", "64"])


def test_two_corners_are_one_assignment():
    p = Program()
    a, b = p.param((3, 4), "float32", "A"), p.param((5,), "int32", "B")
    with p.writing():
        copy(load(a, [1, 2]), load(b, [3]))
    assert isinstance(p.body, BufferStore)
    x, y = np.full((3, 4), 2.75, np.float32), np.zeros(5, np.int32)
    p.run(x, y)
    assert y.tolist() == [0, 0, 0, 2, 0]


def test_symbolic_extents():
    p = Program()
    n = p.scalar("n")
    a, b = p.param((n, 4), "float32", "A"), p.param((n, 4), "float32", "B")
    with p.writing():
        copy(a, b)
    x, y = np.random.default_rng(2).standard_normal((13, 4), np.float32), np.zeros((13, 4), np.float32)
    p.run(13, x, y)
    np.testing.assert_array_equal(x, y)


@settings(max_examples=12, deadline=None)
@given(n=st.integers(2, 40), low=st.integers(0, 10), to=st.integers(0, 10), scope=st.sampled_from(SCOPES))
def test_overlapping_copy_reads_everything_first(n, low, to, scope):
    p = Program()
    a = p.param((n + 10,), "int32", "A")
    with p.writing():
        t = p.alloc((n + 10,), "int32", "t", scope)
        copy(a, t)
        copy(block(t, slice(low, low + n)), block(t, slice(to, to + n)))
        copy(t, a)
    x = np.arange(n + 10, dtype=np.int32)
    want = x.copy()
    want[to : to + n] = x[low : low + n]
    p.run(x)
    np.testing.assert_array_equal(x, want)


def test_overlap_through_a_view():
    p = Program()
    a = p.param((12,), "int32", "A")
    with p.writing() as written:
        t = p.alloc((12,), "int32", "t")
        view = tirx.decl_buffer((3, 4), "int32", name="view", scope="shared.dyn", data=t.data, layout=None)
        copy(a, t)
        written.builder.emit(tirx.DeclBuffer(view, data=t.data))
        copy(region(view, [0, 0], [1, 4]), block(t, slice(1, 5)))
        copy(t, a)
    x = np.arange(12, dtype=np.int32)
    p.run(x)
    assert x.tolist() == [0, 0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


# ---------------------------------------------------------------- fill
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    "dtype,value,want",
    [("float32", 2.5, 2.5), ("int8", -3, -3), ("int32", 7.9, 7), ("uint8", 255, 255), ("float16", -np.inf, -np.inf), ("bool", 2, True)],
)
def test_fill_converts(scope, dtype, value, want):
    p = Program()
    out = p.param((3, 5), dtype, "O")
    with p.writing():
        t = p.alloc((3, 5), dtype, "t", scope)
        fill(t, value)
        copy(t, out)
    y = np.zeros((3, 5), dtype)
    p.run(y)
    np.testing.assert_array_equal(y, np.full((3, 5), want, dtype))


def test_fill_and_clear_of_slices_and_elements():
    p = Program()
    a = p.param((6, 5), "float32", "A")
    with p.writing():
        fill(block(a, slice(1, 3), slice(0, 5)), load(a, [1, 1]) + load(a, [0, 0]))
        clear(block(a, 4, slice(2, 4)))
        fill(load(a, [5, 4]), 9)
    x = np.arange(30, dtype=np.float32).reshape(6, 5) + 1
    want = x.copy()
    want[1:3], want[4, 2:4], want[5, 4] = x[1, 1] + x[0, 0], 0, 9
    p.run(x)
    np.testing.assert_array_equal(x, want)


# ---------------------------------------------------------------- errors
def raises(kind, action, *mentions):
    p = Program()
    with pytest.raises(kind) as caught, p.writing():
        action(p)
    for text in mentions:
        assert text in str(caught.value)


def test_whole_buffers_of_different_shape():
    def different(p):
        copy(p.alloc((64, 32), "float32", "src_shared"), p.alloc((48, 32), "float32", "dst_local", "local.fragment"))

    raises(TileValueError, different, "src_shared", "dst_local", "(64, 32)", "(48, 32)")
    raises(TileValueError, lambda p: copy(p.alloc((4, 4), "int8", "a"), p.alloc((16,), "int8", "b")), "(4, 4)", "(16,)")


def test_other_copy_errors():
    raises(TileTypeError, lambda p: copy(3, p.alloc((4,), "int8", "b")), "src", "3")
    raises(TileTypeError, lambda p: copy(p.alloc((4,), "int8", "b"), None), "dst", "None")
    raises(TileValueError, lambda p: copy(p.alloc((4, 4), "int8", "a"), load(p.alloc((8,), "int8", "b"), [0])), "a", "b", "2")
    raises(TileValueError, lambda p: copy(p.param((8,), "int8", "a"), region(p.alloc((8,), "int8", "b"), [0], [4])), "4 of 8")
    raises(TileValueError, lambda p: copy(p.alloc((4,), "uint64", "bar", "shared.barrier"), p.alloc((4,), "uint64", "b")), "bar")
    raises(TileValueError, lambda p: copy(p.alloc((4,), "int8", "a"), p.alloc((4,), "int8", "b"), eviction_policy="first"), "first")
    raises(TileValueError, lambda p: copy(p.alloc((4,), "int8", "a"), p.alloc((4,), "int8", "b"), coalesced_width=0), "0")
    raises(TileIndexError, lambda p: fill(region(p.alloc((4,), "int8", "b"), [2], [3]), 0), "b[2:5]", "4")
    raises(TileTypeError, lambda p: fill(p.alloc((4,), "int8", "b"), "x"), "x")


def test_outside_a_kernel():
    with pytest.raises(JITNoBuilderError):
        copy(None, None)


def test_variants_have_the_data_at_once_without_the_hardware():
    p = Program()
    a, b = p.param((16,), "float32", "A"), p.param((16,), "float32", "B")
    with p.writing():
        s = p.alloc((16,), "float32", "s")
        async_copy(a, s)
        tma_copy(s, b)
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    p.run(x, y)
    np.testing.assert_array_equal(x, y)
    raises(TileValueError, lambda q: tma_copy(q.param((16,), "float32", "A"), q.alloc((16,), "float32", "s")), "barrier")


def test_bulk_load_carries_its_barrier():
    p = Program()
    a = p.param((16,), "float32", "A")
    with p.writing():
        bar = p.alloc((2,), "uint64", "bar", "shared.barrier")
        tma_copy(a, p.alloc((16,), "float32", "s"), barrier=load(bar, [1]))
    call = tile_call(p.body.seq[-1])
    assert call.args[2].source.same_as(bar) and int(call.args[2].region[0].min) == 1

"""pad_shared: which buffers get padded rows, and that columns of padded tiles are free of bank conflicts."""

import pytest

import tilelang.language as T
from tilelang.ir.access import allocations
from tilelang.ir.context import PassContext
from tilelang.ir.tvm_api import shape_of
from tilelang.layout.swizzle import bits_of, transactions
from tilelang.passes.pad_shared import elements_of, pad_shared
from tilelang.target.target import Target


def padded(program):
    """{name: strides, or () for none} of the shared buffers after the pass."""
    func = pad_shared(program, PassContext(Target("simt")))
    return {str(b.name): tuple(int(s) for s in b.ty.strides) for b in allocations(func.body) if b.scope().startswith("shared")}


def product(m, n, k, dtype="float16", use=None, stages=1):
    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((stages, m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            other = T.alloc_shared((m, k), dtype)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a[0, :, :])
            T.copy(A, other)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a[0, :, :], b, c)
            if use is not None:
                use(b)
            T.copy(c, C)

    return main


def test_only_operands_of_products_are_padded():
    assert padded(product(32, 64, 64)) == {"a": (32 * 72, 72, 1), "b": (72, 1), "other": ()}


def test_rows_that_are_spread_already_stay():
    assert padded(product(32, 24, 40)) == {"a": (), "b": (), "other": ()}  # 80 and 48 bytes: multiples of 16, not of 32


def test_what_the_program_can_see_stays():
    assert padded(product(32, 64, 64, use=T.print))["b"] == ()
    assert padded(product(32, 64, 64, use=lambda b: T.view(b, (64 * 64,))))["b"] == ()


def test_nothing_is_padded_near_the_limit():
    assert set(padded(product(128, 64, 64, stages=9)).values()) == {()}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("columns", [32, 64, 128, 256])
def test_eight_rows_of_sixteen_bytes_need_one_transaction(columns, dtype):
    if columns * bits_of(dtype) % 256:
        pytest.skip("rows are not padded")
    func = pad_shared(product(32, 64, columns, dtype, stages=2), PassContext(Target("simt")))
    (a,) = [b for b in allocations(func.body) if b.name == "a"]
    row = int(a.ty.strides[1]) * bits_of(dtype) // 8
    assert row % 16 == 0
    for first in range(0, columns * bits_of(dtype) // 8, 16):
        assert transactions([first + r * row for r in range(8)], 16) == 1
    assert elements_of(a) == shape_of(a)[0] * shape_of(a)[1] * int(a.ty.strides[1])

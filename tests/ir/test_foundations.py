"""Constants, kernel regions, the builder and the rewriting engine."""

import pytest

from tilelang.errors import InternalError, JITNoBuilderError, Location, TileRuntimeError
from tilelang.ir import builder as builders
from tilelang.ir.dialect import make_call, op_info, tile_call
from tilelang.ir.kernel import KernelRegion, map_kernels, match_kernel
from tilelang.ir.rewrite import rewrite, substitute, uses
from tilelang.ir.tvm_api import (
    BufferStore,
    Evaluate,
    For,
    ForKind,
    PrimFunc,
    TensorLoad,
    Var,
    const,
    decl_buffer,
    load,
    location_of,
    region,
    seq,
    store,
)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-1, "uint8", "255"), (200, "int8", "-56"), (2**64 - 1, "uint64", "18446744073709551615"), (-3, "int4", "-3"),
        (1e-300, "float64", "1e-300"), (-0.0, "float32", "-0.0"), (3, "bfloat16", "3.0"), (True, "bool", "True"),
        (2**31, "int32", "-2147483648"),
    ],
)  # fmt: skip
def test_constants_have_exactly_the_type(value, dtype, text):
    c = const(value, dtype)
    assert str(c.ty.dtype) == dtype
    assert text in c.script()


def _region():
    a = decl_buffer((16,), "float32", "A")
    bx, threads = Var("bx", "int32"), [(Var(f"t{d}", "int32"), e) for d, e in zip("xyz", (32, 2, 1), strict=True)]
    return a, KernelRegion(((bx, 4),), tuple(threads), store(a, load(a, [bx]), [bx]), {"prelude": "// hi"})


def test_kernel_region_round_trip():
    _, kernel = _region()
    again = match_kernel(kernel.to_stmt())
    assert again is not None
    assert [e for _, e in again.blocks] == [4]
    assert again.num_threads == 64
    assert again.annotations["prelude"] == "// hi"
    assert isinstance(again.body, BufferStore)
    assert match_kernel(kernel.body) is None


def test_map_kernels_reaches_regions_under_host_control_flow():
    a, kernel = _region()
    i = Var("i", "int32")
    host = seq([Evaluate(const(0, "int32")), For(i, 0, 3, ForKind.SERIAL, kernel.to_stmt())])
    seen = []
    out = map_kernels(host, lambda k: (seen.append(k), k.with_body(Evaluate(const(1, "int32"))).to_stmt())[1])
    assert len(seen) == 1
    assert "A" not in PrimFunc([a], out).body.script().replace("A:", "")


def test_rewrite_rules_own_the_descent_and_never_return_none():
    _, kernel = _region()
    twice = rewrite(kernel.body, {BufferStore: lambda node, d: seq([d.children(node), node])})
    assert len(twice.seq) == 2
    with pytest.raises(InternalError, match="returned None"):
        rewrite(kernel.body, {TensorLoad: lambda node, d: None})
    bx = kernel.blocks[0][0]
    assert uses(kernel.body, bx)
    assert not uses(substitute(kernel.body, {bx: const(2, "int32")}), bx)


def test_dialect_table_knows_roles():
    a, _ = _region()
    call = make_call("tl.tileop.fill", [region(a, [0], [16]), const(1.0, "float32")], hint=3)
    assert op_info(call).roles == ("w", "v")
    assert tile_call(Evaluate(call)) is call or tile_call(Evaluate(call)).same_as(call)
    assert op_info(const(1, "int32")) is None


def test_builder_places_allocations_and_spans():
    b = builders.Builder()
    with builders.writing(b), b.frame("kernel") as kernel:
        b.location = Location("k.py", 3, 5, 3, 9)
        with b.loop(["i"], [0], [8]) as (i,):
            shared = b.alloc(decl_buffer((8,), "float32", "S", "shared.dyn"))
            b.store(shared, const(0.0, "float32"), [i])
            with b.loop(["j"], [0], [4], ForKind.PARALLEL, frame="parallel", annotations={"tl.parallel": 1}):
                private = b.alloc(decl_buffer((1,), "int32", "v", "local.var"))
                b.store(private, const(5, "int32"), [0])
    text = kernel.body().script()
    assert text.index("alloc_buffer((8,)") < text.index("for i")
    assert text.index("for j") < text.index('scope="local.var"') < text.index("= 5")
    assert location_of(kernel.stmts[0]) == Location("k.py", 3, 5, 3, 9)


def test_outside_of_a_kernel():
    with pytest.raises(JITNoBuilderError, match=r"T\.copy"):
        builders.current("T.copy")
    b = builders.Builder()
    with builders.writing(b), b.frame("function"), pytest.raises(TileRuntimeError, match=r"with T\.Kernel"):
        builders.in_kernel("T.copy")

"""The memory report as written: programs built by hand, with exact bits, scopes, owners, sums; tables; JSON."""

from tilelang.compiler.compile import context
from tilelang.compiler.memory_report import report_of
from tilelang.compiler.tables import table
from tilelang.errors import Location
from tilelang.ir.kernel import KernelRegion
from tilelang.ir.tvm_api import AllocBuffer, PrimFunc, Var, decl_buffer, make_span, seq, tirx
from tilelang.target.target import parse_target


def kernel(buffers, threads=(128, 1, 1), blocks=(4,), facts=None):
    names = [Var(f"b{k}", "int32") for k in range(len(blocks))]
    ids = [Var(f"t{k}", "int32") for k in range(3)]
    allocs = [AllocBuffer(b, {"tl.alloc": facts} if facts else None, make_span(Location("k.py", 10 + k, 9))) for k, b in enumerate(buffers)]
    return KernelRegion(tuple(zip(names, blocks, strict=True)), tuple(zip(ids, threads, strict=True)), seq(allocs)).to_stmt()


def written(*stmts):
    """The report of a program for the CPU: memory as written."""
    func = PrimFunc([], seq(stmts)).with_attr("global_symbol", "main")
    return report_of(func, func, context(parse_target("cpu")))


def test_sizes_scopes_and_lines():
    buffers = [
        decl_buffer((128, 32), "float16", "A_s", "shared.dyn"),
        decl_buffer((64, 33), "int4", "Q_s", "shared.dyn"),
        decl_buffer((3,), "float4_e2m1fn", "odd", "shared"),
        decl_buffer((128, 128), "float32", "C", "local.fragment"),
        decl_buffer((8,), "float32x4", "v", "local"),
        decl_buffer((1,), "int32", "x", "local.var"),
        decl_buffer((2,), "bool", "flags", "shared"),
    ]
    report = written(kernel(buffers))
    (one,) = report.kernels
    assert report.workspaces == ()
    assert (one.index, one.blocks, one.threads) == (0, (4,), 128)
    assert [(a.name, a.bits, a.bytes, a.owner) for a in one.allocations] == [
        ("A_s", 65536, 8192, "block"),
        ("Q_s", 64 * 33 * 4, 2112, "block"),
        ("odd", 12, 3, "block"),
        ("C", 128 * 128 * 32, 65536, "block"),
        ("v", 8 * 128, 128, "thread"),
        ("x", 32, 4, "thread"),
        ("flags", 16, 2, "block"),
    ]
    assert [a.line for a in one.allocations] == list(range(10, 17))
    assert one.allocations[0].at == Location("k.py", 10, 9, 10, 9)
    assert one.totals() == {"shared.dyn": 10304, "shared": 5, "local.fragment": 65536, "local": 128, "local.var": 4}
    assert one.limits is None
    assert {a.origin for a in one.allocations} == {"program"}


def test_several_kernels_and_workspaces():
    work = AllocBuffer(decl_buffer((10,), "float64", "W", "global"), None, None)
    first = kernel([decl_buffer((4,), "int8", "a", "shared")])
    second = kernel([decl_buffer((6,), "int8", "b", "shared")], threads=(32, 2, 1), blocks=(2, 3))
    report = written(work, first, second)
    kernels, outside = report.kernels, report.workspaces
    assert [[a.name for a in k.allocations] for k in kernels] == [["a"], ["b"]]
    assert [(k.index, k.threads, k.blocks) for k in kernels] == [(0, 128, (4,)), (1, 64, (2, 3))]
    assert [(a.name, a.bytes, a.owner, a.at) for a in outside] == [("W", 80, "launch", None)]


def test_symbolic_extents_have_no_size():
    n = Var("n", "int32")
    (one,) = written(kernel([decl_buffer((n, 4), "float32", "S", "shared.dyn")], blocks=(n + 1,))).kernels
    (a,) = one.allocations
    assert (a.shape, a.bits, a.bytes) == (("n", 4), None, None)
    assert one.blocks == ("n + 1",)
    assert one.totals() == {"shared.dyn": 0}


def test_layout_of_an_annotated_buffer():
    i, j = Var("i", "int32"), Var("j", "int32")
    fact = {"layout": tirx.IndexMap([i, j], [j, i], None)}
    (one,) = written(kernel([decl_buffer((4, 4), "int8", "S", "shared")], facts=fact)).kernels
    assert one.allocations[0].layout == "(i, j) -> (j, i)"


def test_table_is_aligned():
    text = table(["name", "bytes"], [["a", "1,000"], ["longer", "7"]], right=(1,))
    assert text.splitlines() == ["name    bytes", "------  -----", "a       1,000", "longer      7"]

"""Allocators: every form, the buffers they give, every refusal; values of variables through a compiled program."""

import inspect
import warnings

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as script

import tilelang
import tilelang.language as T
from tilelang.errors import (
    JITNoBuilderError,
    Location,
    TileAssertionError,
    TileError,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
)
from tilelang.ir.builder import Builder, writing
from tilelang.ir.tvm_api import AllocBuffer, BufferStore, DeclBuffer, Var, location_of

HERE = Location("program.py", 7, 3, 7, 30)


@pytest.fixture
def kernel():
    """An open kernel frame, as the front end leaves it for a statement `tile = T.alloc_...`."""
    builder = Builder()
    builder.location, builder.target_name = HERE, "tile"
    with writing(builder), builder.frame("function"), builder.frame("kernel") as frame:
        yield frame


# ---------------------------------------------------------------- what is allocated
@pytest.mark.parametrize(
    ("make", "scope"), [(T.alloc_shared, "shared.dyn"), (T.alloc_local, "local"), (T.alloc_fragment, "local.fragment")]
)
def test_buffer_has_shape_dtype_scope_name_and_line(kernel, make, scope):
    buffer = make((4, 8), "float16")
    assert tirx.is_buffer_var(buffer)
    assert [int(e) for e in buffer.shape] == [4, 8]
    assert buffer.dtype == "float16" and buffer.scope() == scope and buffer.name == "tile"
    assert location_of(buffer) == HERE
    (statement,) = kernel.allocs
    assert isinstance(statement, AllocBuffer) and statement.buffer.same_as(buffer) and location_of(statement) == HERE


@pytest.mark.parametrize("shape", [4, [4], (4,), np.int64(4), tirx.IntImm("int32", 4)])
def test_one_extent_in_every_form(kernel, shape):
    assert [int(e) for e in T.alloc_fragment(shape, "int8").shape] == [4]


@pytest.mark.parametrize("kind", ["float32", "float", T.float32, np.float32, np.dtype("float32"), float])
def test_element_types_in_every_form(kernel, kind):
    assert T.alloc_local((2,), kind).dtype == "float32"


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, "e4m3_float8", T.int4, "float4_e2m1fn", "tfloat32", "int32x4"])
def test_special_element_types(kernel, kind):
    assert T.alloc_shared((8,), kind).dtype == T.dtype(kind).storage


def test_torch_element_types(kernel):
    torch = pytest.importorskip("torch")
    assert T.alloc_shared((4,), torch.bfloat16).dtype == "bfloat16"
    assert T.alloc_shared((4,), torch.bool).scope() == "shared"


@pytest.mark.parametrize("kind", ["bool", T.bool, bool, np.bool_])
def test_bool_is_static_unless_a_scope_is_given(kernel, kind):
    assert T.alloc_shared((4,), kind).scope() == "shared"
    assert T.alloc_shared((4,), kind, "shared.dyn").scope() == "shared.dyn"
    assert T.alloc_shared((4,), kind, scope="shared").scope() == "shared"


@pytest.mark.parametrize("scope", ["shared", "shared.dyn", "local", "local.fragment"])
def test_a_given_scope_is_kept(kernel, scope):
    for make in (T.alloc_shared, T.alloc_local, T.alloc_fragment):
        assert make((4,), "int32", scope).scope() == scope
        assert make(shape=(4,), dtype="int32", scope=scope).scope() == scope
    assert T.alloc_buffer((4,), scope=scope).dtype == "float32"


def test_symbolic_extents_where_they_have_a_meaning(kernel):
    n = T.dynamic("n")
    assert T.alloc_shared((n, 4), "float32").shape[0].same_as(n)
    assert T.alloc_global((n,), "float32").scope() == "global"
    for make in (T.alloc_fragment, T.alloc_local):
        with pytest.raises(TileValueError, match="extent 1 is n"):
            make((4, n), "float32")


def test_documented_signature():

    for make, scope in ((T.alloc_shared, "shared.dyn"), (T.alloc_local, "local"), (T.alloc_fragment, "local.fragment")):
        parameters = inspect.signature(make).parameters
        assert list(parameters) == ["shape", "dtype", "scope"] and parameters["scope"].default == scope


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize("make", [T.alloc_shared, T.alloc_local, T.alloc_fragment, T.alloc_global])
@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (((4, -16), "float16"), TileValueError, ["-16", "shape (4, -16)"]), ((0, "float16"), TileValueError, ["0"]),
        (((), "float16"), TileValueError, ["()"]), ((None, "float16"), TileTypeError, ["None"]), ((4.5, "int8"), TileTypeError, ["4.5"]),
        ((True, "int8"), TileTypeError, ["True"]), (((4, None), "int8"), TileTypeError, ["extent 1", "None"]),
        (("44", "int8"), TileTypeError, ["'44'"]), (((4,), "flaot16"), TileTypeError, ["flaot16", "float16"]),
        (((4,), None), TileTypeError, ["None"]), (((4,), "int8", "sharde"), TileValueError, ["sharde", "shared"]),
        (((4,), "int8", 3), TileTypeError, ["3"]), (((4,), "int8", "local.var"), TileValueError, ["local.var"]),
        (((4,), "int8", "shared", 1), TileTypeError, ["the call is"]), (((4,),), TileTypeError, ["dtype"]),
        (((4,), "handle"), TileError, ["addresses"]),
    ],
)  # fmt: skip
def test_refusals_name_the_value(kernel, make, args, error, words):
    with pytest.raises(error) as caught:
        make(*args)
    for word in (f"T.{make.__name__}", *words):
        assert word in str(caught.value)
    assert not kernel.allocs


def test_extent_that_reads_memory(kernel):
    sizes = T.alloc_local((4,), "int32")
    with pytest.raises(TileValueError, match="known before the launch"):
        T.alloc_shared((sizes[0],), "float32")


def test_outside_of_any_kernel():
    for call in (
        lambda: T.alloc_shared((4,), "int8"), lambda: T.alloc_var("int8"), lambda: T.alloc_barrier(1), lambda: T.alloc_reducer(4, "int8"),
        lambda: T.alloc_global(4, "int8"),
    ):  # fmt: skip
        with pytest.raises(JITNoBuilderError, match=r"T\.alloc_"):
            call()
    builder = Builder()
    with writing(builder), builder.frame("function"), pytest.raises(TileRuntimeError, match=r"outside `with T\.Kernel"):
        T.alloc_shared((4,), "int8")


# ---------------------------------------------------------------- variables
@pytest.mark.parametrize(
    ("args", "keywords", "value"),
    [
        (("int32",), {}, None), (("int32", 5), {}, 5), (("int32", "local.var"), {}, None), (("int32", 5, "local.var"), {}, 5),
        (("int32",), {"init": 5}, 5), (("int32",), {"scope": "local.var", "init": 5}, 5), (("int32", "local.var"), {"init": 5}, 5),
        (("int32", tirx.IntImm("int8", 5)), {}, 5), (("int32", 5.0), {}, 5), (("int32", 0), {}, 0),
    ],
)  # fmt: skip
def test_variable_forms(kernel, args, keywords, value):
    variable = T.alloc_var(*args, **keywords)
    assert variable.scope() == "local.var" and [int(e) for e in variable.shape] == [1] and variable.name == "tile"
    zero = kernel.allocs[1]
    assert isinstance(zero, BufferStore) and int(zero.value) == 0
    assert [int(s.value) for s in kernel.stmts] == ([] if value is None else [value])


@pytest.mark.parametrize(
    ("args", "keywords", "error", "words"),
    [
        (("int8", 300), {}, TileValueError, ["300", "int8", "-128 to 127"]), (("uint8", -1), {}, TileValueError, ["-1", "uint8"]),
        (("int32", 1.5), {}, TileValueError, ["1.5"]), (("bool", 2), {}, TileValueError, ["2", "bool"]),
        (("float16", 1e6), {}, TileValueError, ["1000000.0", "65504"]), (("int8", 1), {"init": 2}, TileTypeError, ["two initial values"]),
        (("int8", 1, 2), {}, TileTypeError, ["2"]), (("int8", 1, "local.var", 3), {}, TileTypeError, ["at most 3"]),
        (("int8", "local.var"), {"scope": "local"}, TileTypeError, ["two scopes"]), (("int8",), {"scope": 3}, TileTypeError, ["3"]),
        (("int8", "locl.var"), {}, TileValueError, ["locl.var", "local.var"]), (("int8", [1]), {}, TileTypeError, ["[1]"]),
        (("int9",), {}, TileTypeError, ["int9"]), ((), {}, TileTypeError, ["dtype"]), (("int8",), {"value": 1}, TileTypeError, ["value"]),
    ],
)  # fmt: skip
def test_variable_refusals(kernel, args, keywords, error, words):
    with pytest.raises(error) as caught:
        T.alloc_var(*args, **keywords)
    assert all(word in str(caught.value) for word in words)


def test_initial_values_keep_their_digits(kernel):
    T.alloc_var("float64", 1e300)
    T.alloc_var("float64", 0.1)
    T.alloc_var("float32", -0.0)
    values = [s.value.value for s in kernel.stmts]
    assert values[:2] == [1e300, 0.1] and np.signbit(values[2])


def test_variables_in_loops():
    """State persists over iterations; an initial value is stored again by each."""

    @T.prim_func
    def main(Y: T.Tensor((3, 4), "int32")):
        with T.Kernel(1, threads=1):
            total = T.alloc_var("int32")
            for i in T.serial(4):
                fresh = T.alloc_var("int32", 10)
                kept = T.alloc_var("int32")
                fresh += i
                kept += i
                total += fresh
                Y[0, i] = fresh
                Y[1, i] = kept
                Y[2, i] = total

    result = np.zeros((3, 4), np.int32)
    tilelang.compile(main, target="cpu")(result)
    assert result.tolist() == [[10, 11, 12, 13], [0, 1, 3, 6], [10, 21, 33, 46]]


# ---------------------------------------------------------------- reducers, barriers
@pytest.mark.parametrize("op", ["sum", "max", "min", "bitand", "bitor", "bitxor"])
def test_reducers(kernel, op):
    acc = T.alloc_reducer((4,), "int32", op)
    assert acc.scope() == "local.reducer" and dict(kernel.allocs[0].annotations["tl.alloc"]) == {"op": op}


def test_older_reducers(kernel):
    with pytest.warns(DeprecationWarning, match="replication"):
        acc = T.alloc_reducer((4,), "float32", "max", replication="all")
    assert acc.scope() == "local.fragment"
    assert kernel.allocs[0].annotations["tl.alloc"]["replication"] == "all"


@pytest.mark.parametrize(
    "call",
    [
        lambda: T.alloc_reducer(4, "float32", "mean"), lambda: T.alloc_reducer(4, "float32", "bitor"),
        lambda: T.alloc_reducer(4, "int32", "bitor", replication="all"), lambda: T.alloc_reducer(4, "int32", replication="some"),
        lambda: T.alloc_barrier(0), lambda: T.alloc_barrier([4, -1]), lambda: T.alloc_barrier([]), lambda: T.alloc_descriptor("mma"),
    ],
)  # fmt: skip
def test_refused_values(kernel, call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TileValueError):
            call()


def test_barriers(kernel):
    barrier = T.alloc_barrier([128, 1])
    assert barrier.scope() == "shared.barrier" and barrier.dtype == "uint64" and [int(e) for e in barrier.shape] == [2]
    assert list(kernel.allocs[0].annotations["tl.alloc"]["arrive_counts"]) == [128, 1]
    assert [int(e) for e in T.alloc_cluster_barrier(arrive_count=4).shape] == [1]
    with pytest.raises(TileTypeError):
        T.alloc_barrier("4")


def test_memory_of_gpus_records_its_name(kernel):
    T.alloc_tmem((128, 64), "float32")
    T.alloc_wgmma_desc()
    assert [s.annotations["tl.alloc"]["gpu_only"] for s in kernel.allocs] == ["T.alloc_tmem", "T.alloc_descriptor"]
    with pytest.raises(TileAssertionError):
        T.alloc_tmem((128,), "float32")


# ---------------------------------------------------------------- views
def test_views(kernel):
    tile = T.alloc_shared((4, 8), "float32")
    for alias, shape, kind in (
        (T.view(tile, (32,)), [32], "float32"), (T.view(tile, dtype="int32"), [4, 8], "int32"),
        (T.view(tile, (4, 16), "float16"), [4, 16], "float16"),
        (T.reshape(tile, [8, 4]), [8, 4], "float32"),
    ):  # fmt: skip
        assert [int(e) for e in alias.shape] == shape and alias.dtype == kind and alias.scope() == "shared.dyn"
    assert all(isinstance(s, DeclBuffer) for s in kernel.stmts)
    for call in (lambda: T.view(tile, (4, 9)), lambda: T.view(tile, dtype="float16"), lambda: T.reshape(tile, (31,))):
        with pytest.raises(TileAssertionError, match="1024 bits"):
            call()
    with pytest.raises(TileTypeError):
        T.view(tile[0, 0], (1,))


def test_views_of_symbolic_tensors(kernel):
    m, n = T.dynamic("m, n")
    workspace = T.alloc_global((m, n), "float32")
    assert T.reshape(workspace, (n * m,)).shape[0] is not None
    with pytest.raises(TileAssertionError):
        T.reshape(workspace, (m + n,))


# ---------------------------------------------------------------- plain TVMScript
@script.prim_func
def plain(A: script.Buffer((16,), "int32")):
    for i in script.serial(16):
        buffer_shared = T.alloc_shared((16,), "int32")
        registers = T.alloc_fragment([16], "float32")
        counter = T.alloc_var("int32", 7)
        buffer_shared[i] = A[i]
        registers[i] = script.float32(1)
        A[i] = buffer_shared[i] + counter[0]


def test_in_a_function_of_tvm_script():
    text = plain.script()
    for name, scope in (("buffer_shared", "shared.dyn"), ("registers", "local.fragment"), ("counter", "local.var")):
        assert any(name in line and scope in line for line in text.splitlines())
    assert isinstance(plain.params[0], Var)


@pytest.mark.parametrize(
    ("function", "scope"),
    [(T.alloc_shared, "shared.dyn"), (T.alloc_local, "local"), (T.alloc_fragment, "local.fragment"), (T.alloc_var, "local.var")],
)
def test_the_signature_shows_the_scope(function, scope):
    assert inspect.signature(function).parameters["scope"].default == scope

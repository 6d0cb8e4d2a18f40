"""Every form of statement, spans, parameters, and where source text comes from."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileTypeError
from tilelang.ir.dialect import ATTR_WS
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import IntImm, Stmt, TensorRegion, location_of, tirx

from .test_scalar_rule import N, data, execute

In = T.Tensor((N,), "float32")
Out = T.Tensor((N,), "float32")
Square = T.Tensor((8, 8), "float32")


def run(function):
    out = np.zeros(N, np.float32)
    execute(function, data("float32"), out)
    return out.tolist()


def nodes(program, kind):
    found = []
    walk(program.body, {kind: found.append})
    return found


def test_assignments():
    def f(X: In, Y: Out):
        a = b = X[0] + 1
        (c, d), *rest = (X[1], X[2]), 5, 6
        Y[0], Y[1] = b, a + c
        Y[2] = d + rest[1]
        e: T.int32 = X[4] / 2
        Y[3] = e
        g: float = 3
        Y[4] = g
        Y[5] += 2
        Y[5] *= X[0]
        h = 1
        h <<= 3
        Y[6] = h
        del h

    assert run(f)[:7] == [4.0, 3.0, 10.0, -2.0, 3.0, 6.0, 8.0]


def test_swap_through_memory():
    def f(X: In, Y: Out):
        Y[0], Y[1] = 1.0, 2.0
        Y[0], Y[1] = Y[1], Y[0]

    assert run(f)[:2] == [2.0, 1.0]


def test_variables():
    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32")
            v[0] = 2.75
            v += 3
            w = v
            v = v * 2
            Y[0], Y[1] = v, w
            Y[v] = v[0]

    assert run(f)[:11] == [10.0, 5.0, 0, 0, 0, 0, 0, 0, 0, 0, 10.0]


def test_negative_indices_count_from_the_end():
    def f(X: In, Y: Out):
        Y[-1] = X[-2]
        for i in range(3):
            Y[-3 - i] = X[i]
        Y[0] = X[-1 - (X.shape[0] - 2)]

    assert run(f) == [-1.0, 0, 0, 0, 0, 0, 0, 4.0, -1.0, 3.0, 0, 5.0]


def test_static_flow():
    def f(X: In, Y: Out):
        import math  # noqa: PLC0415

        if math.floor(2.5) == 2 and Y is not None:
            Y[0] = 1.0
        elif X[0] > 0:
            Y[1] = 1.0
        else:
            raise ValueError("not reached")
        for k, name in enumerate(["a", "b", "c"]):
            if name == "b":
                continue
            if k == 2:
                break
            Y[2 + k] = k + 5
        Y[5] = 1.0 if "x" in {"x": 1} else X[0]
        Y[6] = 1.0 if X[0] in (1, 3) else 0.0

    assert run(f)[:7] == [1.0, 0, 5.0, 0, 0, 1.0, 1.0]


def test_conditions_guard_their_right_side():
    @T.prim_func
    def f(X: In, Y: Out, n: T.int32):
        if (n < N and X[n] > 0) or n == 3:
            Y[0] = 1.0
        Y[1] = X[n] if n < N else 0.0

    text = f.script()
    assert text.count("T.if_then_else") == 2


def test_tir_frames():
    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", 0)
            with T.If(X[0] > 1):
                with T.Then():
                    Y[0] = 1.0
                with T.Else():
                    Y[0] = 2.0
            with T.While(v < 3):
                v = v + 1
            with T.block("named"):
                Y[1] = v

    assert run(f)[:2] == [1.0, 3.0]


def test_scalar_rule_in_frames():
    def f(X: In, Y: Out):
        s = 1
        with T.If(X[0] > 100), T.Then():
            s = 5
        Y[0] = s

    assert run(f)[0] == 1.0


def test_regions_and_aliases():
    @T.prim_func
    def f(X: Square, Y: Square):
        with T.Kernel(2) as bx:
            row = X[bx, 0:8]
            part = row[2:6]
            assert part.shape == (4,) and row.dtype == "float32"
            Y[0, 0] = part[1]
            block = X[bx * 4 : bx * 4 + 4, :]
            T.copy(block, Y[0:4, 0:8])
            alias = Y
            alias[1, 1] = X.shape[1]

    copied = [r for r in nodes(f, TensorRegion) if r.source.name == "X"]
    assert [int(e.extent) for e in copied[0].region] == [4, 8]
    assert "Y[0, 0] = X[bx, 3]" in f.script()


def test_region_position_is_taken_when_bound():
    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            k = T.alloc_var("int32", 1)
            part = X[k : k + 3]
            k = 7
            Y[0] = part[0]

    assert run(f)[0] == -1.0


def test_every_statement_has_a_span():
    @T.prim_func
    def f(X: In, Y: Out):
        s = 0
        with T.Kernel(2, threads=32) as bx:
            t = T.alloc_shared((N,), "float32")
            for i in T.serial(0, N, 3):
                if X[i] > bx:
                    s = s + 1
            for i in T.Parallel(N):
                t[i] = X[i]
            T.copy(t, Y)
            while s > 0:
                s -= 1

    missing = [type(s).__name__ for s in nodes(f, Stmt) if location_of(s) is None and not isinstance(s, tirx.SeqStmt)]
    assert not missing
    files = {location_of(s).file for s in nodes(f, Stmt) if not isinstance(s, tirx.SeqStmt)}
    assert files == {__file__}
    loop = nodes(f, tirx.For)[0]
    assert linecache.getline(__file__, location_of(loop).line).strip().startswith("for i in T.serial(0, N, 3)")


def test_names_of_the_user():
    @T.prim_func
    def f(X: In, Y: Out):
        with T.Kernel(2, 3) as (row, column):
            tile = T.alloc_shared((4,), "float32")
            for step in range(3):
                value = X[step] * 2
                tile[step] = value + row + column

    text = f.script()
    for name in ("row = ", "column = ", "tile = ", "for step in", "value: "):
        assert name in text


def test_kernel_forms():
    @T.prim_func
    def f(X: In, Y: Out):
        n = 5
        with T.Kernel(n, threads=(4, 2)) as (bx,):
            assert T.get_thread_extents() == [4, 2, 1] and T.get_block_extent() == 5
            Y[bx] = T.get_thread_binding(1)
        with T.Kernel(n) as bx:
            launch = T.KernelLaunchFrame.Current()
            assert launch.num_threads == 128 and T.get_block_binding().same_as(bx)
            Y[bx] = 0.0
        with T.Kernel(threads=32) as indices:
            assert len(indices) == 0
            Y[0] = 0.0
        with T.Kernel(2, 3, is_cpu=True) as both:
            Y[both[0]] = both[1]
        with T.Kernel(0, 1, prelude="// text") as (bx, by):
            T.use_swizzle(4, "column")
            T.annotate_safe_value({X: -1.0})
            T.func_attr({"mine": 3})
            Y[bx] = by

    assert int(f.attrs["mine"]) == 3
    text = f.script()
    assert '"prelude": "// text"' in text and '"use_swizzle"' in text and "safe_value" in text
    assert f.attrs["global_symbol"] == "f" and str(f.attrs["tl.source"]).startswith(__file__)


def test_warp_groups():
    @T.prim_func
    def f(X: In, Y: Out):
        with T.Kernel(1, threads=256):
            with T.ws(1):
                Y[0] = 1.0
            with T.ws(0, 1):
                Y[1] = 1.0

    groups = [[int(g) for g in s.node] for s in nodes(f, tirx.AttrStmt) if s.attr_key == ATTR_WS]
    assert groups == [[1], [0, 1]]


def test_parameters():
    n = T.dynamic("n")

    @T.prim_func
    def f(X: T.Tensor((n, 4), "float16"), p: T.ptr, a: T.int32, b: T.float32(), c: int, d: bool, e: "float64"):  # noqa: F821, UP037
        X[0, 0] = a + b + c
        for i in range(n):
            X[i, 1] = e

    assert [p.name for p in f.params] == ["X", "p", "a", "b", "c", "d", "e"]
    kinds = [str(p.ty.dtype) for p in f.params if hasattr(p.ty, "dtype")]
    assert kinds == ["float16", "int32", "float32", "int32", "bool", "float64"]


def test_decorator_forms():
    @T.prim_func(private=True, check_well_formed=False)
    def f(X: In):
        X[0] = 1.0

    assert f.attrs["global_symbol"] == "f"


def test_free_names_are_compile_time_values():
    def make(size, kind):
        table = (1.0, 2.0)

        @T.prim_func
        def f(X: T.Tensor((size,), kind)):
            for i in range(size):
                X[i] = table[1]

        return f

    assert int(make(5, "float16").params[0].shape[0]) == 5
    assert str(make(7, "int8").params[0].dtype) == "int8"


def test_long_loops_use_64_bits():
    @T.prim_func
    def f(X: In, n: T.int64):
        for i in range(n):
            X[i] = 1.0
        for j in range(1 << 33):
            X[j] = 1.0

    assert [str(s.loop_var.ty.dtype) for s in nodes(f, tirx.For)] == ["int64", "int64"]


def test_steps_are_normalised():
    @T.prim_func
    def f(X: In, n: T.int32):
        for i in range(n, 0, -2):
            X[i] = i

    (loop,) = nodes(f, tirx.For)
    assert isinstance(loop.min, IntImm) and int(loop.min) == 0 and (loop.step is None or int(loop.step) == 1)


def test_expression_statement_executes_a_call():
    @T.prim_func
    def f(X: In):
        with T.Kernel(1):
            T.call_extern("int32", "touch", X[0])

    assert "touch" in f.script()


def test_device_assert_in_a_kernel():
    @T.prim_func
    def f(X: In, n: T.int32):
        assert n > 0, "n is positive"
        with T.Kernel(1):
            assert X[0] > 0, f"first of {N}"

    assert len(nodes(f, tirx.AssertStmt)) == 1 and "tl.device_assert" in f.script()


def test_notebook_cell():
    text = "import tilelang.language as T\n\n@T.prim_func\ndef cell(X: T.Tensor((8,), 'float32')):\n    X[0] = X[1, 2]\n"
    name = "<ipython-input-1-0123456789ab>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with pytest.raises(IndexError) as info:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
    assert name in str(info.value) and "X[0] = X[1, 2]" in str(info.value)


def test_annotation_strings_see_the_factory():
    def make(rows, kind):
        @T.prim_func
        def f(X: T.Tensor((rows, 2), kind)):
            X[0, 0] = 1

        return f

    program = make(6, "float16")  # this file postpones annotations; `rows` and `kind` occur in nothing else
    assert [int(e) for e in program.params[0].shape] == [6, 2]


def test_plain_functions_get_values():
    def helper(x):
        assert not hasattr(x, "scope") or not T.alloc_var
        return x * 2

    def f(X: In, Y: Out):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("float32", 4.0)
            Y[0] = helper(v)

    assert run(f)[0] == 8.0


def test_unknown_annotation_type():
    with pytest.raises(TileTypeError, match="annotated with"):

        @T.prim_func
        def f(X: object):
            pass


def test_vector_indices_store_as_many_elements_as_they_have_lanes():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=16):
            t = T.get_thread_binding()
            B[0, T.Ramp(t * 4, 1, 4)] = A[T.Ramp(t * 4, 1, 4)] + T.Broadcast(T.float32(1.0), 4)
            B[1, T.Ramp(t * 4, 2, 2)] = A[T.Ramp(t * 4, 1, 2)]
            with T.attr(None, "pragma_note", 1):
                B[1, T.Ramp(t * 4 + 1, 2, 2)] = 2.5

    a, b = np.arange(64, dtype=np.float32), np.zeros((2, 64), np.float32)
    tilelang.compile(main, target="cpu")(a, b)
    pairs = a.reshape(16, 4)
    assert np.array_equal(b[0], a + 1)
    assert np.array_equal(b[1].reshape(16, 4), np.stack([pairs[:, 0], np.full(16, 2.5), pairs[:, 1], np.full(16, 2.5)], 1))


def test_names_of_kernels_are_their_own():
    """Kernels in branches, in loops and after them may use the same name for the index of a block."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), times: T.int32):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                A[bx * 32 + i] = bx
        for k in T.serial(times):
            if k % 2 == 0:
                with T.Kernel(2, threads=32) as bx:
                    for i in T.Parallel(32):
                        A[bx * 32 + i] += 10
            else:
                with T.Kernel(1, 2, threads=32) as (by, bx):
                    for i in T.Parallel(32):
                        A[bx * 32 + i] += 100 + by
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                A[bx * 32 + i] += 1000 * bx

    a = np.zeros(64, np.int32)
    tilelang.compile(main, target="cpu")(a, 3)
    assert np.array_equal(a, np.repeat([120, 1121], 32))

"""The scalar rule: the same Python text executed by Python and as a program gives the same numbers.

Each case is a plain function on arrays; it runs once under Python with NumPy and once traced, built by TVM and executed.
"""

import inspect

import numpy as np
import pytest
import tvm

import tilelang.language as T
from tilelang.errors import TileNameError, TileTypeError, TileValueError
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import substitute, walk
from tilelang.ir.tvm_api import IntImm, PrimFunc, tirx

N = 12
In = T.Tensor((N,), "float32")
Ints = T.Tensor((N,), "int32")
Out = T.Tensor((N,), "float32")


def only_thread(region):
    """The body of a kernel of one block and one thread."""
    indices = [v for v, _ in (*region.blocks, *region.threads)]
    assert all(extent == 1 for _, extent in (*region.blocks, *region.threads))
    return substitute(region.body, {v: IntImm("int32", 0) for v in indices})


def execute(function, *arrays):
    """Trace, build with TVM alone and run in place."""
    program = T.prim_func(function)
    program = PrimFunc(program.params, map_kernels(program.body, only_thread))
    tvm.build(tvm.IRModule({"main": program.with_attr("global_symbol", "main")}), target="llvm")["main"](*arrays)


def data(kind):
    values = np.array([3, -1, 4, 1, -5, 9, 2, 6, -5, 3, 5, 8])
    return values.astype(kind)


def running_sum(X: In, Y: Out):
    s = 0
    for i in range(N):
        s += X[i]
        Y[i] = s


def conditional_update(X: In, Y: Out):
    best = -100.0
    for i in range(N):
        best = max(best, X[i])
        Y[i] = best


def conditional_once(X: In, Y: Out):
    a = 1
    if X[0] > 100:
        a = 7
    if X[0] < 100:  # noqa: SIM108
        b = a + 1
    else:
        b = a + 2
    for i in range(N):
        Y[i] = a * 10 + b


def swap(X: In, Y: Out):
    a, b = 0, 1
    for i in range(N):
        Y[i] = a
        a, b = b, a + b


def argmax(X: In, Y: Out):
    at = 0
    for i in range(1, N):
        if X[i] > X[at]:
            at = i
    for i in range(N):
        Y[i] = at


def nested(X: In, Y: Out):
    total = 0
    for i in range(N):
        row = 0
        for j in range(i + 1):
            if X[j] < 0:
                continue
            row += X[j]
            if row > 20:
                break
        total = total + row
        Y[i] = total


def branches(X: In, Y: Out):
    for i in range(N):
        if X[i] > 5:
            kind = 3
        elif X[i] > 2:
            kind = 2.5
        else:
            kind = X[i]
        Y[i] = kind


def flag(X: In, Y: Out):
    seen = False
    for i in range(N):
        if X[i] == 9:
            seen = True
        if seen:
            Y[i] = 1
        else:
            Y[i] = 0


def while_loop(X: Ints, Y: Out):
    for i in range(N):
        n = X[i]
        steps = 0
        while n > 1:
            if n % 2 == 0:  # noqa: SIM108
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        Y[i] = steps


def while_in_python_int(X: In, Y: Out):
    i = 0
    while i < N:
        Y[i] = X[i] + i
        i += 1


def stepped(X: In, Y: Out):
    s = 0
    for i in range(N - 1, -1, -2):
        s = s * 2 + X[i]
    for i in range(0, N, 5):
        s = s + i
    for i in range(N):
        Y[i] = s


def copy_is_a_value(X: In, Y: Out):
    x = 0
    for i in range(N):
        before = x
        x = x + X[i]
        Y[i] = before


def static_stays_static(X: In, Y: Out):
    factor = 2
    if factor == 2:
        factor = 3
    for one in (0, 1, 2):
        factor = factor + one
    assert factor == 6
    for i in range(N):
        Y[i] = X[i] * factor


def ternary_and_chain(X: In, Y: Out):
    count = 0
    for i in range(N):
        count = count + 1 if 0 < X[i] <= 5 else count
        Y[i] = count if (X[i] > 0 and not (X[i] < -4)) or i == 1 else -count


def rebound_in_loop(X: In, Y: Out):
    m = 100
    for i in range(N):
        m = i * 2
        Y[i] = m + X[i]
    for i in range(N):
        m = i * 3
        Y[i] = Y[i] + m


def last_value_survives(X: In, Y: Out):
    last = -1.0
    for i in range(N):
        last = X[i] * 2
    for i in range(N):
        Y[i] = last


def python_list_in_loop(X: In, Y: Out):
    for i in range(N):
        parts = [X[i], X[i] * 2]
        parts[0] = parts[0] + 1
        Y[i] = parts[0] + parts[1]


def walrus(X: In, Y: Out):
    for i in range(N):
        Y[i] = (t := X[i] + 1) * t


CASES = [
    running_sum, conditional_update, conditional_once, swap, argmax, nested, branches, flag, while_loop, while_in_python_int,
    stepped, copy_is_a_value, static_stays_static, ternary_and_chain, rebound_in_loop, last_value_survives, python_list_in_loop, walrus,
]  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_same_as_python(function):
    kind = next(iter(inspect.signature(function).parameters.values())).annotation.dtype
    x, want, got = data(str(kind)), np.zeros(N, np.float32), np.zeros(N, np.float32)
    function(x, want)
    execute(function, x, got)
    np.testing.assert_array_equal(got, want)


def variables(program):
    found = []
    walk(program.body, {tirx.AllocBuffer: lambda s: found.append(s.buffer.name)})
    return found


@pytest.mark.parametrize("function", [rebound_in_loop, static_stays_static, copy_is_a_value])
def test_only_what_needs_it_becomes_a_variable(function):
    """Names assigned before each use, and Python values in static flow, cost no memory."""
    expected = {"copy_is_a_value": ["x"]}.get(function.__name__, [])
    assert variables(T.prim_func(function)) == expected


def test_type_grows_to_what_is_stored():
    program = T.prim_func(running_sum)
    found = []
    walk(program.body, {tirx.AllocBuffer: lambda s: found.append(str(s.buffer.dtype))})
    assert found == ["float32"]


def test_types_of_python_numbers():
    def f(Y: Out):
        a, b, c = 1, 1.0, True
        for i in range(N):
            a, b, c = a + 1, b + 1, i < 3
            Y[i] = a + b + c

    kinds = {}
    walk(T.prim_func(f).body, {tirx.AllocBuffer: lambda s: kinds.__setitem__(s.buffer.name, str(s.buffer.dtype))})
    assert kinds == {"a": "int32", "b": "float32"}  # c is assigned before it is read


def test_name_bound_in_a_loop_has_no_value_after_it():
    with pytest.raises(TileNameError, match="'t' has no value here") as info:

        @T.prim_func
        def f(X: In, Y: Out):
            for i in range(N):
                t = X[i]
            Y[0] = t

    text = str(info.value)
    assert "Y[0] = t" in text and "t = X[i]" in text and "before the loop" in text


def test_name_bound_in_one_branch_has_no_value_after_it():
    with pytest.raises(TileNameError, match="'t' has no value here"):

        @T.prim_func
        def f(X: In, Y: Out):
            if X[0] > 0:
                t = X[1]
            Y[0] = t


def test_scalar_carried_by_parallel_is_refused():
    with pytest.raises(TileValueError, match=r"'s' .*T.Parallel"):

        @T.prim_func
        def f(X: In, Y: Out):
            with T.Kernel(1):
                s = 0.0
                for i in T.Parallel(N):
                    s += X[i]
                Y[0] = s


def test_parallel_may_read_and_shadow_outer_scalars():
    @T.prim_func
    def f(X: In, Y: Out):
        with T.Kernel(1):
            s = 2.0
            for i in T.Parallel(N):
                v = X[i] * s
                if v > 3:
                    v = 3.0
                Y[i] = v
            for i in T.Parallel(N):
                s = X[i]
                Y[i] = Y[i] + s

    assert variables(f) == ["v"]


def test_buffers_are_not_carried():
    with pytest.raises(TileTypeError, match=r"'[ab]' is bound to another object"):

        @T.prim_func
        def f(X: In, Y: Out):
            a, b = X, Y
            for i in range(N):
                a[i] = 1.0
                a, b = b, a


def test_python_lists_are_not_changed_by_traced_flow():
    with pytest.raises(TileTypeError, match="Python list"):

        @T.prim_func
        def f(X: In, Y: Out):
            parts = [0.0, 0.0]
            for i in range(N):
                parts[0] = parts[0] + X[i]
            Y[0] = parts[0]


def test_branch_values_that_agree_stay_static():
    @T.prim_func
    def f(X: In, Y: Out):
        if X[0] > 0:
            width = 4
            Y[0] = 1.0
        else:
            width = 4
        for i in range(width):
            Y[i] = X[i]

    extents = []
    walk(f.body, {tirx.For: lambda s: extents.append(s.extent)})
    assert len(extents) == 1 and isinstance(extents[0], IntImm) and int(extents[0]) == 4


def test_a_buffer_bound_under_a_condition_in_a_loop_is_refused():
    def carried(X: In, Y: Out):
        a = X
        for i in range(N):
            a[i] = 1.0
            if X[i] > 0:
                a = Y

    def read_later(X: In, Y: Out):
        a = X
        for i in range(N):
            if X[i] > 0:
                a = Y
        a[0] = 1.0

    with pytest.raises(TileTypeError, match="'a' is bound to another object"):
        T.prim_func(carried)
    with pytest.raises((TileNameError, TileTypeError), match="'a'"):
        T.prim_func(read_later)


def test_python_values_outlive_a_kernel():
    @T.prim_func
    def f(X: In, Y: Out):
        stages = np.int64(2)
        with T.Kernel(1):
            stages = 3
            Y[0] = 0.0
        for _ in T.serial(stages):
            with T.Kernel(1):
                Y[1] = X[0]

    extents = []
    walk(f.body, {tirx.For: lambda s: extents.append(int(s.extent))})
    assert extents == [3]


def test_numpy_scalars_become_variables():
    def f(X: In, Y: Out):
        s = np.float32(0.5)
        for i in range(N):
            s = s + X[i]
        Y[0] = s

    assert variables(T.prim_func(f)) == ["s"]

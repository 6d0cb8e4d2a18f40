"""Errors at the user's line: position, caret, and what the message names."""

import linecache
import traceback
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import (
    JITNoBuilderError,
    SourceNotFoundError,
    TileAssertionError,
    TileError,
    TileIndexError,
    TileNameError,
    TileRuntimeError,
    TileSyntaxError,
    TileTypeError,
    TileValueError,
    TileWarning,
)  # fmt: skip

X2 = T.Tensor((8, 4), "float32")
X1 = T.Tensor((8,), "float32")


def caret(err: TileError) -> str:
    """The text that the caret line underlines."""
    at = err.at
    assert at is not None and at.file == __file__
    line = linecache.getline(__file__, at.line).rstrip("\n")
    return line[at.column - 1 : at.end_column - 1] if at.end_line in (0, at.line) else line[at.column - 1 :]


def refuse(kind, match, function):
    with pytest.raises(kind, match=match) as info:
        T.prim_func(function)
    ours = [entry for entry in info.traceback if str(entry.path).startswith(str(Path(T.__file__).parents[1]))]
    assert len(ours) <= 2  # the decorator and the function that re-raises
    return info.value


def test_wrong_number_of_indices():
    def f(X: X2):
        with T.Kernel(1):
            X[0, 0] = X[3]

    err = refuse(TileIndexError, r"X has 2 dimensions, shape \(8, 4\), but 1 index was given", f)
    assert caret(err) == "X[3]"
    assert "X[0, 0] = X[3]" in str(err) and "^^^^" in str(err)


def test_too_many_indices_in_a_store():
    def f(X: X1):
        X[0, 1] = 1.0

    assert caret(refuse(TileIndexError, "2 indices were given", f)) == "X[0, 1]"


def test_index_below_the_start():
    def f(X: X1):
        X[-9] = 1.0

    assert caret(refuse(TileIndexError, "is -9, but the extent is 8", f)) == "X[-9]"


def test_buffer_as_condition():
    def f(X: X1):
        if X:
            X[0] = 1.0

    assert caret(refuse(TileTypeError, "X as a condition", f)) == "X"


def test_arithmetic_on_a_buffer():
    def f(X: X1):
        X[0] = 1.0 + X * 2

    assert caret(refuse(TileTypeError, "buffer X", f)) == "X * 2"


def test_integer_division():
    def f(X: X1, n: T.int32):
        X[0] = 1.0
        X[1] = (n + 1) / n

    assert caret(refuse(TileTypeError, "ambiguous", f)) == "(n + 1) / n"


def test_error_of_a_statement_of_the_language():
    def f(X: X1):
        with T.Kernel(1):
            a = T.alloc_shared((4, -1), "float32")
            T.clear(a)

    assert caret(refuse(TileValueError, "-1", f)) == 'T.alloc_shared((4, -1), "float32")'


def test_unknown_name():
    def f(X: X1):
        X[0] = later  # noqa: F821
        later = 2  # noqa: F841

    assert "later" in str(refuse(TileNameError, "'later' has no value here", f))


def test_names_of_python_keep_their_own_error():
    def f(X: X1):
        X[0] = nowhere  # noqa: F821  # pyright: ignore

    with pytest.raises(NameError, match="nowhere") as info:
        T.prim_func(f)
    assert [e.path.name for e in info.traceback][-1] == "test_errors.py"


def test_augmented_buffer():
    def f(X: X1):
        X += 1.0

    assert caret(refuse(TileTypeError, r"`X \+= ...`", f)) == "X += 1.0"


def test_store_to_a_slice():
    def f(X: X1):
        X[0:4] = 1.0

    assert "T.fill" in str(refuse(TileTypeError, "block of X", f))


def test_slice_with_step():
    def f(X: X1):
        y = X[0:8:2]  # noqa: F841

    refuse(TileIndexError, "step 2", f)


def test_attribute_assignment():
    def f(X: X1):
        X.name = "y"

    assert caret(refuse(TileSyntaxError, "attribute", f)) == "X.name"


def test_statements_without_meaning():
    def with_try(X: X1):
        try:
            X[0] = 1.0
        finally:
            X[1] = 1.0

    def with_class(X: X1):
        class A:
            pass

    def with_global(X: X1):
        global shared_count  # noqa: PLW0603
        shared_count = 1

    def with_yield(X: X1):
        yield X[0]

    def with_else(X: X1):
        for i in range(3):
            X[i] = 1.0
            if i == 5:
                break
        else:
            X[4] = 1.0

    for function, word in ((with_try, "try"), (with_class, "class"), (with_global, "global"), (with_yield, "yield"), (with_else, "else")):
        refuse(TileSyntaxError, word, function)


def test_while_conditions():
    def forever(X: X1):
        while True:
            X[0] = 1.0

    def never(X: X1):
        while False:
            X[0] = 1.0

    assert caret(refuse(TileSyntaxError, "always true", forever)) == "True"
    with pytest.warns(TileWarning, match="never true"):
        program = T.prim_func(never)
    assert "X[0]" not in program.script()


def test_static_assert():
    def f(X: X1):
        assert X.shape[0] == 9, "nine elements"

    refuse(TileAssertionError, "nine elements", f)


def test_jumps_in_the_wrong_place():
    def in_parallel(X: X1):
        with T.Kernel(1):
            for i in T.Parallel(8):
                if X[i] > 0:
                    break

    def in_list(X: X1):
        for i in [0, 1]:
            if X[i] > 0:
                break

    def in_grid(X: X1):
        for i, j in T.grid(2, 2):
            if X[i + j] > 0:
                break

    assert caret(refuse(TileSyntaxError, "`break` in T.Parallel", in_parallel)) == "break"
    refuse(TileSyntaxError, "unrolled", in_list)
    refuse(TileSyntaxError, "T.grid", in_grid)


def test_return():
    def value(X: X1):
        return X[0]

    def bare(X: X1):
        if X.shape[0] == 8:
            return
        X[0] = 1.0

    refuse(TileSyntaxError, "returns no value", value)
    refuse(TileSyntaxError, "`return` in a program", bare)


def test_iteration():
    def over_buffer(X: X1):
        for x in X:
            X[0] = x

    def over_number(X: X1):
        for i in 5:  # pyright: ignore
            X[i] = 1.0

    refuse(TileTypeError, "iteration over a device value", over_buffer)
    refuse(TileTypeError, "cannot be iterated", over_number)


def test_python_list_indexed_by_device_value():
    def f(X: X1):
        table = [1, 2, 3]
        for i in range(3):
            X[i] = table[i]

    assert caret(refuse(TileTypeError, "Python list indexed by the device value", f)) == "table[i]"


def test_unpacking():
    def f(X: X1):
        a, b = X[0]
        X[1] = a + b

    refuse(TileTypeError, "cannot be unpacked", f)


def test_kernel_checks():
    def threads(X: X1):
        with T.Kernel(1, threads=0):
            X[0] = 1.0

    def nested(X: X1):
        with T.Kernel(1), T.Kernel(1):
            X[0] = 1.0

    def negative(X: X1):
        with T.Kernel(-1):
            X[0] = 1.0

    def kinds(X: X1):
        with T.Kernel(1, threads=1.5):
            X[0] = 1.0

    for function, kind, match in (
        (threads, TileValueError, "threads must be positive"), (nested, TileRuntimeError, "inside another kernel"),
        (negative, TileValueError, "grid extent 0 is -1"), (kinds, TileValueError, "threads must be"),
    ):  # fmt: skip
        refuse(kind, match, function)


def test_outside_a_kernel():
    with pytest.raises(JITNoBuilderError, match=r"T\.Kernel"):
        T.Kernel(1)
    with pytest.raises(JITNoBuilderError):
        T.const("N")

    def query(X: X1):
        X[0] = T.get_thread_binding()

    refuse(TileRuntimeError, "outside `with T.Kernel", query)


def test_parameters():
    def no_annotation(X):
        X[0] = 1.0

    def default(X: X1 = None):  # pyright: ignore
        X[0] = 1.0

    def wrong(X: {1: 2}):  # pyright: ignore
        pass

    def star(*X: X1):
        pass

    for function, match in (
        (no_annotation, "no annotation"),
        (default, "default value"),
        (wrong, "annotated with"),
        (star, "plain parameters"),
    ):
        refuse(TileTypeError, match, function)
    with pytest.raises(TileTypeError, match="Python function"):
        T.prim_func(3)  # pyright: ignore


def test_source_not_found():
    names = {"T": T}
    exec("def f(X: T.Tensor((8,), 'float32')):\n    X[0] = 1.0\n", names)
    with pytest.raises(SourceNotFoundError, match="'f' cannot be read"):
        T.prim_func(names["f"])


def test_column_counts_characters():
    def f(X: X1):
        X[0] = float(len("éé")) + X[0, 0]

    assert caret(refuse(TileIndexError, "2 indices", f)) == "X[0, 0]"


def test_statement_in_conditional_expression():
    @T.macro
    def bump(X):
        X[0] = 1.0
        return 1.0

    def f(X: X1):
        X[1] = bump(X) if X[0] > 0 else 0.0

    refuse(TileSyntaxError, "conditional expression", f)


def test_construct_without_with():
    def f(X: X1):
        T.Kernel(1)

    refuse(TileSyntaxError, "without `with`", f)


def test_loop_constructor_in_plain_python():
    def helper(X):
        for i in T.serial(4):
            X[i] = 1.0

    def f(X: X1):
        helper(X)

    refuse(TileSyntaxError, r"@T.macro", f)


def test_a_name_that_the_language_does_not_have():
    with pytest.raises(AttributeError, match=r"the language has no name 'Paralel'; did you mean Parallel, parallel\?") as info:

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                for i in T.Paralel(4):  # here
                    A[i] = 1

    assert isinstance(info.value, TileError) and "here" in str(info.value)
    assert not hasattr(T, "Paralel") and getattr(T, "Paralel", 3) == 3


def test_an_attribute_that_a_buffer_does_not_have():
    with pytest.raises(AttributeError, match=r"buffer A has no attribute 'shpe'; did you mean shape\?[\s\S]*A\[A.shpe\[0\] - 1\]"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                A[A.shpe[0] - 1] = 1


def own_frames(error):
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if "/tilelang/" in frame.filename.replace("\\", "/") and "/tests/" not in frame.filename]


def test_errors_come_without_our_frames():
    @tilelang.jit(target="cpu")
    def eager(A):
        A: T.Tensor((4,), "float32")
        B = T.empty((4,), "float32")
        with T.Kernel(1):
            B[0, 0] = A[0]
        return B

    @T.prim_func
    def gpu_only(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            T.barrier_wait(T.alloc_barrier(1), 0)
            A[0] = 1

    @T.prim_func
    def plain(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = 1

    kernel = tilelang.compile(plain, target="cpu")
    for call in (lambda: eager(np.zeros(4, np.float32)), lambda: tilelang.compile(gpu_only, target="cpu"), lambda: kernel(3)):
        with pytest.raises(TileError) as info:
            call()
        assert len(own_frames(info.value)) <= 2

"""`explain` on programs of the language: all three styles, real lines, exact bytes, layouts, dynamic sizes."""

import subprocess
import sys

import pytest

from tilelang.__main__ import main
from tilelang.explain import explain, find, import_file

SOURCE = """\
import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout


@T.prim_func
def plain(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        T.annotate_layout({tile: make_swizzled_layout(tile)})
        T.copy(A, tile)
        T.copy(tile, B)


@tilelang.jit(out_idx=[1])
def lazy(N, dtype="float32"):
    rows = T.dynamic("rows")

    @T.prim_func
    def twice(A: T.Tensor((rows, N), dtype), B: T.Tensor((rows, N), dtype)):
        with T.Kernel(rows, threads=64) as r:
            line = T.alloc_fragment((N,), dtype)
            total = T.alloc_var("int32")
            four = T.alloc_local((5,), "int4")
            T.copy(A[r, 0], line)
            total = total + 1
            for i in T.Parallel(N):
                B[r, i] = line[i] * 2
        with T.Kernel(1, threads=32):
            other = T.alloc_shared((N,), dtype, scope="shared")
            T.copy(B[0, 0], other)
            T.copy(other, B[0, 0])

    return twice


@tilelang.autotune(configs=[{"rows": 8}, {"rows": 16}])
@tilelang.jit
def tuned(N, rows=4):
    @T.prim_func
    def fill(A: T.Tensor((N, rows), "int8")):
        with T.Kernel(N, threads=32) as b:
            row = T.alloc_shared((rows,), "int8")
            T.fill(row, 1)
            T.copy(row, A[b, 0])

    return fill


@tilelang.jit
def eager(A, block: int = 32):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=128) as b:
        tile = T.alloc_shared((block, N), "float32")
        T.copy(A[b * block, 0], tile)
        T.copy(tile, B[b * block, 0])
    return B
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explained") / "tiles.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def module(file):
    return import_file(file)


def line_of(text):
    return 1 + next(k for k, line in enumerate(SOURCE.splitlines()) if text in line)


def facts(kernel):
    return [(a.name, a.line, a.scope, a.shape, a.dtype, a.bits) for a in kernel.allocations]


def test_prim_func(module, file):
    report = explain(find(module, "plain", file), "cpu")
    (kernel,) = report.memory.kernels
    assert facts(kernel) == [("tile", line_of("tile = T.alloc_shared((64, 64)"), "shared.dyn", (64, 64), "float16", 65536)]
    assert kernel.allocations[0].layout == "(i, j) -> (j // 64, i // 8, i % 8 * 64 + ((j // 8 % 8 ^ i % 8) * 8 + j % 8))"
    assert kernel.at is not None
    assert kernel.at.line == line_of("with T.Kernel(1, threads=128)")
    assert {n.at.line for n in report.notes if n.at is not None} >= {line_of("T.copy(A, tile)"), line_of("T.copy(tile, B)")}


def test_lazy_jit_with_two_kernels(module, file):
    report = explain(find(module, "lazy", file), "cpu", arguments={"N": 96, "dtype": "float64"})
    first, second = report.memory.kernels
    assert facts(first) == [
        ("line", line_of("line = T.alloc"), "local.fragment", (96,), "float64", 96 * 64),
        ("total", line_of("total = T.alloc"), "local.var", (1,), "int32", 32),
        ("four", line_of("four = T.alloc"), "local", (5,), "int4", 20),
    ]
    assert (first.blocks, first.threads) == (("rows",), 64)
    assert first.totals() == {"local.fragment": 768, "local.var": 4, "local": 5}
    assert facts(second) == [("other", line_of("other = T.alloc"), "shared", (96,), "float64", 96 * 64)]
    assert second.totals() == {"shared": 768}


def test_eager_jit(module, file):
    report = explain(find(module, "eager", file), "cpu", arguments={"M": 64, "N": 10, "block": 16})
    (kernel,) = report.memory.kernels
    assert facts(kernel) == [("tile", line_of("tile = T.alloc_shared((block"), "shared.dyn", (16, 10), "float32", 5120)]
    assert kernel.blocks == (4,)


def test_tuned_functions_are_not_tuned_here(module, file):
    report = explain(find(module, "tuned", file), "cpu", arguments={"N": 8, "rows": 16})
    assert [a.bytes for a in report.memory.kernels[0].allocations] == [16]


@pytest.mark.parametrize(
    ("words", "text"), [(["lazy"], "'N'"), (["eager", "--arg", "M=4"], "N"), (["lazy", "--arg", "N=4", "--arg", "Q=1"], "'Q'")]
)
def test_missing_arguments_say_how_to_give_them(file, capsys, words, text):
    assert main(["explain", f"{file}:{words[0]}", *words[1:]]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "--arg NAME=VALUE" in error


def test_command_in_a_fresh_process(file):
    done = subprocess.run(
        [sys.executable, "-m", "tilelang", "explain", f"{file.name}:lazy", "--arg", "N=8", "--target", "cpu"],
        cwd=file.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "kernel 1 (tiles.py:" in done.stdout
    missing = subprocess.run([sys.executable, "-m", "tilelang", "explain"], cwd=file.parent, capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "usage: python -m tilelang explain" in missing.stderr

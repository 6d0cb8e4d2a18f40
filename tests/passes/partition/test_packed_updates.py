"""Atomic additions to neighbours: which become additions of packs, and what they add."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import numpy_type, run, values
from tilelang.compiler.compile import compile_stages, context
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.target.target import parse_target


def update(M=16, N=64, dtype="float32", columns=64, place="straight", tile=None):
    m, n = tile or (16, 64)

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(2, threads=64) as b:
            x = T.alloc_fragment((m, n), dtype)
            T.copy(X, x)
            for i, j in T.Parallel(m, n):
                if place == "straight":
                    T.atomic_add(Y[i, j], x[i, j])
                elif place == "shifted":
                    T.atomic_add(Y[i, j + 1 - b], x[i, j])
                elif place == "across":
                    T.atomic_add(Y[j, i], x[i, j])
                elif place == "ordered":
                    T.atomic_add(Y[i, j], x[i, j], memory_order="release")
                elif place == "some":
                    if j != 5:
                        T.atomic_add(Y[i, j], x[i, j])
                elif place == "rows" and i != 5:
                    T.atomic_add(Y[i, j], x[i, j])

    return main


def sizes(func):
    """How many values the additions of the lowered program take, the largest first."""
    *_, (_, lowered) = compile_stages(func, context(parse_target("simt"), {}), {})
    found: set[int] = set()
    walk(lowered.body, {Call: lambda call: found.add(len(call.args) - 1) if op_name(call) == "tl.atomic" else None})
    return sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (4, {}), (2, {"dtype": "float16"}), (2, {"dtype": "bfloat16"}), (1, {"dtype": "float64"}), (1, {"dtype": "int32"}),
        (4, {"place": "shifted", "N": 65}), (1, {"place": "across", "M": 64, "N": 16}), (1, {"place": "ordered"}),
        (1, {"place": "some"}), (4, {"place": "rows"}), (1, {"tile": (16, 33)}),
        (4, {"M": 13}),  # rows outside of the tensor
        (1, {"N": 63}),  # the last column is outside
    ],
)  # fmt: skip
def test_which(size, options):
    assert sizes(update(**options)) == [size]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"dtype": "float16"}, {"place": "shifted", "N": 65}, {"place": "across", "M": 64, "N": 16}, {"place": "some"},
        {"place": "rows"}, {"M": 13}, {"N": 63}, {"tile": (16, 33)},
    ],
)  # fmt: skip
def test_sums(options):
    M, N, dtype = options.get("M", 16), options.get("N", 64), options.get("dtype", "float32")
    place, (m, n) = options.get("place", "straight"), options.get("tile", (16, 64))
    x, y = values((m, n), dtype), np.zeros((M, N), numpy_type(dtype))
    run(update(**options), x, y)
    want = np.zeros((max(M, m, n), max(N, m, n + 1)))
    for b in range(2):
        for i in range(m):
            for j in range(n):
                if (place == "some" and j == 5) or (place == "rows" and i == 5):
                    continue
                row, column = (j, i) if place == "across" else (i, j + 1 - b if place == "shifted" else j)
                want[row, column] += float(x[i, j])
    np.testing.assert_array_equal(y.astype(np.float64), want[:M, :N])

"""Eager style: which style a function has, where constants are read, and the program that is made."""

import pytest

import tilelang.language as T
from tilelang.errors import TileRuntimeError, TileValueError
from tilelang.frontend.eager import analyse


def scale(A, B, factor: float = 2.0, block: int = 32):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float16")
    B: T.Tensor[[N], T.float32]
    C = T.empty((M, N), "float32")
    rows = T.ceildiv(M, block)
    with T.Kernel(rows, threads=32) as bx:
        for i, j in T.Parallel(block, N):
            C[bx * block + i, j] = A[bx * block + i, j] * B[j] * factor
    return C


STATIC = {"factor": 3.0, "block": 16}


def test_styles():
    def factory(n):
        @T.prim_func
        def main(X: T.Tensor((n,), "float32")):
            X[0] = 1.0

        return main

    def helper(n):
        return factory(n)

    signature = analyse(scale)
    assert signature is not None
    assert signature.runtime == ("A", "B") and signature.static == ("factor", "block")
    assert [p.default for p in signature.parameters[2:]] == [2.0, 32]
    assert analyse(factory) is None and analyse(helper) is None and analyse(3) is None


def test_constants_come_from_shapes():
    signature = analyse(scale)
    layout = signature.probe(STATIC)
    assert layout.places == {"M": [("A", "shape", 0)], "N": [("A", "shape", 1), ("B", "shape", 0)]}
    assert layout.read({"A": (40, 8), "B": (8,)}) == {"M": 40, "N": 8}
    with pytest.raises(TileValueError, match=r"N is 8, but B.shape\[0\] is 9"):
        layout.read({"A": (40, 8), "B": (9,)})
    with pytest.raises(TileValueError, match="A: expected 2 dimensions, got 1"):
        layout.read({"A": (40,), "B": (9,)})


def test_program():
    program = analyse(scale).trace(STATIC, {"M": 40, "N": 8})
    assert [p.name for p in program.params] == ["A", "B", "C"]
    assert [int(e) for e in program.params[2].shape] == [40, 8]
    assert [int(i) for i in program.attrs["tl.out_idx"]] == [2]
    assert program.attrs["global_symbol"] == "scale"
    assert 'T.launch_thread("blockIdx.x", 3)' in program.script()


def test_signature_annotations_and_dynamic_sizes():
    n = T.dynamic("n")

    def f(A: T.Tensor((n,), "float32"), k: T.int32, p: T.ptr, width: int):
        B = T.empty(n, dtype="int32")
        with T.Kernel(1):
            B[0] = A[k] + width
        return B

    signature = analyse(f)
    assert [p.kind for p in signature.parameters] == ["tensor", "scalar", "pointer", "static"]
    assert signature.probe({"width": 3}).places == {}
    assert [p.name for p in signature.trace({"width": 3}).params] == ["A", "k", "p", "B"]


def test_several_outputs_in_the_order_of_return():
    def f(A: T.Tensor((4,), "float32")):
        first = T.empty((4,))
        second = T.empty(2, 3, dtype=T.float16)
        with T.Kernel(1):
            first[0] = A[0]
            second[0, 0] = A[0]
        return second, first

    program = analyse(f).trace({})
    assert [p.name for p in program.params] == ["A", "second", "first"]
    assert [str(p.dtype) for p in program.params] == ["float32", "float16", "float32"]


def test_strides_and_keyword_constants():
    def f(A):
        M, S, Q = T.const("M S Q")
        A: T.StridedTensor[[M, 8], [S, 1], T.float32]
        with T.Kernel(Q):
            A[0, 0] = M

    signature = analyse(f)
    layout = signature.probe({}, {"Q": 3})
    assert layout.places == {"M": [("A", "shape", 0)], "S": [("A", "stride", 0)]}
    assert layout.read({"A": (5, 8)}, {"A": (16, 1)}) == {"M": 5, "S": 16, "Q": 3}
    with pytest.raises(TileRuntimeError, match=r"T\.const Q"):
        signature.probe({})


def test_outputs_must_be_returned():
    def kept(A: T.Tensor((4,), "float32")):
        C = T.empty((4,))
        with T.Kernel(1):
            C[0] = A[0]

    def other(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = 1.0
        return A

    with pytest.raises(TileRuntimeError, match=r"C made by T\.empty, but not returned"):
        analyse(kept).trace({})
    with pytest.raises(TileRuntimeError, match="returns"):
        analyse(other).trace({})


def test_static_values_choose_the_program():
    def f(A, transposed: bool):
        M, N = T.const("M, N")
        if transposed:
            A: T.Tensor((N, M), "float32")
        else:
            A: T.Tensor((M, N), "float32")
        with T.Kernel(M):
            A[0, 0] = N

    signature = analyse(f)
    assert signature.probe({"transposed": True}).read({"A": (2, 5)}) == {"M": 5, "N": 2}
    assert signature.probe({"transposed": False}).read({"A": (2, 5)}) == {"M": 2, "N": 5}

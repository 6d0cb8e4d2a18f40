"""The decorator: lazy factories, eager kernels, what is remembered, what is refused."""

import ml_dtypes  # noqa: F401  (registers NumPy's small types)
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import JITNoBuilderError, TileAssertionError, TileRuntimeError, TileTypeError, TileValueError

torch = pytest.importorskip("torch")
TRACES = []


@tilelang.jit(out_idx=-1, target="cpu")
def scaled(n, factor=2.0, dtype="float32", parts=(1,)):
    TRACES.append(n)

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                B[i] = A[i] * factor

    return main


@tilelang.jit(target="cpu")
def product(A, B, block: int = 16):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float32")
    B: T.Tensor((K, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=32) as (bx, by):
        for i, j in T.Parallel(block, block):
            if by * block + i < M and bx * block + j < N:
                total = T.alloc_var("float32")
                for k in range(K):
                    total += A[by * block + i, k] * B[k, bx * block + j]
                C[by * block + i, bx * block + j] = total
    return C


# ---------------------------------------------------------------- lazy
def test_same_arguments_same_kernel():
    first = scaled(16)
    assert scaled(16) is first
    assert scaled(n=16) is first
    assert scaled(16, 2.0, dtype="float32") is first
    assert scaled(16, 3.0) is not first
    assert scaled(16, dtype="float16") is not first
    before = len(TRACES)
    scaled(16)
    assert len(TRACES) == before
    np.testing.assert_array_equal(first(np.arange(16, dtype=np.float32)), np.arange(16) * 2)


def test_unhashable_and_dtype_arguments():
    assert scaled(16, parts=[1, {"a": [2]}]) is scaled(16, parts=[1, {"a": [2]}])
    before = len(TRACES)
    scaled(16, parts=[1, {"a": [2]}])
    assert len(TRACES) == before
    scaled(16, parts=[1, {"a": [3]}])
    assert len(TRACES) == before + 1
    for dtype in (torch.float16, np.float16, np.dtype("float16"), T.float16, "float16"):
        out = scaled(8, dtype=dtype)(np.ones(8, np.float16))
        assert out.dtype == np.float16
        assert (out == 2).all()


def test_methods():
    assert scaled.compile(16) is scaled(16)
    assert scaled.get_kernel_source(16) == scaled(16).get_kernel_source()
    assert "B" in scaled.get_tir(16).script()
    kernels = scaled.par_compile([{"n": 4}, (5, 3.0), {"n": 6, "factor": 4.0}])
    for kernel, (n, factor) in zip(kernels, [(4, 2), (5, 3), (6, 4)], strict=True):
        assert (kernel(np.ones(n, np.float32)) == factor).all()
    assert scaled.__name__ == "scaled"


def test_bare_decorator_and_debug_folder(tmp_path):
    @tilelang.jit
    def bare(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "int32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(n):
                    A[i] = i

        return main

    a = np.zeros(5, np.int32)
    assert bare(5)(a) is None
    assert a.tolist() == [0, 1, 2, 3, 4]
    written = tilelang.jit(bare.fn, debug_root_path=tmp_path / "debug")
    written(5)
    assert "main" in (tmp_path / "debug" / "bare.program.txt").read_text()
    assert (tmp_path / "debug" / "bare.kernel.txt").read_text()


def test_wrong_uses():
    with pytest.raises(TileTypeError, match=r"scaled: missing a required argument: 'n'"):
        scaled()
    with pytest.raises(TileTypeError, match=r"unexpected keyword argument 'q'"):
        scaled(16, q=1)
    with pytest.raises(TileValueError, match=r"@tilelang.jit on a program"):
        tilelang.jit(scaled.get_tir(16))
    with pytest.raises(TileTypeError, match=r"@tilelang.jit on a int"):
        tilelang.jit(3)

    @tilelang.jit
    def returns_nothing(n):
        return n

    with pytest.raises(TileTypeError, match=r"returns_nothing under @tilelang.jit returned int"):
        returns_nothing(3)
    for value in (None, 3, scaled, lambda: None):
        with pytest.raises(TileAssertionError, match=r"needs a program"):
            tilelang.compile(value)


# ---------------------------------------------------------------- eager
@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (5, 7, 3), (33, 2, 40)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_eager_call(m, n, k, library):
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float32), rng.integers(-4, 5, (k, n)).astype(np.float32)
    given = (torch.from_numpy(a), torch.from_numpy(b)) if library == "torch" else (a, b)
    out = product(*given)
    assert isinstance(out, type(given[0]))
    np.testing.assert_array_equal(np.asarray(out), a @ b)
    np.testing.assert_array_equal(np.asarray(product(B=given[1], A=given[0], block=8)), a @ b)


def test_eager_compiles_once_for_each_size():
    a = np.ones((4, 4), np.float32)
    product(a, a)
    count = len(product._kernels)
    product(a.copy(), a.copy())
    assert len(product._kernels) == count
    product(np.ones((4, 5), np.float32), np.ones((5, 4), np.float32))
    assert len(product._kernels) == count + 1
    kernel = product.compile(M=4, N=4, K=4)
    assert len(product._kernels) == count + 1
    np.testing.assert_array_equal(kernel(a, a), a @ a)
    assert product.get_kernel_source(M=4, N=4, K=4)
    assert [k(a, a)[0, 0] for k in product.par_compile([{"M": 4, "N": 4, "K": 4, "block": 8}])] == [4]


def test_eager_errors():
    a = np.ones((4, 4), np.float32)
    with pytest.raises(TileValueError, match=r"K is 4, but B.shape.0. is 5"):
        product(a, np.ones((5, 4), np.float32))
    with pytest.raises(TileValueError, match=r"A: expected 2 dimensions"):
        product(np.ones(4, np.float32), a)
    with pytest.raises(TileTypeError, match=r"B: expected a tensor, got int"):
        product(a, 3)
    with pytest.raises(TileTypeError, match=r"A: expected dtype float32, got float64"):
        product(a.astype(np.float64), a)
    with pytest.raises(TileTypeError, match=r"missing a required argument: 'B'"):
        product(a)
    with pytest.raises(TileTypeError, match=r"Q is neither a parameter nor a T.const name"):
        product(a, a, Q=3)
    with pytest.raises(TileTypeError, match=r"no value for N"):
        product.compile(M=4, K=4)
    with pytest.raises(JITNoBuilderError):
        T.const("M")
    np.testing.assert_array_equal(product(a, a), a @ a)


def test_eager_out_idx_is_refused():
    with pytest.raises(TileValueError, match=r"out_idx"):
        tilelang.jit(product.fn, out_idx=[-1])


def test_output_that_is_not_returned():
    @tilelang.jit(target="cpu")
    def forgetful(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B = T.empty((N,), "float32")
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    with pytest.raises(TileRuntimeError, match=r"T.empty"):
        forgetful(np.ones(4, np.float32))

"""The kernel object: its facts, saving, timing; outputs of symbolic sizes; pointers; unused parameters."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError, TileNotSupportedError, TileTypeError, TileValueError

torch = pytest.importorskip("torch")


def symbolic():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 4), "float32"), B: T.Tensor((n * 2,), "float32"), count: T.int32):
        with T.Kernel(n, threads=32) as bx:
            for i in T.Parallel(2):
                B[bx * 2 + i] = A[bx, i] + T.cast(count, "float32")

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(symbolic(), out_idx=1, target="cpu")


def test_output_of_symbolic_size(kernel):
    for n in (1, 3, 0):
        a = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
        for _ in range(2):
            out = kernel(a, 5)
            np.testing.assert_array_equal(out, a[:, :2].reshape(-1) + 5)


def test_facts(kernel, capsys, tmp_path):
    assert kernel.get_kernel_source()
    assert kernel.kernel_source == kernel.get_kernel_source()
    assert isinstance(kernel.get_host_source(), str)
    assert kernel.out_idx == [1]
    assert [(p.dtype, p.name) for p in kernel.params] == [("float32", "A"), ("float32", "B"), ("int32", "count")]
    assert kernel.prim_func.script()
    kernel.show_source()
    assert kernel.kernel_source in capsys.readouterr().out
    kernel.export_sources(kernel_path=tmp_path / "k.txt")
    assert (tmp_path / "k.txt").read_text() == kernel.kernel_source
    assert repr(kernel) == "<JITKernel main(A: float32(n, 4), count: int32) for cpu>"
    with pytest.raises(TileNotSupportedError, match="PTX"):
        kernel.show_ptx()
    with pytest.raises(TileValueError, match="not tuned"):
        kernel.get_tuner_result()
    kernel.export_library(tmp_path / "saved")
    assert list((tmp_path / "saved").iterdir())


def test_constructor():
    kernel = tilelang.JITKernel(symbolic(), out_idx=[1], target="cpu")
    assert (kernel(np.ones((2, 4), np.float32), 1) == 2).all()
    with pytest.raises(AssertionError):
        tilelang.JITKernel(None)


def test_shape_that_does_not_fit_an_expression():
    kernel = tilelang.compile(symbolic(), target="cpu")
    a = np.ones((3, 4), np.float32)
    with pytest.raises(TileValueError, match=r"B: expected shape \(\(n \* 2\),\), got \(5,\)"):
        kernel(a, np.ones(5, np.float32), 1)
    kernel(a, np.ones(6, np.float32), 1)


def test_pointers():
    @T.prim_func
    def main(x: T.ptr, y: T.ptr, n: T.int32):
        X = T.make_tensor(x, (n,), "float32")
        Y = T.make_tensor(y, (n,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.serial(n):
                Y[i] = X[i] * 3.0

    kernel = tilelang.compile(main, target="cpu")
    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    for source, target in ((x, y), (x.ctypes.data, y.ctypes.data), (torch.from_numpy(x), torch.from_numpy(y))):
        y[:] = 0
        kernel(source, target, 6)
        np.testing.assert_array_equal(y, x * 3)
    for wrong, error in (
        (None, TileTypeError),
        (0, TileValueError),
        (1.5, TileTypeError),
        ("x", TileTypeError),
        (-8, TileValueError),
        (True, TileTypeError),
    ):
        with pytest.raises(error, match="y: "):
            kernel(x, wrong, 6)
    with pytest.raises(TileValueError, match="y: expected contiguous"):
        kernel(x, np.zeros(12, np.float32)[::2], 6)


def test_none_for_an_unused_tensor():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), unused: T.Tensor((8, 3), "float16"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    kernel = tilelang.compile(main, target="cpu")
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    kernel(a, None, b)
    np.testing.assert_array_equal(b, a)
    with pytest.raises(TileTypeError, match="A: expected a tensor"):
        kernel(None, None, b)


def test_several_outputs():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] + 1.0
                C[i] = i

    a = np.arange(8, dtype=np.float32)
    for out_idx, names in (([1, 2], "BC"), ([-1, 1], "CB")):
        kernel = tilelang.compile(main, out_idx=out_idx, target="cpu")
        for _ in range(2):
            found = dict(zip(names, kernel(a), strict=True))
            np.testing.assert_array_equal(found["B"], a + 1)
            np.testing.assert_array_equal(found["C"], np.arange(8))


def test_par_compile():
    good = symbolic()
    kernels = tilelang.par_compile([good, good], out_idx=1, target="cpu")
    assert kernels[0] is kernels[1]
    with pytest.raises(TileError):
        tilelang.par_compile([good, None], out_idx=1, target="cpu")
    assert tilelang.par_compile([None, good], out_idx=1, target="cpu", ignore_error=True)[0] is None


def test_lower_and_cached():
    lowered = tilelang.lower(symbolic(), target="cpu")
    assert lowered.kernel_source
    assert [p.name for p in lowered.params] == ["A", "B", "count"]
    assert tilelang.cached(symbolic(), [1], 128, 64, target="cpu")(np.ones((1, 4), np.float32), 1).tolist() == [2, 2]


def test_targets_and_options():
    program = symbolic()
    for target in ("cpu", "llvm", "auto", None, {"kind": "cpu"}, "c"):
        options = {"execution_backend": "cython", "target_host": "llvm", "verbose": False, "compile_flags": "-O3"}
        kernel = tilelang.compile(program, out_idx=1, target=target, pass_configs={"tl.unknown": 1, "tir.noalias": True}, **options)
        assert (kernel(np.ones((1, 4), np.float32), 1) == 2).all()
    with tilelang.tvm.target.Target("llvm"):
        assert str(tilelang.compile(program, out_idx=1).target).startswith("cpu")
    for target in ("nonsense", "metal", 3):
        with pytest.raises((TileValueError, TileTypeError)):
            tilelang.compile(program, target=target)
    with pytest.raises(TileTypeError, match="pass_configs"):
        tilelang.compile(program, target="cpu", pass_configs=[1])

"""Atomics, thread-level functions, barriers, annotations: results on the CPU, and every refusal."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileNameError, TileNotSupportedError, TileRuntimeError, TileTypeError, TileValueError
from tilelang.ir.annotations import PointerParam, TensorParam
from tilelang.ir.builder import Builder, writing
from tilelang.ir.dialect import op_name
from tilelang.ir.tvm_api import Evaluate, Var, load

N = 64


@pytest.fixture
def kernel():
    builder = Builder()
    with writing(builder), builder.frame("function"), builder.frame("kernel") as frame:
        yield frame


def test_warp_functions():
    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((9, N), "int32"), B: T.Tensor((2, N), "uint64")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            v = X[tx]
            Y[0, tx] = T.shfl_sync(v, 3)
            Y[1, tx] = T.shfl_down(v, 5, 16)
            Y[2, tx] = T.any_sync(v > 30)
            Y[3, tx] = T.all_sync(0xFFFFFFFF, v > -100)
            Y[4, tx] = T.warp_reduce_min(v)
            Y[5, tx] = T.syncthreads_or(v == 63)
            Y[6, tx] = T.get_lane_idx()
            Y[7, tx] = T.get_warp_idx()
            Y[8, tx] = T.cast(T.match_any_sync(v % 2), "int32")
            B[0, tx] = T.ballot(v % 3 == 0)
            B[1, tx] = T.activemask()

    x = np.arange(N, dtype=np.int32)
    y, b = np.zeros((9, N), np.int32), np.zeros((2, N), np.uint64)
    tilelang.compile(main, target="cpu")(x, y, b)
    warp, lane = x // 32, x % 32
    down = np.where(x % 16 + 5 < 16, x + 5, x)
    parity = np.where(x % 2, np.uint32(0xAAAAAAAA), np.uint32(0x55555555)).view(np.int32)
    expected = [warp * 32 + 3, down, np.repeat([1, 1], 32), np.ones(N), warp * 32, np.ones(N), lane, warp, parity]
    np.testing.assert_array_equal(y, np.array(expected))
    votes = [sum(1 << k for k in range(32) if (32 * w + k) % 3 == 0) for w in (0, 1)]
    assert b[0].tolist() == [votes[w] for w in warp] and (b[1] == 0xFFFFFFFF).all()


def test_atomics():
    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), R: T.Tensor((5,), "int32"), F: T.Tensor((4,), "float32"), old: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            T.atomic_add(R[0], X[tx])
            T.atomic_max(R[1], X[tx], memory_order="relaxed")
            T.atomic_min(R[2], X[tx])
            T.atomic_or(R[3], 1 << (tx % 8))
            ticket = T.atomic_add(R[4], 1, return_prev=True)
            old[ticket] = 1
            T.atomic_addx4(F[0], T.Broadcast(T.float32(0.5), 4))

    x = np.arange(-10, N - 10, dtype=np.int32)
    r, f, old = np.zeros(5, np.int32), np.zeros(4, np.float32), np.zeros(N, np.int32)
    tilelang.compile(main, target="cpu")(x, r, f, old)
    assert r.tolist() == [x.sum(), x.max(), x.min(), 255, N] and (f == N / 2).all() and (old == 1).all()


def buffers():
    return T.alloc_shared((8,), "int32"), T.alloc_shared((8,), "float32"), T.alloc_local((8,), "int32")


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda i, f, v: T.atomic_add(load(i, [0]), 1, memory_order="strong"), TileValueError, "strong"),
        (lambda i, f, v: T.atomic_load(load(i, [0]), memory_order="release"), TileValueError, "release"),
        (lambda i, f, v: T.atomic_store(load(i, [0]), 1, memory_order="acquire"), TileValueError, "acquire"),
        (lambda i, f, v: T.atomic_or(load(f, [0]), 1), TileTypeError, "float32"),
        (lambda i, f, v: T.atomic_addx2(load(i, [0]), load(i, [0])), TileTypeError, "int32"),
        (lambda i, f, v: T.atomic_addx4(load(f, [0]), T.float32(1)), TileTypeError, "4"),
        (lambda i, f, v: T.atomic_add(load(v, [0]), 1), TileValueError, "local"),
        (lambda i, f, v: T.atomic_add(i, f, return_prev=True), TileNotSupportedError, "return_prev"),
        (lambda i, f, v: T.atomic_add(3, 1), TileTypeError, "dst"),
        (lambda i, f, v: T.any_sync(load(f, [0])), TileTypeError, "float32"),
        (lambda i, f, v: T.syncthreads_count(load(f, [0])), TileTypeError, "float32"),
        (lambda i, f, v: T.shfl_xor(load(f, [0]), 1, width=20), TileValueError, "20"),
        (lambda i, f, v: T.warp_reduce_bitor(load(f, [0])), TileTypeError, "float32"),
        (lambda i, f, v: T.match_any_sync(T.cast(load(i, [0]), "int8")), TileTypeError, "int8"),
        (lambda i, f, v: T.tvm_storage_sync("local"), TileValueError, "local"),
        (lambda i, f, v: T.barrier_wait(0, 0), TileRuntimeError, "create_list_of_mbarrier"),
        (lambda i, f, v: T.barrier_arrive(i), TileTypeError, "no barrier"),
        (lambda i, f, v: T.mbarrier_wait_parity(T.alloc_barrier(1), 2), TileValueError, "2"),
        (lambda i, f, v: T.print(object()), TileValueError, "object"),
        (lambda i, f, v: T.rng_rand_float(16), TileValueError, "16"),
        (lambda i, f, v: T.rng_rand_float(dist="cauchy"), TileValueError, "cauchy"),
        (lambda i, f, v: T.call_intrin("float32", "tirx.exq", 1.0), TileNameError, "tirx.exq"),
        (lambda i, f, v: T.call_extern("float32"), TileTypeError, "name"),
        (lambda i, f, v: T.call_extern("float32", "sinf", None), TileTypeError, "None"),
        (lambda i, f, v: T.access_ptr(load(i, [0]), "x"), TileValueError, "'x'"),
        (lambda i, f, v: T.address_of(3), TileTypeError, "3"),
        (lambda i, f, v: T.comm_reducer(lambda a: a, [0]), TileTypeError, "1"),
        (lambda i, f, v: T.assume(False), TileValueError, "false"),
    ],
)
def test_refusals(kernel, call, error, word):
    with pytest.raises(error) as caught:
        call(*buffers())
    assert word in str(caught.value)


def test_barriers_by_number_buffer_and_element(kernel):
    T.create_list_of_mbarrier([128, 64])
    own = T.alloc_barrier([4, 4])
    T.barrier_arrive(0)
    T.barrier_arrive(T.get_mbarrier(1))
    T.barrier_arrive(Var("k", "int32"))
    T.barrier_arrive(own)
    T.mbarrier_arrive(mbarrier=load(own, [1]))
    T.barrier_wait(own, Var("p", "int32"))
    assert all(isinstance(s, Evaluate) for s in kernel.stmts)
    places = [s.value.args[0] for s in kernel.stmts]
    assert [str(p.region[0].min) for p in places] == ["0", "1", "k", "0", "1", "0"]
    assert [int(p.source.shape[0]) for p in places] == [2] * 6
    assert [op_name(s.value) for s in kernel.stmts] == ["tl.mbarrier_arrive"] * 5 + ["tl.mbarrier_wait"]
    with pytest.raises(TileValueError, match="0 to 1"):
        T.barrier_arrive(2)
    with pytest.raises(TileRuntimeError, match="twice"):
        T.create_list_of_mbarrier(1)


def test_names_of_gpus_are_refused_by_the_cpu_at_the_users_line():
    @T.prim_func
    def main(X: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            T.tcgen05_gemm(X, X, X)

    with pytest.raises(TileNotSupportedError, match="tcgen05_gemm") as caught:
        tilelang.compile(main, target="cpu")
    assert caught.value.at is not None and "T.tcgen05_gemm" in str(caught.value)


def test_hints_have_no_effect():
    @T.prim_func
    def main(X: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            T.set_max_nreg(240, 1)
            T.fence_proxy_async()
            T.ptx_wait_group(0)
            T.tma_store_wait()
            T.wait_wgmma(0)
            T.assume(N > 0)
            for i in T.Parallel(N):
                X[i] += 1.0

    x = np.zeros(N, np.float32)
    tilelang.compile(main, target="cpu")(x)
    assert (x == 1).all()


def test_pointers():
    @T.prim_func
    def main(address: T.ptr, n: T.int32):
        X = T.make_tensor(address, (n,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                X[i] = X[i] * 2.0

    x = np.arange(N, dtype=np.float32)
    tilelang.compile(main, target="cpu")(x.ctypes.data, N)
    assert (x == 2 * np.arange(N)).all()


# ---------------------------------------------------------------- annotations
def test_tensor_annotations():
    n = T.dynamic("n")
    assert T.Tensor((4, n), "float16") == TensorParam((4, n), T.float16)
    assert T.Tensor[(4, 8), "int8"] == T.Tensor[[4, 8], T.int8] == T.Tensor((4, 8), np.int8)
    assert T.Tensor[4, 8] == T.Tensor[(4, 8)] == T.Tensor((4, 8)) == TensorParam((4, 8), T.float32)
    assert T.Tensor[4, "int8"] == T.Tensor(4, "int8") == TensorParam((4,), T.int8)
    assert T.StridedTensor((4, 8), (1, 4), "int8") == T.StridedTensor[[4, 8], [1, 4], "int8"]
    assert T.FragmentBuffer((4,), "int8").scope == "local.fragment" and T.SharedBuffer((4,), "int8").scope == "shared.dyn"
    assert T.Tensor((4,), T.ptr).dtype == "int64" and isinstance(T.ptr("float16"), PointerParam)
    assert T.Tensor((0, 4), "int8").shape == (0, 4)
    with pytest.warns(DeprecationWarning):
        assert T.Buffer((4,), "int8") == T.Tensor((4,), "int8")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: T.StridedTensor((4, 8), (1,)), TileValueError), (lambda: T.Tensor((-1,), "int8"), TileValueError),
        (lambda: T.Tensor((4,), "int9"), TileTypeError), (lambda: T.Tensor("4", "int8"), TileTypeError),
        (lambda: T.Tensor((4,), "int8", scope="globl"), TileValueError), (lambda: T.Tensor((4,), "int8", elem_offset=3), TileValueError),
        (lambda: T.symbolic(""), TileTypeError), (lambda: T.symbolic("n", "float32"), TileTypeError),
        (lambda: T.symbolic(3), TileTypeError),
    ],
)  # fmt: skip
def test_bad_annotations(call, error):
    with pytest.raises(error):
        call()


def test_symbolic_names():
    assert [v.name for v in T.symbolic("m, n k")] == ["m", "n", "k"]
    assert T.dynamic("n", "int64").ty.dtype == "int64" and T.dyn["n"].name == "n"

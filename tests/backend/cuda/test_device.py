"""Programs on a GPU, against torch and NumPy."""

import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileValueError
from tilelang.target.device import device_count

from .programs import add_one, gemm, softmax, two_kernels, vector_add

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_count() or not torch.cuda.is_available(), reason="needs a GPU")]


def compiled(func, **options):
    return tilelang.compile(func, target="cuda", **options)


def test_elementwise():
    a = torch.randn(1000, device="cuda")
    b = torch.empty_like(a)
    compiled(add_one())(a, b)
    assert torch.equal(b, a + 1)


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_vector_accesses_at_any_alignment(offset):
    memory = torch.randn(16 * 1024 + 16, device="cuda").half()
    a = memory[offset : offset + 16 * 1024].view(16, 1024)
    b = torch.empty(16, 1024, device="cuda", dtype=torch.float16)
    compiled(vector_add())(a, b)
    assert torch.equal(b, a + a)


def test_one_tensor_for_input_and_output():
    a = torch.randn(16, 1024, device="cuda").half()
    expected = a + a
    compiled(vector_add())(a, a)
    assert torch.equal(a, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("stages", [0, 2])
def test_gemm(dtype, stages):
    kind = getattr(torch, dtype)
    a, b = (torch.randn(128, 128, device="cuda").to(kind) for _ in range(2))
    c = torch.empty(128, 128, device="cuda")
    compiled(gemm(dtype=dtype, stages=stages))(a, b, c)
    torch.testing.assert_close(c, (a.double() @ b.double()).float(), rtol=1e-3, atol=1e-3)


def test_softmax_with_an_output_of_the_launcher():
    x = torch.randn(64, 200, device="cuda")
    y = compiled(softmax(), out_idx=[1])(x)
    torch.testing.assert_close(y, torch.softmax(x, 1), rtol=1e-5, atol=1e-6)


def test_kernels_see_each_others_workspace():
    a = torch.randn(1000, device="cuda")
    b = torch.empty_like(a)
    compiled(two_kernels())(a, b)
    assert torch.equal(b, a * 2 + 1)


def test_on_a_stream_of_the_user():
    kernel, stream = compiled(add_one()), torch.cuda.Stream()
    a, b = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        a.fill_(5.0)
        kernel(a, b)
    stream.synchronize()
    assert (b == 6).all()


def test_refusals_name_the_parameter():
    kernel = compiled(add_one())
    good = torch.zeros(1000, device="cuda")
    for wrong in (torch.zeros(1000), torch.zeros(999, device="cuda"), good[::2], good.double()):
        with pytest.raises((TileValueError, TypeError), match=r"^A"):
            kernel(wrong, good)
    kernel(good, good)


def test_empty_tensors():
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            for i in T.Parallel(128):
                B[bx * 128 + i] = A[bx * 128 + i]

    kernel = compiled(main)
    empty = torch.empty(0, device="cuda")
    kernel(empty, empty.clone())
    a = torch.randn(77, device="cuda")
    b = torch.empty_like(a)
    kernel(a, b)
    assert torch.equal(a, b)


SMALL = ["float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *SMALL])
def test_conversions_there_and_back(dtype):
    kind = getattr(torch, dtype)
    count = 256 if dtype in SMALL else 65536

    @T.prim_func
    def main(X: T.Tensor((count,), dtype), F: T.Tensor((count,), "float32"), Y: T.Tensor((count,), dtype)):
        with T.Kernel(count // 256, threads=128) as bx:
            for i in T.Parallel(256):
                F[bx * 256 + i] = T.cast(X[bx * 256 + i], "float32")
                Y[bx * 256 + i] = T.cast(T.cast(X[bx * 256 + i], "float32"), dtype)

    bits = torch.arange(count, device="cuda").to(torch.uint8 if count == 256 else torch.int16)
    x = bits.view(kind)
    f, y = torch.empty(count, device="cuda"), torch.empty_like(x)
    compiled(main)(x, f, y)
    torch.testing.assert_close(f, x.float(), rtol=0, atol=0, equal_nan=True)
    number = ~torch.isnan(f)
    assert torch.equal(y.view(bits.dtype)[number], bits[number])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_packed_arithmetic_rounds_as_single_lanes(dtype):
    """Every pattern of the type, two lanes in one instruction, against torch's operations one by one."""
    kind = getattr(torch, dtype)

    @T.prim_func
    def main(A: T.Tensor((256, 256), dtype), B: T.Tensor((256, 256), dtype), S: T.Tensor((256,), dtype), O: T.Tensor((3, 256, 256), dtype)):
        with T.Kernel(256, threads=32) as row:
            for j in T.Parallel(256):
                O[0, row, j] = A[row, j] * S[row] + B[row, j]
            for j in T.Parallel(256):
                O[1, row, j] = A[row, j] - B[row, j] * A[row, j]
            for j in T.Parallel(256):
                O[2, row, j] = T.max(A[row, j], B[row, j]) - S[row]

    kernel = compiled(main)
    assert "_v * S[" in kernel.get_kernel_source()
    a = torch.arange(65536, device="cuda").to(torch.int16).view(kind).view(256, 256)
    b = a.flatten()[torch.randperm(65536, device="cuda")].view(256, 256)
    s = torch.randn(256, device="cuda").to(kind)
    out = torch.empty(3, 256, 256, device="cuda", dtype=kind)
    kernel(a, b, s, out)
    k = s[:, None]
    for got, want in zip(out, (a * k + b, a - b * a, torch.fmax(a, b) - k), strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=0, equal_nan=True)


def test_atomics_of_every_width():
    types = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"]

    def program(dtype, kind):
        @T.prim_func
        def main(A: T.Tensor((2,), dtype), X: T.Tensor((64,), dtype)):
            with T.Kernel(1, threads=64):
                tx = T.get_thread_binding(0)
                if kind == "add":
                    T.atomic_add(A[1], X[tx])
                else:
                    T.atomic_max(A[1], X[tx])

        return main

    for dtype in types:
        x = torch.tensor([k % 3 for k in range(64)], device="cuda").to(getattr(torch, dtype))
        for kind, expected in (("add", sum(k % 3 for k in range(64))), ("max", 2)):
            a = torch.zeros(2, device="cuda").to(x.dtype)
            compiled(program(dtype, kind))(a, x)
            assert [float(v) for v in a.tolist()] == [0.0, float(expected)], (dtype, kind)


def test_print_and_assert(tmp_path):
    code = """
import torch, tilelang, tilelang.language as T
@T.prim_func
def main(A: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding(0)
        T.print(A[tx], "value")
        T.device_assert(A[tx] < 31, "too large")
kernel = tilelang.compile(main, target="cuda")
kernel(torch.arange(32, dtype=torch.int32, device="cuda"))
try:
    torch.cuda.synchronize()
except Exception as error:
    print("failed:", type(error).__name__)
"""
    script = tmp_path / "prints.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert "msg='value' block=(0, 0, 0) thread=(7, 0, 0) dtype=int32 value=7" in done.stdout, done.stdout + done.stderr
    assert "too large" in done.stdout and "failed:" in done.stdout


def test_grid_barrier():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(64, threads=32) as bx:
            tx = T.get_thread_binding(0)
            if tx == 0:
                A[bx] = bx + 1
            T.sync_grid()
            if tx == 0:
                B[bx] = A[63 - bx]

    kernel = compiled(main)
    for _ in range(3):
        a, b = (torch.zeros(64, dtype=torch.int32, device="cuda") for _ in range(2))
        kernel(a, b)
        np.testing.assert_array_equal(b.cpu().numpy(), np.arange(64, 0, -1))


def test_other_arrays_through_dlpack():
    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__()

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    a, b = torch.randn(1000, device="cuda"), torch.empty(1000, device="cuda")
    compiled(add_one())(Foreign(a), Foreign(b))
    assert torch.equal(b, a + 1)


def test_from_another_thread():
    import threading  # noqa: PLC0415

    kernel, found = compiled(add_one()), []

    def work():
        a, b = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
        kernel(a, b)
        found.append(bool((b == 1).all()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_registers_and_shared_bytes_as_the_assembler_says():
    kernel = compiled(gemm())
    (report,) = kernel.artifact.entry.cubin("sm_90a").reports.values() if torch.cuda.get_device_capability() == (9, 0) else [None]
    assert report is None or 0 < report.registers <= 255

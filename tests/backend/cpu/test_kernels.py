"""Programs through the whole CPU pipeline: what this backend does to kernels, tiles, atomics, printing, saved artifacts."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cpu.gemm import GEMM
from tilelang.compiler.compile import compile_program, load_artifact
from tilelang.target.target import Target

CPU = Target("cpu")


def gemm(M, N, K, dtype, accumulator, transpose_a, transpose_b, clear=False):
    @T.prim_func
    def main(
        A: T.Tensor((K, M) if transpose_a else (M, K), dtype), B: T.Tensor((N, K) if transpose_b else (K, N), dtype),
        C: T.Tensor((M, N), accumulator),
    ):  # fmt: skip
        with T.Kernel(1):
            a = T.alloc_shared((K, M) if transpose_a else (M, K), dtype)
            b = T.alloc_shared((N, K) if transpose_b else (K, N), dtype)
            c = T.alloc_fragment((M, N), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a, b, c, transpose_A=transpose_a, transpose_B=transpose_b, clear_accum=clear)
            T.copy(c, C)

    return main


@pytest.mark.parametrize("shape", [(64, 64, 32), (33, 31, 17), (16, 128, 64), (5, 70, 9), (4, 16, 1)])
@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_gemm_shapes_and_transposes(shape, transposes):
    M, N, K = shape
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N), (M, N)))
    want = c.astype(np.float64) + a.astype(np.float64) @ b
    artifact = compile_program(gemm(M, N, K, "float32", "float32", *transposes), CPU)
    assert any(note.text == GEMM.name for note in artifact.notes)
    artifact.entry(np.ascontiguousarray(a.T) if transposes[0] else a, np.ascontiguousarray(b.T) if transposes[1] else b, c)
    assert np.allclose(c, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype,accumulator", [("float16", "float32"), ("float16", "float16"), ("int8", "int32"), ("float64", "float64")])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_gemm_types(dtype, accumulator, transpose_b):
    rng = np.random.default_rng(1)
    a, b = ((rng.integers(-4, 5, s)).astype(dtype) for s in ((32, 48), (48, 40)))
    c = np.full((32, 40), 7, accumulator)
    artifact = compile_program(gemm(32, 40, 48, dtype, accumulator, False, transpose_b, clear=True), CPU)
    artifact.entry(a, np.ascontiguousarray(b.T) if transpose_b else b, c)
    assert np.array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("shape,dim", [((8, 128), 1), ((3, 70), 1), ((64, 100), 0), ((4, 20, 33), 1), ((128,), 0), ((4, 5), 1)])
@pytest.mark.parametrize("kind", ["sum", "max", "min", "absmax", "abssum"])
def test_reductions(shape, dim, kind):
    out_shape = [e for k, e in enumerate(shape) if k != dim] or [1]

    @T.prim_func
    def main(X: T.Tensor(shape, "float32"), Y: T.Tensor(out_shape, "float32")):
        with T.Kernel(1):
            x = T.alloc_fragment(shape, "float32")
            y = T.alloc_fragment(out_shape, "float32")
            T.copy(X, x)
            getattr(T, f"reduce_{kind}")(x, y, dim=dim)
            T.copy(y, Y)

    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    y = np.zeros(out_shape, np.float32)
    compile_program(main, CPU).entry(x, y)
    source = np.abs(x) if kind.startswith("abs") else x
    want = getattr(np, kind.removeprefix("abs"))(source.astype(np.float64), axis=dim)
    assert np.allclose(y, want, rtol=1e-5, atol=1e-5)


def test_grids_of_any_rank_cover_every_block_once():
    shape = (2, 3, 4, 5)

    @T.prim_func
    def main(C: T.Tensor(shape, "int32")):
        with T.Kernel(*shape, threads=1) as (a, b, c, d):
            C[a, b, c, d] = C[a, b, c, d] + a * 1000 + b * 100 + c * 10 + d

    c = np.zeros(shape, np.int32)
    compile_program(main, CPU).entry(c)
    i = np.indices(shape)
    assert np.array_equal(c, i[0] * 1000 + i[1] * 100 + i[2] * 10 + i[3])


def test_an_empty_dynamic_grid_does_nothing():
    n = T.dynamic("n")

    @T.prim_func
    def main(C: T.Tensor((n, 4), "float32")):
        with T.Kernel(n, 2, threads=4) as (a, b):
            for i in T.Parallel(4):
                C[a, i] = b + 1.0

    entry = tilelang.compile(main, target="cpu")
    entry(np.zeros((0, 4), np.float32))
    c = np.zeros((3, 4), np.float32)
    entry(c)
    assert (c > 0).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "int64"])
def test_atomics_of_all_blocks_add_up(dtype):
    @T.prim_func
    def main(A: T.Tensor((1024,), dtype), H: T.Tensor((4,), dtype), M: T.Tensor((1,), dtype), P: T.Tensor((1024,), dtype)):
        with T.Kernel(64, threads=16) as bx:
            for i in T.Parallel(16):
                P[bx * 16 + i] = T.atomic_add(H[i % 4], A[bx * 16 + i], return_prev=True)
                T.atomic_max(M[0], A[bx * 16 + i])

    a = (np.arange(1024) % 2).astype(dtype)
    h, m, p = np.zeros(4, dtype), np.zeros(1, dtype), np.zeros(1024, dtype)
    compile_program(main, CPU).entry(a, h, m, p)
    assert h.tolist() == a.reshape(-1, 4).sum(0, dtype=dtype).tolist() and m[0] == 1
    odd = p.reshape(-1, 4)[:, 1]  # every addition of 1 saw another previous value
    assert sorted(odd.astype(int).tolist()) == [k % 256 if dtype == "uint8" else k for k in range(256)]


def test_packed_atomics():
    @T.prim_func
    def main(A: T.Tensor((64,), "float16"), H: T.Tensor((4,), "float16"), F: T.Tensor((4,), "float32"), G: T.Tensor((4,), "float32")):
        with T.Kernel(2, threads=16) as bx:
            for i in T.Parallel(16):
                T.atomic_addx2(H[(i % 2) * 2], A[(bx * 16 + i) * 2])
                T.atomic_addx4(F[0], G[0])

    h, f = np.zeros(4, np.float16), np.zeros(4, np.float32)
    compile_program(main, CPU).entry(np.ones(64, np.float16), h, f, np.arange(4, dtype=np.float32))
    assert h.tolist() == [16] * 4 and f.tolist() == [0, 32, 64, 96]


def test_print_has_a_line_for_each_thread_and_each_element(capsys):
    @T.prim_func
    def main(A: T.Tensor((2,), "float16")):
        with T.Kernel(1, threads=2):
            s = T.alloc_shared((2,), "float16")
            T.copy(A, s)
            T.print(T.get_thread_binding(), msg="tid")
            T.print(s, msg="tile")

    compile_program(main, CPU).entry(np.array([1.5, -2], np.float16))
    assert capsys.readouterr().out.splitlines() == [
        "msg='tid' block=(0, 0, 0) thread=(0, 0, 0) dtype=int32 value=0",
        "msg='tid' block=(0, 0, 0) thread=(1, 0, 0) dtype=int32 value=1",
        "msg='tile' block=(0, 0, 0) thread=(0, 0, 0) buffer=s, index=0 dtype=float16 value=1.5",
        "msg='tile' block=(0, 0, 0) thread=(0, 0, 0) buffer=s, index=1 dtype=float16 value=-2.0",
    ]


def philox(counter, key):
    """Philox 4x32-10 on Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_random_numbers_are_philox():
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # published test vector

    @T.prim_func
    def main(C: T.Tensor((8, 6), "uint32")):
        with T.Kernel(2, threads=4) as bx:
            T.rng_init(42)
            for k in T.serial(6):
                C[bx * 4 + T.get_thread_binding(), k] = T.rng_rand()

    c = np.zeros((8, 6), np.uint32)
    compile_program(main, CPU).entry(c)
    want = [[philox((n // 4, 0, t, 0), (42, 0))[n % 4] for n in range(6)] for t in range(8)]
    assert c.tolist() == want


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn", "float6_e2m3fn"])
def test_tiles_of_less_than_a_byte(dtype):
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), D: T.Tensor((256,), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((256,), dtype)
            t = T.alloc_shared((256,), dtype)
            for i in T.Parallel(256):
                s[i] = A[i]
            T.copy(s, t)
            for i in T.Parallel(256):
                D[i] = t[i]

    a = np.linspace(0 if dtype == "uint4" else -6, 6, 256).astype(np.float32)
    d = np.zeros(256, np.float32)
    compile_program(main, CPU).entry(a, d)
    assert np.array_equal(d, a.astype(getattr(ml_dtypes, dtype)).astype(np.float32))


def test_memory_of_any_alignment():
    @T.prim_func
    def main(A: T.Tensor((1000,), "float32"), C: T.Tensor((1000,), "float32")):
        with T.Kernel(2) as bx:
            for i in T.Parallel(500):
                C[bx * 500 + i] = A[bx * 500 + i] * 2

    a, c = np.arange(1001, dtype=np.float32)[1:], np.zeros(1001, np.float32)[1:]
    compile_program(main, CPU).entry(a, c)
    assert np.array_equal(c, a * 2)


@pytest.mark.parametrize("linker", [True, False])
def test_saved_artifacts_run_again(tmp_path, linker):
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), C: T.Tensor((100,), "float32")):
        with T.Kernel(2) as bx:
            for i in T.Parallel(50):
                C[bx * 50 + i] = A[bx * 50 + i] + 1

    artifact = compile_program(main, CPU)
    assert artifact.save is not None
    artifact.save(tmp_path)
    if not linker:
        (tmp_path / "kernel.so").unlink(missing_ok=True)
    again = load_artifact(tmp_path, CPU)
    a, c = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    again.entry(a, c)
    assert np.array_equal(c, a + 1) and again.source == artifact.source
    assert again.save is not None
    copy = tmp_path / "copy"
    copy.mkdir()
    again.save(copy)
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}


@pytest.mark.parametrize("linker", ["missing", "failing", "writing nonsense"])
def test_without_a_linker_kernels_are_compiled_in_memory(tmp_path, monkeypatch, linker):
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), C: T.Tensor((100,), "float32")):
        with T.Kernel(2) as bx:
            for i in T.Parallel(50):
                C[bx * 50 + i] = A[bx * 50 + i] + 3

    tool = tmp_path / "ld"
    if linker != "missing":
        tool.write_text("#!/bin/sh\n" + ("exit 1" if linker == "failing" else 'echo nonsense > "$3"') + "\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    artifact = compile_program(main, CPU)
    a, c = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    artifact.entry(a, c)
    assert np.array_equal(c, a + 3)
    saved = tmp_path / "saved"
    saved.mkdir()
    assert artifact.save is not None
    artifact.save(saved)
    assert not (saved / "kernel.so").exists()
    c[:] = 0
    load_artifact(saved, CPU).entry(a, c)
    assert np.array_equal(c, a + 3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float4_e2m1fn", "int4"])
def test_a_narrow_value_is_rounded_wherever_it_is_kept(dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), D: T.Tensor((3, 64), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((64,), dtype)
            T.copy(A, s)
            for i in T.Parallel(64):
                name = T.cast(A[i], dtype)
                variable = T.alloc_var(dtype)
                variable = name
                D[0, i] = name
                D[1, i] = variable
                D[2, i] = s[i]

    a, d = np.linspace(-6, 6, 64).astype(np.float32), np.zeros((3, 64), np.float32)
    compile_program(main, CPU).entry(a, d)
    want = a.astype(getattr(ml_dtypes, dtype, None) or dtype).astype(np.float32)
    assert all(np.array_equal(row, want) for row in d)


def test_bfloat16_arithmetic_rounds_after_each_operation():
    @T.prim_func
    def main(A: T.Tensor((256,), "uint16"), B: T.Tensor((256,), "uint16"), C: T.Tensor((256,), "uint16")):
        with T.Kernel(1):
            for i in T.Parallel(256):
                a = T.reinterpret(A[i], "bfloat16")
                b = T.reinterpret(B[i], "bfloat16")
                C[i] = T.reinterpret(a * b + a - b, "uint16")

    a, b = (np.random.default_rng(k).standard_normal(256).astype(ml_dtypes.bfloat16) for k in (1, 2))
    a[:4] = [np.nan, np.inf, -np.inf, 1e-40]
    c = np.zeros(256, np.uint16)
    compile_program(main, CPU).entry(a.view(np.uint16), b.view(np.uint16), c)
    with np.errstate(invalid="ignore"):
        want = (a * b + a - b).astype(np.float32)
    assert np.array_equal(c.view(ml_dtypes.bfloat16).astype(np.float32), want, equal_nan=True)


@pytest.mark.parametrize("grid", [(1,), (2,), (7,), (255,), (257,), (5000,), (40, 3), (3, 300, 2), (1, 9, 1)])
def test_unequal_blocks_run_once_each(grid):
    """Portions of one and of many blocks, grids that no portion divides."""
    count = int(np.prod(grid))

    def flatten(block):
        coordinates = block if isinstance(block, (list, tuple)) else [block]
        flat = 0
        for index, extent in reversed(list(zip(coordinates, grid, strict=True))):
            flat = flat * extent + index
        return flat

    @T.prim_func
    def main(Runs: T.Tensor((count,), "int32"), Work: T.Tensor((count,), "float32")):
        with T.Kernel(*grid, threads=1) as block:
            flat = flatten(block)
            total = T.alloc_var("float32", init=0.0)
            for i in T.serial(flat % 50):
                total += i
            T.atomic_add(Runs[flat], 1)
            Work[flat] = total

    runs, work = np.zeros(count, np.int32), np.full(count, -1.0, np.float32)
    compile_program(main, CPU).entry(runs, work)
    turns = np.arange(count) % 50
    assert np.array_equal(runs, np.ones(count))
    assert np.array_equal(work, turns * (turns - 1) / 2)


def test_a_printing_kernel_prints_its_blocks_in_order(capsys):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(16, 4, threads=1) as (bx, by):
            T.print(bx + 100 * by)

    compile_program(main, CPU).entry(np.zeros(64, np.float32))
    values = [int(line.rsplit("=", 1)[1]) for line in capsys.readouterr().out.splitlines()]
    assert values == [x + 100 * y for y in range(4) for x in range(16)]


def test_large_tiles_inside_control_flow():
    """Panels of products under conditions and in loops that are left early."""

    @T.prim_func
    def main(A: T.Tensor((4, 32, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float32"), n: T.int32):
        with T.Kernel(1):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            T.copy(B, b)
            for k in range(4):
                if k == 1:
                    continue
                T.copy(A[k, 0, 0], a)
                if k < n:
                    T.gemm(a, b, c)
                else:
                    T.gemm(a, b, c, transpose_A=True)
                    break
            T.copy(c, C)

    rng = np.random.default_rng(9)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((4, 32, 32), (32, 32)))
    kernel = compile_program(main, CPU).entry
    for n in range(5):
        c = np.zeros((32, 32), np.float32)
        kernel(a, b, c, n)
        want = np.zeros((32, 32))
        for k in (0, 2, 3):
            want += (a[k] if k < n else a[k].T).astype(float) @ b.astype(float)
            if k >= n:
                break
        assert np.array_equal(c, want)

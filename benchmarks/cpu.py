"""Speed of tile programs on the CPU beside NumPy, torch and memcpy, measured alternating in one run.

    python benchmarks/cpu.py [gemm] [rows] [attention] [compile]      TVM_NUM_THREADS=1 or 2 chooses the threads
    python benchmarks/cpu.py --record        all of it on one thread and on all cores, kept in benchmarks/results/

Prints one row for each measurement: ours, theirs, ratio (above 1: ours is faster). Times are medians. OpenBLAS chooses
its kernels itself: variables that force them are removed. The machine should be idle: the load is recorded.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
THREADS = os.environ.setdefault("TVM_NUM_THREADS", str(CORES))
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when the libraries start
    os.environ[variable] = THREADS
for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(variable, None)

import numpy as np  # noqa: E402
import torch  # noqa: E402

import tilelang  # noqa: E402
import tilelang.language as T  # noqa: E402
from tilelang.backend.llvm import host_cpu  # noqa: E402
from tilelang.compiler.compile import compile_program  # noqa: E402
from tilelang.ir.tvm_api import tvm  # noqa: E402
from tilelang.target.target import Target  # noqa: E402


def gemm(size: int, dtype: str = "float32", block: tuple[int, int, int] = (256, 256, 128)):
    BM, BN, BK = (min(b, size) for b in block)

    @T.prim_func
    def main(A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype), C: T.Tensor((size, size), "float32")):
        with T.Kernel(T.ceildiv(size, BN), T.ceildiv(size, BM)) as (bx, by):
            a = T.alloc_shared((BM, BK), dtype)
            b = T.alloc_shared((BK, BN), dtype)
            c = T.alloc_fragment((BM, BN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(size, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], a)
                T.copy(B[k * BK, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * BM, bx * BN])

    return main


def softmax(M: int, N: int, BM: int = 1):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            high = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            T.reduce_max(x, high, dim=1)
            for i, j in T.Parallel(BM, N):
                x[i, j] = T.exp(x[i, j] - high[i])
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(BM):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = x[i, j] * total[i]

    return main


def layernorm(M: int, N: int, BM: int = 1):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            square = T.alloc_fragment((BM, N), "float32")
            mean = T.alloc_fragment((BM,), "float32")
            scale = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(BM):
                mean[i] = mean[i] / N
            for i, j in T.Parallel(BM, N):
                square[i, j] = (x[i, j] - mean[i]) * (x[i, j] - mean[i])
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(BM):
                scale[i] = T.rsqrt(scale[i] / N + 1e-5)
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = (x[i, j] - mean[i]) * scale[i] * W[j] + B[j]

    return main


def rmsnorm(M: int, N: int, BM: int = 1):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, BM)) as bx:
            x = T.alloc_fragment((BM, N), "float32")
            square = T.alloc_fragment((BM, N), "float32")
            scale = T.alloc_fragment((BM,), "float32")
            T.copy(X[bx * BM, 0], x)
            for i, j in T.Parallel(BM, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(BM):
                scale[i] = T.rsqrt(scale[i] / N + 1e-5)
            for i, j in T.Parallel(BM, N):
                Y[bx * BM + i, j] = x[i, j] * scale[i] * W[j]

    return main


def attention(B: int, H: int, S: int, D: int, causal: bool, BM: int = 128, BN: int = 128):
    scale = 1.0 / D**0.5 * 1.4426950408889634

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), "float32"), K: T.Tensor((B, H, S, D), "float32"), V: T.Tensor((B, H, S, D), "float32"),
        O: T.Tensor((B, H, S, D), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(S, BM), H, B) as (bx, by, bz):
            q = T.alloc_shared((BM, D), "float32")
            k = T.alloc_shared((BN, D), "float32")
            v = T.alloc_shared((BN, D), "float32")
            s = T.alloc_fragment((BM, BN), "float32")
            o = T.alloc_fragment((BM, D), "float32")
            high = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bz, by, bx * BM, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(high, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv((bx + 1) * BM, BN) if causal else T.ceildiv(S, BN), num_stages=2):
                T.copy(K[bz, by, step * BN, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                if causal:
                    for i, j in T.Parallel(BM, BN):
                        s[i, j] = T.if_then_else(bx * BM + i >= step * BN + j, s[i, j], -T.infinity("float32"))
                T.copy(high, before)
                T.reduce_max(s, high, dim=1, clear=False)
                for i in T.Parallel(BM):
                    before[i] = T.exp2((before[i] - high[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.exp2((s[i, j] - high[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * before[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    o[i, j] = o[i, j] * before[i]
                T.copy(V[bz, by, step * BN, 0], v)
                T.gemm(s, v, o)
            for i, j in T.Parallel(BM, D):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, O[bz, by, bx * BM, 0])

    return main


# OpenBLAS and OpenMP keep their threads spinning for a while after a call; they would take the cores from the next function.
PAUSE = 0.02


def alternate(functions: list[Callable[[], object]], seconds: float = 1.5) -> list[float]:
    """Median seconds of each function, all run in turn until `seconds` have passed (at least 5 rounds)."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for taken, function in zip(times, functions, strict=True):
            time.sleep(PAUSE)
            function()  # wakes this library's threads again
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [float(np.median(t)) for t in times]


ROWS: list[dict[str, Any]] = []


def row(name: str, ours: float, other: float, unit: str) -> None:
    ROWS.append({"name": name, "ours": ours, "other": other, "unit": unit, "ratio": ours / other})
    print(show(ROWS[-1]), flush=True)


def show(row: dict[str, Any]) -> str:
    return f"{row['name']:34s} ours {row['ours']:9.2f} {row['unit']:6s} other {row['other']:9.2f}   ratio {row['ratio']:5.2f}"


def bench_gemm() -> None:
    rng = np.random.default_rng(0)
    for size in (512, 1024, 2048):
        a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        c, d = np.empty((2, size, size), np.float32)
        kernel = tilelang.compile(gemm(size), target="cpu")
        ours, numpy = alternate([lambda: kernel(a, b, c), lambda: np.matmul(a, b, out=d)])  # noqa: B023
        assert np.allclose(c, d, rtol=1e-3, atol=1e-3)
        row(f"gemm f32 {size} / NumPy", 2e-9 * size**3 / ours, 2e-9 * size**3 / numpy, "GF/s")
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    c = torch.empty(1024, 1024)
    kernels = {t: tilelang.compile(gemm(1024, t), target="cpu") for t in ("float32", "float16", "bfloat16")}
    inputs = {t: (a.to(getattr(torch, t)), b.to(getattr(torch, t))) for t in kernels}
    times = alternate([lambda t=t: kernels[t](*inputs[t], c) for t in kernels])
    for t, taken in list(zip(kernels, times, strict=True))[1:]:
        row(f"gemm {t} 1024 / our f32", 2e-9 * 1024**3 / taken, 2e-9 * 1024**3 / times[0], "GF/s")


def bench_rows() -> None:
    M = N = 4096
    x, y, z = torch.randn(M, N), torch.empty(M, N), torch.empty(M, N)
    w, b = torch.randn(N), torch.randn(N)
    source, target = x.numpy(), z.numpy()
    nothing = torch.nn.functional
    cases = {
        "softmax": (softmax(M, N), (x, y), lambda: torch.softmax(x, 1)),
        "layernorm": (layernorm(M, N), (x, w, b, y), lambda: nothing.layer_norm(x, (N,), w, b, 1e-5)),
        "rmsnorm": (rmsnorm(M, N), (x, w, y), lambda: nothing.rms_norm(x, (N,), w, 1e-5)),
    }
    for name, (program, args, reference) in cases.items():
        kernel = tilelang.compile(program, target="cpu")
        ours, theirs, copy = alternate([lambda: kernel(*args), reference, lambda: np.copyto(target, source)])  # noqa: B023
        assert torch.allclose(y, reference(), rtol=1e-4, atol=1e-5)
        size = 2e-9 * M * N * 4
        row(f"{name} {M}x{N} / torch", size / ours, size / theirs, "GB/s")
        row(f"{name} {M}x{N} / memcpy", size / ours, size / copy, "GB/s")


def bench_attention() -> None:
    B, H, S, D = 1, 8, 1024, 64
    q, k, v = (torch.randn(B, H, S, D) for _ in range(3))
    o = torch.empty(B, H, S, D)
    for causal in (False, True):
        kernel = tilelang.compile(attention(B, H, S, D, causal), target="cpu")
        sdpa = torch.nn.functional.scaled_dot_product_attention
        ours, theirs = alternate([lambda: kernel(q, k, v, o), lambda: sdpa(q, k, v, is_causal=causal)])  # noqa: B023
        assert torch.allclose(o, sdpa(q, k, v, is_causal=causal), rtol=1e-3, atol=1e-4)
        row(f"attention {'causal' if causal else 'full'} / torch", 1e3 / ours / 1e3, 1e3 / theirs / 1e3, "1/s")


def bench_compile() -> None:
    programs = {"softmax": softmax(256, 1024), "gemm": gemm(1024), "attention": attention(1, 8, 1024, 64, True)}
    limits = {"softmax": 0.1, "gemm": 0.3, "attention": 0.5}

    def seconds(program: Any) -> float:
        """CPU time, which other programs on the machine do not lengthen."""
        start = time.process_time()
        compile_program(program, Target("cpu"))
        return time.process_time() - start

    seconds(softmax(64, 64))
    for name, program in programs.items():
        taken = min(seconds(program) for _ in range(3))
        row(f"compile {name} / limit", taken, limits[name], "s")


PARTS = {"gemm": bench_gemm, "rows": bench_rows, "attention": bench_attention, "compile": bench_compile}
RESULTS = pathlib.Path(__file__).parent / "results"


def cpu_model() -> str:
    """The processor's name as its vendor writes it."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measure(threads: int) -> list[dict[str, Any]]:
    """The rows of a process of its own: libraries read the number of threads when they start."""
    command = [sys.executable, __file__, "--json"]
    done = subprocess.run(command, env={**os.environ, "TVM_NUM_THREADS": str(threads)}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def record() -> None:
    """Measure on one thread and on every core; write the results as JSON and as text."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    machine = {
        "cpu": cpu_model(), "llvm_cpu": host_cpu(), "cores": CORES, "system": platform.platform(), "load_before": list(load),
        "date": datetime.date.today().isoformat(), "python": platform.python_version(), "tilelang": tilelang.__version__,
        "tvm": tvm.__version__, "numpy": np.__version__, "torch": torch.__version__,
    }  # fmt: skip
    runs = {str(n): measure(n) for n in sorted({1, int(CORES or 1)})}
    text = [f"{key:12s} {value}" for key, value in machine.items()]
    for threads, rows in runs.items():
        text += ["", f"{threads} thread(s)", *(show(r) for r in rows)]
    name = "-".join("".join(c if c.isalnum() else " " for c in machine["cpu"]).lower().split())
    path = RESULTS / f"cpu-{name}-{machine['date']}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "threads": runs}, indent=1) + "\n")
    path.with_suffix(".txt").write_text("\n".join(text) + "\n")
    print("\n".join(text), f"\nwritten: {path}", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; default: all")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the rows once more, as JSON, in the last line")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if options.record:
        record()
        return
    torch.set_num_threads(int(THREADS))
    print(f"{THREADS} thread(s), NumPy {np.__version__}, torch {torch.__version__}")
    for part in options.parts or PARTS:
        PARTS[part]()
    if options.json:
        print(json.dumps(ROWS))


if __name__ == "__main__":
    main()

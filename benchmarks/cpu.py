"""Speed of tile programs on the CPU beside NumPy, torch and memcpy, measured alternating in one run; GEMM beside NumPy in two
processes that take turns (`gemm_sides.py`).

    python benchmarks/cpu.py [gemm] [rows] [attention] [compile]      TVM_NUM_THREADS=1 or 2 chooses the threads
    python benchmarks/cpu.py --record        all of it on one thread and on all cores, kept in benchmarks/results/

Prints one row for each measurement: ours, theirs, ratio (above 1: ours is faster). Times are medians. OpenBLAS chooses
its kernels itself: variables that force them are removed. The machine should be idle: the load is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
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

import gemm_sides  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from gemm_sides import CPU_BLOCK  # noqa: E402
from programs import attention, gemm, layernorm, rmsnorm, softmax  # noqa: E402
from recording import machine, write  # noqa: E402

import tilelang  # noqa: E402
from tilelang.compiler.compile import compile_program  # noqa: E402
from tilelang.target.target import Target  # noqa: E402

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
    for size in (512, 1024, 2048):
        ours, numpy = gemm_sides.compare(size)
        row(f"gemm f32 {size} / NumPy", 2e-9 * size**3 / ours, 2e-9 * size**3 / numpy, "GF/s")
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    c = torch.empty(1024, 1024)
    kernels = {t: tilelang.compile(gemm(1024, 1024, 1024, t, CPU_BLOCK), target="cpu") for t in ("float32", "float16", "bfloat16")}
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
        "layernorm": (layernorm(N), (x, w, b, y), lambda: nothing.layer_norm(x, (N,), w, b, 1e-5)),
        "rmsnorm": (rmsnorm(N), (x, w, y), lambda: nothing.rms_norm(x, (N,), w, 1e-5)),
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
    programs = {
        "softmax": softmax(256, 1024),
        "gemm": gemm(1024, 1024, 1024, "float32", CPU_BLOCK),
        "attention": attention(1, 8, 1024, 64, True),
    }
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


def measure(threads: int) -> list[dict[str, Any]]:
    """The rows of a process of its own: libraries read the number of threads when they start."""
    command = [sys.executable, __file__, "--json"]
    done = subprocess.run(command, env={**os.environ, "TVM_NUM_THREADS": str(threads)}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def record() -> None:
    """Measure on one thread and on every core; write the results as JSON and as text."""
    about = machine()
    runs = {str(n): measure(n) for n in sorted({1, int(CORES or 1)})}
    text = []
    for threads, rows in runs.items():
        text += ["", f"{threads} thread(s)", *(show(r) for r in rows)]
    write("cpu", about, {"threads": runs}, text)


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

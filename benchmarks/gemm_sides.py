"""float32 GEMM of this package and of NumPy, each in a process of its own.

    python benchmarks/gemm_sides.py 512 1024         TVM_NUM_THREADS chooses the threads of both

In one process the thread pools of the two libraries disturb each other: OpenBLAS's threads spin for about 100 ms after a call and
hold the cores on which the other library's threads wake up. Here the two processes take turns, the order of a round changing
each time; the one whose turn it is not waits for a line on its standard input, and after a turn the next begins when the threads
of the last one have come to rest. A turn is one call that wakes the threads and `CALLS` calls that count, the fastest of which is
the turn's time; the result is the median of the turns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SIDES = ("tilelang", "numpy")
CPU_BLOCK = (256, 256, 128)
CALLS = 5
REST = 0.25  # seconds until OpenBLAS's threads sleep: with 0.06 they still held a core, and ours took twice the time


def compare(size: int, rounds: int = 25) -> tuple[float, float]:
    """Median seconds (ours, NumPy's) of C = A @ B with square float32 matrices."""
    processes = {side: _start(side, size) for side in SIDES}
    taken: dict[str, list[float]] = {side: [] for side in SIDES}
    try:
        for k in range(rounds):
            for side in SIDES if k % 2 else reversed(SIDES):
                time.sleep(REST)
                taken[side].append(_turn(processes[side]))
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()
    return statistics.median(taken["tilelang"]), statistics.median(taken["numpy"])


def _start(side: str, size: int) -> Any:
    command = [sys.executable, __file__, "--side", side, str(size)]
    return subprocess.Popen(command, env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def _turn(process: Any) -> float:
    process.stdin.write("go\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args}: ended with {process.wait()}")
    return float(line)


# ---------------------------------------------------------------- in the process of one side
def serve(side: str, size: int) -> None:
    """Answer each line of the standard input with the seconds of a turn."""
    multiply = _multiplication(side, size)
    for _ in sys.stdin:
        multiply()
        best = float("inf")
        for _ in range(CALLS):
            start = time.perf_counter()
            multiply()
            best = min(best, time.perf_counter() - start)
        print(best, flush=True)


def _multiplication(side: str, size: int) -> Callable[[], object]:
    np = importlib.import_module("numpy")  # not at the top: each side loads only what it needs
    a, b = (np.random.default_rng(k).standard_normal((size, size), dtype=np.float32) for k in range(2))
    c = np.empty((size, size), np.float32)
    if side == "numpy":
        return lambda: np.matmul(a, b, out=c)
    gemm = importlib.import_module("programs").gemm
    kernel = importlib.import_module("tilelang").compile(gemm(size, size, size, "float32", CPU_BLOCK), target="cpu")
    kernel(a, b, c)
    rows = slice(0, size, 37)
    if not np.allclose(c[rows], a[rows].astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3):
        raise AssertionError(f"wrong product for size {size}")
    return lambda: kernel(a, b, c)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="+")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(options.side, options.sizes[0])
        return
    threads = os.environ.setdefault("TVM_NUM_THREADS", str(os.cpu_count()))
    os.environ.update(OPENBLAS_NUM_THREADS=threads, OMP_NUM_THREADS=threads)
    os.environ.pop("OPENBLAS_CORETYPE", None)  # OpenBLAS chooses its kernels itself
    for size in options.sizes:
        ours, numpy = compare(size)
        print(
            f"{size:5d}  ours {2e-9 * size**3 / ours:7.1f}  NumPy {2e-9 * size**3 / numpy:7.1f} GF/s  ratio {numpy / ours:.2f}", flush=True
        )


if __name__ == "__main__":
    main()

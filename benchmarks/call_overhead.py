"""Time of one call of a tiny kernel with three arrays: the bare TVM function, the kernel object, and their difference.

    python benchmarks/call_overhead.py [--repeat 300] [--json FILE] [--record]

The two take turns in short batches; minimum and median of the batches in microseconds. The minimum is the one to compare
when the machine is busy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from recording import machine, write

import tilelang
import tilelang.language as T
from tilelang.runtime.arguments import prepare

BATCH = 200  # calls timed together


def add(dtype: str):
    @T.prim_func
    def main(A: T.Tensor((16,), dtype), B: T.Tensor((16,), dtype), C: T.Tensor((16,), dtype)):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(16):
                C[i] = A[i] + B[i]

    return main


def arrays(kind: str) -> list[Any]:
    """Three arrays of 16 elements of a kind of argument."""
    if kind == "torch float32":
        return [torch.zeros(16) for _ in range(3)]
    dtype = ml_dtypes.bfloat16 if "bfloat16" in kind else np.float32
    return [np.zeros(16, dtype) for _ in range(3)]


def batches(functions: Sequence[Callable[..., Any]], arguments: Sequence[Sequence[Any]], repeat: int) -> list[tuple[float, float]]:
    """(minimum, median) microseconds of a call of each function."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for found, function, args in zip(times, functions, arguments, strict=True):
            start = time.perf_counter()
            for _ in range(BATCH):
                function(*args)
            found.append((time.perf_counter() - start) / BATCH * 1e6)
    return [(min(found), statistics.median(found)) for found in times]


def measure(kind: str, returned: bool, repeat: int) -> dict[str, float]:
    """One row. returned: the last array is an output that the kernel allocates."""
    program = add("bfloat16" if "bfloat16" in kind else "float32")
    kernel = tilelang.compile(program, target="cpu", out_idx=[2] if returned else None)
    args = arrays(kind)
    given = args[:2] if returned else args
    kernel(*given)
    bare = kernel.artifact.entry
    values = prepare(kernel.signature, given).values
    (low, middle), (bare_low, bare_middle) = batches([kernel, bare], [given, values], repeat)
    over = {"over min": low - bare_low, "over": middle - bare_middle}
    return {"bare min": bare_low, "bare": bare_middle, "kernel min": low, "kernel": middle, **over}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="keep the results in benchmarks/results/")
    options = parser.parse_args()
    about, result, text = machine(), {}, []
    for kind in ("numpy float32", "torch float32", "numpy bfloat16"):
        for returned in (False, True):
            name = f"{kind}{', output returned' if returned else ''}"
            result[name] = measure(kind, returned, options.repeat)
            text.append(f"{name:34s} " + "  ".join(f"{key} {value:6.2f}" for key, value in result[name].items()) + " us")
            print(text[-1], flush=True)
    if options.record:
        write("call-overhead", about, result, text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

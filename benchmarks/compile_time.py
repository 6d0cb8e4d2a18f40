"""Time from decorating a program to a callable kernel, stage by stage; loading from the disk cache; import time; peak memory.

    python benchmarks/compile_time.py [--target "cuda -arch=sm_90a"] [--repeat 15] [--json FILE] [--record]

Every repetition imports the programs anew, so that reading, rewriting and tracing the Python function are part of it. Times
are medians in milliseconds: on the wall, and of the processor (the fairer one when the machine is busy). Second processes
start with an empty cache folder that a first one fills; they report `tilelang.compile` with and without tracing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recording import machine, write

HERE = Path(__file__).resolve().parent
LIMITS = {
    "cpu": {"elementwise": 100.0, "gemm": 300.0, "attention": 500.0, "attention ragged": 500.0},
    "cuda": {"elementwise": 250.0, "gemm": 500.0, "attention": 800.0, "attention ragged": 800.0},
}  # ms
PROGRAMS = tuple(LIMITS["cpu"])


def fresh_programs() -> dict[str, Callable[[], Any]]:
    """The programs of `programs.py` with code objects that nothing has seen."""
    spec = importlib.util.spec_from_file_location("benchmark_programs", HERE / "programs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAMS


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """(result, wall ms, processor ms)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def compile_once(name: str, target: str) -> dict[str, float]:
    """Milliseconds of each stage and of the whole for one program."""
    tilelang = importlib.import_module("tilelang")  # not at the top: the time of imports is measured, too
    make = fresh_programs()[name]
    program, trace, trace_cpu = timed(make)
    kernel, wall, cpu = timed(lambda: tilelang.compile(program, target=target))
    stages = {stage: seconds * 1e3 for stage, seconds in kernel.artifact.seconds.items() if stage != "total"}
    return {"total": trace + wall, "total cpu": trace_cpu + cpu, "trace": trace, **stages}


def compile_times(repeat: int, target: str) -> dict[str, dict[str, float]]:
    """Medians over `repeat` compilations of each program, the programs taking turns."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in PROGRAMS}
    for k in range(repeat + 1):
        for name, found in rounds.items():
            one = compile_once(name, target)
            if k:  # the first of each warms the process
                found.append(one)
    return {name: {key: statistics.median(r[key] for r in found) for key in found[0]} for name, found in rounds.items()}


def child(mode: str, name: str, target: str, cache: str) -> dict[str, float]:
    """One new process: see `in_child`."""
    env = {**os.environ, "TILELANG_CACHE_DIR": cache, "TILELANG_DISABLE_CACHE": ""}
    done = subprocess.run(
        [sys.executable, __file__, "--target", target, "--child", mode, name], env=env, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def in_child(mode: str, name: str, target: str) -> dict[str, float]:
    """ "import": TVM, then this package. "compile": a compilation through the cache."""
    _, tvm, tvm_cpu = timed(lambda: importlib.import_module("tvm"))
    tilelang, ours, ours_cpu = timed(lambda: importlib.import_module("tilelang"))
    if mode == "import":
        return {"tvm": tvm, "tvm cpu": tvm_cpu, "tilelang": ours, "tilelang cpu": ours_cpu}
    program, trace, trace_cpu = timed(fresh_programs()[name])
    _, wall, cpu = timed(lambda: tilelang.compile(program, target=target))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"trace": trace, "trace cpu": trace_cpu, "compile": wall, "compile cpu": cpu, "peak MB": peak}


def processes(repeat: int, target: str) -> dict[str, dict[str, float]]:
    """Medians over new processes: imports, a first compilation, a second one from the disk cache."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeat):
        found.setdefault("import", []).append(child("import", "", target, ""))
        for name in PROGRAMS:
            with tempfile.TemporaryDirectory() as cache:
                for order in ("first", "second"):
                    found.setdefault(f"{order} process, {name}", []).append(child("compile", name, target, cache))
    return {what: {key: statistics.median(r[key] for r in rows) for key in rows[0]} for what, rows in found.items()}


def table(title: str, rows: dict[str, dict[str, float]], limits: dict[str, float]) -> list[str]:
    lines = [title]
    for name, row in rows.items():
        limit = f" (limit {limits[name]:.0f})" if name in limits else ""
        lines += [f"  {name}{limit}", "    " + "  ".join(f"{key} {value:.1f}" for key, value in row.items() if value >= 0.05)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", help="with an architecture nothing but the compiler is needed")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--processes", type=int, default=3, help="new processes of each kind")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="keep the results in benchmarks/results/")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(in_child(*options.child, options.target)))
        return
    os.environ["TILELANG_DISABLE_CACHE"] = "1"
    about = machine()
    kind = options.target.split()[0]
    result = {"compile": compile_times(options.repeat, options.target)}
    text = table(f"Warm process, no cache, target {options.target}: ms", result["compile"], LIMITS[kind])
    print("\n".join(text), flush=True)
    if options.processes:
        result["processes"] = processes(options.processes, options.target)
        text += table("New processes: ms", result["processes"], {})
        print("\n".join(text[len(text) - 1 - 2 * len(result["processes"]) :]))
    if options.record:
        write("compile-time" if kind == "cpu" else f"compile-time-{kind}", about, result, text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

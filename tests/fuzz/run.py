"""Run random programs against NumPy: `python -m tests.fuzz.run --count 5000 --seed 0 [--target cpu,simt] [--jobs 2]`.

Every program runs in a worker process, so that a crash or a hang is charged to its seed. On a failure the seed, the
command that repeats it and the first wrong element are printed; `--show SEED` prints a program.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import pathlib
import re
import sys
import tempfile
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

import tilelang

from ..device_arrays import to_device, to_host
from .generator import generate
from .programs import Program


def load_program(source: str, folder: pathlib.Path, seed: int):
    """The `main` of a program, imported from a file so that its source can be found."""
    path = folder / f"fuzz_{seed}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def call(kernel, arrays: list[np.ndarray], target: str) -> None:
    """Run the kernel on the arrays, in place; on a GPU by way of its memory."""
    if target != "cuda":
        kernel(*arrays)
        return
    tensors = [to_device(a) for a in arrays]
    kernel(*tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        array[...] = to_host(tensor)


def check(seed: int, targets: str = "cpu", serial: bool = False) -> str:
    """Compile and run one program for each of the targets (separated by commas); "" if every output equals the reference, else what is
    wrong. serial: without stages in pipelined loops."""
    program = generate(seed)
    if serial:
        program.source = re.sub(r"num_stages=\d", "num_stages=0", program.source)
    failures = ((target, check_on(program, target)) for target in targets.split(","))
    return next((f"{target}: {failure}" for target, failure in failures if failure), "")


def check_on(program: Program, target: str) -> str:
    """Compile and run one program for one target."""
    arrays = program.arrays()
    expected = program.reference(arrays)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = tilelang.compile(load_program(program.source, pathlib.Path(folder), program.seed), target=target)
            call(kernel, arrays, target)
    except Exception:
        return "".join(traceback.format_exc(limit=-6))[-3000:]
    for position, want in zip(program.outputs, expected, strict=True):
        got = arrays[position].astype(np.int64)
        if not np.array_equal(got, want):
            where = tuple(int(i) for i in np.argwhere(got != want)[0])
            name, wrong = program.params[position].name, int((got != want).sum())
            return f"output {name}{list(where)}: got {got[where]}, want {want[where]} ({wrong} of {got.size} wrong)"
    return ""


def _worker(task: tuple[int, str]) -> tuple[int, str]:
    return task[0], check(*task)


def run(seeds: range, target: str, jobs: int, chunk: int = 50) -> dict[int, str]:
    """Failures by seed. A chunk whose worker died is repeated seed by seed to find the one that kills it."""
    failures: dict[int, str] = {}
    context = multiprocessing.get_context("spawn")

    def attempt(part: list[int]) -> None:
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            for seed, text in pool.map(_worker, [(s, target) for s in part], timeout=30 * len(part)):
                if text:
                    failures[seed] = text

    for start in range(0, len(seeds), chunk * jobs):
        part = list(seeds[start : start + chunk * jobs])
        try:
            attempt(part)
        except (BrokenProcessPool, TimeoutError):
            for seed in part:
                try:
                    attempt([seed])
                except (BrokenProcessPool, TimeoutError) as err:
                    failures[seed] = f"the process died or hung: {type(err).__name__}"
        print(f"{start + len(part)} of {len(seeds)} run, failed: {sorted(failures) or 'none'}", file=sys.stderr, flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, metavar="SEED")
    options = parser.parse_args()
    if options.show is not None:
        with contextlib.suppress(BrokenPipeError):
            print(generate(options.show).source)
        return 0
    failures = run(range(options.seed, options.seed + options.count), options.target, options.jobs)
    for seed, text in sorted(failures.items()):
        print(
            f"seed {seed}: {text}\n  repeat: python -m tests.fuzz.run --seed {seed} --count 1; show: python -m tests.fuzz.run --show {seed}"
        )
    print(f"{options.count - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random programs as CUDA text on the processor, against NumPy: `python -m tests.backend.cuda.on_host.fuzz --seed 0 --count 100`."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import traceback
import warnings

import numpy as np

from ....fuzz.generator import generate
from ....fuzz.run import load_program
from . import aligned, run


def check(seed: int) -> str:
    """ "" if every output equals the reference, else what is wrong."""
    program = generate(seed)
    arrays = [aligned(a) for a in program.arrays()]
    expected = program.reference(program.arrays())
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(load_program(program.source, pathlib.Path(folder), seed), *arrays)
    except Exception:
        return traceback.format_exc(limit=-6)[-3000:]
    for position, want in zip(program.outputs, expected, strict=True):
        if not np.array_equal(arrays[position].astype(np.int64), want):
            return f"output {program.params[position].name} is wrong"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        if text := check(seed):
            failed += 1
            print(f"seed {seed}: {text}", flush=True)
    print(f"{options.count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

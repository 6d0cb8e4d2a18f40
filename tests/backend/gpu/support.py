"""Programs of one tile operator, run on the emulator. `run(program, *arrays)` returns the chosen lowerings by operator."""

import ml_dtypes
import numpy as np

from tilelang.backend.target import resolve_target
from tilelang.compiler.compile import compile_program

RNG = np.random.default_rng(7)
SMALL = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def numpy_type(name):
    return np.dtype(SMALL.get(name, name))


def values(shape, dtype):
    """Small integers, which every type holds exactly."""
    if dtype == "bool":
        return RNG.random(shape) < 0.7
    low = 0 if dtype.startswith("u") else -4
    return RNG.integers(low, 5, shape).astype(numpy_type(dtype))


def run(program, *arrays, target="simt"):
    """Compile for the emulator and call; {operator: [texts of its notes]}."""
    artifact = compile_program(program, resolve_target(target), {})
    artifact.entry(*arrays)
    notes = {}
    for note in artifact.notes:
        notes.setdefault(note.subject, []).append(note.text)
    return notes

"""Every planted fault is found: the emulator reports it, or the result is wrong (which a comparison sees).

A fault that changes nothing observable is no fault; those few are listed in `SOME` and `NONE` with the reason.
"""

from __future__ import annotations

import numpy as np
import pytest

from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context, lower_to
from tilelang.errors import SimtError, TileError
from tilelang.ir.tvm_api import PrimFunc
from tilelang.target.target import parse_target

from .mutations import MUTATIONS
from .programs import SUBJECTS, Subject

TARGET = parse_target("simt")
MOST = 24  # places of one kind in one program
# Changes that are no fault at some places, so that only one place must be found: waits and copies at the end of a pipeline, loops
# and guards around a condition that says the same, sums of a permuted row, a maximum that only scales.
SOME = {
    ("gemm", "wait for copies dropped"), ("gemm", "wait for copies too weak"), ("gemm", "commit of copies dropped"),
    ("gemm", "one turn more"),
    ("softmax", "barrier dropped"), ("softmax", "swizzle on one side"), ("softmax", "load shifted"), ("softmax", "one turn less"),
    ("softmax", "one turn more"), ("softmax", "buffers overlap"), ("softmax", "store to registers dropped"),
}  # fmt: skip
NONE = {("ring", "guard dropped")}  # inside of a region of threads that implies the guard
found_faults: dict[tuple[str, str], int] = {}
_lowered: dict[str, PrimFunc] = {}


def lowered(name: str) -> PrimFunc:
    if name not in _lowered:
        subject = SUBJECTS[name]
        _lowered[name] = lower_to(subject.program(), TARGET, dict(subject.config), "plan_shared")
    return _lowered[name]


def outcome(func: PrimFunc, subject: Subject, seed: int = 0) -> str:
    """"" if the program runs and gives the expected values, else what is wrong with it."""
    arguments = subject.arguments()
    wanted = subject.expected(*[a.copy() if isinstance(a, np.ndarray) else a for a in arguments])
    try:
        build(func, context(TARGET, {**dict(subject.config), "tl.simt_seed": seed})).entry(*arguments)
    except (SimtError, TileError) as error:
        return str(error)
    for position, values in wanted.items():
        if not np.allclose(arguments[position], values, rtol=subject.tolerance, atol=subject.tolerance):
            return "wrong values"
    return ""


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_alarm_without_a_fault(name: str) -> None:
    for seed in range(20 if name == "ring" else 3):
        assert outcome(lowered(name), SUBJECTS[name], seed) == ""


def places(name: str, mutation: str) -> list[tuple[int, PrimFunc]]:
    found: list[tuple[int, PrimFunc]] = []
    for n in range(MOST):
        changed = MUTATIONS[mutation](lowered(name), n)
        if changed is None:
            break
        found.append((n, changed))
    return found


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_planted_fault_is_found(name: str, mutation: str) -> None:
    candidates = places(name, mutation)
    if not candidates or (name, mutation) in NONE:
        pytest.skip("no such fault in this program")
    missed = [n for n, func in candidates if not outcome(func, SUBJECTS[name])]
    found_faults[name, mutation] = len(candidates) - len(missed)
    if (name, mutation) in SOME:
        assert len(missed) < len(candidates)
    else:
        assert not missed, f"{mutation} in {name}: not found at {missed} of {len(candidates)} places"


def test_there_are_enough_faults() -> None:
    if len({name for name, _ in found_faults}) < len(SUBJECTS):
        pytest.skip("not all programs have run")
    assert sum(found_faults.values()) >= 60, found_faults

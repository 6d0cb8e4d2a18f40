"""Every planted fault is found, by the right report: the message that fits the fault, the line, the line of the earlier access, the
memory's name. Faults that leave every access allowed are seen in the values.

A change that is no fault at some places is listed in `HARMLESS` with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context, lower_to
from tilelang.compiler.pipeline import STAGES
from tilelang.errors import SimtError
from tilelang.ir.access import allocations
from tilelang.ir.tvm_api import PrimFunc
from tilelang.target.target import parse_target

from .mutations import MUTATIONS
from .programs import SUBJECTS, Subject
from .reports import PAIR, REPORTS, VALUES

MOST = 5  # places of one kind in one program, spread over all
# How many of the places are no faults.
HARMLESS: dict[tuple[str, str], int] = {
    # the wait behind a pipeline has nothing to wait for
    **{(name, kind): 1 for name in ("gemm", "attention", "rows")
       for kind in ("wait for copies dropped", "wait for copies too weak", "copies swapped with their wait")},
    # loops that do again what was done, or what a guard inside forbids
    ("gemm", "one turn more"): 1, ("softmax", "one turn more"): 3, ("product", "one turn more"): 1,
    ("slices", "one turn more"): 1,
    # every thread writes those bytes of another buffer that it has read itself
    ("softmax", "barrier dropped"): 1,
    # the sum and the maximum of a permuted row; a maximum that only scales
    ("softmax", "swizzle on one side"): 2, ("softmax", "store to registers dropped"): 1,
    ("softmax", "buffers overlap"): 2,  # these two share those bytes in the plan
    ("cluster_gemm", "buffers overlap"): 1,  # the staged result, and tiles that are done with by then
    ("rows", "store to registers dropped"): 1,  # zeros that are overwritten
    # conditions that others imply; the whole warp waits instead of one lane
    ("ring", "guard dropped"): 1, ("hopper_gemm", "guard dropped"): 1, ("cluster_gemm", "guard dropped"): 1,
    ("bulk_ring", "guard dropped"): 2,
    ("added", "guard dropped"): 1,
    # the producer, which goes round the ring in order, has then waited for a later slot
    ("bulk_ring", "arrive at another barrier"): 1, ("bulk_ring", "wait at another barrier"): 1,
    ("slices", "arrive at another barrier"): 1, ("slices", "wait at another barrier"): 1,
    ("product", "product forgets or keeps"): 1,  # the accumulator is zero
}  # fmt: skip
_lowered: dict[str, PrimFunc] = {}


@dataclass
class Outcome:
    """report: what the emulator said, if it did. wrong: are the values wrong?"""

    report: SimtError | None = None
    wrong: bool = False

    @property
    def found(self) -> bool:
        return self.wrong or self.report is not None


def lowered(name: str) -> PrimFunc:
    if name not in _lowered:
        subject = SUBJECTS[name]
        program = subject.program()
        _lowered[name] = program if subject.final else lower_to(program, target(subject), dict(subject.config), STAGES[-1].name)
    return _lowered[name]


def target(subject: Subject):
    return parse_target(f"simt -arch={subject.arch}")


def outcome(func: PrimFunc, subject: Subject, seed: int = 0) -> Outcome:
    arguments = subject.arguments()
    wanted = subject.expected(*[a.copy() if isinstance(a, np.ndarray) else a for a in arguments])
    try:
        build(func, context(target(subject), {**dict(subject.config), "tl.simt_seed": seed})).entry(*arguments)
    except SimtError as error:
        return Outcome(error)
    for position, values in wanted.items():
        if not np.allclose(arguments[position].astype(np.float64), values, rtol=subject.tolerance, atol=subject.tolerance):
            return Outcome(wrong=True)
    return Outcome()


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_alarm_without_a_fault(name: str) -> None:
    by_warp = name in ("ring", "bulk_ring", "hopper_gemm", "slices", "cluster_gemm", "product")
    for seed in range(20 if by_warp else 3):
        found = outcome(lowered(name), SUBJECTS[name], seed)
        assert not found.found, (seed, found)


def places(name: str, mutation: str) -> list[PrimFunc]:
    found: list[PrimFunc] = []
    while (changed := MUTATIONS[mutation](lowered(name), len(found))) is not None:
        found.append(changed)
    return found[:: max(1, -(-len(found) // MOST))]


def check_report(report: SimtError, mutation: str, names: list[str]) -> None:
    """The report fits the fault, shows where, and names what it is about."""
    text = str(report).splitlines()[0]
    assert REPORTS[mutation], f"{mutation} is reported: {text}"
    assert re.search(REPORTS[mutation], text), f"{mutation} is reported as: {text}"
    assert report.at is not None, text
    if re.search(PAIR, text) and "in the same statement" not in text:
        assert report.notes, f"without the earlier line: {text}"
    labels = " ".join(label for _, label in report.notes)
    if not re.search(r"deadlock|not all threads|threads arrive|warpgroup|fence of registers|while its product", text):
        assert any(re.search(rf"\b{re.escape(name)}\b", f"{text} {labels}") for name in names), text


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_planted_fault_is_found(name: str, mutation: str) -> None:
    candidates = places(name, mutation)
    harmless = HARMLESS.get((name, mutation), 0)
    if not candidates or harmless >= len(candidates):
        pytest.skip("no such fault in this program")
    names = [b.name for b in (*allocations(lowered(name).body), *lowered(name).params)]
    outcomes = [outcome(func, SUBJECTS[name]) for func in candidates]
    for found in outcomes:
        if found.report is not None:
            check_report(found.report, mutation, names)
    missed = [k for k, found in enumerate(outcomes) if not found.found]
    assert len(missed) <= harmless, f"{mutation} in {name}: not found at {missed} of {len(candidates)} places"
    silent = [k for k, found in enumerate(outcomes) if found.wrong]
    assert mutation in VALUES or not silent, f"{mutation} in {name}: only wrong values at {silent} of {len(candidates)} places"


def test_there_are_enough_faults() -> None:
    """Counted where they are planted: that each is found is the test above, which may run in other processes."""
    planted = {(n, m): len(places(n, m)) - HARMLESS.get((n, m), 0) for n in SUBJECTS for m in MUTATIONS}
    assert len({mutation for (_, mutation), count in planted.items() if count > 0}) >= 50, planted
    assert sum(planted.values()) >= 300, planted
    assert set(REPORTS) == set(MUTATIONS)

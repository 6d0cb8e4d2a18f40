"""What the compiler did with a program, as data: stages, the program after each, notes, memory.

In: a program (or what `load.as_program` accepts) and a target. Out: an `Explanation`; `text.py` prints it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend.base import KernelResources
from ..backend.target import resolve_target
from ..compiler.compile import backend_for, context
from ..compiler.memory import MemoryReport
from ..compiler.memory_report import report_of
from ..compiler.pipeline import run
from ..errors import TileValueError
from ..ir.context import Note
from ..ir.tvm_api import PrimFunc
from ..ir.verify import TILE
from .load import as_program

SOURCE = "program"  # the name of the program as the front end made it, before the first stage


@dataclass(frozen=True)
class StageReport:
    """One stage: its name, the level whose law holds after it, its time, whether it changed the program, the program."""

    name: str
    level: str
    seconds: float
    changed: bool
    program: PrimFunc

    def script(self) -> str:
        """The program after this stage as text."""
        return self.program.script()


@dataclass(frozen=True)
class Explanation:
    """name, target: of the program. stages: "program" (as written) and every stage in order. notes: which lowering each
    statement got and why better ones declined. memory: of each launch, allocation by allocation. source: the generated text, and
    build: time (s) of each step of the backend's code generation, both empty unless they were asked for."""

    name: str
    target: str
    stages: tuple[StageReport, ...]
    notes: tuple[Note, ...]
    memory: MemoryReport
    build: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    def stage(self, name: str) -> StageReport:
        """The stage of this name. Raises TileValueError with the names there are."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise TileValueError(f"no stage {name!r} for target {self.target}", remedy=f"stages are {', '.join(s.name for s in self.stages)}")

    def as_dict(self) -> dict[str, Any]:
        """Everything but the programs and the generated text, in plain dicts, lists, strings and numbers."""
        stages = [{"name": s.name, "level": s.level, "seconds": s.seconds, "changed": s.changed} for s in self.stages]
        notes = [{"at": str(n.at) if n.at else None, "subject": n.subject, "text": n.text} for n in self.notes]
        return {**self.memory.as_dict(), "stages": stages, "build": dict(self.build), "notes": notes}

    @property
    def total_seconds(self) -> float:
        """Time of all stages and, if measured, of code generation."""
        return sum(s.seconds for s in self.stages) + sum(self.build.values())


def explain(
    program: Any, target: Any = "auto", *, arguments: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None, build: bool = False,
) -> Explanation:  # fmt: skip
    """Run every stage on `program` and keep what each one did.

    program: a program, a kernel, a jit function or a factory, called with `arguments`. config: pass configuration by
    key. build: also generate code, for its time and text. Errors of the compiler are those of a compilation.
    """
    func = as_program(program, arguments)
    machine = resolve_target(target)
    backend, ctx = backend_for(machine), context(machine, config)
    seconds: dict[str, float] = {}
    stages = [StageReport(SOURCE, TILE, 0.0, True, func)]
    for stage, after in run(func, backend, ctx, seconds):
        stages.append(StageReport(stage.name, stage.level, seconds[stage.name], not after.same_as(stages[-1].program), after))
    name = str((func.attrs or {}).get("global_symbol", "main"))
    final = stages[-1].program
    if not build:
        return Explanation(name, str(machine), tuple(stages), tuple(ctx.notes), report_of(func, final, ctx))
    start = time.perf_counter()
    artifact = backend.build(final, ctx)
    total = time.perf_counter() - start
    steps = dict(artifact.seconds)
    steps["other"] = max(total - sum(steps.values()), 0.0)
    resources: Sequence[KernelResources] = ()
    if artifact.resources is not None:
        start = time.perf_counter()
        resources = artifact.resources()
        steps.setdefault("nvrtc", time.perf_counter() - start)  # of a target that names no architecture: built for the default one
    memory = report_of(func, final, ctx, resources)
    return Explanation(name, str(machine), tuple(stages), tuple(ctx.notes), memory, steps, artifact.source)

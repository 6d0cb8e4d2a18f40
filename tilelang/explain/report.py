"""What the compiler did with a program, as data: stages, the program after each, notes, memory.

In: a program (or what `load.as_program` accepts) and a target. Out: an `Explanation`; `text.py` prints it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..backend.target import resolve_target
from ..compiler.compile import backend_for, context
from ..compiler.pipeline import run
from ..errors import TileValueError
from ..ir.context import Note
from ..ir.tvm_api import PrimFunc
from ..ir.verify import TILE
from .load import as_program
from .memory import Allocation, KernelMemory, allocation_table

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
    statement got and why better ones declined. kernels: memory of each launch; workspaces: allocations outside of them.
    build_seconds: time of the backend's code generation, None unless it was asked for; source: its text."""

    name: str
    target: str
    stages: tuple[StageReport, ...]
    notes: tuple[Note, ...]
    kernels: tuple[KernelMemory, ...]
    workspaces: tuple[Allocation, ...]
    build_seconds: float | None = None
    source: str = ""

    def stage(self, name: str) -> StageReport:
        """The stage of this name. Raises TileValueError with the names there are."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise TileValueError(f"no stage {name!r} for target {self.target}", remedy=f"stages are {', '.join(s.name for s in self.stages)}")

    @property
    def total_seconds(self) -> float:
        """Time of all stages and, if measured, of code generation."""
        return sum(s.seconds for s in self.stages) + (self.build_seconds or 0.0)


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
    kernels, workspaces = allocation_table(func)
    seconds: dict[str, float] = {}
    stages = [StageReport(SOURCE, TILE, 0.0, True, func)]
    for stage, after in run(func, backend, ctx, seconds):
        stages.append(StageReport(stage.name, stage.level, seconds[stage.name], not after.same_as(stages[-1].program), after))
    name = str((func.attrs or {}).get("global_symbol", "main"))
    build_seconds, source = None, ""
    if build:
        start = time.perf_counter()
        source = backend.build(stages[-1].program, ctx).source
        build_seconds = time.perf_counter() - start
    return Explanation(name, str(machine), tuple(stages), tuple(ctx.notes), kernels, workspaces, build_seconds, source)

"""The page: every stage of the compiler in order, by name, with the level whose law holds after it.

    Python function --front end--> TILE --> LOOPS --> (threads --> device on a GPU) --> build

A backend adds passes at the named slots and leaves the list at its `last_level`; the list is never copied.
`run` is the only place where passes are called.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..backend.base import Backend, Pass
from ..errors import TileWarning, warn
from ..ir.context import PassContext
from ..ir.tvm_api import PrimFunc
from ..ir.verify import LEVELS, LOOPS, THREADS, TILE, verify
from ..knobs import knobs
from ..passes.analysis.facts import sizes_of
from ..passes.barriers.insert_barriers import insert_barriers
from ..passes.layouts.apply_shared_layouts import apply_shared_layouts
from ..passes.memory.plan_shared import plan_shared
from ..passes.partition.lane_arithmetic import lane_arithmetic
from ..passes.partition.overlap_reads import overlap_reads
from ..passes.partition.partition_loops import partition_loops
from ..passes.program.check_initialisation import check_initialisation
from ..passes.program.check_program import check_program
from ..passes.program.guard_bounds import guard_bounds
from ..passes.program.lower_tile_ops import lower_tile_ops
from ..passes.program.name_effects import name_effects
from ..passes.program.simplify import simplify
from ..passes.program.widen_indices import widen_indices
from ..passes.roles.thread_parts import thread_parts
from ..passes.waits.defer_bulk_waits import defer_bulk_waits
from ..passes.waits.fence_proxies import fence_proxies
from ..passes.waits.relax_waits import relax_waits


@dataclass(frozen=True)
class Stage:
    name: str
    level: str
    run: Pass | None = None  # None: a slot, filled by the backend
    tells: bool = False  # only looks, and tells the user: repeated for a program whose code comes from a cache


STAGES = (
    # tiles
    Stage("check_program", TILE, check_program, tells=True),
    Stage("check_initialisation", TILE, check_initialisation, tells=True),
    Stage("name_effects", TILE, name_effects),
    Stage("thread_parts", TILE, thread_parts),
    Stage("slot:tiles", TILE),  # a GPU: plan_pipeline, infer_layouts
    # tiles -> loops
    Stage("lower_tile_ops", LOOPS, lower_tile_ops),
    Stage("widen_indices", LOOPS, widen_indices),
    Stage("slot:loops", LOOPS),
    Stage("guard_bounds", LOOPS, guard_bounds),
    Stage("simplify", LOOPS, simplify),
    Stage("slot:last", LOOPS),
    # loops -> threads (a GPU; the CPU has left the list)
    Stage("partition_loops", THREADS, partition_loops),
    Stage("simplify_threads", THREADS, simplify),
    Stage("lane_arithmetic", THREADS, lane_arithmetic),
    Stage("insert_barriers", THREADS, insert_barriers),
    Stage("apply_shared_layouts", THREADS, apply_shared_layouts),
    Stage("plan_shared", THREADS, plan_shared),
    # after the last barrier is placed
    Stage("fence_proxies", THREADS, fence_proxies),
    Stage("relax_waits", THREADS, relax_waits),
    Stage("defer_bulk_waits", THREADS, defer_bulk_waits),
    Stage("overlap_reads", THREADS, overlap_reads),
)


def stages_for(backend: Backend) -> Iterator[Stage]:
    """The list with the backend's passes in its slots."""
    for stage in STAGES:
        if LEVELS.index(stage.level) > LEVELS.index(backend.last_level):
            return
        if stage.run is not None:
            yield stage
        else:
            for name, run in backend.slots.get(stage.name.removeprefix("slot:"), ()):
                yield Stage(name, stage.level, run)


def tell(func: PrimFunc, ctx: PassContext) -> None:
    """The errors and warnings about the user's program, without compiling it."""
    for stage in STAGES:
        if stage.tells and stage.run is not None:
            stage.run(func, ctx)


def run(func: PrimFunc, backend: Backend, ctx: PassContext, seconds: dict[str, float] | None = None) -> Iterator[tuple[Stage, PrimFunc]]:
    """Run the stages one by one; yields each stage with the program after it."""
    dump, check = knobs.dump, knobs.verify
    names = [stage.name for stage in stages_for(backend)]
    if unknown := [name for name in dump if name not in (*names, "all")]:
        warn(f"TILELANG_DUMP: target {backend.kind} has no stage {', '.join(unknown)}; there are {', '.join(names)}, all", TileWarning)
    ctx.sizes = sizes_of(func)
    for stage in stages_for(backend):
        assert stage.run is not None
        start = time.perf_counter()
        func = stage.run(func, ctx)
        if seconds is not None:
            seconds[stage.name] = time.perf_counter() - start
        if check:
            verify(func, stage.level, stage.name)
        if stage.name in dump or "all" in dump:
            print(f"// ---- after {stage.name}\n{func.script()}", file=sys.stderr)
        yield stage, func

"""One call from a program to something that runs: the pipeline with a backend's record, then its `build`.

In: a `PrimFunc` at TILE level, a target, the user's pass configuration. Out: an `Artifact`.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..backend.base import Artifact, Backend
from ..backend.cpu import BACKEND as CPU
from ..backend.cuda import BACKEND as CUDA
from ..backend.simt import BACKEND as SIMT
from ..errors import InternalError, TileError, TileNotSupportedError, TileValueError
from ..ir.context import PassContext
from ..ir.tvm_api import PrimFunc
from ..target.target import Target
from .pipeline import run, stages_for, tell

BACKENDS: Mapping[str, Backend] = {backend.kind: backend for backend in (CPU, CUDA, SIMT)}


def backend_for(target: Target) -> Backend:
    """The record of the target's backend. Raises TileNotSupportedError if this package has none."""
    if target.kind not in BACKENDS:
        raise TileNotSupportedError(f"no backend for target {target}", remedy=f"targets with a backend: {', '.join(BACKENDS)}")
    return BACKENDS[target.kind]


def context(target: Target, config: Mapping[str, Any] | None = None, func: PrimFunc | None = None) -> PassContext:
    """A fresh pass context for one compilation. func: the program at level TILE, where it may have to be lowered again."""
    given = dict(config or {})

    def again(changes: Mapping[str, Any]) -> tuple[PrimFunc, PassContext]:
        assert func is not None
        ctx, program = context(target, {**given, **changes}, func), func
        for _, after in compile_stages(func, ctx, {}):
            program = after
        return program, ctx

    lowerings = backend_for(target).lowerings
    return PassContext(target=target, config=given, lowerings=lowerings, again=None if func is None else again)


def compile_stages(func: PrimFunc, ctx: PassContext, seconds: dict[str, float]) -> Iterator[tuple[str, PrimFunc]]:
    """(stage name, program after it), one by one; errors of TVM become ours and name the stage they came from."""
    backend = backend_for(ctx.target)
    names = iter([stage.name for stage in stages_for(backend)])
    steps = run(func, backend, ctx, seconds)
    while True:
        name = next(names, "the end")
        try:
            _, func = next(steps)
        except StopIteration:
            return
        except (TileError, InternalError, Warning):
            raise
        except Exception as error:
            raise InternalError(f"stage {name} failed: {type(error).__name__}: {error}") from error
        yield name, func


class _Collector:
    """Python's collector, held while something is compiled: now and then it looks at every object of the process, which takes about 0.1 s
    in one that has loaded a large library, and what a compilation leaves to it can wait for its end."""

    def __init__(self) -> None:
        self._lock, self._holders, self._was_on = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._holders:
                self._was_on = gc.isenabled()
                gc.disable()
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders and self._was_on:
                gc.enable()


_collector = _Collector()


def compile_program(func: PrimFunc, target: Target, config: Mapping[str, Any] | None = None) -> Artifact:
    """Compile `func` for `target`. `artifact.seconds` has the time of each stage and of the whole ("total")."""
    start = time.perf_counter()
    ctx = context(target, config, func)
    seconds: dict[str, float] = {}
    with _collector:
        for _, program in compile_stages(func, ctx, seconds):
            func = program
        artifact = backend_for(target).build(func, ctx)
    total = time.perf_counter() - start
    return replace(artifact, seconds={**seconds, **artifact.seconds, "total": total}, notes=tuple(ctx.notes))


def check(func: PrimFunc, target: Target, config: Mapping[str, Any] | None = None) -> None:
    """Give the errors and warnings that compiling would give, for a program whose code is at hand already."""
    tell(func, context(target, config))


def lower_to(func: PrimFunc, target: Target, config: Mapping[str, Any] | None, stage: str) -> PrimFunc:
    """The program after the stage of this name; TileValueError if the target has no such stage."""
    ctx = context(target, config)
    names = [s.name for s in stages_for(backend_for(target))]
    if stage not in names:
        raise TileValueError(f"target {target} has no stage {stage!r}", remedy=f"stages are {', '.join(names)}")
    for name, program in compile_stages(func, ctx, {}):
        if name == stage:
            return program
    raise InternalError(f"stage {stage} did not run")


def load_artifact(folder: Any, target: Target, config: Mapping[str, Any] | None = None, func: PrimFunc | None = None) -> Artifact:
    """The artifact that `Artifact.save` wrote into `folder`. func: the program it was compiled from, which may be needed again."""
    return backend_for(target).load(folder, context(target, config, func))

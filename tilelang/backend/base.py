"""A backend is one record; the record without lowerings and stages of its own already works.

In: a program at the level where the backend takes over. Out: an `Artifact` that can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.context import Note, PassContext
from ..ir.tvm_api import PrimFunc
from ..tileop.base import Lowering

Pass = Callable[[PrimFunc, PassContext], PrimFunc]


@dataclass(frozen=True)
class KernelResources:
    """What the assembler reports of one kernel: its symbol, the architecture, registers of a thread, and bytes: static and dynamic
    shared memory of a block, local memory of a thread, spilled registers stored and loaded by a thread."""

    name: str
    arch: str
    registers: int
    static_shared: int
    dynamic_shared: int
    local: int
    spill_stores: int
    spill_loads: int


@dataclass
class Artifact:
    """A compiled program. entry: called with the arguments in parameter order (arrays through DLPack, scalars).
    source: the generated text shown by `get_kernel_source`. save(folder) / the backend's `load` keep it on disk.
    resources: of each kernel in order, compiled now if it was not; an empty tuple where nothing can compile here."""

    entry: Callable[..., Any]
    source: str
    host_source: str = ""
    notes: Sequence[Note] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)  # time of each stage
    save: Callable[[Any], None] | None = None  # write into a folder that exists
    resources: Callable[[], Sequence[KernelResources]] | None = None  # None: not a machine with registers to count


@dataclass(frozen=True)
class Backend:
    """kind: `Target.kind`. lowerings: faster ways for tile operators, best first. slots: passes by slot name of
    `compiler/pipeline.py`. build: from the final program to an artifact. load: an artifact from a cache folder.
    version: part of every cache key. last_level: the level at which the backend takes the program."""

    kind: str
    last_level: str
    build: Callable[[PrimFunc, PassContext], Artifact]
    load: Callable[[Any, PassContext], Artifact]
    version: Callable[[PassContext], str]
    lowerings: tuple[Lowering, ...] = ()
    slots: Mapping[str, tuple[tuple[str, Pass], ...]] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Argument:
    """What a call must find out of one argument before the compiled function may have it. kind: "tensor", "float" (a number), "int" (an
    integer or a bool). A tensor: may it require a gradient, be a lazy negation, have elements that share memory (a stride of 0)? An
    integer: the least and the greatest value."""

    kind: str
    gradient: bool = True
    negation: bool = True
    overlap: bool = True
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1


@dataclass
class Artifact:
    """A compiled program. entry: called with the arguments in parameter order (arrays through DLPack, scalars).
    python_function: makes a builtin function of Python for tensors of a class, see `backend/cuda/launch.py`; None: there is none.
    source: the generated text shown by `get_kernel_source`. save(folder) / the backend's `load` keep it on disk.
    resources: of each kernel in order, compiled now if it was not; an empty tuple where nothing can compile here."""

    entry: Callable[..., Any]
    source: str
    host_source: str = ""
    notes: Sequence[Note] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)  # time of each stage
    save: Callable[[Any], None] | None = None  # write into a folder that exists
    resources: Callable[[], Sequence[KernelResources]] | None = None  # None: not a machine with registers to count
    python_function: Callable[..., Callable[..., Any] | None] | None = None


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

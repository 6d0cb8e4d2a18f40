"""What a pass may know besides the program: the target, the user's pass configuration, the place for notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import Location
from ..layout.fragment import Fragment
from ..layout.shared import SharedLayout
from ..target.target import Target

DECLINED = " declined: "  # between the name of a lowering and its reason, in the text of a note


@dataclass(frozen=True)
class Note:
    """Something `explain` tells the user about a line: which lowering it got, why a better one declined."""

    at: Location | None
    subject: str
    text: str


@dataclass(frozen=True)
class FragmentPlan:
    """Where a fragment lives: `layout` maps an element (and copy) to (thread, register); `registers` is the per-thread
    buffer (scope local) that holds them. Both names mean the same storage. groups: None, or the 128-thread groups (`T.ws`)
    on whose threads alone it lives; `layout` counts the threads of these groups from 0."""

    layout: Fragment
    registers: Any
    groups: tuple[int, ...] | None = None


@dataclass
class PassContext:
    """Handed to every stage. `config`: pass configuration by its string key, e.g. "tl.disable_safe_memory_legalize".
    `lowerings`: the backend's `tileop.base.Lowering` records, best first. `fragments`: plans by fragment buffer, made by
    `infer_layouts`. `memory`: the plan of shared memory, made by `plan_shared`. `shared_layouts`: where the elements of shared
    buffers lie, made by `choose_shared_layouts`; a buffer that is missing is row-major. `stages`: shared tiles
    through which results leave a kernel, in turn, made by lowerings, by what they hold. `sizes`: least and greatest value of the
    symbols in the parameters' shapes, set when the first stage begins. `again`: lowers the program once more, with these
    changes of the configuration, and gives its last form and context; None where the program is not at hand."""

    target: Target
    config: Mapping[str, Any] = field(default_factory=dict)
    lowerings: Sequence[Any] = ()
    notes: list[Note] = field(default_factory=list)
    fragments: dict[Any, FragmentPlan] = field(default_factory=dict)
    memory: list[Any] = field(default_factory=list)
    shared_layouts: dict[Any, SharedLayout] = field(default_factory=dict)
    stages: dict[Any, list[Any]] = field(default_factory=dict)
    sizes: Mapping[Any, tuple[int, int]] = field(default_factory=dict)
    again: Callable[[Mapping[str, Any]], tuple[Any, PassContext]] | None = None

    def note(self, at: Location | None, subject: str, text: str) -> None:
        self.notes.append(Note(at, subject, text))

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.config.get(key, default))

"""The memory of a compiled program as records: every allocation of every kernel, where it lies, who shares its bytes, what accesses
cost, and the sums against the target's limits. `kernel.memory` is one.

In: facts gathered by `memory_report.py`. Out: frozen records that print as tables and become plain dicts and JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ..backend.base import KernelResources
from ..backend.gpu.shared_accesses import SharedAccess
from ..errors import Location
from ..ir.dialect import BARRIER, BLOCK_SCOPES, CLUSTER_BARRIER, DESCRIPTORS, FRAGMENT, THREAD_SCOPES, TMEM
from .tables import place, shape_text, table

PROGRAM, COMPILER = "program", "compiler"  # origins of an allocation
_ELEMENT = 64  # characters of an element's text in a table


@dataclass(frozen=True)
class Allocation:
    """One buffer.

    name, at: as in the program, with the user's line. scope: where it lives in the compiled program (on a CPU: as written). origin:
    "program", or "compiler" for memory that the compiler adds. shape: ints, or text for a symbolic extent; dtype: of an element.
    bits: of its elements (of one thread's copy for per-thread scopes), None if the shape is symbolic. bytes: what it takes, with
    versions and padding, 0 where nothing is left of it, None if symbolic; an element of less than a byte takes one. versions: copies of
    the tile that a pipelined loop keeps.
    first, last: the first and the last line of the text that use it, None if none does. layout: where its elements lie, if that is not
    row-major; padding: bytes of it that hold no element.
    Shared memory on a GPU: offset and alignment in bytes, reason of the alignment, sharers: names of buffers with bytes in common.
    Fragments and per-thread memory on a GPU: registers of 32 bits in each thread, copies of each element over the block's threads.
    """

    name: str
    at: Location | None
    scope: str
    origin: str
    shape: tuple[int | str, ...]
    dtype: str
    bits: int | None
    versions: int = 1
    bytes: int | None = None
    first: Location | None = None
    last: Location | None = None
    layout: str = ""
    padding: int = 0
    offset: int | None = None
    alignment: int | None = None
    reason: str = ""
    sharers: tuple[str, ...] = ()
    registers: int | None = None
    copies: int = 1

    @property
    def line(self) -> int | None:
        return None if self.at is None else self.at.line

    @property
    def owner(self) -> str:
        """Who has a copy: "block", "thread" or "launch"."""
        if self.scope in (*THREAD_SCOPES, *DESCRIPTORS):
            return "thread"
        return "block" if self.scope in (*BLOCK_SCOPES, BARRIER, CLUSTER_BARRIER, TMEM) else "launch"


@dataclass(frozen=True)
class Limits:
    """What one block may have, by the vendor's programming guide. shared: bytes, static and dynamic together. registers: 32-bit ones
    of one thread; block_registers: of all threads of a block."""

    architecture: str
    shared: int
    registers: int
    block_registers: int


@dataclass(frozen=True)
class KernelMemory:
    """The memory of one launch.

    blocks: extents of the grid (text where symbolic). threads: of one block; asked: those of the program, without the ones that the
    compiler adds to move data. dynamic, static: bytes of shared memory of one block as planned; scratch: bytes of both that hold what the
    compiler added. limits: None on a CPU. accesses: to shared memory, with their bank conflicts (CUDA and the emulator). resources: what
    the assembler reports, None until there is machine code.
    """

    index: int
    at: Location | None
    blocks: tuple[int | str, ...]
    threads: int
    allocations: tuple[Allocation, ...]
    asked: int
    dynamic: int = 0
    static: int = 0
    scratch: int = 0
    limits: Limits | None = None
    accesses: tuple[SharedAccess, ...] = ()
    resources: KernelResources | None = None

    @property
    def shared(self) -> int:
        """Bytes of shared memory of one block, dynamic and static."""
        return self.dynamic + self.static

    @property
    def registers(self) -> int:
        """Registers of a thread that fragments and per-thread arrays need if all are alive at once; the assembler may do with fewer
        and needs others for arithmetic: `resources.registers` is what the machine code has."""
        return sum(a.registers or 0 for a in self.allocations)

    @property
    def conflicts(self) -> int:
        """Passes of shared memory in one block that another placement would save."""
        return sum(a.conflicts for a in self.accesses)

    def totals(self) -> dict[str, int]:
        """Bytes by scope, constant sizes only; per-thread scopes count one thread's copy."""
        out: dict[str, int] = {}
        for a in self.allocations:
            out[a.scope] = out.get(a.scope, 0) + (a.bytes or 0)
        return out

    def __str__(self) -> str:
        return kernel_text(self)


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a program. target: as given. kernels: in the order of launches. workspaces: allocations outside of kernels, in
    global memory during a call."""

    name: str
    target: str
    kernels: tuple[KernelMemory, ...]
    workspaces: tuple[Allocation, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report in plain dicts, lists, strings and numbers; a location is {"file", "line", "column"}."""
        return _plain(self)

    def to_json(self, indent: int | None = None) -> str:
        """`as_dict()` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def __str__(self) -> str:
        parts = [kernel_text(kernel) for kernel in self.kernels]
        if self.workspaces:
            parts.append("outside of kernels\n" + _allocations_text(self.workspaces))
        return "\n\n".join(parts) or "no kernels"


_DERIVED = {Allocation: ("owner",), KernelMemory: ("shared", "registers", "conflicts")}


def _plain(value: Any) -> Any:
    if isinstance(value, Location):
        return {"file": value.file, "line": value.line, "column": value.column}
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value)] + list(_DERIVED.get(type(value), ()))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


# ---------------------------------------------------------------- text
def _lines(a: Allocation) -> str:
    if a.first is None or a.last is None:
        return "never used"
    if a.first.line == a.last.line:
        return str(a.first.line)
    return f"{a.first.line}-{a.last.line}"


def _remarks(a: Allocation) -> str:
    """What the other columns do not say."""
    found = [f"{a.versions} versions"] if a.versions > 1 else []
    found += [f"{a.padding:,} bytes of padding"] if a.padding else []
    found += [a.layout] if a.layout else []
    found += [f"{a.copies} copies"] if a.copies > 1 else []
    found += ["nothing is left of it"] if a.bytes == 0 else []
    found += ["the compiler's own"] if a.origin == COMPILER else []
    return ", ".join(found)


_Column = tuple[str, bool, Any]  # title, numbers to the right, cell of an allocation
_ALWAYS: tuple[_Column, ...] = (
    ("name", False, lambda a: a.name), ("line", False, lambda a: place(a.at)), ("scope", False, lambda a: a.scope),
    ("shape", False, lambda a: shape_text(a.shape)), ("dtype", False, lambda a: a.dtype),
    ("bytes", True, lambda a: "?" if a.bytes is None else f"{a.bytes:,}"),
    ("for each", False, lambda a: a.owner), ("used in lines", False, _lines),
)  # fmt: skip
_WHERE_KNOWN: tuple[_Column, ...] = (  # shown if a row has a value
    ("offset", True, lambda a: "" if a.offset is None else f"{a.offset:,}"),
    ("align", True, lambda a: "" if a.alignment is None else f"{a.alignment}"),
    ("because", False, lambda a: a.reason), ("shares bytes with", False, lambda a: ", ".join(a.sharers)),
    ("registers", True, lambda a: "" if a.registers is None else f"{a.registers}"), ("remarks", False, _remarks),
)  # fmt: skip


def _allocations_text(allocations: Sequence[Allocation]) -> str:
    rows = [a for a in allocations if a.origin != COMPILER] + [a for a in allocations if a.origin == COMPILER]
    columns = [*_ALWAYS, *(c for c in _WHERE_KNOWN if any(c[2](a) for a in rows))]
    right = [k for k, column in enumerate(columns) if column[1]]
    return table([c[0] for c in columns], [[str(c[2](a)) for c in columns] for a in rows], right)


def _accesses_text(accesses: Sequence[SharedAccess]) -> str:
    header = ["shared access", "line", "op", "bytes a lane", "requests", "passes", "conflicts", "colliding lanes", "element"]
    rows = []
    for a in accesses:
        lanes = f"bank {a.bank}: {', '.join(map(str, a.lanes))}" if a.conflicts else "-"
        count = [f"{v:,}" + ("" if a.exact else "?") for v in (a.requests, a.passes, a.conflicts)]
        count = count if a.width else [count[0], "-", "-"]
        element = a.element if len(a.element) <= _ELEMENT else a.element[: _ELEMENT - 3] + "..."
        rows.append([a.buffer, place(a.at), a.op, str(a.width) if a.width else "-", *count, lanes, element])
    text = table(header, rows, right=(3, 4, 5, 6))
    reasons = dict.fromkeys(f"{place(a.at)}: {a.why}" for a in accesses if not a.exact)
    return "\n".join([text, *(f"? {reason}" for reason in reasons)])


def kernel_text(kernel: KernelMemory) -> str:
    """Allocations, sums against limits, accesses to shared memory."""
    grid = shape_text(kernel.blocks)
    head = f"kernel {kernel.index} ({place(kernel.at)}): grid {grid}, {kernel.threads} thread{'s' * (kernel.threads != 1)} a block"
    lines = [head + (f", {kernel.threads - kernel.asked} of them the compiler's own" if kernel.threads != kernel.asked else "")]
    if not kernel.allocations:
        lines.append("no allocations")
    else:
        lines += [_allocations_text(kernel.allocations), "", *_sums(kernel)]
    if kernel.accesses:
        lines += ["", _accesses_text(kernel.accesses)]
        lines.append(f"bank conflicts: {kernel.conflicts:,} of {sum(a.passes for a in kernel.accesses):,} passes of one block")
    return "\n".join(lines)


def _sums(kernel: KernelMemory) -> list[str]:
    lines = []
    if kernel.limits is None:
        unknown = sorted({a.scope for a in kernel.allocations if a.bits is None})
        for scope, total in sorted(kernel.totals().items()):
            owner = next(a.owner for a in kernel.allocations if a.scope == scope)
            extra = ", without symbolic sizes" if scope in unknown else ""
            lines.append(f"{scope}: {total:,} bytes for each {owner}{extra}")
        return lines
    limits, shared = kernel.limits, kernel.shared
    parts = f"dynamic {kernel.dynamic:,}, static {kernel.static:,}; of these the compiler's own {kernel.scratch:,}"
    lines.append(f"shared memory: {shared:,} of {limits.shared:,} bytes of a block on {limits.architecture} ({parts})")
    fragments = sum(a.registers or 0 for a in kernel.allocations if a.scope == FRAGMENT)
    text = f"registers: {kernel.registers} a thread for tiles and arrays (fragments {fragments})"
    found = kernel.resources
    if found is not None:
        spills = f"{found.spill_stores + found.spill_loads} bytes spilled" if found.spill_stores + found.spill_loads else "no spills"
        text += f"; of the machine code for {found.arch}: {found.registers} of {limits.registers} a thread, "
        text += f"{found.registers * kernel.threads:,} of {limits.block_registers:,} a block, {spills}, {found.local} bytes of local memory"
    return [*lines, text]


__all__ = ["COMPILER", "PROGRAM", "Allocation", "KernelMemory", "KernelResources", "Limits", "MemoryReport", "kernel_text"]

"""An `Explanation` as plain text: aligned tables, no dependency.

In: an `Explanation`. Out: strings that end without a newline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import Location
from .memory import HOPPER_SHARED_BYTES, Allocation, KernelMemory
from .report import SOURCE, Explanation

_KIB = 1024


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell, numbers (columns `right`) to the right; no trailing blanks."""
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]

    def text(line: Sequence[str]) -> str:
        cells = [cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([text(header), "  ".join("-" * w for w in widths), *map(text, rows)])


def size_text(bits: int | None) -> str:
    """Bytes, or bits where they fill no whole byte."""
    if bits is None:
        return "?"
    return f"{bits // 8:,}" if bits % 8 == 0 else f"{bits:,} bits"


def place(at: Location | None) -> str:
    return "?" if at is None else f"{Path(at.file).name}:{at.line}"


def shape_text(shape: Sequence[int | str]) -> str:
    return " x ".join(map(str, shape)) or "1"


def stages_text(report: Explanation, times: bool = False) -> str:
    """The stages in order, with the level that holds after each; with `times` also how long each took."""
    header = ["stage", "level", "program", *(["ms"] if times else [])]
    rows = []
    for k, stage in enumerate(report.stages):
        changed = "as written" if k == 0 else "changed" if stage.changed else "same"
        rows.append([stage.name, stage.level, changed, *([f"{stage.seconds * 1e3:.2f}"] if times else [])])
    if times and report.build_seconds is not None:
        rows.append(["build", "", "", f"{report.build_seconds * 1e3:.2f}"])
    if times:
        rows.append(["total", "", "", f"{report.total_seconds * 1e3:.2f}"])
    return table(header, rows, right=(3,))


def notes_text(report: Explanation) -> str:
    """The compiler's notes by line of the program."""
    if not report.notes:
        return "no notes"
    ordered = sorted(report.notes, key=lambda n: (n.at is None, n.at.line if n.at else 0))
    return table(["line", "what", "note"], [[place(n.at), n.subject, " ".join(n.text.split())] for n in ordered])


def _allocations(allocations: Sequence[Allocation]) -> str:
    header = ["name", "line", "scope", "shape", "dtype", "bytes", "for each"]
    rows = [[a.name, place(a.at), a.scope, shape_text(a.shape), a.dtype, size_text(a.bits), a.owner] for a in allocations]
    if any(a.layout for a in allocations):
        header.append("layout")
        rows = [[*row, a.layout] for row, a in zip(rows, allocations, strict=True)]
    return table(header, rows, right=(5,))


def _kernel_text(kernel: KernelMemory) -> str:
    grid = shape_text(kernel.blocks)
    lines = [f"kernel {kernel.index} ({place(kernel.at)}): grid {grid}, {kernel.threads} thread{'s' * (kernel.threads != 1)} a block"]
    if not kernel.allocations:
        return "\n".join([*lines, "no allocations"])
    lines += [_allocations(kernel.allocations), ""]
    unknown = sorted({a.scope for a in kernel.allocations if a.bits is None})
    for scope, total in sorted(kernel.totals().items()):
        owner = next(a.owner for a in kernel.allocations if a.scope == scope)
        extra = f" ({kernel.fragment_bytes_per_thread:,} a thread)" if scope == "local.fragment" else ""
        extra += ", without symbolic sizes" if scope in unknown else ""
        lines.append(f"{scope}: {total:,} bytes for each {owner}{extra}")
    if kernel.shared_bytes:
        verdict = "fits" if kernel.fits_hopper else "does not fit without reuse"
        used, limit = kernel.shared_bytes / _KIB, HOPPER_SHARED_BYTES // _KIB
        lines.append(f"for information: {used:.1f} KiB of shared memory; one block of a Hopper GPU has {limit} KiB: {verdict}")
    return "\n".join(lines)


def memory_text(report: Explanation) -> str:
    """The allocation table of every kernel, with sums by scope."""
    parts = [_kernel_text(kernel) for kernel in report.kernels]
    if report.workspaces:
        parts.append("outside of kernels\n" + _allocations(report.workspaces))
    return "\n\n".join(parts) or "no kernels"


def overview(report: Explanation, times: bool = False) -> str:
    """Everything but the programs: stages, notes, memory."""
    head = f"{report.name} for {report.target}"
    return "\n\n".join([head, stages_text(report, times), f"notes\n{notes_text(report)}", f"memory\n{memory_text(report)}"])


def program_text(report: Explanation, stage: str) -> str:
    """The program after one stage."""
    title = "as written" if stage == SOURCE else f"after {stage}"
    return f"// {title}\n{report.stage(stage).script()}"

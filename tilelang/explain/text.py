"""An `Explanation` as plain text: aligned tables, no dependency.

In: an `Explanation`. Out: strings that end without a newline.
"""

from __future__ import annotations

from ..compiler.tables import place, table
from .report import SOURCE, Explanation


def stages_text(report: Explanation, times: bool = False) -> str:
    """The stages in order, with the level that holds after each; with `times` also how long each took, and each step of
    the build."""
    header = ["stage", "level", "program", *(["ms"] if times else [])]
    rows = []
    for k, stage in enumerate(report.stages):
        changed = "as written" if k == 0 else "changed" if stage.changed else "same"
        rows.append([stage.name, stage.level, changed, *([f"{stage.seconds * 1e3:.2f}"] if times else [])])
    if times:
        rows += [[step, "", "build", f"{seconds * 1e3:.2f}"] for step, seconds in report.build.items()]
        rows.append(["total", "", "", f"{report.total_seconds * 1e3:.2f}"])
    return table(header, rows, right=(3,))


def notes_text(report: Explanation) -> str:
    """The compiler's notes by line of the program."""
    if not report.notes:
        return "no notes"
    ordered = sorted(report.notes, key=lambda n: (n.at is None, n.at.line if n.at else 0))
    return table(["line", "what", "note"], [[place(n.at), n.subject, " ".join(n.text.split())] for n in ordered])


def memory_text(report: Explanation) -> str:
    """The memory of every kernel: allocations, sums against limits, accesses to shared memory."""
    return str(report.memory)


def overview(report: Explanation, times: bool = False) -> str:
    """Everything but the programs: stages, notes, memory."""
    head = f"{report.name} for {report.target}"
    return "\n\n".join([head, stages_text(report, times), f"notes\n{notes_text(report)}", f"memory\n{memory_text(report)}"])


def program_text(report: Explanation, stage: str) -> str:
    """The program after one stage."""
    title = "as written" if stage == SOURCE else f"after {stage}"
    return f"// {title}\n{report.stage(stage).script()}"

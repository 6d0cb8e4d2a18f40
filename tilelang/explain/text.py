"""An `Explanation` as plain text: aligned tables, no dependency.

In: an `Explanation`. Out: strings that end without a newline.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Sequence
from pathlib import Path

from ..compiler.tables import place, table
from ..ir.context import DECLINED, Note
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
    """The compiler's notes by line of the program: the line, what was chosen for it, and why the better ones declined."""
    if not report.notes:
        return "no notes"
    ordered = sorted(report.notes, key=lambda n: (n.at is None, n.at.line if n.at else 0))
    lines: list[str] = []
    for _, same_line in itertools.groupby(ordered, key=lambda n: (n.at.file, n.at.line) if n.at else None):
        notes = list(same_line)
        at = notes[0].at
        source = linecache.getline(str(Path(at.file).absolute()), at.line).strip() if at else ""
        lines.append(f"{place(at)}  {source}".rstrip())
        lines += [f"    {text}" for text in _choices(notes)]
    return "\n".join(lines)


def _choices(notes: Sequence[Note]) -> list[str]:
    """One line for each choice, then one for each that declined before it; the same choice for several statements is told once."""
    found: dict[tuple[str, ...], int] = {}
    declined: list[str] = []
    for note in notes:
        text = " ".join(note.text.split())
        name, refused, reason = text.partition(DECLINED)
        if refused:
            declined.append(f"not {name}: {reason}")
            continue
        choice = (note.subject, text, *declined)
        found[choice] = found.get(choice, 0) + 1
        declined = []
    if declined:
        found[("", "", *declined)] = 1
    lines = []
    for (subject, text, *refusals), times in found.items():
        lines.append(f"{subject}: {text}{f' ({times} statements)' if times > 1 else ''}" if text else "nothing")
        lines += [f"    {refusal}" for refusal in refusals]
    return lines


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

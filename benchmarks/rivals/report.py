"""What was measured as text: a line for each row, a summary for each family against its goal; the README's table.

In: the records of `session.measure`, as the JSON file holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .table import GOALS, Goal
from .work import OURS

Record = Mapping[str, Any]


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(record: Record) -> str:
    """One row: ours, the ratio to the best rival, every rival."""
    sides = record["sides"]

    def shown(label: str) -> str:
        side = sides[label]
        return number(side["value"]) if "value" in side else "-"

    rivals = "  ".join(f"{label} {shown(label)}" for label in sides if label != OURS)
    ratio = f"{record['ratio']:5.2f}" if "ratio" in record else "    -"
    ours = shown(OURS) if OURS in sides else "-"
    return f"{record['name']:44} {ours:>6} {record['unit']:8} {ratio} of {record.get('best', '-'):13} {rivals}"


def failures(record: Record) -> list[str]:
    return [f"    {label}: {side['failed']}" for label, side in record["sides"].items() if "failed" in side]


def families(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["family"], []).append(record)
    return found


def mean(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def summary(records: Iterable[Record]) -> list[str]:
    """A line for each family: geometric mean and least of the ratios, the goal, and whether it is reached."""
    lines = []
    for family, rows in families(records).items():
        ratios = [row["ratio"] for row in rows if "ratio" in row]
        missing = len(rows) - len(ratios)
        found = f"mean {mean(ratios):.3f}  least {min(ratios):.3f}" if ratios else "no ratio"
        found += f"  {missing} without" if missing else ""
        lines.append(f"{family:20} {len(rows):3} rows  {found}  goal: {GOALS[family]}: {verdict(GOALS[family], rows)}")
    return lines


def verdict(goal: Goal, rows: Sequence[Record]) -> str:
    """Whether every row has a result and the goal is reached."""
    ours = [row["sides"].get(OURS, {}) for row in rows]
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    wants_ratio = goal.mean is not None or goal.least is not None
    if any("value" not in side for side in ours) or (wants_ratio and len(ratios) < len(rows)):
        return "incomplete"
    unit_up = rows[0]["unit"] in ("TFLOP/s", "GB/s")
    values = [side["value"] for side in ours]
    reached = [
        goal.mean is None or mean(ratios) >= goal.mean,
        goal.least is None or min(ratios) >= goal.least,
        goal.value is None or (min(values) >= goal.value if unit_up else max(values) <= goal.value),
    ]
    return "reached" if all(reached) else "missed"


def text(run: Mapping[str, Any]) -> list[str]:
    """The readable file of a run."""
    here = run["processes"].get("here", {})
    versions = ", ".join(f"{name} {version}" for name, version in here.get("versions", {}).items())
    wheel = run["processes"].get("TileLang", {}).get("versions", {}).get("tilelang")
    how = "one call between events on an idle device" if run["single"] else "several calls between events, the queue filled"
    head = [f"{run['device']}, {run['date']}; {versions}{f'; TileLang {wheel}' if wheel else ''}", f"Medians; {how}.", ""]
    rows = [text for record in run["rows"] for text in (line(record), *failures(record))]
    return [*head, *rows, "", *summary(run["rows"])]

"""What was measured as text: a line for each row, a summary for each family against its goal; the README's table and plot.

In: the records of `session.measure`, as the JSON file holds them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .table import GOALS, Goal
from .work import OURS, WHEEL

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


# ---------------------------------------------------------------- for people
WORK = {
    "gemm": "GEMM of 16 bits",
    "gemm fp8": "GEMM of float8",
    "skinny": "GEMM of 16 rows and of one",
    "attention D128": "attention, head size 128",
    "attention D64": "attention, head size 64",
    "attention backward": "attention backward",
    "mla decode": "latent attention, decoding",
    "w4a16": "GEMM with 4-bit weights",
    "w4a16 skinny": "the same, 16 rows",
    "rows": "softmax, layernorm, rmsnorm",
    "host call": "a call, 3 tensors",
    "compile GEMM": "cold compilation of a GEMM",
    "compile attention": "of attention",
}


def markdown(run: Mapping[str, Any]) -> list[str]:
    """How it was measured, then a table with a line for each family: our range, and the ratio to the best rival of each row."""
    versions = run["processes"].get("here", {}).get("versions", {})
    wheel = run["processes"].get(WHEEL, {}).get("versions", {}).get("tilelang")
    others = [
        f"torch {versions.get('torch', '?')} (cuBLAS, cuDNN, flash attention)",
        f"Triton {versions.get('triton', '?')} (kernels of our own writing)",
        *([f"TileLang {wheel} (the same program text)"] if wheel else []),
    ]
    lines = [
        f"On one {run['device'].replace('_', ' ')}, {run['date']}, `python benchmarks/gpu.py`: medians of rounds in which the sides of a",
        "row take turns, several calls between two events with the queue filled, operands rotating beyond the L2 cache. The ratio is",
        "that of times, to the best other of each row: above 1 this package is faster. Fast math is on, as torch and Triton build",
        f"their kernels. Others: {', '.join(others)}.",
        "",
    ]
    lines += ["| work | rows | ours | best other | ratio: mean (least) |", "|---|---|---|---|---|"]
    for family, rows in families(run["rows"]).items():
        ours = sorted(row["sides"][OURS]["value"] for row in rows if "value" in row["sides"].get(OURS, {}))
        if not ours:
            continue
        span = number(ours[0]) if number(ours[0]) == number(ours[-1]) else f"{number(ours[0])} to {number(ours[-1])}"
        ratios = [row["ratio"] for row in rows if "ratio" in row]
        best = ", ".join(dict.fromkeys(row["best"] for row in rows if "ratio" in row)) or "-"
        ratio = f"{mean(ratios):.2f} ({min(ratios):.2f})" if ratios else "-"
        lines.append(f"| {WORK[family]} | {len(ours)} | {span} {rows[0]['unit']} | {best} | {ratio} |")
    return lines


def plot(run: Mapping[str, Any], path: Path) -> None:
    """Every row as a line of marks, one for each side: its speed relative to the best rival's. Needs matplotlib."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    rows = [row for row in run["rows"] if "ratio" in row]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.17 * len(rows)))
    labels = [OURS, *dict.fromkeys(label for row in rows for label in row["sides"] if label != OURS)]
    for k, label in enumerate(labels):
        points = [
            (row["sides"][row["best"]]["ms"] / side["ms"], -y)
            for y, row in enumerate(rows)
            if "ms" in (side := row["sides"].get(label, {}))
        ]
        style = {"s": 34, "zorder": 3, "color": "#c0392b"} if label == OURS else {"s": 16, "marker": "os^Dvx*P"[k % 8], "alpha": 0.7}
        axes.scatter([x for x, _ in points], [y for _, y in points], label=label, **style)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks([-y for y in range(len(rows))], [row["name"] for row in rows], fontsize=7)
    axes.set_xlim(0.4, max(1.6, 1.05 * max(row["ratio"] for row in rows if row["ratio"] < 3)))
    axes.margins(y=0.01)
    axes.set_xlabel("speed relative to the best other (1 = equal)")
    axes.set_title(f"{run['device'].replace('_', ' ')}, {run['date']}", fontsize=9)
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)

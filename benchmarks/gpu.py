"""Speed on a CUDA device, side by side: tile programs of this package, torch (cuBLAS, cuDNN, flash attention), Triton kernels of our own
writing, and, where its folder is given, the public `tilelang` wheel on the same program text.

    python benchmarks/gpu.py [NAME ...] [--quick] [--family F ...] [--tilelang-site DIR] [--seconds 2] [--tune] [--single]

Kernels are compiled and checked against float64 first, in parallel processes; then the sides of each row take turns, several calls
between two events with the device's queue filled, operands rotating over more memory than the L2 cache holds; medians of the rounds. What
fails is said and costs one side of one row. Every row is written as it comes: `<out>/gpu-<device>-<date>.json` and a readable `.txt`.
`--tune` tries the configurations of each side and keeps the best in `<out>/tiles-<device>.json`, which later runs use.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rivals import report, server
from rivals.session import Job, Session
from rivals.table import QUICK, table
from rivals.work import Config, Row

RESULTS = Path(__file__).resolve().parent / "results"
Choice = dict[str, Config]


def chosen_rows(options: argparse.Namespace) -> list[Row]:
    """The rows that the options name: all of them by default."""
    rows = [row for row in table().values() if not options.quick or row.name in QUICK]
    if options.family:
        rows = [row for row in rows if any(row.family.startswith(name) for name in options.family)]
    if options.names:
        rows = [row for row in rows if any(all(word in row.name.split() for word in name.split()) for name in options.names)]
    return rows


@dataclass
class Usable:
    """Of one row: the configurations of each side that compile and give the right result; what was wrong with the others."""

    configs: dict[str, list[Config]] = field(default_factory=dict)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)


def attempts(session: Session, rows: list[Row], tiles: dict[str, Choice], tune: bool) -> dict[str, Usable]:
    """By row: what can be timed. Without tuning a side's recorded (or first) configuration, or, where that fails, its next one."""
    wanted: list[Job] = []
    found = {row.name: Usable() for row in rows}
    for row in rows:
        for label, side in session.sides(row).items():
            kept = tiles.get(row.name, {}).get(label)
            configs = list(side.configs) if tune else [kept or side.configs[0]]
            if side.compiled:
                wanted += [(row, label, config) for config in configs]
            else:
                found[row.name].configs[label] = configs
    for last in (tune, True):
        again: list[Job] = []
        for (row, label, config), answer in zip(wanted, session.attempt(wanted), strict=True):
            usable, others = found[row.name], [c for c in row.sides[label].configs if c != config]
            if "failed" not in answer:
                usable.configs.setdefault(label, []).append(config)
                usable.failed.pop(label, None)
                continue
            usable.failed[label] = {"failed": answer["failed"], "config": config}
            if not last and others:
                again.append((row, label, others[0]))
        if not again:
            break
        wanted = again
    return found


class Results:
    """The files of one run, written anew after each row."""

    def __init__(self, options: argparse.Namespace, session: Session) -> None:
        self.options, self.session = options, session
        self.records: list[dict[str, Any]] = []  # in the order of the table
        self.device = session.describe().replace(" ", "_")
        self.tiles_file = options.out / f"tiles-{self.device}.json"
        self.stem = options.out / f"gpu-{self.device}-{datetime.date.today().isoformat()}{'-single' if options.single else ''}"
        options.out.mkdir(parents=True, exist_ok=True)
        before = self.stem.with_suffix(".json")
        if options.merge and before.exists():
            self.records = json.loads(before.read_text())["rows"]

    def tiles(self) -> dict[str, Choice]:
        """The recorded configurations, by row and side."""
        kept = self.tiles_file if self.tiles_file.exists() else RESULTS / self.tiles_file.name
        return json.loads(kept.read_text()) if kept.exists() else {}

    def keep_tiles(self, tiles: dict[str, Choice]) -> None:
        self.tiles_file.write_text(json.dumps(tiles, indent=1) + "\n")

    def add(self, record: dict[str, Any]) -> None:
        kept = {**{row["name"]: row for row in self.records}, record["name"]: record}
        self.records = [kept[name] for name in table() if name in kept]
        print("\n".join([report.line(record), *report.failures(record)]), flush=True)
        processes = {name or "here": about for name, about in self.session.about.items()}
        head = {"device": self.device, "date": datetime.date.today().isoformat(), "single": self.options.single, "processes": processes}
        self.stem.with_suffix(".json").write_text(json.dumps({**head, "rows": self.records}, indent=1) + "\n")
        self.stem.with_suffix(".txt").write_text("\n".join(report.text({**head, "rows": self.records})) + "\n")


def run(options: argparse.Namespace) -> None:
    start = time.perf_counter()
    session = Session(options.tilelang_site, options.jobs, options.rounds, options.seconds, options.compile_seconds, options.single)
    results, rows = Results(options, session), chosen_rows(options)
    tiles = results.tiles()
    found = attempts(session, rows, tiles, options.tune)
    print(f"{len(rows)} rows compiled and checked in {time.perf_counter() - start:.0f} s", flush=True)
    try:
        for row in rows:
            usable = found[row.name]
            choice = {label: configs[0] for label, configs in usable.configs.items()}
            if options.tune:
                several = {label: configs for label, configs in usable.configs.items() if len(configs) > 1}
                choice |= (best := session.tune(row, several))
                tiles.setdefault(row.name, {}).update(best)
                results.keep_tiles(tiles)
            results.add(session.measure(row, choice, usable.failed))
    finally:
        session.close()
    print("\n".join(["", *report.summary(results.records), f"{time.perf_counter() - start:.0f} s"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help='words of a row\'s name, such as "gemm" or "attention bf16 causal"; all rows by default')
    parser.add_argument("--family", nargs="+", help="families of rows, such as gemm, attention, rows")
    parser.add_argument("--quick", action="store_true", help="one row of each kind")
    parser.add_argument("--tilelang-site", type=Path, help="folder with the public tilelang wheel and what it needs")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for the turns of one row")
    parser.add_argument("--compile-seconds", type=float, default=120.0, help="begin no compilation after this time")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    parser.add_argument("--single", action="store_true", help="one call between two events on an idle device: the launch is in it")
    parser.add_argument("--tune", action="store_true", help="try every configuration of each side and keep the fastest")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--merge", action="store_true", help="keep the rows of today's file that are not measured again")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        server.serve()
    elif options.list:
        print("\n".join(row.name for row in chosen_rows(options)))
    else:
        run(options)


if __name__ == "__main__":
    main()

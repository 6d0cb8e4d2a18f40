"""Results on disk: the machine, the numbers as JSON, a table to read.

In: what a benchmark measured. Out: `results/<kind>-<processor>-<date>.json` and `.txt`. Nothing is imported that a benchmark
may want to time.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def cpu_model() -> str:
    """The processor's name as its vendor writes it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """What the numbers depend on. Call it before measuring: it notes the load of the machine."""
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {name: version(package) for name, package in _PACKAGES.items()}
    return {
        "cpu": cpu_model(), "cores": cores, "system": platform.platform(), "load_before": load,
        "date": datetime.date.today().isoformat(), "python": platform.python_version(), **versions,
    }  # fmt: skip


_PACKAGES = {"tvm": "apache-tvm", "numpy": "numpy", "torch": "torch"}


def write(kind: str, about: Mapping[str, Any], numbers: Mapping[str, Any], text: Sequence[str]) -> Path:
    """Write the pair of files and show the text. about: from `machine`."""
    ours = importlib.import_module("tilelang")
    llvm = importlib.import_module("tilelang.backend.llvm")
    about = {**about, "llvm_cpu": llvm.host_cpu(), "tilelang": ours.__version__}
    lines = [*(f"{key:12s} {value}" for key, value in about.items()), "", *text]
    name = "-".join("".join(c if c.isalnum() else " " for c in about["cpu"]).lower().split())
    path = RESULTS / f"{kind}-{name}-{about['date']}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": about, **numbers}, indent=1) + "\n")
    path.with_suffix(".txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), f"\nwritten: {path}", sep="\n")
    return path

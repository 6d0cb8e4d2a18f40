"""The table and the plot of recorded results of `benchmarks/gpu.py`.

    python benchmarks/gpu_report.py [benchmarks/results/gpu-DEVICE-DATE.json] [--readme]

Prints the summary of a run, by default of the latest one, and its table. `--readme` puts the table, with how
it was measured, into the README between the two comments there, and draws `benchmarks/results/gpu.svg` (needs matplotlib:
`pip install 'tilelang[plot]'`).
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from rivals import report

ROOT = Path(__file__).resolve().parents[1]
RESULTS, README = ROOT / "benchmarks" / "results", ROOT / "README.md"
PLOT = RESULTS / "gpu.svg"
BLOCK = re.compile(r"(<!-- benchmarks/gpu_report.py -->\n).*?(<!-- end -->)", re.DOTALL)


def latest() -> Path:
    """The newest recorded run with the queue filled."""
    runs = [path for path in RESULTS.glob("gpu-*.json") if not path.stem.endswith("-single")]
    if not runs:
        raise FileNotFoundError(f"no gpu-*.json in {RESULTS}")
    return max(runs, key=lambda path: json.loads(path.read_text())["date"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="a recorded run; default: the latest")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md and the plot beside the results")
    options = parser.parse_args()
    path = options.results or latest()
    run = json.loads(path.read_text())
    table = report.markdown(run)
    print("\n".join([*report.summary(run["rows"]), "", *table]))
    if options.readme:
        text = README.read_text(encoding="utf-8")
        numbers = f"[Every number]({path.with_suffix('.txt').resolve().relative_to(ROOT)}), and every row as a picture:"
        block = "\n".join([*table, "", numbers, "", f"![speed of every row]({PLOT.relative_to(ROOT)})", ""])
        replaced, times = BLOCK.subn(lambda found: f"{found[1]}{block}{found[2]}", text)
        if times != 1:
            raise ValueError(f"{README} has {times} places for the table, not one")
        README.write_text(replaced, encoding="utf-8")
        report.plot(run, PLOT)


if __name__ == "__main__":
    main()

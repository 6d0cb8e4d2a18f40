"""Leads the processes that own the device: kernels are compiled in parallel first, then each row's sides are timed in turns.

In: rows, and where the public wheel lies (if anywhere). Out: one record a row. The sides of this package, torch and Triton share a process;
the public wheel, whose import name is the same, has one of its own. A process that dies, hangs or loses its device costs one row.
"""

from __future__ import annotations

import json
import os
import queue
import random
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .work import OURS, WHEEL, Config, Row, Side

COMMAND = Path(__file__).resolve().parents[1] / "gpu.py"
COLD = {"TILELANG_DISABLE_CACHE": "1", "TRITON_ALWAYS_COMPILE": "1"}  # for rows that time the compiler
HERE = ("", False)  # which process: of which sides, and whether it compiles without caches
ATTEMPT_SECONDS, TURN_SECONDS, SLOW_SECONDS = 40.0, 30.0, 15.0
WHEEL_WEIGHT = 4  # a compilation of the wheel, through nvcc, takes as long as so many others
MOST_CALLS = 10


Job = tuple[Row, str, Config]  # row, side, configuration


class Worker:
    """One process of `server.serve`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (the process keeps it)
        self._process = subprocess.Popen(
            [sys.executable, str(COMMAND), "--serve"], env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1,
        )  # fmt: skip

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        """The answer; `failed` in it says why there is none. Afterwards the process may be gone: see `usable`."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            return {"failed": self._end("ended")}
        if not select.select([process.stdout], [], [], seconds)[0]:
            return {"failed": self._end(f"no answer for {seconds:.0f} s")}
        line = process.stdout.readline()
        if not line:
            return {"failed": self._end("ended")}
        answer = json.loads(line)
        if "CUDA error" in answer.get("failed", "") or "CUDA_ERROR" in answer.get("failed", ""):
            self.stop()  # the device is lost for this process
        return answer

    def usable(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _end(self, what: str) -> str:
        self.stop()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors.read()[-2000:].splitlines() if line.strip()]
        return f"process {what} ({self._process.returncode}) {said[-1][:200] if said else ''}"


@dataclass
class Session:
    """site: folder of the public wheel, or None. jobs: processes that compile; compile_seconds: after so long no further compilation is
    begun. seconds: for the turns of one row."""

    site: Path | None = None
    jobs: int = 8
    rounds: int = 20
    seconds: float = 2.0
    compile_seconds: float = 120.0
    single: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    _workers: dict[tuple[str, bool], Worker] = field(default_factory=dict)

    def sides(self, row: Row) -> dict[str, Side]:
        """The sides of a row that can run here."""
        return {label: side for label, side in row.sides.items() if side.process != WHEEL or self.site is not None}

    def _environment(self, place: tuple[str, bool]) -> dict[str, str]:
        process, cold = place
        found = dict(COLD) if cold else {}
        if process == WHEEL:
            kept = Path(os.environ.get("TILELANG_CACHE_DIR", Path.home() / ".tilelang" / "cache"))
            found |= {"PYTHONPATH": str(self.site), "TILELANG_CACHE_DIR": str(kept.with_name(f"{kept.name}-wheel"))}  # no kernels of ours
        return found

    def _ask(self, work: Row, label: str, seconds: float, **request: Any) -> dict[str, Any]:
        """Ask the process of a row's side, a new one if the last has ended."""
        place = (work.sides[label].process, work.clock == "compile")
        worker = self._workers.get(place)
        if worker is None or not worker.usable():
            worker = self._workers[place] = Worker(self._environment(place))
        return worker.ask(seconds, **request)

    def describe(self) -> str:
        """The device's name. Ends the program where there is none."""
        self._about(HERE)
        if "failed" in self.about[""]:
            sys.exit(f"torch finds no CUDA device: {self.about['']['failed']}")
        return self.about[""]["device"]

    def _about(self, place: tuple[str, bool]) -> None:
        """Start the process of a place, which imports what it needs, and keep what it says of itself."""
        worker = self._workers[place] = Worker(self._environment(place))
        self.about[place[0]] = worker.ask(ATTEMPT_SECONDS, do="about")

    def close(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()

    # ---------------------------------------------------------------- compile everything first
    def attempt(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Build and run each (row, side, configuration) once in one of several processes: {"error"} or {"failed"} for each. What fails or
        is slow is printed as it comes. Meanwhile the processes that will time the rows start."""
        listed = list(jobs)
        answers: list[dict[str, Any]] = [{} for _ in listed]
        waiting: dict[str, queue.SimpleQueue[int]] = {}
        for number, (row, side, _) in enumerate(listed):
            waiting.setdefault(row.sides[side].process, queue.SimpleQueue()).put(number)
        end = time.monotonic() + self.compile_seconds
        weights = {process: numbers.qsize() * (WHEEL_WEIGHT if process == WHEEL else 1) for process, numbers in waiting.items()}
        threads = [threading.Thread(target=self._about, args=(place,)) for place in _places(listed) - set(self._workers)]
        for process, numbers in waiting.items():
            workers = max(1, min(numbers.qsize(), round(self.jobs * weights[process] / sum(weights.values()))))
            arguments = (process, numbers, listed, answers, end)
            threads += [threading.Thread(target=self._attempts, args=arguments) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def _attempts(
        self, process: str, waiting: queue.SimpleQueue[int], jobs: Sequence[Job], answers: list[dict[str, Any]], end: float
    ) -> None:  # fmt: skip
        """Work through the numbers of jobs that are waiting, in a process that is replaced when it ends."""
        worker = None
        while (number := _next(waiting)) is not None:
            row, side, config = jobs[number]
            start = time.monotonic()
            if start > end:
                answers[number] = {"failed": "not compiled: out of time"}
                continue
            if worker is None or not worker.usable():
                worker = Worker(self._environment((process, False)))
            answer = answers[number] = worker.ask(ATTEMPT_SECONDS, do="attempt", row=row.name, side=side, config=config)
            taken = time.monotonic() - start
            if "failed" in answer or taken > SLOW_SECONDS:
                print(f"  {row.name}, {side} {config}: {taken:.0f} s {answer.get('failed', '')}", flush=True)
        if worker is not None:
            worker.stop()

    # ---------------------------------------------------------------- one row
    def measure(
        self, row: Row, chosen: Mapping[str, Config], failed: Mapping[str, dict[str, Any]] | None = None, rounds: int = 0
    ) -> dict[str, Any]:  # fmt: skip
        """Time the sides in `chosen`. The record has for each side its median time, value, error, configuration, or why it has none:
        `failed` holds what is known of that before. rounds: of the session by default, few where each is a compilation."""
        opened = {**(failed or {}), **self._open(row, chosen)}
        shown = {label: opened[label] for label in row.sides if label in opened}
        record: dict[str, Any] = {"name": row.name, "family": row.family, "unit": row.unit, "work": row.work, "sides": shown}
        running = [label for label, found in shown.items() if "failed" not in found]
        rounds = rounds or (3 if row.clock == "compile" else self.rounds)
        whole = sum(shown[label]["ms"] for label in running)
        count = max(1, min(MOST_CALLS, int(self.seconds * 1e3 / (rounds * max(whole, 1e-6))) - 1))
        times: dict[str, list[float]] = {label: [] for label in running}
        order, random_order = list(running), random.Random(row.name)
        for _ in range(rounds):
            random_order.shuffle(order)
            for label in [label for label in order if label in times]:
                answer = self._ask(row, label, TURN_SECONDS, do="turn", side=label, count=count, single=self.single)
                if "failed" in answer:
                    shown[label] = {"failed": answer["failed"], "config": chosen[label]}
                    del times[label]
                else:
                    times[label].append(answer["ms"])
        for label in {row.sides[label].process: label for label in chosen}.values():
            self._ask(row, label, TURN_SECONDS, do="close")
        for label, taken in times.items():
            middle = statistics.median(taken)
            shown[label].update(ms=middle, value=row.value(middle), least_ms=min(taken))
        return {**record, "rounds": rounds, "calls": count, **_ratio(row, times)}

    def _open(self, row: Row, chosen: Mapping[str, Config]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for process in {row.sides[label].process for label in chosen}:
            mine = {label: config for label, config in chosen.items() if row.sides[label].process == process}
            answer = self._ask(row, next(iter(mine)), ATTEMPT_SECONDS, do="open", row=row.name, sides=mine)
            for label, config in mine.items():
                found[label] = {**answer.get("sides", {}).get(label, {"failed": answer.get("failed", "")}), "config": config}
        return {label: found[label] for label in chosen}

    def tune(self, row: Row, tried: Mapping[str, Sequence[Config]]) -> dict[str, Config]:
        """The fastest configuration of each side, by a few rounds of each."""
        best: dict[str, Config] = {}
        for label, configs in tried.items():
            times = []
            for config in configs:
                side = self.measure(row, {label: config}, rounds=5)["sides"][label]
                if "failed" not in side:
                    times.append((side["ms"], len(times), config))
            if times:
                best[label] = min(times)[2]
        return best


def _next(waiting: queue.SimpleQueue[int]) -> int | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _places(jobs: Iterable[Job]) -> set[tuple[str, bool]]:
    """The processes that time these rows: of which sides, and whether they compile without caches."""
    return {(row.sides[side].process, row.clock == "compile") for row, side, _ in jobs}


def _ratio(row: Row, times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The best rival, and the median over the rounds of its time divided by ours: above 1 we are faster."""
    rivals = {label: statistics.median(taken) for label, taken in times.items() if label in row.rivals()}
    if not rivals:
        return {}
    best = min(rivals, key=lambda label: rivals[label])
    if OURS not in times:
        return {"best": best}
    return {"best": best, "ratio": statistics.median(b / a for a, b in zip(times[OURS], times[best], strict=True))}

"""One process that owns the device for some sides. It answers requests, one JSON object a line, on its standard output.

`attempt`: build a side, run it once, compare. `open`: operands of a row and calls of several sides. `turn`: time one side. `about`: the
device and the versions. What goes wrong in a request is its answer; a process whose device has failed is replaced by its client.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import tile_programs
from .table import table
from .work import Config, Row, Side, error_of, sets_of

SLEEP_CYCLES = 60_000  # the device waits so long for each call (30 us), while the host fills its queue
HOST_CALLS = 200
PACKAGES = ("tilelang", "torch", "triton", "apache-tvm", "apache-tvm-ffi", "nvidia-cudnn-cu13", "cuda-bindings")


@dataclass
class Server:
    """row: the one that is open. calls: by side, one for each set of operands. at: the next set, by side."""

    row: Row | None = None
    built: dict[str, tuple[Side, Config]] = field(default_factory=dict)
    calls: dict[str, list[Callable[[], Any]]] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """The device and the versions; what sides need is imported now, not while something is timed."""
        for needed in ("tilelang", "triton"):
            with contextlib.suppress(ImportError):
                importlib.import_module(needed)
        found = {}
        for package in PACKAGES:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        device = torch.cuda.get_device_properties(0)
        return {"device": device.name, "architecture": tile_programs.architecture(), "cuda": torch.version.cuda, "versions": found}

    def attempt(self, row: str, side: str, config: Config) -> dict[str, Any]:
        """Build, run once, compare: whoever times it later finds it in the cache on disk."""
        self.close()
        work = table()[row]
        one, operands = work.sides[side], work.make()
        call = one.bind(one.build(config), operands)
        if not one.checked:
            call()
            torch.cuda.synchronize()
            return {"error": 0.0}
        return {"error": checked(work, error_of(operands, call, work.reference(operands.inputs)))}

    def open(self, row: str, sides: dict[str, Config]) -> dict[str, Any]:
        """Operands, calls and a first estimate of the time for the sides that are right; a reason for the others."""
        self.close()
        work = self.row = table()[row]
        sets, found = sets_of(work), {}
        expected = work.reference(sets[0].inputs)
        for label, config in sides.items():
            side = work.sides[label]
            try:
                program = side.build(config)
                calls = [side.bind(program, operands) for operands in sets]
                error = checked(work, error_of(sets[0], calls[0], expected)) if side.checked else 0.0
                self.built[label], self.calls[label], self.at[label] = (side, config), calls, 0
                found[label] = {"error": error, "ms": min(self._device(label, 1) for _ in range(3))}
            except Exception as err:
                self.calls.pop(label, None)
                found[label] = {"failed": told(err)}
        return {"sides": found, "sets": len(sets)}

    def turn(self, side: str, count: int, single: bool) -> dict[str, Any]:
        """Milliseconds of a call: device (events around `count` calls, or around one on an idle device), host or compile."""
        assert self.row is not None
        run = {"device": functools.partial(self._device, side, count, single), "host": functools.partial(self._host, side)}
        return {"ms": run.get(self.row.clock, functools.partial(self._compile, side))()}

    def close(self) -> dict[str, Any]:
        self.row = None
        for kept in (self.built, self.calls, self.at):
            kept.clear()
        gc.collect()
        torch.cuda.empty_cache()
        return {}

    def _next(self, side: str) -> Callable[[], Any]:
        calls = self.calls[side]
        self.at[side] = (self.at[side] + 1) % len(calls)
        return calls[self.at[side]]

    def _device(self, side: str, count: int, single: bool = False) -> float:
        self._next(side)()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if single:
            torch.cuda.synchronize()
        else:
            torch.cuda._sleep(SLEEP_CYCLES * count)
        start.record()
        for _ in range(1 if single else count):
            self._next(side)()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / (1 if single else count)

    def _host(self, side: str) -> float:
        call = self._next(side)
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        taken = time.perf_counter() - start
        torch.cuda.synchronize()
        return taken / HOST_CALLS * 1e3

    def _compile(self, side: str) -> float:
        """From the program's text, read anew, to the first result. The caches on disk are off in this process (see `session.COLD`)."""
        assert self.row is not None
        one, config = self.built[side]
        operands = self.row.make()
        tile_programs.programs_of.cache_clear()
        sys.modules.pop(f"{__package__}.triton_kernels", None)
        torch.cuda.synchronize()
        start = time.perf_counter()
        one.bind(one.build(config), operands)()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3


def checked(row: Row, error: float) -> float:
    """The error, if the row allows it."""
    if not error <= row.tolerance:
        raise ValueError(f"wrong result: relative error {error:.3g}, allowed {row.tolerance:g}")
    return error


def told(err: BaseException) -> str:
    """The first line that says something of an error."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return f"{type(err).__name__}: {' | '.join(lines[:3])}"[:400]


def serve() -> None:
    """Answer until the standard input ends. What libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    server = Server()
    torch.manual_seed(0)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(server, request.pop("do"))(**request)
        except Exception as err:  # the answer of this request; the next one may be another row
            answer = {"failed": told(err)}
        print(json.dumps(answer), file=answers)

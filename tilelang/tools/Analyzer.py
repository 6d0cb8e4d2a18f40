"""Estimates of a program's work. The name is the one that programs import; making an estimate is not supported yet."""

from __future__ import annotations

from typing import Any

from ..errors import TileNotSupportedError


class Analyzer:
    """`Analyzer.analysis(program, device)` would count operations and bytes."""

    @classmethod
    def analysis(cls, fn: Any, device: Any) -> Any:
        raise TileNotSupportedError("an estimate of operations and bytes", remedy="kernel.get_profiler().do_bench() measures the time")


__all__ = ["Analyzer"]

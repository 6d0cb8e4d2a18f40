"""The machine to compile for, as plain facts. In: "cpu", "llvm -mcpu=…", "cuda -arch=sm_90", a dict, a TVM target,
"auto". Out: a frozen `Target`. Pure Python, no TVM."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TileTypeError, TileValueError

# spelling -> kind
KINDS = {"cpu": "cpu", "llvm": "cpu", "c": "cpu", "cuda": "cuda", "simt": "simt"}
KNOWN_ELSEWHERE = ("hip", "rocm", "metal", "webgpu", "cutedsl", "vulkan", "opencl")


@dataclass(frozen=True)
class Target:
    """kind: cpu, cuda or simt (the emulator). options: remaining settings such as arch or mcpu, sorted."""

    kind: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def is_gpu(self) -> bool:
        """Does a thread of the program become a thread of the machine?"""
        return self.kind in ("cuda", "simt")

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{k}={v}" for k, v in self.options)])


def parse_target(value: Any, auto: str = "cpu") -> Target:
    """A `Target` from every form that programs use; `auto` is the kind that "auto" and None mean on this machine."""
    if isinstance(value, Target):
        return value
    if value is None or value == "auto":
        return Target(KINDS[auto])
    if isinstance(value, Mapping):
        options = {str(k): str(v) for k, v in value.items() if k != "kind"}
        return _make(str(value.get("kind", "")), options)
    if isinstance(value, str):
        words = shlex.split(value)
        if not words:
            raise TileValueError("empty target", remedy='use "cpu", "cuda" or "auto"')
        options = {}
        for word in words[1:]:
            key, _, text = word.lstrip("-").partition("=")
            options[key] = text or "1"
        return _make(words[0], options)
    kind = getattr(value, "kind", None)  # a TVM target
    if kind is not None:
        attrs = {str(k): str(v) for k, v in dict(getattr(value, "attrs", {}) or {}).items()}
        return _make(str(getattr(kind, "name", kind)), {k: v for k, v in attrs.items() if k in ("arch", "mcpu", "mtriple", "mattr")})
    raise TileTypeError(f"target of type {type(value).__name__}", remedy='use a string such as "cpu" or "cuda", or a dict with "kind"')


def _make(kind: str, options: Mapping[str, str]) -> Target:
    if kind in KINDS:
        return Target(KINDS[kind], tuple(sorted(options.items())))
    if kind in KNOWN_ELSEWHERE:
        raise TileValueError(f"target {kind!r} has no backend here", remedy='use "cpu" (any machine) or "cuda"')
    raise TileValueError(f"unknown target {kind!r}", remedy=f"targets are {', '.join(sorted(KINDS))} and auto")

"""From what a user says to a `Target` of this machine.

In: strings, dicts, TVM targets, None, "auto", an open `with Target(...)`. Out: a `Target`, or its text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir.tvm_api import tvm
from ..knobs import knobs
from ..target import device
from ..target.target import Target, parse_target


def auto_kind() -> str:
    """The best kind of target on this machine among those that have a backend: a GPU if there is one, else the CPU."""
    return "cuda" if device.device_count() else "cpu"


def with_device(target: Target) -> Target:
    """A CUDA target that names no architecture gets the first device's, where there is one."""
    if target.kind != "cuda" or target.option("arch") not in ("", "auto", "native") or not device.device_count():
        return target
    options = {**dict(target.options), "arch": device.arch_of(device.capability(0))}
    return replace(target, options=tuple(sorted(options.items())))


def resolve_target(target: Any) -> Target:
    """None and "auto" mean the `with Target(...)` around the call, then TILELANG_DEFAULT_TARGET, then this machine's best."""
    if target is None or (isinstance(target, str) and target == "auto"):
        scope = tvm.target.Target.current(allow_none=True)
        target = knobs.target if scope is None else scope
    automatic = target is None or (isinstance(target, str) and target == "auto")
    return with_device(parse_target(target, auto_kind() if automatic else "cpu"))


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The target that `target` means here: its text, or with `return_object` the `Target` record."""
    found = resolve_target(target)
    return found if return_object else str(found)

"""From what a user says to a `Target` of this machine.

In: strings, dicts, TVM targets, None, "auto", an open `with Target(...)`. Out: a `Target`, or its text.
"""

from __future__ import annotations

from typing import Any

from ..ir.tvm_api import tvm
from ..knobs import knobs
from ..target.target import Target, parse_target


def auto_kind() -> str:
    """The best kind of target on this machine among those that have a backend."""
    return "cpu"


def resolve_target(target: Any) -> Target:
    """None and "auto" mean the `with Target(...)` around the call, then TILELANG_DEFAULT_TARGET, then this machine's best."""
    if target is None or (isinstance(target, str) and target == "auto"):
        scope = tvm.target.Target.current(allow_none=True)
        target = knobs.target if scope is None else scope
    return parse_target(target, auto_kind())


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The target that `target` means here: its text, or with `return_object` the `Target` record."""
    found = resolve_target(target)
    return found if return_object else str(found)

"""Pass configuration in one form. In: a dict with string or enum keys, or None. Out: a plain dict, sorted by key."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..errors import TileTypeError


def normalise_config(configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Pass configuration by string key, sorted; `tir.` and `tirx.` are the same prefix. Unknown keys are kept."""
    if configs is None:
        return {}
    if not isinstance(configs, Mapping):
        raise TileTypeError(f"pass_configs is a {type(configs).__name__}", remedy='give a dict such as {"tl.enable_fast_math": True}')
    found = {}
    for key, value in configs.items():
        name = str(key.value if isinstance(key, Enum) else key)
        found["tirx." + name.removeprefix("tir.") if name.startswith("tir.") else name] = value
    return dict(sorted(found.items()))

"""`tilelang.env`: the environment's settings under their variable names, and the switches of the cache."""

from __future__ import annotations

from typing import Any

from .cache import disable_cache, enable_cache, is_cache_enabled
from .knobs import KNOBS, knobs


class Environment:
    """Reading `env.TILELANG_CACHE_DIR` gives the setting's current value; assigning sets it for the rest of the process."""

    _names = {knob.variable: knob.name for knob in KNOBS}

    def __getattr__(self, variable: str) -> Any:
        if variable not in Environment._names:
            raise AttributeError(f"no setting {variable!r}; there are {', '.join(Environment._names)}")
        return getattr(knobs, Environment._names[variable])

    def __setattr__(self, variable: str, value: Any) -> None:
        if variable not in Environment._names:
            raise AttributeError(f"no setting {variable!r}; there are {', '.join(Environment._names)}")
        knobs.set(**{Environment._names[variable]: value})

    def is_cache_enabled(self) -> bool:
        return is_cache_enabled()

    def enable_cache(self) -> None:
        enable_cache()

    def disable_cache(self) -> None:
        disable_cache()


env = Environment()

__all__ = ["Environment", "disable_cache", "enable_cache", "env", "is_cache_enabled"]

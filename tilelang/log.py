"""The package's logger."""

from __future__ import annotations

import logging

from .errors import TileValueError

logger = logging.getLogger("tilelang")


def set_log_level(level: str | int) -> None:
    """Show messages of this level and above: "DEBUG", "INFO", ... or a number of `logging`."""
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise TileValueError(f"log level {level!r}", remedy='"DEBUG", "INFO", "WARNING", "ERROR" or "CRITICAL"')
    logger.setLevel(number)

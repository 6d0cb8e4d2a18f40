"""`from tilelang.utils.target import determine_target`."""

from ..backend.target import determine_target

__all__ = ["determine_target"]

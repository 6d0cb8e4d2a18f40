"""Integer helpers of host code."""

from __future__ import annotations


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is at least x (1 for x <= 1)."""
    return 1 << max(int(x) - 1, 0).bit_length()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return (a + b - 1) // b


__all__ = ["cdiv", "next_power_of_2"]

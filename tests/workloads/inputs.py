"""Random inputs of the workloads: a generator that starts anew in every process."""

from typing import Any

import numpy as np

RANDOM = np.random.default_rng(1)


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    """Normally distributed values of mean 0 and deviation `scale`."""
    return (scale * RANDOM.standard_normal(shape)).astype(dtype)

"""Names that tuning scripts import to make configurations: machines, and templates that recommend tile sizes."""

from .arch import CUDA
from .template import MatmulTemplate

__all__ = ["CUDA", "MatmulTemplate"]

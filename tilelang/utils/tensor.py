"""Generated inputs and comparisons: `from tilelang.utils.tensor import torch_assert_close`."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import canonical
from ..runtime.compare import torch_assert_close
from ..runtime.params import TensorSupplyType
from ..runtime.supply import get_tensor_supply


def map_torch_type(intype: Any) -> Any:
    """torch's element type for a name of ours, e.g. "e4m3_float8" or "float16"."""
    return canonical(intype).as_torch()


__all__ = ["TensorSupplyType", "get_tensor_supply", "map_torch_type", "torch_assert_close"]

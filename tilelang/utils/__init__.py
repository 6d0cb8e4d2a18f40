"""Helpers that programs import from `tilelang.utils`."""

from .deprecated import deprecated
from .target import determine_target
from .tensor import TensorSupplyType, get_tensor_supply, map_torch_type, torch_assert_close

__all__ = ["TensorSupplyType", "deprecated", "determine_target", "get_tensor_supply", "map_torch_type", "torch_assert_close"]

"""Generated inputs for profiling and checking. In: a `KernelParam` without symbols. Out: a torch tensor, or a NumPy
array where there is no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import TileValueError
from .params import KernelParam, TensorSupplyType


def optional_torch() -> Any:
    """torch if it is installed, else None."""
    try:
        import torch  # noqa: PLC0415 (optional)  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return torch


def get_tensor_supply(tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto, device: str = "cpu") -> Callable[[KernelParam], Any]:
    """A function that makes one input. Auto: unsigned ints 0..2, other ints -2..2, bool 0/1, float8 from -128..127, other
    floats uniform in (-1, 1). Integer: like Auto, floats from -2..2. Uniform: (-1, 1). Normal: mean -1, deviation 1. Randn:
    standard normal. Zero, One: constants. A shape with a symbol raises TileValueError."""

    def supply(param: KernelParam) -> Any:
        symbolic = [e for e in param.shape if not isinstance(e, int)]
        if symbolic:
            raise TileValueError(
                f"{param.name or 'input'}: shape {param.shape} has the symbol {symbolic[0]!r}, so no input can be generated",
                remedy="pass input_tensors, or dynamic_symbolic_constraints={...} with its value",
            )
        # Follows NumPy's global seed, which set_random_seed sets.
        rng = np.random.default_rng(np.random.randint(0, 2**31 - 1))
        values = _values(param, tensor_supply_type, rng)
        if param.is_scalar() and param.kind != "tensor":
            return values.astype(param.dtype.as_numpy()).item()
        torch = optional_torch()
        if torch is None:
            return values.astype(param.dtype.as_numpy())
        return torch.from_numpy(values).to(param.dtype.as_torch()).to(device)

    return supply


def _values(param: KernelParam, kind: TensorSupplyType, rng: np.random.Generator) -> np.ndarray:
    """Values in float32 or int64, not yet of the parameter's type."""
    shape, name = tuple(param.shape), str(param.dtype)
    integer = name.startswith(("int", "uint", "bool"))
    if kind in (TensorSupplyType.Zero, TensorSupplyType.One):
        return np.full(shape, int(kind is TensorSupplyType.One), np.int64)
    if kind in (TensorSupplyType.Auto, TensorSupplyType.Integer) or integer:
        if kind in (TensorSupplyType.Uniform, TensorSupplyType.Normal) and name == "int8":
            return np.ones(shape, np.int64)
        if name == "bool":
            return rng.integers(0, 2, shape)
        if integer or kind is TensorSupplyType.Integer:
            return rng.integers(0 if param.is_unsigned() else -2, 3, shape)
        if param.is_float8():
            return rng.integers(-128, 128, shape).astype(np.float32)
        return rng.uniform(-1, 1, shape).astype(np.float32)
    if kind is TensorSupplyType.Uniform:
        return rng.uniform(-1, 1, shape).astype(np.float32)
    return (rng.standard_normal(shape) - (kind is TensorSupplyType.Normal)).astype(np.float32)

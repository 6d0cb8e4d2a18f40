"""Comparing a result with its reference. In: two torch tensors or NumPy arrays. Out: nothing, or an AssertionError that
shows where they differ and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import TileAssertionError
from .arrays import is_torch


def as_float64(value: Any) -> np.ndarray:
    """Values in double precision (integers exactly up to 2**53)."""
    if is_torch(value):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value).astype(np.float64)


def _dtype_name(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")


def torch_assert_close(
    tensor_a: Any, tensor_b: Any, rtol: float = 1e-2, atol: float = 1e-3, max_mismatched_ratio: float = 0.001, verbose: bool = False,
    equal_nan: bool = True, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
    base_name: str = "result", ref_name: str = "reference",
) -> bool:  # fmt: skip
    """|a - b| <= atol + rtol * |b| for all elements but a share of `max_mismatched_ratio`. Works on torch tensors and on
    NumPy arrays. Raises AssertionError with the worst elements; returns True."""
    if tuple(tensor_a.shape) != tuple(tensor_b.shape):
        raise TileAssertionError(f"{base_name} has shape {tuple(tensor_a.shape)}, {ref_name} {tuple(tensor_b.shape)}")
    if check_dtype and _dtype_name(tensor_a) != _dtype_name(tensor_b):
        raise TileAssertionError(f"{base_name} has dtype {_dtype_name(tensor_a)}, {ref_name} {_dtype_name(tensor_b)}")
    if is_torch(tensor_a) and is_torch(tensor_b):
        if check_device and tensor_a.device != tensor_b.device:
            raise TileAssertionError(f"{base_name} is on {tensor_a.device}, {ref_name} on {tensor_b.device}")
        if check_layout and tensor_a.layout != tensor_b.layout:
            raise TileAssertionError(f"{base_name} has layout {tensor_a.layout}, {ref_name} {tensor_b.layout}")
        if check_stride and tensor_a.stride() != tensor_b.stride():
            raise TileAssertionError(f"{base_name} has strides {tensor_a.stride()}, {ref_name} {tensor_b.stride()}")
    got, want = as_float64(tensor_a), as_float64(tensor_b)
    wrong = ~np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=equal_nan)
    count = int(wrong.sum())
    if verbose:
        print(f"{base_name} and {ref_name}: {count} of {wrong.size} elements differ")
    if count > max_mismatched_ratio * wrong.size:
        raise TileAssertionError(_report(got, want, wrong, count, base_name, ref_name, rtol, atol, max_mismatched_ratio))
    return True


def _report(got: Any, want: Any, wrong: Any, count: int, base: str, ref: str, rtol: float, atol: float, ratio: float) -> str:
    places = [tuple(int(i) for i in place) for place in np.argwhere(wrong)[:5]]
    shown = "; ".join(f"{list(p)}: {got[p]:.6g}, expected {want[p]:.6g}" for p in places)
    with np.errstate(invalid="ignore"):
        worst = float(np.nanmax(np.abs(got - want)[wrong])) if not np.isnan((got - want)[wrong]).all() else float("nan")
    return (
        f"{base} differs from {ref} in {count} of {wrong.size} elements ({count / wrong.size:.2%}, allowed {ratio:.2%}; "
        f"rtol {rtol}, atol {atol}); largest difference {worst:.6g}\n  {shown}"
    )

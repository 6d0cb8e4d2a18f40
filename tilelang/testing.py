"""Helpers of test files: `tilelang.testing.main()`, the `requires_*` marks, comparisons."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import TileValueError
from .ir.tvm_api import tvm
from .runtime.compare import torch_assert_close
from .runtime.supply import optional_torch

_COMPARE = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt, "eq": operator.eq}


def main() -> None:
    """Run pytest on the file that calls this, and exit with its status."""
    import pytest  # noqa: PLC0415 (only test files need it)

    caller = inspect.currentframe()
    assert caller is not None and caller.f_back is not None
    sys.exit(pytest.main([caller.f_back.f_globals["__file__"], *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seed Python's, NumPy's and torch's global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch = optional_torch()
    if torch is not None:
        torch.manual_seed(seed)


def _skip_unless(condition: bool, reason: str) -> Callable[..., Any]:
    """A decorator that skips a test when the condition does not hold. Works as `@mark` and as `@mark()`."""

    def mark(fn: Any = None) -> Any:
        import pytest  # noqa: PLC0415 (only test files need it)

        skip = pytest.mark.skipif(not condition, reason=reason)
        return skip if fn is None else skip(fn)

    return mark


def _cuda_capability() -> tuple[int, int] | None:
    device = tvm.cuda(0)
    if not device.exist:
        return None
    major, _, minor = str(device.compute_version).partition(".")
    return int(major), int(minor or 0)


requires_cuda = _skip_unless(_cuda_capability() is not None, "needs a CUDA device")
requires_rocm = _skip_unless(False, "needs a ROCm device, for which there is no backend")
requires_metal = _skip_unless(False, "needs a Metal device, for which there is no backend")
requires_llvm = _skip_unless(True, "needs LLVM")
requires_cdna = requires_gfx950 = requires_rocm
requires_cuda_or_cdna = requires_cuda


def requires_package(name: str) -> Callable[..., Any]:
    """Skip when the Python package `name` is not installed."""
    return _skip_unless(importlib.util.find_spec(name) is not None, f"needs the package {name}")


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Callable[..., Any]:
    """Skip unless the CUDA device's compute capability compares so with major.minor. mode: ge, gt, le, lt, eq."""
    if mode not in _COMPARE:
        raise TileValueError(f"mode {mode!r}", remedy=f"one of {', '.join(_COMPARE)}")
    actual = _cuda_capability()
    fits = actual is not None and _COMPARE[mode](actual, (major, minor))
    return _skip_unless(fits, f"needs compute capability {mode} {major}.{minor}")


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Callable[..., Any]:
    return requires_cuda_compute_version(major, minor, "ge")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Callable[..., Any]:
    return requires_cuda_compute_version(major, minor, "gt")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Callable[..., Any]:
    return requires_cuda_compute_version(major, minor, "le")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Callable[..., Any]:
    return requires_cuda_compute_version(major, minor, "lt")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Callable[..., Any]:
    return requires_cuda_compute_version(major, minor, "eq")


__all__ = [
    "main", "requires_cdna", "requires_cuda", "requires_cuda_compute_version", "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge", "requires_cuda_compute_version_gt", "requires_cuda_compute_version_le",
    "requires_cuda_compute_version_lt", "requires_cuda_or_cdna", "requires_gfx950", "requires_llvm", "requires_metal",
    "requires_package", "requires_rocm", "set_random_seed", "torch_assert_close",
]  # fmt: skip

"""Sides that are the kernels of `triton_kernels.py`, each with a handful of configurations. Triton is imported when a side is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .work import Config, Operands, Side

PANEL = 8
Launch = Callable[[Any, Operands, Config], Callable[[], Any]]


def _side(kernel: str, launch: Launch, configs: Iterable[Config]) -> Side:
    """launch(kernel, operands, config): a call without arguments."""

    def build(config: Config) -> Any:
        return getattr(importlib.import_module(f"{__package__}.triton_kernels"), config.get("kernel", kernel)), config

    def bind(built: Any, operands: Operands) -> Callable[[], Any]:
        run = launch(built[0], operands, built[1])

        def call() -> None:  # a launch returns the compiled kernel
            run()

        return call

    return Side(build, bind, tuple(configs), compiled=True)


def _descriptor(tensor: torch.Tensor, block: list[int]) -> Any:
    return importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor.from_tensor(tensor, block)


def _options(config: Config) -> dict[str, int]:
    return {"num_warps": config["warps"], "num_stages": config["stages"]}


def tiles(kernel: str, M: int, N: int, K: int, stages: int, warps: int, **more: Any) -> Config:
    return {"kernel": kernel, "BM": M, "BN": N, "BK": K, "stages": stages, "warps": warps, **more}


def gemm(transposed: bool, configs: Iterable[Config]) -> Side:
    """C = A B, or A times the transpose of B; operands (A, B), (C)."""

    def launch(kernel: Any, operands: Operands, config: Config) -> Callable[[], Any]:
        (a, b), (c,) = operands.inputs, operands.outputs
        (M, K), N = a.shape, c.shape[1]
        BM, BN, BK = config["BM"], config["BN"], config["BK"]
        grid = (M // BM) * (N // BN)
        if config["kernel"] == "gemm_pointers":
            right = b.T if transposed else b
            strides = (*a.stride(), *right.stride())
            return lambda: kernel[(grid,)](a, right, c, M, N, K, *strides, BM, BN, BK, PANEL, **_options(config))
        specialize, persistent = config.get("specialize", False), config.get("persistent", False)
        left, right = _descriptor(a, [BM, BK]), _descriptor(b, [BN, BK] if transposed else [BK, BN])
        out = c if specialize else _descriptor(c, [BM, BN])
        if persistent:
            grid = min(grid, torch.cuda.get_device_properties(0).multi_processor_count)
        return lambda: kernel[(grid,)](left, right, out, M, N, K, BM, BN, BK, PANEL, transposed, persistent, specialize, **_options(config))

    return _side("gemm_descriptors", launch, configs)


def gemv(configs: Iterable[Config]) -> Side:
    """One row times the transpose of W: operands (x, W), (y)."""

    def launch(kernel: Any, operands: Operands, config: Config) -> Callable[[], Any]:
        (x, w), (y,) = operands.inputs, operands.outputs
        N, K = w.shape
        return lambda: kernel[(N // config["BN"],)](x, w, y, K, config["BN"], config["BK"], **_options(config))

    return _side("gemv", launch, configs)


def attention(causal: bool, configs: Iterable[Config]) -> Side:
    """Operands (q, k, v), (o) of shape (batch, heads, S, D)."""

    def launch(kernel: Any, operands: Operands, config: Config) -> Callable[[], Any]:
        q, k, v = operands.inputs[:3]
        out = operands.outputs[0]
        batch, heads, S, D = q.shape
        BM, BN, specialize = config["BM"], config["BN"], config.get("specialize", False)
        maps = [_descriptor(t.view(-1, D), [rows, D]) for t, rows in ((q, BM), (k, BN), (v, BN))]
        scale, grid = D**-0.5 * 1.4426950408889634, (S // BM, batch * heads)
        return lambda: kernel[grid](*maps, out, S, scale, BM, BN, D, causal, specialize, **_options(config))

    return _side("attention", launch, configs)


def rows(kernel: str, eps: float | None = None) -> Side:
    """A pass over the rows of the first operand: `softmax`, `layernorm`, `rmsnorm`."""

    def launch(kernel: Any, operands: Operands, config: Config) -> Callable[[], Any]:
        M, N = operands.inputs[0].shape
        arguments = (*operands.inputs, *operands.outputs, *(() if eps is None else (eps,)), N)
        return lambda: kernel[(M,)](*arguments, num_warps=config["warps"])

    return _side(kernel, launch, [{"warps": w} for w in (16, 8, 4)])


def add() -> Side:
    """z = 2 x + y on a few elements."""

    def launch(kernel: Any, operands: Operands, config: Config) -> Callable[[], Any]:
        arguments = (*operands.inputs, *operands.outputs, operands.inputs[0].numel())
        bound = kernel[(1,)]
        return lambda: bound(*arguments, num_warps=config["warps"])

    return _side("add", launch, ({"warps": 1},))

"""Sides that are torch's own operators: cuBLAS, cuDNN, flash attention, its kernels for rows, plain copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .work import Operands, Side

Tensors = tuple[torch.Tensor, ...]


def torch_side(run: Callable[..., Any], checked: bool = True) -> Side:
    """run(*inputs, *outputs): writes the outputs, or returns them."""

    def bind(_: Any, operands: Operands) -> Callable[[], Any]:
        arguments = (*operands.inputs, *operands.outputs)

        def call() -> Any:
            return run(*arguments)

        return call

    return Side(lambda config: None, bind, checked=checked)


ATTENTION_BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def attention_forward(causal: bool) -> dict[str, Side]:
    """Scaled dot product attention with each of torch's fast backends."""

    def side(backend: SDPBackend) -> Side:
        def bind(_: Any, operands: Operands) -> Callable[[], Any]:
            q, k, v = operands.inputs

            def call() -> torch.Tensor:
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            return call

        return Side(lambda config: None, bind)

    return {label: side(backend) for label, backend in ATTENTION_BACKENDS.items()}


def attention_backward(causal: bool) -> dict[str, Side]:
    """The gradients of q, k, v for inputs (q, k, v, gradient of the output, ...); the forward pass runs once, when a set is bound."""

    def side(backend: SDPBackend) -> Side:
        def bind(_: Any, operands: Operands) -> Callable[[], Any]:
            q, k, v = (t.detach().requires_grad_() for t in operands.inputs[:3])
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            gradient = operands.inputs[3]
            return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

        return Side(lambda config: None, bind)

    return {label: side(backend) for label, backend in ATTENTION_BACKENDS.items()}

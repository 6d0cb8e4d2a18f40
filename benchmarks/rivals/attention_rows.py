"""Rows of attention: forward and backward, batch 4 with 32 heads, FLOP counted as 4 (forward) or 10 (backward) S^2 D, causal half of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import triton_sides
from .tile_programs import tile_sides
from .torch_sides import attention_backward, attention_forward
from .work import Config, Operands, Part, Row, values

B, H = 4, 32
TYPES = {"bf16": ("bfloat16", torch.bfloat16, 3e-2), "fp16": ("float16", torch.float16, 6e-3)}
CHECKED = ((0, 0), (1, 7), (B - 1, H - 1))  # heads that are compared with float64


def tile(M: int, N: int, threads: int, **more: int) -> Config:
    return {"block_M": M, "block_N": N, "threads": threads, **more}


def scores(q: torch.Tensor, k: torch.Tensor, causal: bool) -> torch.Tensor:
    """Scaled scores of one head, in float64."""
    found = q.double() @ k.double().T * q.shape[-1] ** -0.5
    if causal:
        found.masked_fill_(torch.ones(found.shape, dtype=torch.bool, device=found.device).triu_(1), float("-inf"))
    return found


def forward_rows() -> Iterator[Row]:
    for name, (dtype, kind, tolerance) in TYPES.items():
        for D in (128, 64):
            for S in (2048, 4096, 8192):
                for causal in (False, True):
                    yield _forward(name, dtype, kind, tolerance, D, S, causal)


def _forward(name: str, dtype: str, kind: torch.dtype, tolerance: float, D: int, S: int, causal: bool) -> Row:
    def make() -> Operands:
        return Operands(tuple(values(B, H, S, D, dtype=kind) for _ in range(3)), (torch.empty(B, H, S, D, device="cuda", dtype=kind),))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        q, k, v = inputs
        return tuple(Part(scores(q[at], k[at], causal).softmax(1) @ v[at].double(), 0, at) for at in CHECKED)

    sizes = {"batch": B, "heads": H, "kv_heads": H, "seq_q": S, "seq_kv": S, "dim": D, "causal": causal, "dtype": dtype}
    ours = (tile(192, 80, 384), tile(128, 128, 256)) if D == 128 else (tile(192, 128, 384), tile(192, 112, 384), tile(128, 128, 256))
    wheel = (tile(128, 128, 256), tile(192, 128, 384))
    triton = [{"BM": 128, "BN": 128, "stages": 2, "warps": 8}, {"BM": 128, "BN": 64, "stages": 3, "warps": 8}]
    if causal:
        triton.append({"BM": 64, "BN": 64, "stages": 3, "warps": 4})
    else:
        triton.insert(0, {"BM": 128, "BN": 128, "stages": 2, "warps": 4, "specialize": True})
    sides = {
        **tile_sides("examples/flash_attention", "flash_attention", sizes, ours, wheel),
        **attention_forward(causal),
        "Triton": triton_sides.attention(causal, triton),
    }
    work = 4.0 * B * H * S * S * D * (0.5 if causal else 1.0)
    label = f"attention {name} D{D} S{S} {'causal' if causal else 'full'}"
    return Row(label, f"attention D{D}", work, "TFLOP/s", make, reference, tolerance, sides)


def backward_rows() -> Iterator[Row]:
    for name, (dtype, kind, tolerance) in TYPES.items():
        for S in (2048, 4096, 8192):
            for causal in (False, True):
                yield _backward(name, dtype, kind, 2 * tolerance, 128, S, causal)


def _backward(name: str, dtype: str, kind: torch.dtype, tolerance: float, D: int, S: int, causal: bool) -> Row:
    def make() -> Operands:
        """Q, K, V, the gradient of the output, the output and the logarithms of the sums, as a forward pass leaves them."""
        q, k, v, grad = (values(B, H, S, D, dtype=kind) for _ in range(4))
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
        return Operands((q, k, v, grad, out, lse), tuple(torch.empty_like(t) for t in (q, k, v)))

    def reference(inputs: tuple[torch.Tensor, ...]) -> tuple[Part, ...]:
        q, k, v, grad, _, _ = inputs
        parts = []
        for at in CHECKED[1:]:
            weights = scores(q[at], k[at], causal).softmax(1)
            wide = grad[at].double()
            dP = wide @ v[at].double().T
            dS = weights * (dP - (dP * weights).sum(1, keepdim=True)) * D**-0.5
            found = (dS @ k[at].double(), dS.T @ q[at].double(), weights.T @ wide)
            parts += [Part(want, number, at) for number, want in enumerate(found)]
        return tuple(parts)

    sizes = {"batch": B, "heads": H, "seq": S, "dim": D, "causal": causal, "dtype": dtype}
    section = max(1, (32 << 20) // (S * 1024))  # heads whose tensors stay in the L2 cache together
    ours: tuple[Config, ...] = (tile(64, 128, 256, stages=3, section=section), tile(64, 128, 256, stages=2, section=section))
    order = (0, 1, 2, 4, 3, 5)  # the program takes O before dO
    sides = {
        **tile_sides("examples/attention_backward", "attention_backward", sizes, ours, (), order=order),
        **attention_backward(causal),
    }
    work = 10.0 * B * H * S * S * D * (0.5 if causal else 1.0)
    label = f"attention backward {name} D{D} S{S} {'causal' if causal else 'full'}"
    return Row(label, "attention backward", work, "TFLOP/s", make, reference, tolerance, sides)

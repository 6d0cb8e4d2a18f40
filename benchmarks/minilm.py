"""all-MiniLM-L6-v2 on this machine: the tile programs of examples/minilm against torch's CPU operators, float32.

    python benchmarks/minilm.py            # needs torch, and the example's packages

Prints one row for each batch shape: milliseconds of both (shortest of several runs) and the largest difference.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "minilm"))

from model import MiniLM

SHAPES = ((1, 16), (1, 128), (16, 32), (16, 128))  # batch, sequence length


class TorchMiniLM:
    """The same forward pass, on the same fused weights, in torch operators."""

    def __init__(self, model):
        self.features, self.heads, self.layers = model.features, model.heads, model.layers
        self.weights = {name: torch.from_numpy(value) for name, value in model.weights.items()}

    def parameters(self, name):
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def layer_norm(self, x, name):
        return F.layer_norm(x, (self.features,), *self.parameters(name), eps=1e-12)

    @torch.inference_mode()
    def forward(self, ids, lengths):
        """ids (batch, seq), lengths (batch,) -> embeddings (batch, features)."""
        batch, seq = ids.shape
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
        seen = torch.arange(seq) < lengths[:, None]
        x = self.layer_norm(F.embedding(ids, tables[0]) + tables[1][:seq] + tables[2][0], "embeddings.LayerNorm")
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            qkv = F.linear(x, *self.parameters(f"{name}.attention.self.qkv"))
            q, k, v = qkv.view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :]).transpose(1, 2).reshape(batch, seq, -1)
            mixed = F.linear(mixed, *self.parameters(f"{name}.attention.output.dense"))
            x = self.layer_norm(x + mixed, f"{name}.attention.output.LayerNorm")
            hidden = F.gelu(F.linear(x, *self.parameters(f"{name}.intermediate.dense")))
            x = self.layer_norm(x + F.linear(hidden, *self.parameters(f"{name}.output.dense")), f"{name}.output.LayerNorm")
        mean = (x * seen[:, :, None]).sum(dim=1) / lengths[:, None]
        return F.normalize(mean, dim=1)


def best_of(run, repeats=10):
    """Shortest of several runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main():
    model = MiniLM()
    torch_model = TorchMiniLM(model)
    rng = np.random.default_rng(0)
    print(f"threads: {torch.get_num_threads()}")
    print(f"{'batch':>6} {'seq':>5} {'tilelang ms':>12} {'torch ms':>10} {'ratio':>6} {'difference':>11}")
    for batch, seq in SHAPES:
        ids = rng.integers(1000, 30000, (batch, seq)).astype(np.int32)
        lengths = rng.integers(seq // 2, seq + 1, batch).astype(np.int32)
        torch_args = torch.from_numpy(ids).long(), torch.from_numpy(lengths)
        difference = np.abs(model.forward(ids, lengths) - torch_model.forward(*torch_args).numpy()).max()
        ours, theirs = best_of(lambda: model.forward(ids, lengths)), best_of(lambda: torch_model.forward(*torch_args))  # noqa: B023
        print(f"{batch:6} {seq:5} {ours:12.2f} {theirs:10.2f} {theirs / ours:6.2f} {difference:11.1e}")


if __name__ == "__main__":
    main()

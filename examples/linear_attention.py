"""Causal linear attention in chunks: a state matrix runs along the sequence, each chunk adds its own local part.

O = tril(Q K^T) V without the S x S matrix: the past enters a chunk through the state sum of k v^T.
"""

import numpy as np

import tilelang
import tilelang.language as T


def linear_attention(batch, heads, seq, dim, chunk=64, dtype="float16"):
    scale = dim**-0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, seq, heads, dim), dtype),
        K: T.Tensor((batch, seq, heads, dim), dtype),
        V: T.Tensor((batch, seq, heads, dim), dtype),
        O: T.Tensor((batch, seq, heads, dim), dtype),
        state_out: T.Tensor((batch, heads, dim, dim), "float32"),
    ):
        with T.Kernel(heads, batch, threads=128) as (head, b):
            q = T.alloc_shared((chunk, dim), dtype)
            k = T.alloc_shared((chunk, dim), dtype)
            v = T.alloc_shared((chunk, dim), dtype)
            state = T.alloc_fragment((dim, dim), "float32")
            state_shared = T.alloc_shared((dim, dim), dtype)
            scores = T.alloc_fragment((chunk, chunk), "float32")
            scores_shared = T.alloc_shared((chunk, chunk), dtype)
            out = T.alloc_fragment((chunk, dim), "float32")

            T.clear(state)
            for n in T.Pipelined(T.ceildiv(seq, chunk), num_stages=1):
                T.copy(Q[b, n * chunk : (n + 1) * chunk, head, :], q)
                T.copy(K[b, n * chunk : (n + 1) * chunk, head, :], k)
                T.copy(V[b, n * chunk : (n + 1) * chunk, head, :], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    scores_shared[i, j] = T.if_then_else(i >= j, scores[i, j] * scale, 0)
                for i, j in T.Parallel(dim, dim):
                    state_shared[i, j] = state[i, j] * scale
                T.gemm(scores_shared, v, out, clear_accum=True)
                T.gemm(q, state_shared, out)
                T.copy(out, O[b, n * chunk : (n + 1) * chunk, head, :])
                T.gemm(k, v, state, transpose_A=True)
            T.copy(state, state_out[b, head, 0, 0])

    return kernel


def reference(q, k, v):
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = np.tril(q @ k.transpose(0, 1, 3, 2)) * q.shape[-1] ** -0.5
    return (scores @ v).transpose(0, 2, 1, 3), k.transpose(0, 1, 3, 2) @ v


def main(target="cpu"):
    batch, heads, seq, dim = 2, 4, 250, 64
    q, k, v = (0.5 * np.random.default_rng(0).standard_normal((3, batch, seq, heads, dim))).astype(np.float16)
    out, state = tilelang.compile(linear_attention(batch, heads, seq, dim), out_idx=[3, 4], target=target)(q, k, v)
    expected_out, expected_state = reference(q, k, v)
    np.testing.assert_allclose(out, expected_out, rtol=5e-3, atol=2e-2)
    np.testing.assert_allclose(state, expected_state, rtol=1e-4, atol=1e-3)
    print(f"linear attention over {seq} positions: agrees with NumPy")


if __name__ == "__main__":
    main()

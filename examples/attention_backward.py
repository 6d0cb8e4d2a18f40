"""Attention backward: dQ, dK, dV without an S x S matrix in memory, full or causal.

Layout (batch, heads, sequence, head dimension). Three kernels in one program: what the rows of a query need (delta = sum of O dO, the
logarithm of the row's sum in base 2), the gradients, and dQ from its float32 sum. The second one has a tile of keys for each block and
visits the queries: key rows are the rows of every product, so that P and dS are computed where the products for dK and dV want them.
Only dQ = dS K sums over blocks, by atomic additions.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


@T.macro
def prepare(O, dO, LSE, lse, delta, dQ_sum, batch, heads, seq, rows, dim, block, dtype):
    """What the rows of each query need, and zeros for the sum of its gradient."""
    with T.Kernel(rows // block, heads, batch, threads=128) as (m, h, b):
        out = T.alloc_fragment((block, dim), dtype)
        grad = T.alloc_fragment((block, dim), dtype)
        product = T.alloc_fragment((block, dim), "float32")
        row_sum = T.alloc_fragment((block,), "float32")
        T.copy(O[b, h, m * block, 0], out)
        T.copy(dO[b, h, m * block, 0], grad)
        for i, d in T.Parallel(block, dim):
            product[i, d] = T.cast(out[i, d], "float32") * grad[i, d]
        T.reduce_sum(product, row_sum, dim=1)
        T.copy(row_sum, delta[b, h, m * block])
        for i in T.Parallel(block):
            row = m * block + i
            # A row past the end has no sum: its weights, exp2(score - lse), are zero.
            lse[b, h, row] = T.if_then_else(row < seq, LSE[b, h, row] * LOG2E, T.infinity("float32"))
        T.clear(product)
        T.copy(product, dQ_sum[b, h, m * block, 0])


@T.macro
def hide(scores, first_key, first_query, keys, queries, seq, causal):
    """No weight for keys past the end, nor for those behind a causal query."""
    for i, j in T.Parallel(keys, queries):
        key = first_key + i
        seen = key < seq and key <= first_query + j if causal else key < seq
        scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))


@T.macro
def finish(dQ_sum, dQ, batch, heads, rows, dim, block):
    """The gradient of the queries, from its sum."""
    with T.Kernel(rows // block, heads, batch, threads=128) as (m, h, b):
        total = T.alloc_fragment((block, dim), "float32")
        T.copy(dQ_sum[b, h, m * block, 0], total)
        for i, d in T.Parallel(block, dim):
            total[i, d] *= dim**-0.5
        T.copy(total, dQ[b, h, m * block, 0])


def attention_backward(  # noqa: PLR0915
    batch, heads, seq, dim, causal, block_M=64, block_N=128, stages=2, threads=256, dtype="float16", section=8
):  # fmt: skip
    """block_M queries by block_N keys. LSE: the natural logarithm of each row's sum of exp(Q K / sqrt(dim)). section: heads whose blocks
    run at the same time: a causal kernel begins with the keys that most queries see."""
    section = min(section, batch * heads)
    rows = (seq + block_M - 1) // block_M * block_M
    tensor = T.Tensor((batch, heads, seq, dim), dtype)

    @T.prim_func
    def kernel(
        Q: tensor, K: tensor, V: tensor, O: tensor, dO: tensor, LSE: T.Tensor((batch, heads, seq), "float32"),
        dQ: tensor, dK: tensor, dV: tensor,
    ):  # fmt: skip
        lse = T.alloc_global((batch, heads, rows), "float32")
        delta = T.alloc_global((batch, heads, rows), "float32")
        dQ_sum = T.alloc_global((batch, heads, rows, dim), "float32")
        prepare(O, dO, LSE, lse, delta, dQ_sum, batch, heads, seq, rows, dim, block_M, dtype)

        with T.Kernel(section, T.ceildiv(seq, block_N), T.ceildiv(batch * heads, section), threads=threads) as (x, n, z):
            b, h = (z * section + x) // heads, (z * section + x) % heads
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            lse_shared = T.alloc_shared((block_M,), "float32")
            delta_shared = T.alloc_shared((block_M,), "float32")
            dS_shared = T.alloc_shared((block_N, block_M), dtype)
            dq_shared = T.alloc_shared((block_M, dim), "float32")
            scores = T.alloc_fragment((block_N, block_M), "float32")
            weights = T.alloc_fragment((block_N, block_M), dtype)
            dP = T.alloc_fragment((block_N, block_M), "float32")
            dS = T.alloc_fragment((block_N, block_M), dtype)
            dk = T.alloc_fragment((block_N, dim), "float32")
            dv = T.alloc_fragment((block_N, dim), "float32")
            dq = T.alloc_fragment((block_M, dim), "float32")

            T.copy(K[b, h, n * block_N, 0], K_shared)
            T.copy(V[b, h, n * block_N, 0], V_shared)
            T.clear(dk)
            T.clear(dv)
            # Queries before the first key of a causal block see none of its keys.
            first = n * block_N // block_M if causal else 0
            for m in T.Pipelined(first, rows // block_M, num_stages=stages):
                T.copy(Q[b, h, m * block_M, 0], Q_shared)
                T.copy(lse[b, h, m * block_M], lse_shared)
                T.gemm(K_shared, Q_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                if (n + 1) * block_N > (T.min(m * block_M, seq) if causal else seq):
                    hide(scores, n * block_N, m * block_M, block_N, block_M, seq, causal)
                for i, j in T.Parallel(block_N, block_M):
                    scores[i, j] = T.exp2(scores[i, j] * (dim**-0.5 * LOG2E) - lse_shared[j])
                T.copy(scores, weights)
                T.copy(dO[b, h, m * block_M, 0], dO_shared)
                T.copy(delta[b, h, m * block_M], delta_shared)
                T.gemm(weights, dO_shared, dv, policy=T.GemmWarpPolicy.FullRow)
                T.gemm(V_shared, dO_shared, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_N, block_M):
                    dS[i, j] = weights[i, j] * (dP[i, j] - delta_shared[j])
                T.copy(dS, dS_shared)
                T.gemm(dS, Q_shared, dk, policy=T.GemmWarpPolicy.FullRow)
                T.gemm(dS_shared, K_shared, dq, transpose_A=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.copy(dq, dq_shared)
                T.atomic_add(dQ_sum[b, h, m * block_M, 0], dq_shared)
            for i, d in T.Parallel(block_N, dim):
                dk[i, d] *= dim**-0.5
            T.copy(dk, dK[b, h, n * block_N, 0])
            T.copy(dv, dV[b, h, n * block_N, 0])

        finish(dQ_sum, dQ, batch, heads, rows, dim, block_M)

    return kernel


def forward(q, k, v, causal):
    """Output, logarithms of the sums and weights, in float64."""
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5
    if causal:
        scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    lse = largest + np.log(np.exp(scores - largest).sum(axis=-1, keepdims=True))
    weights = np.exp(scores - lse)
    return weights @ v, lse[..., 0], weights


def reference(q, k, v, out, grad, weights):
    """dQ, dK, dV in float64. out: the rounded output, as a forward pass leaves it."""
    scale = q.shape[-1] ** -0.5
    dP = grad @ v.transpose(0, 1, 3, 2)
    dS = weights * (dP - (grad * out).sum(axis=-1, keepdims=True)) * scale
    return dS @ k, dS.transpose(0, 1, 3, 2) @ q, weights.transpose(0, 1, 3, 2) @ grad


def main(target="cpu"):
    rng = np.random.default_rng(0)
    # name, heads, sequence, causal, size of the scores
    cases = [("full", 2, 192, False, 1), ("causal", 2, 200, True, 1), ("full, large scores", 1, 72, False, 8)]
    for name, heads, seq, causal, size in cases:
        batch, dim = 1, 64
        q, k, v, grad = rng.standard_normal((4, batch, heads, seq, dim)).astype(np.float16)
        q *= np.float16(size)
        wide = [x.astype(np.float64) for x in (q, k, v)]
        out, lse, weights = forward(*wide, causal)
        out = out.astype(np.float16)
        kernel = tilelang.compile(attention_backward(batch, heads, seq, dim, causal), out_idx=[6, 7, 8], target=target)
        found = kernel(q, k, v, out, grad, lse.astype(np.float32))
        expected = reference(*wide, out.astype(np.float64), grad.astype(np.float64), weights)
        for got, want in zip(found, expected, strict=True):
            assert np.linalg.norm(got - want) < 2e-3 * np.linalg.norm(want)
        print(f"attention backward, {name}: agrees with NumPy")


if __name__ == "__main__":
    main()

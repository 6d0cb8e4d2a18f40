"""Decoding step of multi-head latent attention in its absorbed form: 128 query heads share one key of 512 + 64 numbers, whose first 512
are also the value.

Layout (batch, heads, 512) and (batch, heads, 64) for the queries, (batch, sequence, 512) and (batch, sequence, 64) for the cache, whose
sequences have their own lengths. A block has 64 heads of one sequence; with `splits` > 1 it has a part of the sequence, and a second
kernel combines the parts. The weights pass through shared memory, since columns of the output belong to different warpgroups.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


@T.macro
def combine(part_out, part_log, O, batch, heads, dim, splits):
    """Parts of the output, each with the logarithm (base 2) of its sum, to one."""
    with T.Kernel(heads, batch, threads=128) as (h, b):
        out = T.alloc_fragment((dim,), "float32")
        largest = T.alloc_var("float32", -1e30)
        total = T.alloc_var("float32", 0)
        for s in T.serial(splits):
            largest = T.max(largest, part_log[b, s, h])
        T.clear(out)
        for s in T.serial(splits):
            weight = T.exp2(part_log[b, s, h] - largest)
            total += weight
            for d in T.Parallel(dim):
                out[d] += weight * part_out[b, s, h, d]
        for d in T.Parallel(dim):
            out[d] /= total
        T.copy(out, O[b, h, 0])


def mla_decode(batch, heads, seq, dim=512, rope=64, splits=1, block_H=64, block_N=64, stages=2, threads=256, dtype="bfloat16", scale=None):
    """scale: of the scores, 1 / sqrt(dim + rope) unless given. lengths: of the sequences, at least 1 and at most seq."""
    factor = LOG2E * (scale or (dim + rope) ** -0.5)
    part = T.ceildiv(T.ceildiv(seq, splits), block_N) * block_N  # keys of one split

    @T.macro
    def update_softmax(scores, row_max, row_max_prev, row_sum, rescale, block_sum, first_key, length):
        for i, j in T.Parallel(block_H, block_N):
            scores[i, j] = T.if_then_else(first_key + j < length, scores[i, j], -1e30)
        T.copy(row_max, row_max_prev)
        T.reduce_max(scores, row_max, dim=1, clear=False)
        for i in T.Parallel(block_H):
            rescale[i] = T.exp2((row_max_prev[i] - row_max[i]) * factor)
        for i, j in T.Parallel(block_H, block_N):
            scores[i, j] = T.exp2((scores[i, j] - row_max[i]) * factor)
        T.reduce_sum(scores, block_sum, dim=1)
        for i in T.Parallel(block_H):
            row_sum[i] = row_sum[i] * rescale[i] + block_sum[i]

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        KV: T.Tensor((batch, seq, dim), dtype),
        K_rope: T.Tensor((batch, seq, rope), dtype),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, heads, dim), dtype),
    ):
        part_out = T.alloc_global((batch, splits, heads, dim), "float32")
        part_log = T.alloc_global((batch, splits, heads), "float32")
        with T.Kernel(heads // block_H, splits, batch, threads=threads) as (head, split, b):
            q = T.alloc_shared((block_H, dim), dtype)
            q_rope = T.alloc_shared((block_H, rope), dtype)
            kv = T.alloc_shared((block_N, dim), dtype)
            k_rope = T.alloc_shared((block_N, rope), dtype)
            weights = T.alloc_shared((block_H, block_N), dtype)
            scores = T.alloc_fragment((block_H, block_N), "float32")
            out = T.alloc_fragment((block_H, dim), "float32")
            row_max = T.alloc_fragment((block_H,), "float32")
            row_max_prev = T.alloc_fragment((block_H,), "float32")
            row_sum = T.alloc_fragment((block_H,), "float32")
            rescale = T.alloc_fragment((block_H,), "float32")
            block_sum = T.alloc_fragment((block_H,), "float32")

            T.copy(Q[b, head * block_H, 0], q)
            T.copy(Q_rope[b, head * block_H, 0], q_rope)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -1e30)
            keys = T.clamp(lengths[b] - split * part, 0, part)
            for n in T.Pipelined(T.ceildiv(keys, block_N), num_stages=stages):
                T.copy(KV[b, split * part + n * block_N, 0], kv)
                T.copy(K_rope[b, split * part + n * block_N, 0], k_rope)
                T.gemm(q, kv, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.gemm(q_rope, k_rope, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                update_softmax(scores, row_max, row_max_prev, row_sum, rescale, block_sum, n * block_N, keys)
                T.copy(scores, weights)
                for i, d in T.Parallel(block_H, dim):
                    out[i, d] *= rescale[i]
                T.gemm(weights, kv, out, policy=T.GemmWarpPolicy.FullCol)
            for i, d in T.Parallel(block_H, dim):
                out[i, d] /= T.max(row_sum[i], 1e-30)
            if splits == 1:
                T.copy(out, O[b, head * block_H, 0])
            else:
                T.copy(out, part_out[b, split, head * block_H, 0])
                for i in T.Parallel(block_H):
                    part_log[b, split, head * block_H + i] = row_max[i] * factor + T.log2(T.max(row_sum[i], 1e-30))
        if splits > 1:
            combine(part_out, part_log, O, batch, heads, dim, splits)

    return kernel


def reference(q, q_rope, kv, k_rope, lengths, scale):
    """In float64, sequence by sequence."""
    out = np.zeros(q.shape)
    for b, n in enumerate(lengths):
        scores = scale * (q[b] @ kv[b, :n].T + q_rope[b] @ k_rope[b, :n].T)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[b] = weights / weights.sum(axis=-1, keepdims=True) @ kv[b, :n]
    return out


def main(target="cpu"):
    rng = np.random.default_rng(0)
    batch, heads, dim, rope, seq = 2, 64, 128, 64, 200
    lengths = np.array([200, 77], np.int32)
    for name, splits in [("one pass", 1), ("split and combined", 2)]:
        q, q_rope = (rng.standard_normal((batch, heads, d)).astype(np.float16) for d in (dim, rope))
        kv, k_rope = (rng.standard_normal((batch, seq, d)).astype(np.float16) for d in (dim, rope))
        program = mla_decode(batch, heads, seq, dim, rope, splits, dtype="float16")
        found = tilelang.compile(program, out_idx=[-1], target=target)(q, q_rope, kv, k_rope, lengths)
        expected = reference(*(x.astype(np.float64) for x in (q, q_rope, kv, k_rope)), lengths, (dim + rope) ** -0.5)
        np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)
        print(f"latent attention, {name}: agrees with NumPy")


if __name__ == "__main__":
    main()

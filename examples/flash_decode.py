"""Decoding step of attention: one query a sequence, the keys split over blocks, two kernels in one program.

One query gives too few blocks to fill a machine, so every block takes a part of the keys and writes its
partial output with the log of its sum; a second kernel combines the parts. Sequences have different lengths.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634


def flash_decode(batch, heads, seq, dim, splits, block_N=64, dtype="float16"):
    scale = LOG2E / dim**0.5
    part = T.ceildiv(T.ceildiv(seq, splits), block_N) * block_N  # keys of one split

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((batch, seq, dim), dtype),
        V: T.Tensor((batch, seq, dim), dtype),
        lengths: T.Tensor((batch,), "int32"),
        part_out: T.Tensor((batch, splits, heads, dim), "float32"),
        part_log: T.Tensor((batch, splits, heads), "float32"),
        O: T.Tensor((batch, heads, dim), dtype),
    ):
        # All heads of a sequence share one key/value head here: they are the rows of the tile.
        with T.Kernel(splits, batch, threads=128) as (split, b):
            Q_shared = T.alloc_shared((heads, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            weights = T.alloc_shared((heads, block_N), dtype)
            scores = T.alloc_fragment((heads, block_N), "float32")
            out = T.alloc_fragment((heads, dim), "float32")
            row_max = T.alloc_fragment((heads,), "float32")
            row_max_prev = T.alloc_fragment((heads,), "float32")
            row_sum = T.alloc_fragment((heads,), "float32")
            block_sum = T.alloc_fragment((heads,), "float32")

            length = lengths[b]
            T.copy(Q[b, 0, 0], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -1e30)
            for n in T.Pipelined(part // block_N, num_stages=2):
                first = split * part + n * block_N
                T.copy(K[b, first, 0], K_shared)
                T.copy(V[b, first, 0], V_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(heads, block_N):
                    scores[i, j] = T.if_then_else(first + j < length, scores[i, j] * scale, -1e30)
                T.copy(row_max, row_max_prev)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i, j in T.Parallel(heads, block_N):
                    scores[i, j] = T.if_then_else(first + j < length, T.exp2(scores[i, j] - row_max[i]), 0)
                T.reduce_sum(scores, block_sum, dim=1)
                for i in T.Parallel(heads):
                    row_sum[i] = row_sum[i] * T.exp2(row_max_prev[i] - row_max[i]) + block_sum[i]
                for i, j in T.Parallel(heads, dim):
                    out[i, j] *= T.exp2(row_max_prev[i] - row_max[i])
                T.copy(scores, weights)
                T.gemm(weights, V_shared, out)
            # A split past the end of the sequence has an empty sum; its log marks it as weightless.
            for i, j in T.Parallel(heads, dim):
                out[i, j] /= T.max(row_sum[i], 1e-20)
            for i in T.Parallel(heads):
                row_sum[i] = row_max[i] + T.log2(T.max(row_sum[i], 1e-20))
            T.copy(out, part_out[b, split, 0, 0])
            T.copy(row_sum, part_log[b, split, 0])

        with T.Kernel(heads, batch, threads=64) as (head, b):
            out = T.alloc_fragment((dim,), "float32")
            top = T.alloc_var("float32", -1e38)
            total = T.alloc_var("float32", 0.0)
            T.clear(out)
            for s in T.serial(splits):
                top = T.max(top, part_log[b, s, head])
            for s in T.serial(splits):
                weight = T.exp2(part_log[b, s, head] - top)
                total += weight
                for d in T.Parallel(dim):
                    out[d] += part_out[b, s, head, d] * weight
            for d in T.Parallel(dim):
                O[b, head, d] = out[d] / total

    return kernel


def reference(q, k, v, lengths):
    rows = []
    for b, n in enumerate(lengths):
        scores = q[b].astype(np.float64) @ k[b, :n].astype(np.float64).T / q.shape[-1] ** 0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        rows.append(weights / weights.sum(axis=1, keepdims=True) @ v[b, :n].astype(np.float64))
    return np.stack(rows)


def main(target="cpu"):
    batch, heads, seq, dim, splits = 3, 16, 1000, 64, 4
    rng = np.random.default_rng(0)
    q = rng.standard_normal((batch, heads, dim)).astype(np.float16)
    k, v = rng.standard_normal((2, batch, seq, dim)).astype(np.float16)
    lengths = np.array([1000, 100, 777], np.int32)
    part_out = np.empty((batch, splits, heads, dim), np.float32)
    part_log = np.empty((batch, splits, heads), np.float32)
    kernel = tilelang.compile(flash_decode(batch, heads, seq, dim, splits), out_idx=[-1], target=target)
    out = kernel(q, k, v, lengths, part_out, part_log)
    np.testing.assert_allclose(out, reference(q, k, v, lengths), rtol=4e-3, atol=4e-3)
    print(f"decoding {batch} sequences of lengths {lengths.tolist()} in {splits} splits: agrees with NumPy")


if __name__ == "__main__":
    main()

"""Latent attention in decoding, with roles for the warps: a program that says itself which threads fetch, score, and sum values (Hopper).

The same function as mla_decode.py for blocks of 64 heads, each with a whole sequence. Four warpgroups:

    0     one thread fetches: halves (256 columns) of 64 rows of the cache into 5 slots, the 64 rotated columns into 2
    1     scores: 3/4 of Q stays in registers; weights, and the factors of what was summed before, go to shared memory
    2, 3  values: each has a half of the columns of what is fetched, 2 x 128 accumulators a row

Every hand-over is an mbarrier. The maximum of a row moves only when it grows by more than 2^8, which is exact and rarely happens, so that
the sums are seldom rescaled. Half of the values' products wait until the next scores are done (`go`): they fill the time of the softmax.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2E = 1.4426950408889634
HEADS, KEYS, DIM, ROPE = 64, 64, 512, 64  # of a block: heads, rows of the cache; columns: latent, rotated
SLOTS, ROPES = 5, 2  # in shared memory: halves of a block of the cache, its rotated columns
LATE = 8.0  # how far, in powers of two, weights may exceed 1 before the maximum follows


@T.macro
def release(barriers, k):
    """One lane of each warp arrives for the warp."""
    T.sync_warp()
    if T.get_thread_binding() % 32 == 0:
        T.barrier_arrive(barriers[k])


@T.macro
def fetch(Q, Q_rope, KV, K_rope, q, q_rope, kv, k_rope, q_full, kv_full, kv_empty, rope_full, rope_empty, b, head, blocks):
    T.tma_copy(Q[b, head, 0], q, barrier=q_full[0])
    T.tma_copy(Q_rope[b, head, 0], q_rope, barrier=q_full[0])
    T.barrier_arrive(q_full[0])
    for n in T.serial(blocks):
        r = n % ROPES
        T.barrier_wait(rope_empty[r], n // ROPES % 2 ^ 1)
        T.tma_copy(K_rope[b, n * KEYS, 0], k_rope[r * KEYS : r * KEYS + KEYS, 0:ROPE], barrier=rope_full[r])
        T.barrier_arrive(rope_full[r])
        for h in T.unroll(2):
            s, turn = (2 * n + h) % SLOTS, (2 * n + h) // SLOTS
            T.barrier_wait(kv_empty[s], turn % 2 ^ 1)
            T.tma_copy(KV[b, n * KEYS, h * 256], kv[s * KEYS : s * KEYS + KEYS, 0:256], barrier=kv_full[s])
            T.barrier_arrive(kv_full[s])


@T.macro
def softmax(scores, row_max, row_max_prev, row_sum, rescale, block_sum, seen, factor):
    """Weights of one block. seen: rows of the block that exist."""
    T.copy(row_max, row_max_prev)
    if seen < KEYS:
        for i, j in T.Parallel(HEADS, KEYS):
            scores[i, j] = T.if_then_else(j < seen, scores[i, j], -1e30)
    T.reduce_max(scores, row_max, dim=1, clear=False)
    for i in T.Parallel(HEADS):
        row_max[i] = T.if_then_else((row_max[i] - row_max_prev[i]) * factor > LATE, row_max[i], row_max_prev[i])
    for i in T.Parallel(HEADS):
        rescale[i] = T.exp2((row_max_prev[i] - row_max[i]) * factor)
    for i, j in T.Parallel(HEADS, KEYS):
        scores[i, j] = T.exp2((scores[i, j] - row_max[i]) * factor)
    T.reduce_sum(scores, block_sum, dim=1)
    for i in T.Parallel(HEADS):
        row_sum[i] = row_sum[i] * rescale[i] + block_sum[i]


@T.macro
def score(Q, q, q_rope, kv, k_rope, p, alpha, total, q_full, kv_full, kv_empty, rope_full, rope_empty, p_full, p_empty, go,
          b, head, keys, blocks, factor, dtype):  # fmt: skip
    q1 = T.alloc_fragment((HEADS, 128), dtype)
    q2 = T.alloc_fragment((HEADS, 128), dtype)
    q3 = T.alloc_fragment((HEADS, 128), dtype)
    scores = T.alloc_fragment((HEADS, KEYS), "float32")
    weights = T.alloc_fragment((HEADS, KEYS), dtype)
    row_max = T.alloc_fragment((HEADS,), "float32")
    row_max_prev = T.alloc_fragment((HEADS,), "float32")
    row_sum = T.alloc_fragment((HEADS,), "float32")
    rescale = T.alloc_fragment((HEADS,), "float32")
    block_sum = T.alloc_fragment((HEADS,), "float32")
    T.copy(Q[b, head, 128], q1)
    T.copy(Q[b, head, 256], q2)
    T.copy(Q[b, head, 384], q3)
    T.clear(row_sum)
    T.fill(row_max, -1e30)
    T.barrier_wait(q_full[0], 0)
    for n in T.serial(blocks):
        r, s0, s1, w = n % ROPES, 2 * n % SLOTS, (2 * n + 1) % SLOTS, n % 2
        T.barrier_wait(rope_full[r], n // ROPES % 2)
        T.barrier_wait(kv_full[s0], 2 * n // SLOTS % 2)
        T.barrier_wait(kv_full[s1], (2 * n + 1) // SLOTS % 2)
        T.gemm(q_rope, k_rope[r * KEYS : r * KEYS + KEYS, 0:ROPE], scores, transpose_B=True, clear_accum=True)
        T.gemm(q, kv[s0 * KEYS : s0 * KEYS + KEYS, 0:128], scores, transpose_B=True)
        T.gemm(q1, kv[s0 * KEYS : s0 * KEYS + KEYS, 128:256], scores, transpose_B=True)
        T.gemm(q2, kv[s1 * KEYS : s1 * KEYS + KEYS, 0:128], scores, transpose_B=True)
        T.gemm(q3, kv[s1 * KEYS : s1 * KEYS + KEYS, 128:256], scores, transpose_B=True)
        if n > 0:
            release(go, 1 - w)
        release(rope_empty, r)
        release(kv_empty, s0)
        release(kv_empty, s1)
        softmax(scores, row_max, row_max_prev, row_sum, rescale, block_sum, keys - n * KEYS, factor)
        T.copy(scores, weights)
        T.barrier_wait(p_empty[w], n // 2 % 2 ^ 1)
        T.copy(weights, p[w * HEADS : w * HEADS + HEADS, 0:KEYS])
        for i in T.Parallel(HEADS):
            alpha[w, i] = rescale[i]
        if n == blocks - 1:
            T.copy(row_sum, total)
        T.fence_proxy_async()
        release(p_full, w)
    release(go, (blocks - 1) % 2)


@T.macro
def sum_values(O, kv, p, alpha, total, kv_full, kv_empty, p_full, p_empty, go, b, head, blocks):
    left = T.alloc_fragment((HEADS, 256), "float32")
    right = T.alloc_fragment((HEADS, 256), "float32")
    T.clear(left)
    T.clear(right)
    for n in T.serial(blocks):
        s0, s1, w = 2 * n % SLOTS, (2 * n + 1) % SLOTS, n % 2
        T.barrier_wait(p_full[w], n // 2 % 2)
        for i, d in T.Parallel(HEADS, 256):
            if alpha[w, i] != 1:
                left[i, d] *= alpha[w, i]
        for i, d in T.Parallel(HEADS, 256):
            if alpha[w, i] != 1:
                right[i, d] *= alpha[w, i]
        T.barrier_wait(kv_full[s0], 2 * n // SLOTS % 2)
        T.gemm(p[w * HEADS : w * HEADS + HEADS, 0:KEYS], kv[s0 * KEYS : s0 * KEYS + KEYS, 0:256], left, policy=T.GemmWarpPolicy.FullCol)
        release(kv_empty, s0)
        T.barrier_wait(kv_full[s1], (2 * n + 1) // SLOTS % 2)
        T.barrier_wait(go[w], n // 2 % 2)
        T.gemm(p[w * HEADS : w * HEADS + HEADS, 0:KEYS], kv[s1 * KEYS : s1 * KEYS + KEYS, 0:256], right, policy=T.GemmWarpPolicy.FullCol)
        release(kv_empty, s1)
        if n < blocks - 1:
            release(p_empty, w)
    for i, d in T.Parallel(HEADS, 256):
        left[i, d] /= total[i]
    for i, d in T.Parallel(HEADS, 256):
        right[i, d] /= total[i]
    T.copy(left, O[b, head, 0])
    T.copy(right, O[b, head, 256])


def mla_decode_roles(batch, heads, seq, dtype="bfloat16", scale=None):
    """Arguments as mla_decode's. lengths: at least 1 and at most seq."""
    factor = LOG2E * (scale or (DIM + ROPE) ** -0.5)

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, DIM), dtype),
        Q_rope: T.Tensor((batch, heads, ROPE), dtype),
        KV: T.Tensor((batch, seq, DIM), dtype),
        K_rope: T.Tensor((batch, seq, ROPE), dtype),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, heads, DIM), dtype),
    ):
        with T.Kernel(heads // HEADS, batch, threads=512) as (part, b):
            q = T.alloc_shared((HEADS, 128), dtype)
            q_rope = T.alloc_shared((HEADS, ROPE), dtype)
            kv = T.alloc_shared((SLOTS * KEYS, 256), dtype)
            k_rope = T.alloc_shared((ROPES * KEYS, ROPE), dtype)
            p = T.alloc_shared((2 * HEADS, KEYS), dtype)
            alpha = T.alloc_shared((2, HEADS), "float32")
            total = T.alloc_shared((HEADS,), "float32")
            q_full = T.alloc_barrier([1])
            kv_full = T.alloc_barrier([1] * SLOTS)
            kv_empty = T.alloc_barrier([12] * SLOTS)  # warps of all but the first group
            rope_full = T.alloc_barrier([1] * ROPES)
            rope_empty = T.alloc_barrier([4] * ROPES)
            p_full = T.alloc_barrier([4] * 2)
            p_empty = T.alloc_barrier([8] * 2)
            go = T.alloc_barrier([4] * 2)
            keys = T.clamp(lengths[b], 1, seq)
            blocks = T.ceildiv(keys, KEYS)
            head = part * HEADS
            with T.ws(0):
                T.set_max_nreg(24, 0)
                if T.get_thread_binding() == 0:
                    fetch(Q, Q_rope, KV, K_rope, q, q_rope, kv, k_rope, q_full, kv_full, kv_empty, rope_full, rope_empty, b, head, blocks)
            with T.ws(1):
                T.set_max_nreg(168, 1)
                score(Q, q, q_rope, kv, k_rope, p, alpha, total, q_full, kv_full, kv_empty, rope_full, rope_empty,
                      p_full, p_empty, go, b, head, keys, blocks, factor, dtype)  # fmt: skip
            with T.ws(2, 3):
                T.set_max_nreg(160, 1)
                sum_values(O, kv, p, alpha, total, kv_full, kv_empty, p_full, p_empty, go, b, head, blocks)

    return kernel


def reference(q, q_rope, kv, k_rope, lengths, scale):
    """In float64, sequence by sequence."""
    out = np.zeros(q.shape)
    for b, n in enumerate(lengths):
        scores = scale * (q[b] @ kv[b, :n].T + q_rope[b] @ k_rope[b, :n].T)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[b] = weights / weights.sum(axis=-1, keepdims=True) @ kv[b, :n]
    return out


def main(target="simt -arch=sm_90a"):
    rng = np.random.default_rng(0)
    heads, seq = HEADS, 200
    lengths = np.array([200, 50], np.int32)
    q, q_rope = (rng.standard_normal((len(lengths), heads, d)).astype(np.float16) for d in (DIM, ROPE))
    kv, k_rope = (rng.standard_normal((len(lengths), seq, d)).astype(np.float16) for d in (DIM, ROPE))
    program = mla_decode_roles(len(lengths), heads, seq, "float16")
    found = tilelang.compile(program, out_idx=[-1], target=target)(q, q_rope, kv, k_rope, lengths)
    expected = reference(*(x.astype(np.float64) for x in (q, q_rope, kv, k_rope)), lengths, (DIM + ROPE) ** -0.5)
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)
    print("latent attention, with roles of warps: agrees with NumPy")


if __name__ == "__main__":
    main()

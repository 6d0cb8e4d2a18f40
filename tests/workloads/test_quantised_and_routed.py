"""Programs of quantised and routed layers: fp8 with a scale for each group, a mixture of experts with token permutation.

Each is written as users of the language write it and compared with its plain definition in float64.
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

from .inputs import RANDOM, normal


def test_per_group_fp8_quant(target):
    M, N, G, BM = 50, 512, 128, 16

    @tilelang.jit(out_idx=[1, 2], target=target)
    def quant(N, G, BM):
        M = T.symbolic("M")

        @T.prim_func
        def main(X: T.Tensor((M, N), "bfloat16"), Y: T.Tensor((M, N), "float8_e4m3fn"), S: T.Tensor((M, N // G), "float32")):
            with T.Kernel(T.ceildiv(M, BM), N // G, threads=128) as (bx, by):
                x = T.alloc_fragment((BM, G), "float32")
                amax = T.alloc_fragment((BM,), "float32")
                s = T.alloc_fragment((BM,), "float32")
                y = T.alloc_fragment((BM, G), "float8_e4m3fn")
                T.annotate_layout({x: T.Fragment(x.shape, forward_thread_fn=lambda i, j: (i // 4) * 32 + j % 32)})
                T.copy(X[bx * BM : (bx + 1) * BM, by * G : (by + 1) * G], x)
                T.reduce_absmax(x, amax, dim=1)
                for i in T.Parallel(BM):
                    amax[i] = T.max(amax[i], 1e-4)
                    s[i] = amax[i] / 448.0
                for i, j in T.Parallel(BM, G):
                    y[i, j] = T.clamp(x[i, j] / s[i], -448.0, 448.0)
                for i in T.Parallel(BM):
                    S[bx * BM + i, by] = s[i]
                T.copy(y, Y[bx * BM : (bx + 1) * BM, by * G : (by + 1) * G])

        return main

    x = normal(M, N, dtype=ml_dtypes.bfloat16)
    y, s = quant(N, G, BM)(x)
    xf = x.astype(np.float32).reshape(M, N // G, G)
    sr = np.maximum(np.abs(xf).max(-1), np.float32(1e-4)) / np.float32(448)
    np.testing.assert_allclose(s, sr, rtol=1e-6)
    ref = np.clip(xf / sr[..., None], -448, 448).astype(ml_dtypes.float8_e4m3fn).reshape(M, N)
    assert (np.abs(y.astype(np.float32) - ref.astype(np.float32)) <= 0.07 * np.abs(ref.astype(np.float32)) + 1e-6).all()
    assert (y.view(np.uint8) == ref.view(np.uint8)).mean() > 0.999


def test_fused_moe(target):
    Tn, D, F, E, K, BM = 40, 64, 96, 4, 2, 16
    ids = np.stack([RANDOM.permutation(E)[:K] for _ in range(Tn)]).astype(np.int32)
    wt = np.abs(normal(Tn, K))
    wt /= wt.sum(1, keepdims=True)
    sorted_ids, blocks = _blocks_of_experts(ids, E, BM)
    P = len(sorted_ids)

    @tilelang.jit(target=target)
    def moe(Tn, D, F, E, K, P, BM, BN=32, BK=32, dtype="float16"):
        @T.prim_func
        def main(
            X: T.Tensor((Tn, D), dtype),
            W1: T.Tensor((E, 2 * F, D), dtype),
            W2: T.Tensor((E, D, F), dtype),
            sorted_ids: T.Tensor((P,), "int32"),
            expert: T.Tensor((P // BM,), "int32"),
            weights: T.Tensor((Tn * K,), "float32"),
            H: T.Tensor((P, F), dtype),
            Y: T.Tensor((Tn, D), "float32"),
        ):
            with T.Kernel(T.ceildiv(F, BN), P // BM, threads=128) as (bx, by):
                x = T.alloc_shared((BM, BK), dtype)
                g = T.alloc_shared((BN, BK), dtype)
                u = T.alloc_shared((BN, BK), dtype)
                ag = T.alloc_fragment((BM, BN), "float32")
                au = T.alloc_fragment((BM, BN), "float32")
                T.clear(ag)
                T.clear(au)
                e = expert[by]
                for k in T.Pipelined(D // BK, num_stages=2):
                    for i, j in T.Parallel(BM, BK):
                        tok = sorted_ids[by * BM + i] // K
                        x[i, j] = T.if_then_else(tok < Tn, X[tok, k * BK + j], T.cast(0, dtype))
                    T.copy(W1[e, bx * BN, k * BK], g)
                    T.copy(W1[e, F + bx * BN, k * BK], u)
                    T.gemm(x, g, ag, transpose_B=True)
                    T.gemm(x, u, au, transpose_B=True)
                for i, j in T.Parallel(BM, BN):
                    ag[i, j] = ag[i, j] / (1.0 + T.exp(-ag[i, j])) * au[i, j]
                T.copy(ag, H[by * BM, bx * BN])
            with T.Kernel(T.ceildiv(D, BN), P // BM, threads=128) as (bx, by):
                h = T.alloc_shared((BM, BK), dtype)
                w = T.alloc_shared((BN, BK), dtype)
                acc = T.alloc_fragment((BM, BN), "float32")
                T.clear(acc)
                for k in T.Pipelined(F // BK, num_stages=2):
                    T.copy(H[by * BM, k * BK], h)
                    T.copy(W2[expert[by], bx * BN, k * BK], w)
                    T.gemm(h, w, acc, transpose_B=True)
                for i, j in T.Parallel(BM, BN):
                    if sorted_ids[by * BM + i] < Tn * K:
                        T.atomic_add(Y[sorted_ids[by * BM + i] // K, bx * BN + j], acc[i, j] * weights[sorted_ids[by * BM + i]])

        return main

    X, W1, W2 = (
        normal(Tn, D, dtype=np.float16),
        normal(E, 2 * F, D, dtype=np.float16, scale=0.1),
        normal(E, D, F, dtype=np.float16, scale=0.1),
    )
    H = np.zeros((P, F), np.float16)
    Y = np.zeros((Tn, D), np.float32)
    moe(Tn, D, F, E, K, P, BM)(X, W1, W2, sorted_ids, blocks, wt.reshape(-1).copy(), H, Y)
    np.testing.assert_allclose(Y, _experts(X, W1, W2, ids, wt), rtol=1e-2, atol=1e-2)


def _blocks_of_experts(ids, experts, block):
    """The (token, choice) pairs sorted by expert, each expert's filled up to whole blocks, and the expert of each block."""
    flat = ids.reshape(-1)
    pairs, blocks = [], []
    for expert in range(experts):
        mine = list(np.flatnonzero(flat == expert))
        fill = -len(mine) % block
        pairs += mine + [flat.size] * fill
        blocks += [expert] * ((len(mine) + fill) // block)
    return np.array(pairs, np.int32), np.array(blocks, np.int32)


def _experts(x, w1, w2, ids, weights):
    x, w1, w2 = (a.astype(np.float64) for a in (x, w1, w2))
    out = np.zeros((len(x), w2.shape[1]))
    for token, chosen in enumerate(ids):
        for weight, expert in zip(weights[token], chosen, strict=True):
            gate, up = np.split(w1[expert] @ x[token], 2)
            out[token] += weight * (w2[expert] @ (gate / (1 + np.exp(-gate)) * up))
    return out

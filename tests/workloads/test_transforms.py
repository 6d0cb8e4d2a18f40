"""Programs of single layers: Hadamard transform, cross-entropy, 3-D convolution, triangular solve of small blocks.

Each is written as users of the language write it and compared with its plain definition in float64.
"""

import numpy as np

import tilelang
import tilelang.language as T

from .inputs import RANDOM, normal


def test_hadamard(target):
    M, N = 33, 256

    @tilelang.jit(out_idx=[1], target=target)
    def had(N, dtype="float32"):
        M = T.dynamic("M")

        @T.prim_func
        def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
            with T.Kernel(M, threads=128) as m:
                a = T.alloc_shared((N,), dtype)
                b = T.alloc_shared((N,), dtype)
                T.copy(X[m, :], a)
                for s in T.unroll(N.bit_length() - 1):
                    for i in T.Parallel(N):
                        b[i] = T.if_then_else((i >> s) & 1 == 0, a[i] + a[i ^ (1 << s)], a[i ^ (1 << s)] - a[i])
                    T.copy(b, a)
                for i in T.Parallel(N):
                    Y[m, i] = a[i] * N**-0.5

        return main

    x = normal(M, N)
    y = had(N)(x)
    h = np.array([[1.0]])
    while len(h) < N:
        h = np.block([[h, h], [h, -h]])
    np.testing.assert_allclose(y, x @ h / N**0.5, rtol=1e-4, atol=1e-4)


def test_cross_entropy(target):
    @tilelang.jit(target=target)
    def ce(X, Y, BM: int = 4, BN: int = 128):
        M, V = T.const("M, V")
        X: T.Tensor[[M, V], T.float32]
        Y: T.Tensor[[M], T.int32]
        loss = T.empty([M], T.float32)
        with T.Kernel(T.ceildiv(M, BM), threads=128) as bm:
            x = T.alloc_fragment((BM, BN), "float32")
            m = T.alloc_fragment((BM,), "float32")
            mo = T.alloc_fragment((BM,), "float32")
            l = T.alloc_fragment((BM,), "float32")
            r = T.alloc_fragment((BM,), "float32")
            T.fill(m, -1e30)
            T.clear(l)
            for k in T.serial(T.ceildiv(V, BN)):
                for i, j in T.Parallel(BM, BN):
                    x[i, j] = T.if_then_else(T.And(k * BN + j < V, bm * BM + i < M), X[bm * BM + i, k * BN + j], -1e30)
                T.copy(m, mo)
                T.reduce_max(x, m, dim=1, clear=False)
                for i, j in T.Parallel(BM, BN):
                    x[i, j] = T.exp(x[i, j] - m[i])
                T.reduce_sum(x, r, dim=1)
                for i in T.Parallel(BM):
                    l[i] = l[i] * T.exp(mo[i] - m[i]) + r[i]
            for i in T.Parallel(BM):
                if bm * BM + i < M:
                    loss[bm * BM + i] = T.log(l[i]) + m[i] - X[bm * BM + i, Y[bm * BM + i]]
        return loss

    M, V = 13, 1003
    x = normal(M, V, scale=5)
    y = RANDOM.integers(0, V, M).astype(np.int32)
    out = ce(x, y)
    xf = x.astype(np.float64)
    ref = np.log(np.exp(xf - xf.max(1, keepdims=True)).sum(1)) + xf.max(1) - xf[np.arange(M), y]
    np.testing.assert_allclose(np.asarray(out), ref, rtol=1e-4, atol=1e-4)


def test_conv3d(target):
    N, Dp, H, W, C, F, KS, P = 1, 5, 6, 7, 16, 32, 3, 1
    OD, OH, OW = Dp, H, W
    BM, BN, BK = 32, 32, 16
    KK = KS * KS * KS * C

    @T.prim_func
    def main(
        X: T.Tensor((N, Dp, H, W, C), "float16"), Wt: T.Tensor((KS, KS, KS, C, F), "float16"), O: T.Tensor((N, OD, OH, OW, F), "float16")
    ):
        with T.Kernel(T.ceildiv(F, BN), T.ceildiv(N * OD * OH * OW, BM), threads=128) as (bx, by):
            a = T.alloc_shared((BM, BK), "float16")
            b = T.alloc_shared((BK, BN), "float16")
            c = T.alloc_fragment((BM, BN), "float32")
            cs = T.alloc_shared((BM, BN), "float16")
            W2 = T.Tensor((KK, F), "float16", Wt.data)
            O2 = T.Tensor((N * OD * OH * OW, F), "float16", O.data)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(KK, BK), num_stages=2):
                for i, j in T.Parallel(BM, BK):
                    kk = k * BK + j
                    m = by * BM + i
                    d = m // (OH * OW) % OD + kk // (C * KS * KS) - P
                    h = m // OW % OH + kk // (C * KS) % KS - P
                    w = m % OW + kk // C % KS - P
                    inside = (m < N * OD * OH * OW) and (d >= 0) and (d < Dp) and (h >= 0) and (h < H) and (w >= 0) and (w < W)
                    a[i, j] = T.if_then_else(inside, X[m // (OD * OH * OW), d, h, w, kk % C], 0)
                T.copy(W2[k * BK, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, cs)
            T.copy(cs, O2[by * BM, bx * BN])

    x, w = normal(N, Dp, H, W, C, dtype=np.float16), normal(KS, KS, KS, C, F, dtype=np.float16, scale=0.1)
    o = np.empty((N, OD, OH, OW, F), np.float16)
    tilelang.compile(main, target=target)(x, w, o)
    xp = np.pad(x.astype(np.float64), ((0, 0), (P, P), (P, P), (P, P), (0, 0)))
    ref = np.zeros(o.shape)
    for a in range(KS):
        for b in range(KS):
            for c in range(KS):
                ref += xp[:, a : a + OD, b : b + OH, c : c + OW] @ w[a, b, c].astype(np.float64)
    np.testing.assert_allclose(o.astype(np.float64), ref, rtol=1e-2, atol=1e-2)


def test_triangular_solve(target):
    B, N, M = 9, 32, 24

    @tilelang.jit(out_idx=-1, target=target)
    def trsm(N, M):
        B = T.dynamic("B")

        @T.prim_func
        def main(L: T.Tensor((B, N, N), "float32"), R_: T.Tensor((B, N, M), "float32"), X: T.Tensor((B, N, M), "float32")):
            with T.Kernel(B, threads=64) as b:
                l = T.alloc_shared((N, N), "float32")
                x = T.alloc_shared((N, M), "float32")
                T.copy(L[b, :, :], l)
                T.copy(R_[b, :, :], x)
                for r in T.serial(N):
                    for j in T.Parallel(M):
                        x[r, j] = x[r, j] / l[r, r]
                    for i, j in T.Parallel(N, M):
                        if i > r:
                            x[i, j] -= l[i, r] * x[r, j]
                T.copy(x, X[b, :, :])

        return main

    L = np.tril(normal(B, N, N)) * 0.2 + np.eye(N, dtype="f") * 2
    L = L.astype("f")
    r = normal(B, N, M)
    x = trsm(N, M)(L, r)
    np.testing.assert_allclose(x, np.linalg.solve(L.astype(np.float64), r.astype(np.float64)), rtol=2e-3, atol=2e-3)

"""Programs of sequence models: a selective scan, the gated delta rule, attention with a window and sinks, paged decoding.

Each is written as users of the language write it and compared with its plain definition in float64.
"""

import numpy as np

import tilelang
import tilelang.language as T

from .inputs import RANDOM, normal


def test_selective_scan(target):
    B, L, D, N = 2, 96, 40, 16
    chunk, bd = 32, 16

    @tilelang.jit(out_idx=[-2, -1], target=target)
    def scan(B, L, D, N, chunk, bd):
        @T.prim_func
        def main(
            u: T.Tensor((B, L, D), "float32"),
            dt: T.Tensor((B, L, D), "float32"),
            A: T.Tensor((D, N), "float32"),
            Bm: T.Tensor((B, L, N), "float32"),
            C: T.Tensor((B, L, N), "float32"),
            y: T.Tensor((B, L, D), "float32"),
            hN: T.Tensor((B, D, N), "float32"),
        ):
            with T.Kernel(T.ceildiv(D, bd), B, threads=64) as (bx, by):
                u_s = T.alloc_shared((chunk, bd), "float32")
                dt_s = T.alloc_shared((chunk, bd), "float32")
                B_s = T.alloc_shared((chunk, N), "float32")
                C_s = T.alloc_shared((chunk, N), "float32")
                y_s = T.alloc_shared((chunk, bd), "float32")
                h = T.alloc_fragment((bd, N), "float32")
                hc = T.alloc_fragment((bd, N), "float32")
                yo = T.alloc_fragment((bd,), "float32")
                a = T.alloc_fragment((bd, N), "float32")
                for i, n in T.Parallel(bd, N):
                    a[i, n] = T.if_then_else(bx * bd + i < D, A[bx * bd + i, n], 0.0)
                T.clear(h)
                for c in T.Pipelined(T.ceildiv(L, chunk), num_stages=2):
                    T.copy(u[by, c * chunk, bx * bd], u_s)
                    T.copy(dt[by, c * chunk, bx * bd], dt_s)
                    T.copy(Bm[by, c * chunk, 0], B_s)
                    T.copy(C[by, c * chunk, 0], C_s)
                    for t in T.serial(chunk):
                        for i, n in T.Parallel(bd, N):
                            h[i, n] = T.exp(dt_s[t, i] * a[i, n]) * h[i, n] + dt_s[t, i] * B_s[t, n] * u_s[t, i]
                        for i, n in T.Parallel(bd, N):
                            hc[i, n] = h[i, n] * C_s[t, n]
                        T.reduce_sum(hc, yo, dim=1)
                        for i in T.Parallel(bd):
                            y_s[t, i] = yo[i]
                    T.copy(y_s, y[by, c * chunk, bx * bd])
                T.copy(h, hN[by, bx * bd, 0])

        return main

    u, C = normal(B, L, D), normal(B, L, N)
    dt = np.log1p(np.exp(normal(B, L, D))).astype("f")
    A = -np.exp(normal(D, N))
    Bm = normal(B, L, N)
    k = scan(B, L, D, N, chunk, bd)
    y, h = k(u, dt, A, Bm, C)
    hh = np.zeros((B, D, N))
    yy = np.zeros((B, L, D))
    for t in range(L):
        hh = (
            np.exp(dt[:, t, :, None].astype(np.float64) * A) * hh
            + dt[:, t, :, None].astype(np.float64) * Bm[:, t, None, :] * u[:, t, :, None]
        )
        yy[:, t] = (hh * C[:, t, None, :]).sum(-1)
    np.testing.assert_allclose(y, yy, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(h, hh, rtol=2e-3, atol=2e-3)


def test_gated_delta_rule(target):
    B, H, L, D = 1, 2, 64, 32

    @T.prim_func
    def main(
        Q: T.Tensor((B, L, H, D), "float32"),
        K: T.Tensor((B, L, H, D), "float32"),
        V: T.Tensor((B, L, H, D), "float32"),
        G: T.Tensor((B, L, H), "float32"),
        Beta: T.Tensor((B, L, H), "float32"),
        O: T.Tensor((B, L, H, D), "float32"),
    ):
        with T.Kernel(H, B, threads=128) as (h, b):
            S = T.alloc_fragment((D, D), "float32")
            tmp = T.alloc_fragment((D, D), "float32")
            pred = T.alloc_fragment((D,), "float32")
            delta = T.alloc_shared((D,), "float32")
            out = T.alloc_fragment((D,), "float32")
            k = T.alloc_shared((D,), "float32")
            v = T.alloc_shared((D,), "float32")
            q = T.alloc_shared((D,), "float32")
            g = T.alloc_var("float32")
            T.clear(S)
            for t in range(L):
                T.copy(K[b, t, h, :], k)
                T.copy(V[b, t, h, :], v)
                T.copy(Q[b, t, h, :], q)
                g = T.exp(G[b, t, h])
                for i, j in T.Parallel(D, D):
                    S[i, j] *= g
                    tmp[i, j] = S[i, j] * k[i]
                T.reduce_sum(tmp, pred, dim=0)
                for j in T.Parallel(D):
                    delta[j] = Beta[b, t, h] * (v[j] - pred[j])
                for i, j in T.Parallel(D, D):
                    S[i, j] += k[i] * delta[j]
                    tmp[i, j] = S[i, j] * q[i]
                T.reduce_sum(tmp, out, dim=0)
                T.copy(out, O[b, t, h, :])

    q, k, v = normal(B, L, H, D), normal(B, L, H, D), normal(B, L, H, D)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = -np.abs(normal(B, L, H)) * 0.1
    beta = 1 / (1 + np.exp(-normal(B, L, H)))
    beta = beta.astype("f")
    g = g.astype("f")
    o = np.empty((B, L, H, D), "f")
    tilelang.compile(main, target=target)(q, k, v, g, beta, o)
    S = np.zeros((B, H, D, D))
    ref = np.zeros_like(o, dtype=float)
    for t in range(L):
        S *= np.exp(g[:, t].astype(np.float64))[..., None, None]
        p = np.einsum("bhij,bhi->bhj", S, k[:, t])
        d = beta[:, t][..., None] * (v[:, t] - p)
        S += np.einsum("bhi,bhj->bhij", k[:, t], d)
        ref[:, t] = np.einsum("bhij,bhi->bhj", S, q[:, t])
    np.testing.assert_allclose(o, ref, rtol=2e-3, atol=2e-3)


def test_sliding_window_sinks(target):
    B, H, HK, S, D, W, BM, BN = 1, 4, 2, 200, 64, 70, 64, 32
    scale = 1.44269504 / D**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, S, D), "float16"),
        K: T.Tensor((B, HK, S, D), "float16"),
        V: T.Tensor((B, HK, S, D), "float16"),
        Sinks: T.Tensor((H,), "float32"),
        O: T.Tensor((B, H, S, D), "float16"),
    ):
        with T.Kernel(T.ceildiv(S, BM), H, B, threads=128) as (bx, by, bz):
            Qs = T.alloc_shared([BM, D], "float16")
            Ks = T.alloc_shared([BN, D], "float16")
            Vs = T.alloc_shared([BN, D], "float16")
            acc_s = T.alloc_fragment([BM, BN], "float32")
            p = T.alloc_fragment([BM, BN], "float16")
            acc_o = T.alloc_fragment([BM, D], "float32")
            m = T.alloc_fragment([BM], "float32")
            mp = T.alloc_fragment([BM], "float32")
            sc = T.alloc_fragment([BM], "float32")
            rs = T.alloc_fragment([BM], "float32")
            l = T.alloc_fragment([BM], "float32")
            T.copy(Q[bz, by, bx * BM : (bx + 1) * BM, :], Qs)
            T.fill(acc_o, 0)
            for i in T.Parallel(BM):
                l[i] = T.exp2(Sinks[by] * 1.44269504 - Sinks[by] * 1.44269504)
                m[i] = Sinks[by] * (D**0.5)
            start = T.max(0, (bx * BM - W) // BN)
            end = T.min(T.ceildiv(S, BN), T.ceildiv((bx + 1) * BM, BN))
            for k in T.Pipelined(start, end, num_stages=2):
                T.copy(K[bz, by // (H // HK), k * BN : (k + 1) * BN, :], Ks)
                for i, j in T.Parallel(BM, BN):
                    qi = bx * BM + i
                    kj = k * BN + j
                    acc_s[i, j] = T.if_then_else(T.And(T.And(qi >= kj, qi - kj < W), kj < S), 0, -T.infinity("float32"))
                T.gemm(Qs, Ks, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[bz, by // (H // HK), k * BN : (k + 1) * BN, :], Vs)
                T.copy(m, mp)
                T.reduce_max(acc_s, m, dim=1, clear=False)
                for i in T.Parallel(BM):
                    sc[i] = T.exp2(mp[i] * scale - m[i] * scale)
                for i, j in T.Parallel(BM, BN):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m[i] * scale)
                T.reduce_sum(acc_s, rs, dim=1)
                for i in T.Parallel(BM):
                    l[i] = l[i] * sc[i] + rs[i]
                for i, j in T.Parallel(BM, D):
                    acc_o[i, j] *= sc[i]
                T.copy(acc_s, p)
                T.gemm(p, Vs, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                acc_o[i, j] /= l[i]
            T.copy(acc_o, O[bz, by, bx * BM : (bx + 1) * BM, :])

    q, k, v = normal(B, H, S, D, dtype=np.float16), normal(B, HK, S, D, dtype=np.float16), normal(B, HK, S, D, dtype=np.float16)
    s = normal(H)
    o = np.empty((B, H, S, D), np.float16)
    tilelang.compile(main, target=target)(q, k, v, s, o)
    kk, vv = (np.repeat(x, H // HK, 1).astype(np.float64) for x in (k, v))
    sc = q.astype(np.float64) @ kk.transpose(0, 1, 3, 2) / D**0.5
    i, j = np.arange(S)[:, None], np.arange(S)
    sc = np.where((i >= j) & (i - j < W), sc, -np.inf)
    mx = np.maximum(sc.max(-1, keepdims=True), s[None, :, None, None])
    e = np.exp(sc - mx)
    ref = e @ vv / (e.sum(-1, keepdims=True) + np.exp(s[None, :, None, None] - mx))
    np.testing.assert_allclose(o.astype(np.float64), ref, rtol=1e-2, atol=4e-3)


def test_paged_decode(target):
    B, H, D, PAGE, NP, MAXB = 3, 8, 64, 16, 24, 7

    @tilelang.jit(out_idx=[5], target=target)
    def decode(H, D, PAGE):
        batch, pages, maxb = T.dynamic("batch"), T.dynamic("pages"), T.dynamic("maxb")

        @T.prim_func
        def main(
            Q: T.Tensor((batch, H, D), "float16"),
            K: T.Tensor((pages, PAGE, D), "float16"),
            V: T.Tensor((pages, PAGE, D), "float16"),
            table: T.Tensor((batch, maxb), "int32"),
            lens: T.Tensor((batch,), "int32"),
            O: T.Tensor((batch, H, D), "float16"),
        ):
            with T.Kernel(batch, threads=128) as b:
                q = T.alloc_shared((16, D), "float16")
                k = T.alloc_shared((PAGE, D), "float16")
                v = T.alloc_shared((PAGE, D), "float16")
                s = T.alloc_fragment((16, PAGE), "float32")
                p = T.alloc_fragment((16, PAGE), "float16")
                o = T.alloc_fragment((16, D), "float32")
                m = T.alloc_fragment((16,), "float32")
                mo = T.alloc_fragment((16,), "float32")
                l = T.alloc_fragment((16,), "float32")
                r = T.alloc_fragment((16,), "float32")
                for i, j in T.Parallel(16, D):
                    q[i, j] = T.if_then_else(i < H, Q[b, i % H, j], T.float16(0))
                T.clear(o)
                T.clear(l)
                T.fill(m, -1e30)
                n = lens[b]
                for t in T.serial(T.ceildiv(n, PAGE)):
                    page = table[b, t]
                    T.copy(K[page, 0:PAGE, 0:D], k)
                    T.copy(V[page, 0:PAGE, 0:D], v)
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(16, PAGE):
                        s[i, j] = T.if_then_else(t * PAGE + j < n, s[i, j] * D**-0.5, -1e30)
                    T.copy(m, mo)
                    T.reduce_max(s, m, dim=1, clear=False)
                    for i, j in T.Parallel(16, PAGE):
                        s[i, j] = T.if_then_else(t * PAGE + j < n, T.exp(s[i, j] - m[i]), 0)
                    T.reduce_sum(s, r, dim=1)
                    for i in T.Parallel(16):
                        l[i] = l[i] * T.exp(mo[i] - m[i]) + r[i]
                    for i, j in T.Parallel(16, D):
                        o[i, j] = o[i, j] * T.exp(mo[i] - m[i])
                    T.copy(s, p)
                    T.gemm(p, v, o)
                for i, j in T.Parallel(16, D):
                    if i < H:
                        O[b, i, j] = T.if_then_else(n > 0, o[i, j] / l[i], 0)

        return main

    q = normal(B, H, D, dtype=np.float16)
    K = normal(NP, PAGE, D, dtype=np.float16)
    V = normal(NP, PAGE, D, dtype=np.float16)
    table = np.full((B, MAXB), -1, np.int32)
    lens = np.array([100, 0, 33], np.int32)
    perm = RANDOM.permutation(NP)
    c = 0
    for b in range(B):
        n = -(-lens[b] // PAGE)
        table[b, :n] = perm[c : c + n]
        c += n
    o = decode(H, D, PAGE)(q, K, V, table, lens)
    np.testing.assert_allclose(o.astype(np.float64), _paged_attention(q, K, V, table, lens), rtol=1e-2, atol=4e-3)


def _paged_attention(q, keys, values, table, lengths):
    out = np.zeros(q.shape)
    for b, length in enumerate(lengths):
        if length:
            pages = table[b, : -(-length // keys.shape[1])]
            k, v = (x[pages].reshape(-1, x.shape[-1])[:length].astype(np.float64) for x in (keys, values))
            scores = q[b].astype(np.float64) @ k.T / q.shape[-1] ** 0.5
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[b] = weights / weights.sum(-1, keepdims=True) @ v
    return out

"""Whole programs of many kinds, written as a user would, against NumPy in float64: on the processor and in the emulator."""

import itertools

import numpy as np
import pytest

import tilelang
import tilelang.language as T

f64, f32, i32 = np.float64, np.float32, np.int32
rng = np.random.default_rng(7)


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


def selective_scan(target):
    B, L, D, S = 2, 64, 32, 8

    @T.prim_func
    def main(
        u: T.Tensor((B, L, D), "float32"),
        dt: T.Tensor((B, L, D), "float32"),
        A: T.Tensor((D, S), "float32"),
        Bm: T.Tensor((B, L, S), "float32"),
        Cm: T.Tensor((B, L, S), "float32"),
        y: T.Tensor((B, L, D), "float32"),
    ):
        with T.Kernel(B, threads=32) as b:
            d = T.get_thread_binding(0)
            h = T.alloc_local((S,), "float32")
            for s in T.serial(S):
                h[s] = 0.0
            for t in T.serial(L):
                acc = T.alloc_var("float32", 0.0)
                delta = dt[b, t, d]
                acc = 0.0
                for s in T.unroll(S):
                    h[s] = T.exp(delta * A[d, s]) * h[s] + delta * Bm[b, t, s] * u[b, t, d]
                    acc += h[s] * Cm[b, t, s]
                y[b, t, d] = acc

    u, dt, A, Bm, Cm = normal(B, L, D), abs(normal(B, L, D)) * 0.1, -abs(normal(D, S)), normal(B, L, S), normal(B, L, S)
    y = np.full((B, L, D), np.nan, f32)
    tilelang.compile(main, target=target)(u, dt, A, Bm, Cm, y)
    h = np.zeros((B, D, S))
    ref = np.zeros((B, L, D))
    for t in range(L):
        h = np.exp(dt[:, t, :, None].astype(f64) * A) * h + dt[:, t, :, None].astype(f64) * Bm[:, t, None, :] * u[:, t, :, None]
        ref[:, t] = (h * Cm[:, t, None, :]).sum(-1)
    return y, ref


def hadamard(target):
    B, n = 4, 256

    @tilelang.jit(target=target)
    def had(X, n: int):
        X: T.Tensor[(B, n), T.float32]
        Y = T.empty((B, n), "float32")
        with T.Kernel(B, threads=64) as b:
            s = T.alloc_shared((n,), "float32")
            T.copy(X[b, 0:n], s)
            r = T.alloc_fragment((n,), "float32")
            for st in T.serial(8):
                for i in T.Parallel(n):
                    r[i] = T.if_then_else((i >> st) & 1 == 0, s[i] + s[i ^ (1 << st)], s[i ^ (1 << st)] - s[i])
                T.copy(r, s)
            T.copy(s, Y[b, :])
        return Y

    X = normal(B, n)
    H = np.array([[1.0]])
    for _ in range(8):
        H = np.block([[H, H], [H, -H]])
    return np.asarray(had(X, n)), X.astype(f64) @ H, 1e-4


def paged_decode(target):
    Bt, H, D, P, PAGES, MAXB = 3, 4, 32, 16, 20, 5
    mp = T.dynamic("mp")

    @T.prim_func
    def main(
        Q: T.Tensor((Bt, H, D), "float32"),
        KC: T.Tensor((PAGES, P, D), "float32"),
        VC: T.Tensor((PAGES, P, D), "float32"),
        table: T.Tensor((Bt, mp), "int32"),
        lens: T.Tensor((Bt,), "int32"),
        O: T.Tensor((Bt, H, D), "float32"),
    ):
        with T.Kernel(Bt, H, threads=64) as (b, h):
            s = T.alloc_fragment((P,), "float32")
            part = T.alloc_fragment((P, D), "float32")
            acc = T.alloc_fragment((D,), "float32")
            pv = T.alloc_fragment((D,), "float32")
            mx = T.alloc_fragment((1,), "float32")
            old = T.alloc_fragment((1,), "float32")
            sm = T.alloc_fragment((1,), "float32")
            ls = T.alloc_fragment((1,), "float32")
            ps = T.alloc_shared((P,), "float32")
            T.clear(acc)
            T.fill(mx, -1e30)
            T.clear(sm)
            n = lens[b]
            for pb in T.serial(T.ceildiv(n, P)):
                page = table[b, pb]
                for i, d in T.Parallel(P, D):
                    part[i, d] = Q[b, h, d] * KC[page, i, d]
                T.reduce_sum(part, s, dim=1)
                for i in T.Parallel(P):
                    s[i] = T.if_then_else(pb * P + i < n, s[i] * (D**-0.5), -1e30)
                T.copy(mx, old)
                T.reduce_max(s, mx, dim=0, clear=False)
                for i in T.Parallel(P):
                    s[i] = T.if_then_else(pb * P + i < n, T.exp(s[i] - mx[0]), 0.0)
                T.reduce_sum(s, ls, dim=0)
                sm[0] = sm[0] * T.exp(old[0] - mx[0]) + ls[0]
                T.copy(s, ps)
                for i, d in T.Parallel(P, D):
                    part[i, d] = ps[i] * VC[page, i, d]
                T.reduce_sum(part, pv, dim=0)
                for d in T.Parallel(D):
                    acc[d] = acc[d] * T.exp(old[0] - mx[0]) + pv[d]
            for d in T.Parallel(D):
                O[b, h, d] = acc[d] / sm[0]

    Q = normal(Bt, H, D)
    KC, VC = normal(PAGES, P, D), normal(PAGES, P, D)
    lens = np.array([5, 37, 80], i32)
    table = np.full((Bt, MAXB), -1, i32)
    perm = rng.permutation(PAGES)[: Bt * MAXB].reshape(Bt, MAXB)
    for b in range(Bt):
        table[b, : -(-lens[b] // P)] = perm[b, : -(-lens[b] // P)]
    O = np.full((Bt, H, D), np.nan, f32)
    tilelang.compile(main, target=target)(Q, KC, VC, table, lens, O)
    ref = np.zeros((Bt, H, D))
    for b in range(Bt):
        k = np.concatenate([KC[p] for p in table[b] if p >= 0]).astype(f64)[: lens[b]]
        v = np.concatenate([VC[p] for p in table[b] if p >= 0]).astype(f64)[: lens[b]]
        x = Q[b].astype(f64) @ k.T * D**-0.5
        e = np.exp(x - x.max(-1, keepdims=True))
        ref[b] = (e / e.sum(-1, keepdims=True)) @ v
    return O, ref, 1e-4


def tri_solve(target):
    Bt, n = 5, 16

    @tilelang.jit(target=target)
    def solve(Lw, b):
        Lw: T.Tensor[[Bt, n, n], T.float64]
        b: T.Tensor[[Bt, n], T.float64]
        x = T.empty(Bt, n, dtype="float64")
        with T.Kernel(Bt, threads=n) as z:
            xs = T.alloc_shared(n, "float64")
            i = T.get_thread_binding()
            r = T.alloc_var("float64", b[z, i])
            for k in range(n):
                if i == k:
                    xs[k] = r / Lw[z, k, k]
                T.sync_threads()
                if i > k:
                    r -= Lw[z, i, k] * xs[k]
            x[z, i] = xs[i]
        return x

    Lw = np.tril(normal(Bt, n, n, dtype=f64)) + 4 * np.eye(n)
    b = normal(Bt, n, dtype=f64)
    return np.asarray(solve(Lw, b)), np.stack([np.linalg.solve(l, v) for l, v in zip(Lw, b, strict=True)]), 1e-9


def bitonic(target):
    n = 256

    @tilelang.jit(target=target)
    def sort(X):
        X: T.Tensor[(4, n), T.int32]
        Y = T.empty((4, n), "int32")
        with T.Kernel(4, threads=n) as b:
            s = T.alloc_shared((n,), "int32")
            t = T.get_thread_binding()
            s[t] = X[b, t]
            T.sync_threads()
            k = 2
            while k <= n:
                j = k // 2
                while j > 0:
                    o = t ^ j
                    if o > t:
                        x, y = s[t], s[o]
                        up = (t & k) == 0
                        if (x > y) == up:
                            s[t] = y
                            s[o] = x
                    T.sync_threads()
                    j //= 2
                k *= 2
            Y[b, t] = s[t]
        return Y

    X = rng.integers(-1000, 1000, (4, n)).astype(i32)
    return np.asarray(sort(X)), np.sort(X, 1), 0


def segmented_reduce(target):
    n, G = 500, 13

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), off: T.Tensor((G + 1,), "int32"), O: T.Tensor((G, 2), "float32")):
        with T.Kernel(G, threads=32) as g:
            acc = T.alloc_local((1,), "float32")
            mx = T.alloc_local((1,), "float32")
            lane = T.get_lane_idx()
            acc[0] = 0
            mx[0] = -T.infinity("float32")
            for i in T.serial(off[g] + lane, off[g + 1], 32):
                acc[0] += X[i]
                mx[0] = T.max(mx[0], X[i])
            tot = T.warp_reduce_sum(acc[0])
            m = T.warp_reduce_max(mx[0])
            if lane == 0:
                O[g, 0] = tot
                O[g, 1] = m

    off = np.sort(np.r_[0, rng.integers(0, n, G - 1), n]).astype(i32)
    X = normal(n)
    O = np.zeros((G, 2), f32)
    tilelang.compile(main, target=target)(X, off, O)
    ref = np.array([[X[a:b].astype(f64).sum(), X[a:b].max() if b > a else -np.inf] for a, b in itertools.pairwise(off)])
    ok = np.isfinite(ref)
    assert np.array_equal(np.isfinite(O), ok)
    return np.where(ok, O, 0), np.where(ok, ref, 0), 1e-5


def compaction(target):
    n = 777

    @tilelang.jit(target=target)
    def compact(X, cnt):
        X: T.Tensor[(n,), T.float32]
        cnt: T.Tensor[(1,), T.int32]
        Y = T.empty((n,), "float32")
        with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
            t = T.get_thread_binding()
            i = b * 128 + t
            keep = i < n and X[i] > 0
            m = T.ballot(keep)
            lane = T.get_lane_idx()
            base = T.alloc_var("int32", 0)
            if lane == 0:
                base = T.atomic_add(cnt[0], T.cast(T.popcount(m), "int32"), return_prev=True)
            start = T.shfl_sync(base, 0)
            if keep:
                Y[start + T.cast(T.popcount(m & ((T.uint64(1) << T.cast(lane, "uint64")) - 1)), "int32")] = X[i]
        return Y

    X = normal(n)
    c = np.zeros(1, i32)
    Y = np.asarray(compact(X, c))
    assert c[0] == (X > 0).sum()
    return np.sort(Y[: c[0]]), np.sort(X[X > 0]), 0


def transposes(target):
    m, n = T.dynamic("m, n")

    def make(pad, dtype):
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((n, m), dtype)):
            with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=256) as (bx, by):
                t = T.alloc_shared((32, 32 + pad), dtype)
                T.copy(A[by * 32 : by * 32 + 32, bx * 32 : bx * 32 + 32], t[0:32, 0:32])
                for i, j in T.Parallel(32, 32):
                    if bx * 32 + i < n and by * 32 + j < m:
                        B[bx * 32 + i, by * 32 + j] = t[j, i]

        return main

    for pad, dt in ((0, "float32"), (1, "int8"), (8, "float64")):
        A = (normal(45, 70) * 50).astype(dt)
        B = np.zeros((70, 45), dt)
        tilelang.compile(make(pad, dt), target=target)(A, B)
        assert np.array_equal(B, A.T)
    return B, A.T, 0


def effects_in_parallel(target):
    n = 100

    @T.prim_func
    def main(X: T.Tensor((n,), "int32"), C: T.Tensor((8,), "int32"), O: T.Tensor((n,), "int32"), S: T.Tensor((n,), "int32")):
        with T.Kernel(2, threads=32) as b:
            f = T.alloc_fragment((64,), "int32")
            sh = T.alloc_shared((64,), "int32")
            cnt = T.alloc_shared((1,), "int32")
            T.clear(f)
            T.clear(sh)
            T.clear(cnt)
            for i in T.Parallel(64):
                f[i] = (T.atomic_add(C[0], 1, return_prev=True) if b * 64 + i < n and X[b * 64 + i] % 2 == 0 else 0) * 0 + 1
            for i in T.Parallel(64):
                if b * 64 + i < n and X[b * 64 + i] > 5:
                    sh[T.atomic_add(cnt[0], 1, return_prev=True)] = X[b * 64 + i]
            for i in T.Parallel(64):
                if b * 64 + i < n:
                    O[b * 64 + i] = f[i]
                    S[b * 64 + i] = sh[i]

    X = rng.integers(0, 10, n).astype(i32)
    C = np.zeros(8, i32)
    O = np.zeros(n, i32)
    S = np.zeros(n, i32)
    tilelang.compile(main, target=target)(X, C, O, S)
    assert C[0] == (X % 2 == 0).sum(), C
    for a, e in ((0, 64), (64, n)):
        v = np.sort(X[a:e][X[a:e] > 5])
        assert np.array_equal(np.sort(S[a:e])[-len(v) :], v)
    return O, np.ones(n), 0


def levenshtein_wavefront(target):
    n = 40

    @T.prim_func
    def main(a: T.Tensor((n,), "uint8"), b: T.Tensor((n,), "uint8"), O: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            d = T.alloc_shared((3, n + 1), "int32")
            t = T.get_thread_binding()
            for k in range(2 * n + 1):
                if t <= n and t <= k and k - t <= n:
                    i = t
                    j = k - t
                    if i == 0:
                        d[k % 3, i] = j
                    elif j == 0:
                        d[k % 3, i] = i
                    else:
                        c = T.if_then_else(a[i - 1] == b[j - 1], 0, 1)
                        d[k % 3, i] = T.min(T.min(d[(k - 1) % 3, i - 1], d[(k - 1) % 3, i]) + 1, d[(k - 2) % 3, i - 1] + c)
                T.sync_threads()
            if t == 0:
                O[0] = d[(2 * n) % 3, n]

    a, b = rng.integers(0, 4, n).astype(np.uint8), rng.integers(0, 4, n).astype(np.uint8)
    O = np.zeros(1, i32)
    tilelang.compile(main, target=target)(a, b, O)
    D = np.zeros((n + 1, n + 1), int)
    D[0] = np.arange(n + 1)
    D[:, 0] = np.arange(n + 1)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return O, [D[n, n]], 0


def game_of_life(target):
    H, W = 33, 47

    @T.prim_func
    def main(A: T.Tensor((H, W), "bool"), B: T.Tensor((H, W), "bool")):
        with T.Kernel(T.ceildiv(W, 16), T.ceildiv(H, 16), threads=256) as (bx, by):
            s = T.alloc_shared((18, 18), "bool")
            T.copy(A[by * 16 - 1, bx * 16 - 1], s)
            for i, j in T.Parallel(16, 16):
                c = sum(T.cast(s[i + a, j + b], "int32") for a in range(3) for b in range(3) if (a, b) != (1, 1))
                if by * 16 + i < H and bx * 16 + j < W:
                    B[by * 16 + i, bx * 16 + j] = (c == 3) or (s[i + 1, j + 1] and c == 2)

    A = rng.random((H, W)) < 0.4
    B = np.zeros((H, W), bool)
    tilelang.compile(main, target=target)(A, B)
    P = np.pad(A, 1).astype(int)
    c = sum(P[a : a + H, b : b + W] for a in range(3) for b in range(3)) - A
    return B, (c == 3) | (A & (c == 2)), 0


def csr_spmv(target):
    R, C = 30, 40
    nnz = T.dynamic("nnz")

    @T.prim_func
    def main(
        ptr: T.Tensor((R + 1,), "int32"),
        col: T.Tensor((nnz,), "int32"),
        val: T.Tensor((nnz,), "float32"),
        x: T.Tensor((C,), "float32"),
        y: T.Tensor((R,), "float32"),
    ):
        with T.Kernel(T.ceildiv(R, 4), threads=(32, 4)) as b:
            lane = T.get_thread_binding(0)
            w = T.get_thread_binding(1)
            r = b * 4 + w
            s = T.alloc_local((1,), "float32")
            s[0] = 0
            if r < R:
                for k in T.serial(T.ceildiv(ptr[r + 1] - ptr[r], 32)):
                    i = ptr[r] + k * 32 + lane
                    if i < ptr[r + 1]:
                        s[0] += val[i] * x[col[i]]
            for o in (16, 8, 4, 2, 1):
                s[0] += T.shfl_down(s[0], o)
            if lane == 0 and r < R:
                y[r] = s[0]

    M = (rng.random((R, C)) < 0.2) * normal(R, C)
    ptr = np.r_[0, np.cumsum((M != 0).sum(1))].astype(i32)
    rr, cc = np.nonzero(M)
    x = normal(C)
    y = np.zeros(R, f32)
    tilelang.compile(main, target=target)(ptr, cc.astype(i32), M[rr, cc].astype(f32), x, y)
    return y, M.astype(f64) @ x, 1e-5


def wrapped_everywhere(target):
    @T.prim_func
    def main(O: T.Tensor((64,), "int32"), P: T.Tensor((64,), "int32"), Q: T.Tensor((300,), "int32")):
        with T.Kernel(4, threads=16) as b:
            t = b * 16 + T.get_thread_binding()
            n = T.alloc_var("int32", 0)
            for _ in T.serial(T.cast(t * 50 - 100, "uint8")):
                n += 1
            O[t] = n
            if T.cast(t * 50 - 100, "int8") > 0:
                P[t] = 1
            Q[T.cast(t * 50 - 100, "uint8")] = 1
            for j in T.Parallel(16):
                x = T.cast((b * 16 + j) * 70000, "uint16")
                T.atomic_add(Q[T.cast(x, "int32") % 10 + 280], T.cast(x, "int32"))

    O, P, Q = np.zeros(64, i32), np.zeros(64, i32), np.zeros(300, i32)
    tilelang.compile(main, target=target)(O, P, Q)
    t = np.arange(64)
    u = (t * 50 - 100).astype(np.uint8).astype(int)
    assert np.array_equal(P, (t * 50 - 100).astype(np.int8) > 0)
    q = np.zeros(300, int)
    q[u] = 1
    x = (t * 70000).astype(np.uint16).astype(int)
    np.add.at(q, x % 10 + 280, x)
    assert np.array_equal(Q, q), Q - q
    return O, u, 0


PROGRAMS = (
    selective_scan,
    hadamard,
    paged_decode,
    tri_solve,
    bitonic,
    segmented_reduce,
    compaction,
    transposes,
    effects_in_parallel,
    levenshtein_wavefront,
    game_of_life,
    csr_spmv,
    wrapped_everywhere,
)


@pytest.mark.parametrize("target", ["cpu", "simt"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program, target):
    """Each returns what it computed, what NumPy computes, and a tolerance where 1e-5 is too little."""
    got, want, *tolerance = program(target)
    allowed = tolerance[0] if tolerance else 1e-5
    np.testing.assert_allclose(np.asarray(got).astype(f64), want, rtol=allowed, atol=allowed)

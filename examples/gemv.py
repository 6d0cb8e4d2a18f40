"""Matrix by vector: each weight is used once, so that reading them is all that counts.

`gemv` is written with tiles, for weights of either order; `gemv_by_threads` by threads, with a reduction over some of them. A block takes
few rows and has them on the way at once, 16 bytes a thread and load; enough blocks share a multiprocessor that memory is never idle.
"""

import numpy as np

import tilelang
import tilelang.language as T


def gemv(N, K, rows=1, threads=256, dtype="float16"):
    """y = W x, W (N, K): a block takes `rows` rows whole."""

    @T.prim_func
    def kernel(x: T.Tensor((K,), dtype), W: T.Tensor((N, K), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, rows), threads=threads) as b:
            w = T.alloc_fragment((rows, K), dtype)
            vector = T.alloc_fragment((K,), dtype)
            products = T.alloc_fragment((rows, K), "float32")
            sums = T.alloc_fragment((rows,), "float32")
            T.copy(W[b * rows, 0], w)
            T.copy(x, vector)
            for i, k in T.Parallel(rows, K):
                products[i, k] = T.cast(w[i, k], "float32") * T.cast(vector[k], "float32")
            T.reduce_sum(products, sums, dim=1)
            T.copy(sums, y[b * rows])

    return kernel


def gemv_transposed(N, K, block_N=32, block_K=256, threads=128, dtype="float16"):
    """y = x W, W (K, N): a block takes `block_N` columns, `block_K` rows of them at a time; partial sums stay apart until the end."""

    @T.prim_func
    def kernel(x: T.Tensor((K,), dtype), W: T.Tensor((K, N), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as b:
            w = T.alloc_fragment((block_K, block_N), dtype)
            partial = T.alloc_fragment((block_K, block_N), "float32")
            sums = T.alloc_fragment((block_N,), "float32")
            T.clear(partial)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(W[k * block_K, b * block_N], w)
                for i, j in T.Parallel(block_K, block_N):
                    partial[i, j] += T.cast(w[i, j], "float32") * T.cast(x[k * block_K + i], "float32")
            T.reduce_sum(partial, sums, dim=0)
            T.copy(sums, y[b * block_N])

    return kernel


def gemv_by_threads(N, K, rows=4, lanes=32, width=8, dtype="float16"):
    """y = W x, W (N, K), by threads: `lanes` of them share a row, each with `width` neighbours at a time, and add their sums at the end."""

    @T.prim_func
    def kernel(x: T.Tensor((K,), dtype), W: T.Tensor((N, K), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, rows), threads=(lanes, rows)) as b:
            lane = T.get_thread_binding(0)
            row = T.get_thread_binding(1)
            part_x = T.alloc_local((width,), dtype)
            part_w = T.alloc_local((width,), dtype)
            partial = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            T.clear(partial)
            for k in T.serial(T.ceildiv(K, lanes * width)):
                first = (k * lanes + lane) * width
                for v in T.vectorized(width):
                    part_x[v] = x[first + v]
                    part_w[v] = W[b * rows + row, first + v]
                for v in T.serial(width):
                    partial[0] += T.cast(part_x[v], "float32") * T.cast(part_w[v], "float32")
            with T.attr(
                T.comm_reducer(lambda p, q: p + q, [T.cast(0, "float32")]), "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")
            ):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), partial[0], True, total[0], lane, dtype="handle"))
            if lane == 0:
                y[b * rows + row] = total[0]

    return kernel


def main(target="cpu"):
    N, K = 96, 512
    rng = np.random.default_rng(0)
    x, W = rng.standard_normal(K).astype(np.float16), rng.standard_normal((N, K)).astype(np.float16)
    expected = W.astype(np.float64) @ x.astype(np.float64)
    for program, weights in ((gemv(N, K), W), (gemv(N, K, 4, 128), W), (gemv_by_threads(N, K), W), (gemv_transposed(N, K), W.T.copy())):
        y = tilelang.compile(program, out_idx=[-1], target=target)(x, weights)
        # Rounded once, to 11 bits; the sum of K products in float32 is closer than that.
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=2e-2)
    print(f"GEMV {N} x {K}, by tiles, by threads and transposed: agrees with NumPy")


if __name__ == "__main__":
    main()

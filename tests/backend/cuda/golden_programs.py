"""The programs whose printed text is kept under `golden/`: one of each kind that the backend is judged by."""

import tilelang.language as T


def elementwise(rows=256, columns=1024):
    @T.prim_func
    def add(A: T.Tensor((rows, columns), "float16"), B: T.Tensor((rows, columns), "float16"), C: T.Tensor((rows, columns), "float16")):
        with T.Kernel(T.ceildiv(columns, 256), T.ceildiv(rows, 16), threads=128) as (bx, by):
            for i, j in T.Parallel(16, 256):
                C[by * 16 + i, bx * 256 + j] = A[by * 16 + i, bx * 256 + j] * 2 + B[by * 16 + i, bx * 256 + j]

    return add


def softmax(rows=64, columns=1024):
    @T.prim_func
    def softmax(X: T.Tensor((rows, columns), "bfloat16"), Y: T.Tensor((rows, columns), "bfloat16")):
        with T.Kernel(T.ceildiv(rows, 4), threads=128) as bx:
            x = T.alloc_fragment((4, columns), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, columns):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    return softmax


def gemm(m=512, n=512, k=512):
    @T.prim_func
    def gemm(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 128), T.ceildiv(m, 128), threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=3):
                T.copy(A[by * 128, ko * 32], A_shared)
                T.copy(B[ko * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 128, bx * 128])

    return gemm


def attention(heads=4, length=512, dim=64):
    """Causal attention, forward."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    shape = (heads, length, dim)

    @T.prim_func
    def attention(
        Q: T.Tensor(shape, "float16"), K: T.Tensor(shape, "float16"), V: T.Tensor(shape, "float16"), O: T.Tensor(shape, "float16")
    ):
        with T.Kernel(T.ceildiv(length, 64), heads, threads=128) as (bx, by):
            Q_shared = T.alloc_shared((64, dim), "float16")
            K_shared = T.alloc_shared((64, dim), "float16")
            V_shared = T.alloc_shared((64, dim), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            output = T.alloc_fragment((64, dim), "float32")
            top = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            rescale = T.alloc_fragment((64,), "float32")
            row_sum = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(Q[by, bx * 64, 0], Q_shared)
            T.clear(output)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(bx + 1, num_stages=2):
                T.copy(K[by, k * 64, 0], K_shared)
                for i, j in T.Parallel(64, 64):
                    scores[i, j] = T.if_then_else(bx * 64 + i >= k * 64 + j, 0.0, -T.infinity("float32"))
                T.gemm(Q_shared, K_shared, scores, transpose_B=True)
                T.copy(V[by, k * 64, 0], V_shared)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(64):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(64, 64):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, row_sum, dim=1)
                for i in T.Parallel(64):
                    total[i] = total[i] * rescale[i] + row_sum[i]
                for i, j in T.Parallel(64, dim):
                    output[i, j] *= rescale[i]
                T.copy(scores, weights)
                T.gemm(weights, V_shared, output)
            for i, j in T.Parallel(64, dim):
                output[i, j] /= total[i]
            T.copy(output, O[by, bx * 64, 0])

    return attention


def dequant_gemm(m=128, n=128, k=512):
    """Weights of 4 bits, two in a byte, with a scale for each group of 32."""

    @T.prim_func
    def dequant_gemm(
        A: T.Tensor((m, k), "bfloat16"), packed: T.Tensor((n, k // 2), "uint8"), scales: T.Tensor((n, k // 32), "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "bfloat16")
            packed_shared = T.alloc_shared((64, 16), "uint8")
            B_shared = T.alloc_shared((64, 32), "bfloat16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, ko * 32], A_shared)
                T.copy(packed[bx * 64, ko * 16], packed_shared)
                for i, j in T.Parallel(64, 32):
                    code = (packed_shared[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & 15
                    B_shared[i, j] = (T.cast(code, "bfloat16") - 8) * scales[bx * 64 + i, ko]
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * 64, bx * 64])

    return dequant_gemm


def reduce_across_warps(rows=64, columns=4096):
    @T.prim_func
    def row_norms(X: T.Tensor((rows, columns), "float32"), norms: T.Tensor((rows,), "float32")):
        with T.Kernel(rows, threads=256) as row:
            x = T.alloc_fragment((1, columns), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            for i, j in T.Parallel(1, columns):
                x[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(x, total, dim=1)
            norms[row] = T.sqrt(total[0])

    return row_norms


def atomics(n=65536, bins=256):
    @T.prim_func
    def histogram(values: T.Tensor((n,), "uint8"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(n // 4096, threads=256) as bx:
            own = T.alloc_shared((bins,), "int32")
            T.clear(own)
            for i in T.Parallel(4096):
                T.atomic_add(own[T.cast(values[bx * 4096 + i], "int32")], 1)
            for i in T.Parallel(bins):
                T.atomic_add(counts[i], own[i])

    return histogram


def dynamic_shape(dim=256):
    rows = T.symbolic("rows")

    @T.prim_func
    def rmsnorm(
        X: T.Tensor((rows, dim), "bfloat16"), weight: T.Tensor((dim,), "bfloat16"), Y: T.Tensor((rows, dim), "bfloat16"), eps: T.float32
    ):
        with T.Kernel(T.ceildiv(rows, 8), threads=128) as bx:
            x = T.alloc_fragment((8, dim), "float32")
            squares = T.alloc_fragment((8, dim), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.copy(X[bx * 8, 0], x)
            for i, j in T.Parallel(8, dim):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i, j in T.Parallel(8, dim):
                x[i, j] = x[i, j] * T.rsqrt(total[i] / dim + eps) * weight[j]
            T.copy(x, Y[bx * 8, 0])

    return rmsnorm


PROGRAMS = {
    "elementwise": elementwise, "softmax": softmax, "gemm": gemm, "attention": attention, "dequant_gemm": dequant_gemm,
    "reduce_across_warps": reduce_across_warps, "atomics": atomics, "dynamic_shape": dynamic_shape,
}  # fmt: skip

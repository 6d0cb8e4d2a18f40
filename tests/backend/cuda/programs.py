"""Programs of the tests, from element-wise to attention: small ones of every kind of statement."""

import tilelang.language as T


def add_one(n=1000):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 256), threads=128) as bx:
            for i in T.Parallel(256):
                B[bx * 256 + i] = A[bx * 256 + i] + 1.0

    return main


def vector_add(rows=16):
    @T.prim_func
    def main(A: T.Tensor((rows, 1024), "float16"), B: T.Tensor((rows, 1024), "float16")):
        with T.Kernel(rows, threads=128) as by:
            tx = T.get_thread_binding(0)
            for v in T.vectorized(8):
                B[by, tx * 8 + v] = A[by, tx * 8 + v] + A[by, tx * 8 + v]

    return main


def gemm(size=128, dtype="float16", stages=2):
    @T.prim_func
    def main(A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype), C: T.Tensor((size, size), "float32")):
        with T.Kernel(T.ceildiv(size, 64), T.ceildiv(size, 64), threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), dtype)
            B_shared = T.alloc_shared((32, 64), dtype)
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(size, 32), num_stages=stages):
                T.copy(A[by * 64, k * 32], A_shared)
                T.copy(B[k * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 64, bx * 64])

    return main


def softmax(rows=64, columns=200):
    @T.prim_func
    def main(X: T.Tensor((rows, columns), "float32"), Y: T.Tensor((rows, columns), "float32")):
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

    return main


def scalars():
    """Every kind of scalar statement of one thread."""
    n = T.symbolic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n, 16), "int32"), H: T.Tensor((n,), "bfloat16"), Q: T.Tensor((n,), "float8_e4m3fn"), scale: T.float32, count: T.int32
    ):  # fmt: skip
        with T.Kernel(n, threads=32) as bx:
            tx = T.get_thread_binding(0)
            x = T.alloc_var("int32")
            small = T.alloc_local((4,), "int8")
            for k in T.serial(count):
                if k % 3 == 1:
                    continue
                x += A[bx, k % 16] // (k - 7)
                if x > 1000:
                    break
            for k in T.unroll(4):
                small[k] = T.cast(x >> k, "int8") * T.cast(3, "int8")
            while x > 100:
                x = x // 2
            if tx == 0:
                H[bx] = H[bx] * T.cast(scale, "bfloat16") + T.cast(small[1], "bfloat16")
                Q[bx] = T.cast(T.max(H[bx], 0.5), "float8_e4m3fn")
                T.atomic_add(A[bx, 0], T.if_then_else(x > 3, x, -1))
                A[bx, 1] = T.cast(T.exp(scale) + T.sigmoid(scale), "int32")
            A[bx, 2] = T.warp_reduce_sum(x) + T.shfl_xor(x, 1)
            T.device_assert(x < 1000, "x is too large")
            T.print(x, "x")

    return main


def two_kernels():
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        W = T.alloc_global((n,), "float32")
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            for i in T.Parallel(128):
                W[bx * 128 + i] = A[bx * 128 + i] * 2.0
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = W[bx * 64 + i] + 1.0

    return main


ALL = {
    "add_one": add_one, "vector_add": vector_add, "gemm": gemm, "gemm_bf16": lambda: gemm(dtype="bfloat16"),
    "gemm_serial": lambda: gemm(stages=0), "softmax": softmax, "scalars": scalars, "two_kernels": two_kernels,
}  # fmt: skip

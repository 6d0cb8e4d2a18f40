"""The tile programs of a BERT-style encoder, float32. Batch and sequence length are known only at the call.

Activations are matrices (rows, features) with rows = batch * sequence; attention and pooling see them as
(batch, sequence, features). Each factory returns a program whose last parameter is the output.
"""

import tilelang.language as T

F32 = "float32"
LOG2E = 1.4426950408889634


@T.macro
def normalise_rows(x, square, mean, scale, rows, features, eps):
    """x = (x - mean) / sqrt(variance + eps), row by row."""
    T.reduce_sum(x, mean, dim=1)
    for i in T.Parallel(rows):
        mean[i] = mean[i] / features
    for i, j in T.Parallel(rows, features):
        x[i, j] = x[i, j] - mean[i]
        square[i, j] = x[i, j] * x[i, j]
    T.reduce_sum(square, scale, dim=1)
    for i in T.Parallel(rows):
        scale[i] = T.rsqrt(scale[i] / features + eps)
    for i, j in T.Parallel(rows, features):
        x[i, j] = x[i, j] * scale[i]


def embedding(vocabulary, positions, features, eps, block=8):
    """ids (batch, seq) -> layer norm of word + position + type embedding, (batch, seq, features)."""
    batch, seq = T.dynamic("batch"), T.dynamic("seq")

    @T.prim_func
    def kernel(
        ids: T.Tensor((batch, seq), "int32"),
        word: T.Tensor((vocabulary, features), F32),
        position: T.Tensor((positions, features), F32),
        kind: T.Tensor((features,), F32),  # one text only: always the embedding of type 0
        weight: T.Tensor((features,), F32),
        bias: T.Tensor((features,), F32),
        Y: T.Tensor((batch, seq, features), F32),
    ):
        with T.Kernel(T.ceildiv(seq, block), batch, threads=128) as (bx, b):
            x = T.alloc_fragment((block, features), F32)
            square = T.alloc_fragment((block, features), F32)
            mean = T.alloc_fragment((block,), F32)
            scale = T.alloc_fragment((block,), F32)
            for i, j in T.Parallel(block, features):
                s = bx * block + i
                x[i, j] = T.if_then_else(s < seq, word[ids[b, s], j] + position[s, j] + kind[j], 0)
            normalise_rows(x, square, mean, scale, block, features, eps)
            for i, j in T.Parallel(block, features):
                x[i, j] = x[i, j] * weight[j] + bias[j]
            T.copy(x, Y[b, bx * block, 0])

    return kernel


def linear(inputs, outputs, gelu=False, block_M=64, block_N=128, block_K=128):
    """X (rows, inputs) -> X W^T + bias, (rows, outputs); with the exact GELU if asked for."""
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, inputs), F32),
        W: T.Tensor((outputs, inputs), F32),
        bias: T.Tensor((outputs,), F32),
        Y: T.Tensor((rows, outputs), F32),
    ):
        with T.Kernel(T.ceildiv(outputs, block_N), T.ceildiv(rows, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), F32)
            w = T.alloc_shared((block_N, block_K), F32)
            y = T.alloc_fragment((block_M, block_N), F32)
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(inputs, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * block_K], w)
                T.gemm(x, w, y, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                y[i, j] += bias[bx * block_N + j]
                if gelu:
                    y[i, j] = 0.5 * y[i, j] * (1 + T.erf(y[i, j] * 0.7071067811865476))
            T.copy(y, Y[by * block_M, bx * block_N])

    return kernel


def attention(heads, dim, block_M=32, block_N=64):
    """QKV (batch, seq, 3, heads, dim) and lengths (batch,) -> (batch, seq, heads, dim); keys past a text's length are not seen."""
    batch, seq = T.dynamic("batch"), T.dynamic("seq")
    factor = LOG2E / dim**0.5

    @T.prim_func
    def kernel(
        QKV: T.Tensor((batch, seq, 3, heads, dim), F32),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, seq, heads, dim), F32),
    ):
        with T.Kernel(T.ceildiv(seq, block_M), heads, batch, threads=128) as (bx, head, b):
            q = T.alloc_shared((block_M, dim), F32)
            k = T.alloc_shared((block_N, dim), F32)
            v = T.alloc_shared((block_N, dim), F32)
            weights = T.alloc_shared((block_M, block_N), F32)
            scores = T.alloc_fragment((block_M, block_N), F32)
            out = T.alloc_fragment((block_M, dim), F32)
            row_max = T.alloc_fragment((block_M,), F32)
            row_max_prev = T.alloc_fragment((block_M,), F32)
            row_sum = T.alloc_fragment((block_M,), F32)
            block_sum = T.alloc_fragment((block_M,), F32)

            T.copy(QKV[b, bx * block_M : (bx + 1) * block_M, 0, head, :], q)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -1e30)
            for n in T.Pipelined(T.ceildiv(lengths[b], block_N), num_stages=2):
                T.copy(QKV[b, n * block_N : (n + 1) * block_N, 1, head, :], k)
                T.copy(QKV[b, n * block_N : (n + 1) * block_N, 2, head, :], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.if_then_else(n * block_N + j < lengths[b], scores[i, j] * factor, -1e30)
                T.copy(row_max, row_max_prev)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] - row_max[i])
                T.reduce_sum(scores, block_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * T.exp2(row_max_prev[i] - row_max[i]) + block_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= T.exp2(row_max_prev[i] - row_max[i])
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= row_sum[i]
            T.copy(out, O[b, bx * block_M : (bx + 1) * block_M, head, :])

    return kernel


def add_layernorm(features, eps, block=8):
    """X, R (rows, features) -> layer norm of X + R, (rows, features)."""
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, features), F32),
        R: T.Tensor((rows, features), F32),
        weight: T.Tensor((features,), F32),
        bias: T.Tensor((features,), F32),
        Y: T.Tensor((rows, features), F32),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=128) as bx:
            x = T.alloc_fragment((block, features), F32)
            square = T.alloc_fragment((block, features), F32)
            mean = T.alloc_fragment((block,), F32)
            scale = T.alloc_fragment((block,), F32)
            T.copy(X[bx * block, 0], x)
            T.copy(R[bx * block, 0], square)
            for i, j in T.Parallel(block, features):
                x[i, j] += square[i, j]
            normalise_rows(x, square, mean, scale, block, features, eps)
            for i, j in T.Parallel(block, features):
                x[i, j] = x[i, j] * weight[j] + bias[j]
            T.copy(x, Y[bx * block, 0])

    return kernel


def mean_pool(features):
    """X (batch, seq, features) and lengths (batch,) -> mean over each text's tokens, scaled to length one, (batch, features)."""
    batch, seq = T.dynamic("batch"), T.dynamic("seq")

    @T.prim_func
    def kernel(X: T.Tensor((batch, seq, features), F32), lengths: T.Tensor((batch,), "int32"), Y: T.Tensor((batch, features), F32)):
        with T.Kernel(batch, threads=128) as b:
            total = T.alloc_fragment((features,), F32)
            square = T.alloc_fragment((features,), F32)
            norm = T.alloc_fragment((1,), F32)
            T.clear(total)
            for s in T.serial(lengths[b]):
                for j in T.Parallel(features):
                    total[j] += X[b, s, j]
            for j in T.Parallel(features):
                total[j] = total[j] / lengths[b]
                square[j] = total[j] * total[j]
            T.reduce_sum(square, norm, dim=0)
            for j in T.Parallel(features):
                Y[b, j] = total[j] / T.max(T.sqrt(norm[0]), 1e-12)

    return kernel

"""The rows' kernels in Triton, for comparison: products, attention forward, passes over rows.

Plain uses of the language of `triton.language`: tiles by pointers, or by tensor descriptors (TMA). Sizes are multiples of the tiles: no
masks. Which tiles are tried says `triton_side.py`.
"""

from __future__ import annotations

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def place(number, tiles_m, tiles_n, PANEL: tl.constexpr):
    """Tile (m, n) of a program: `PANEL` rows of tiles are walked column by column, so that their operands stay in the L2 cache."""
    first = number // (PANEL * tiles_n) * PANEL
    height = min(tiles_m - first, PANEL)
    within = number % (PANEL * tiles_n)
    return first + within % height, within // height


@triton.jit
def gemm_pointers(
    A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PANEL: tl.constexpr,
):  # fmt: skip
    """C = A B with strides of both operands; C is contiguous. One tile of C a program."""
    m, n = place(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), PANEL)
    rows, columns, inner = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN), tl.arange(0, BK)
    a = A + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b = B + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BK * stride_ak
        b += BK * stride_bk
    tl.store(C + rows[:, None] * N + columns[None, :], total.to(C.dtype.element_ty))


@triton.jit
def gemm_descriptors(
    A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PANEL: tl.constexpr,
    TRANSPOSED: tl.constexpr, FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """C = A B, or A times the transpose of B (TRANSPOSED). A grid smaller than the number of tiles makes it persistent. A and B are
    descriptors, C too, or a pointer (SPECIALIZE: the compiler's warp specialisation does not take a descriptor there)."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLATTEN):
        m, n = place(tile, tiles_m, tiles_n, PANEL)
        total = tl.zeros((BM, BN), tl.float32)
        for k in tl.range(tl.cdiv(K, BK), warp_specialize=SPECIALIZE):
            a = A.load([m * BM, k * BK])
            b = B.load([n * BN, k * BK]).T if TRANSPOSED else B.load([k * BK, n * BN])
            total = tl.dot(a, b, total)
        if SPECIALIZE:
            rows, columns = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
            tl.store(C + rows[:, None] * N + columns[None, :], total.to(C.dtype.element_ty))
        else:
            C.store([m * BM, n * BN], total.to(C.dtype))


@triton.jit
def gemv(X, W, Y, K, BN: tl.constexpr, BK: tl.constexpr):
    """Y = W X for a row-major matrix W of K columns; BN elements of Y a program."""
    rows, inner = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BN, BK), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(X + k + inner).to(tl.float32)
        w = tl.load(W + rows[:, None] * K + k + inner[None, :]).to(tl.float32)
        total += w * x[None, :]
    tl.store(Y + rows, tl.sum(total, 1).to(Y.dtype.element_ty))


@triton.jit
def attend(
    q, top, total, out, K, V, head_row, first, last, query, scale,
    BN: tl.constexpr, MASKED: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """The running softmax over key blocks [first, last)."""
    for n in tl.range(first, last, BN, warp_specialize=SPECIALIZE):
        scores = tl.dot(q, K.load([head_row + n, 0]).T)
        if MASKED:
            scores = tl.where(query[:, None] >= n + tl.arange(0, BN)[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1) * scale)
        weights = tl.math.exp2(scores * scale - higher[:, None])
        before = tl.math.exp2(top - higher)
        total = total * before + tl.sum(weights, 1)
        out = tl.dot(weights.to(V.dtype), V.load([head_row + n, 0]), out * before[:, None])
        top = higher
    return top, total, out


@triton.jit
def attention(
    Q, K, V, O, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, SPECIALIZE: tl.constexpr
):  # fmt: skip
    """Attention forward on (batch * heads * S, D) matrices: descriptors of Q, K, V, a pointer to O. scale: log2(e) of the scores' one."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # causal: the longest rows first
    row, head_row = block * BM, tl.program_id(1) * S
    query = row + tl.arange(0, BM)
    q = Q.load([head_row + row, 0])
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    if CAUSAL:
        top, total, out = attend(q, top, total, out, K, V, head_row, 0, row, query, scale, BN, False, SPECIALIZE)
        top, total, out = attend(q, top, total, out, K, V, head_row, row, row + BM, query, scale, BN, True, False)
    else:
        top, total, out = attend(q, top, total, out, K, V, head_row, 0, S, query, scale, BN, False, SPECIALIZE)
    at = (head_row + query)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(O + at, (out / total[:, None]).to(O.dtype.element_ty))


@triton.jit
def softmax(X, Y, N: tl.constexpr):
    """One row a program; N is a power of two."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(X + at).to(tl.float32) * LOG2E
    e = tl.math.exp2(x - tl.max(x, 0))
    tl.store(Y + at, (e / tl.sum(e, 0)).to(Y.dtype.element_ty))


@triton.jit
def layernorm(X, W, B, Y, eps, N: tl.constexpr):
    """One row a program, with weight and bias; N is a power of two."""
    columns = tl.arange(0, N)
    at = tl.program_id(0) * N + columns
    x = tl.load(X + at).to(tl.float32)
    x -= tl.sum(x, 0) / N
    x *= tl.rsqrt(tl.sum(x * x, 0) / N + eps)
    y = x * tl.load(W + columns).to(tl.float32) + tl.load(B + columns).to(tl.float32)
    tl.store(Y + at, y.to(Y.dtype.element_ty))


@triton.jit
def rmsnorm(X, W, Y, eps, N: tl.constexpr):
    """One row a program, with weight; N is a power of two."""
    columns = tl.arange(0, N)
    at = tl.program_id(0) * N + columns
    x = tl.load(X + at).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / N + eps) * tl.load(W + columns).to(tl.float32)
    tl.store(Y + at, y.to(Y.dtype.element_ty))


@triton.jit
def add(X, Y, Z, N: tl.constexpr):
    """Z = 2 X + Y on one block: the kernel whose call is timed."""
    at = tl.arange(0, N)
    tl.store(Z + at, 2 * tl.load(X + at) + tl.load(Y + at))

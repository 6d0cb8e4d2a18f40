"""2-D convolution (NHWC) as an implicit GEMM: `im2col` fills the A tile, so the unfolded image is never stored."""

import numpy as np

import tilelang
import tilelang.language as T


def convolution(batch, height, width, channels, filters, size, stride, pad, block_M=64, block_N=64, block_K=48, dtype="float32"):
    out_h = (height + 2 * pad - size) // stride + 1
    out_w = (width + 2 * pad - size) // stride + 1
    M, K = batch * out_h * out_w, size * size * channels

    @T.prim_func
    def kernel(
        image: T.Tensor((batch, height, width, channels), dtype),
        weight: T.Tensor((K, filters), dtype),  # (size, size, channels) in one dimension
        out: T.Tensor((M, filters), dtype),  # (batch, out_h, out_w) in one dimension
    ):
        with T.Kernel(T.ceildiv(filters, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            columns = T.alloc_shared((block_M, block_K), dtype)
            w = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.c2d_im2col(image, columns, by, k, size, stride, 1, pad)
                T.copy(weight[k * block_K, bx * block_N], w)
                T.gemm(columns, w, acc)
            T.copy(acc, out[by * block_M, bx * block_N])

    return kernel


def reference(image, weight, stride, pad):
    size = weight.shape[0]
    x = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out_h, out_w = (x.shape[1] - size) // stride + 1, (x.shape[2] - size) // stride + 1
    out = np.zeros((x.shape[0], out_h, out_w, weight.shape[3]))
    for dy in range(size):
        for dx in range(size):
            window = x[:, dy : dy + out_h * stride : stride, dx : dx + out_w * stride : stride]
            out += window @ weight[dy, dx].astype(np.float64)
    return out


def main(target="cpu"):
    batch, height, width, channels, filters, size, stride, pad = 2, 29, 22, 16, 96, 3, 2, 1
    rng = np.random.default_rng(0)
    image = rng.standard_normal((batch, height, width, channels), dtype=np.float32)
    weight = rng.standard_normal((size, size, channels, filters), dtype=np.float32)
    kernel = tilelang.compile(convolution(batch, height, width, channels, filters, size, stride, pad), out_idx=[-1], target=target)
    expected = reference(image, weight, stride, pad)
    out = kernel(image, weight.reshape(-1, filters)).reshape(expected.shape)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    print(f"convolution {height} x {width} x {channels} -> {out.shape[1]} x {out.shape[2]} x {filters}: agrees with NumPy")


if __name__ == "__main__":
    main()

"""Histogram with atomics in two steps: every block counts in shared memory, then adds its counts to the total once."""

import numpy as np

import tilelang
import tilelang.language as T


def histogram(bins, block=1024):
    N = T.symbolic("N")

    @T.prim_func
    def kernel(X: T.Tensor((N,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            local_counts = T.alloc_shared((bins,), "int32")
            T.clear(local_counts)
            for i in T.Parallel(block):
                if bx * block + i < N:
                    T.atomic_add(local_counts[X[bx * block + i]], 1)
            for i in T.Parallel(bins):
                T.atomic_add(counts[i], local_counts[i])

    return kernel


def main(target="cpu"):
    bins = 64
    rng = np.random.default_rng(0)
    kernel = tilelang.compile(histogram(bins), target=target)
    for n in (10, 100_000):
        x = np.minimum(rng.geometric(0.1, n), bins - 1).astype(np.int32)
        counts = np.zeros(bins, np.int32)
        kernel(x, counts)
        np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))
        print(f"histogram of {n} values in {bins} bins: agrees with NumPy")


if __name__ == "__main__":
    main()

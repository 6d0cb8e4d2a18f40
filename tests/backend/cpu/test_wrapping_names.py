"""Names for integers that wrap: TVM's analyser takes the bounds before a conversion for those after it."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T

N = 64


def hash32(t):
    return T.cast(t, "uint32") * T.uint32(2654435761)


VALUES = {
    "product": ("uint32", hash32, lambda t: t.astype(np.uint32) * np.uint32(2654435761)),
    "signed product": ("int32", lambda t: t * 1103515245, lambda t: t.astype(np.int32) * np.int32(1103515245)),
    "difference": ("uint32", lambda t: T.cast(t, "uint32") - T.uint32(70), lambda t: t.astype(np.uint32) - np.uint32(70)),
    "below zero": ("uint8", lambda t: T.cast(t * 5 - 100, "uint8"), lambda t: (t * 5 - 100).astype(np.uint8)),
    "too large": ("int8", lambda t: T.cast(t * 5, "int8"), lambda t: (t * 5).astype(np.int8)),
    "from 64 bits": ("int32", lambda t: T.cast(T.cast(t, "int64") * 5000000000, "int32"), lambda t: (t * 5000000000).astype(np.int32)),
}


@pytest.mark.parametrize("loop", [T.serial, T.vectorized, T.Parallel])
@pytest.mark.parametrize("what", VALUES)
def test_a_name_used_twice(what, loop):
    dtype, make, reference = VALUES[what]

    @T.prim_func
    def main(O: T.Tensor((N,), dtype), P: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            value = make(tx)
            O[tx] = value ^ (value >> 3)
            for t in loop(N):
                inner = make(t)
                P[t] = inner ^ (inner >> 3)

    got = np.zeros(N, dtype), np.zeros(N, dtype)
    tilelang.compile(main, target="cpu")(*got)
    with np.errstate(over="ignore"):
        want = reference(np.arange(N, dtype=np.int64)).astype(dtype)
    want = want ^ (want >> np.array(3, dtype))
    assert np.array_equal(got[0], want) and np.array_equal(got[1], want)

"""Copies that the pipeline issues ahead: chunks outside of the source are zeros, and cost neither branches nor barriers."""

import numpy as np
import pytest

import tilelang.language as T
from tests.backend.gpu.support import run, values
from tilelang.backend.target import resolve_target
from tilelang.compiler.compile import compile_program


def product(M, N, K, steps=None):
    """`steps`: of blocks with 32 of K, where the last may reach outside."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32) if steps is None else steps(by), num_stages=3):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


def text(program):
    """The body of the kernel for an architecture without bulk copies."""
    artifact = compile_program(program, resolve_target("cuda -arch=sm_80"), {})
    return artifact.source.split('extern "C"')[1]


@pytest.mark.parametrize(("M", "N", "K"), [(64, 64, 96), (40, 72, 40), (100, 24, 8), (65, 200, 136)])
def test_outside_are_zeros(M, N, K):
    a, b, c = values((M, K), "float16"), values((K, N), "float16"), np.full((M, N), 7, np.float32)
    run(product(M, N, K), a, b, c, target="simt -arch=sm_80")
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_a_condition_is_an_operand_of_the_copy():
    ragged = text(product(40, 72, 40))
    loop = ragged[ragged.index("for (int k = 0") :]
    assert loop.count("__syncthreads") == 1 and "from_bits" not in loop
    assert all("<" in line.split("cp_async<16>", 1)[1] for line in loop.splitlines() if "cp_async<16>" in line)


def test_what_is_always_inside_has_no_condition():
    loop = text(product(128, 128, 96))
    assert "cp_async<16>" in loop
    assert not any("<" in line.split("cp_async<16>", 1)[1] for line in loop.splitlines() if "cp_async<16>" in line)


def test_trip_counts_that_depend_on_the_block_have_one_barrier():
    loop = text(product(128, 64, 128, steps=lambda by: 2 * by + 2))
    loop = loop[loop.index("for (int k = 0") :]
    assert loop.count("__syncthreads") == 1

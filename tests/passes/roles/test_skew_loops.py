"""Loops of two halves: which run beside each other, how their products stand, and that they compute what the serial program does."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.compiler.compile import context, lower_to
from tilelang.ir.dialect import op_name
from tilelang.ir.rewrite import walk
from tilelang.ir.tvm_api import Call
from tilelang.passes.roles.rotate_loops import KEY_OFF
from tilelang.passes.roles.specialize_warps import SUBJECT, specialize_warps
from tilelang.target.target import parse_target

TARGET = "simt -arch=sm_90a"
SKEWED = "its second half runs beside the first half of the next iteration"
KEPT = "its halves keep their order: "
B = 64  # rows of a block


def halves(kind="plain", most=4, threads=128):
    """s = K q^T, p = s + 1, u += p d | e = p (V d^T), w += e q, z[i] += e^T K over blocks q, d of rows. kind: what is different."""

    @T.prim_func
    def main(
        K: T.Tensor((64, 64), "float16"),
        V: T.Tensor((64, 64), "float16"),
        Q: T.Tensor((most * B, 64), "float16"),
        D: T.Tensor((most * B, 64), "float16"),
        n: T.int32,
        U: T.Tensor((64, 64), "float32"),
        W: T.Tensor((64, 64), "float32"),
        Z: T.Tensor((most * B, 64), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            q = T.alloc_shared((B, 64), "float16")
            d = T.alloc_shared((B, 64), "float16")
            e_shared = T.alloc_shared((64, B), "float16")
            z_shared = T.alloc_shared((B, 64), "float32")
            s = T.alloc_fragment((64, B), "float32")
            t = T.alloc_fragment((64, B), "float32")
            p = T.alloc_fragment((64, B), "float16")
            e = T.alloc_fragment((64, B), "float16")
            u = T.alloc_fragment((64, 64), "float32")
            w = T.alloc_fragment((64, 64), "float32")
            z = T.alloc_fragment((B, 64), "float32")
            T.copy(K, k)
            T.copy(V, v)
            T.clear(u)
            T.clear(w)
            for i in T.Pipelined(n, num_stages=2):
                T.copy(Q[i * B, 0], q)
                T.gemm(k, q, s, transpose_B=True, clear_accum=True)
                for y, x in T.Parallel(64, B):
                    p[y, x] = s[y, x] + 1
                T.copy(D[i * B, 0], d)
                if kind != "one product in the middle":
                    T.gemm(p, d, u)
                T.gemm(v, d, t, transpose_B=True, clear_accum=True)
                for y, x in T.Parallel(64, B):
                    e[y, x] = p[y, x] * t[y, x]
                T.copy(e, e_shared)
                T.gemm(e, q, w)
                T.gemm(e_shared, k, z, transpose_A=True, clear_accum=True)
                T.copy(z, z_shared)
                if kind == "fed back":
                    for y, x in T.Parallel(64, 64):
                        k[y, x] = e_shared[y, x]
                if kind == "shared with the head":
                    T.copy(z, s)
                T.atomic_add(Z[i * B, 0], z_shared)
            T.copy(u, U)
            T.copy(w, W)

    return main


def notes(program, config=None):
    ctx = context(parse_target(TARGET), config or {})
    specialize_warps(program, ctx)
    return [n.text for n in ctx.notes if n.subject == SUBJECT]


def data(most, seed):
    """Small whole numbers: every sum is exact."""
    rng = np.random.default_rng(seed)
    k, v, q, d = (rng.integers(-1, 2, (rows, 64)) * (rng.random((rows, 64)) < 0.2) for rows in (64, 64, most * B, most * B))
    return [x.astype("float16") for x in (k, v, q, d)]


def expected(k, v, q, d, n, most):
    k, v, q, d = (x.astype("f8") for x in (k, v, q, d))
    u, w, z = np.zeros((64, 64)), np.zeros((64, 64)), np.ones((most * B, 64))
    for i in range(n):
        rows = slice(i * B, i * B + B)
        p = k @ q[rows].T + 1
        e = p * (v @ d[rows].T)
        u, w = u + p @ d[rows], w + e @ q[rows]
        z[rows] += e.T @ k
    return u, w, z


def run(kind, n, seed=0, most=4, config=None):
    arrays = data(most, seed)
    u, w = (np.full((64, 64), np.nan, "float32") for _ in range(2))
    z = np.ones((most * B, 64), "float32")
    tilelang.compile(halves(kind, most), target=TARGET, pass_configs={"tl.simt_seed": seed, **(config or {})})(*arrays, n, u, w, z)
    return (u, w, z), expected(*arrays, n, most)


def order(kind="plain"):
    """The accumulators of the products of the final program."""
    found = []
    final = lower_to(halves(kind), parse_target(TARGET), {}, "relax_waits")
    walk(final.body, {Call: lambda c: found.append(str(c.args[0].source.name)) if op_name(c) == "tl.wgmma" else None})
    return found


def test_skewed():
    assert SKEWED in notes(halves())


def test_order_of_the_products():
    """Before the loop: the first half; in it: the second half's head, the next first half's head, and so on; behind it: the second half."""
    assert order() == ["s", "u", "t", "s", "w", "z", "u", "t", "w", "z"]


def test_switched_off():
    assert SKEWED not in notes(halves(), {KEY_OFF: True})


@pytest.mark.parametrize("kind", ["fed back", "shared with the head"])
def test_what_cannot_change_places_stays(kind):
    found = notes(halves(kind))
    assert SKEWED not in found
    assert any(n.startswith(KEPT + "its first products and its last ones both touch") for n in found)


@pytest.mark.parametrize("n", [0, 1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_it_computes(n, seed):
    for got, want in zip(*run("plain", n, seed), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_first_half_that_ends_with_its_work():
    assert SKEWED in notes(halves("one product in the middle"))
    (u, *got), (_, *want) = run("one product in the middle", 3)
    np.testing.assert_array_equal(u, 0)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["plain", "shared with the head"])
def test_what_the_serial_loop_computes(kind):
    """The same program in its own order is the reference of the other one."""
    got, _ = run(kind, 3)
    serial, _ = run(kind, 3, config={KEY_OFF: True})
    for a, b in zip(got, serial, strict=True):
        np.testing.assert_array_equal(a, b)

"""`kernel.memory`: what became of a program's allocations, on every target, also for a kernel whose code came from the cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tilelang.backend.cuda import toolchain
from tilelang.knobs import knobs
from tilelang.runtime import cache


def gemm(stages: int = 3, m: int = 64, n: int = 64, k: int = 32) -> Any:
    @T.prim_func
    def main(A: T.Tensor((m, 8 * k), "float16"), B: T.Tensor((8 * k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for q in T.Pipelined(8, num_stages=stages):
                T.copy(A[0, q * k], a)
                T.copy(B[q * k, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def in_turn(rows: int) -> Any:
    """Two tiles, the second used after the first; a row maximum through the compiler's own tile."""

    @T.prim_func
    def main(X: T.Tensor((rows, 128), "float32"), Y: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=128):
            one = T.alloc_shared((rows, 128), "float32")
            two = T.alloc_shared((rows, 128), "float32")
            f = T.alloc_fragment((rows, 128), "float32")
            g = T.alloc_fragment((rows,), "float32")
            T.copy(X, one)
            for i, j in T.Parallel(rows, 128):
                f[i, j] = one[i, 127 - j]
            T.copy(f, two)
            for i, j in T.Parallel(rows, 128):
                f[i, j] = two[i, 127 - j] * 2
            T.reduce_max(f, g, dim=1)
            T.copy(g, Y)

    return main


def rows_of(kernel: Any) -> dict[str, Any]:
    return {a.name: a for a in kernel.memory.kernels[0].allocations}


def test_versions_and_places_of_a_pipeline() -> None:
    kernel = tilelang.compile(gemm(), target="simt -arch=sm_80")
    rows, (memory,) = rows_of(kernel), kernel.memory.kernels
    assert (rows["a"].versions, rows["a"].bytes, rows["b"].versions, rows["b"].bytes) == (3, 3 * 4096, 3, 3 * 4096)
    assert {rows["a"].offset, rows["b"].offset} == {0, 3 * 4096}
    assert memory.dynamic == memory.shared == 6 * 4096
    assert (memory.static, memory.scratch, memory.limits.shared, memory.limits.architecture) == (0, 0, 163 * 1024, "sm_80")
    assert "swizzle" in rows["a"].layout and rows["a"].alignment % 128 == 0 and "swizzle" in rows["a"].reason
    assert (rows["c"].registers, rows["c"].copies, rows["c"].origin) == (32, 1, "program")
    assert rows["a_operand"].origin == "compiler"
    assert memory.registers >= 32
    assert memory.conflicts == 0 and {a.op.split(".")[0] for a in memory.accesses} == {"cp", "ldmatrix"}
    first = gemm.__code__.co_firstlineno
    assert [rows["a"].line, rows["a"].first.line, rows["a"].last.line] == [first + 4, first + 9, first + 11]


def test_sharers_scratch_and_copies() -> None:
    kernel = tilelang.compile(in_turn(2), target="simt")
    rows, (memory,) = rows_of(kernel), kernel.memory.kernels
    assert (rows["one"].offset, rows["two"].offset) == (0, 0)
    assert "two" in rows["one"].sharers and "one" in rows["two"].sharers
    own = [a for a in memory.allocations if a.origin == "compiler" and a.offset is not None]
    assert own and memory.scratch == sum(a.bytes for a in own)
    assert memory.dynamic == max(a.offset + a.bytes for a in memory.allocations if a.offset is not None) >= 2 * 128 * 4
    assert rows["f"].registers * 128 == 2 * 128 * rows["f"].copies
    assert rows["g"].registers * 128 == 2 * rows["g"].copies and rows["g"].copies > 1


def test_threads_that_the_compiler_adds() -> None:
    (memory,) = tilelang.compile(gemm(), target="simt -arch=sm_90a").memory.kernels
    assert memory.asked == 128 and memory.threads >= 128
    if memory.threads > memory.asked:
        assert f"{memory.threads - memory.asked} of them the compiler's own" in str(memory)


def test_on_a_cpu_memory_is_as_written() -> None:
    kernel = tilelang.compile(gemm(), target="cpu")
    (memory,) = kernel.memory.kernels
    assert [(a.name, a.bytes, a.versions, a.offset) for a in memory.allocations] == [
        ("a", 4096, 1, None), ("b", 4096, 1, None), ("c", 16384, 1, None),
    ]  # fmt: skip
    assert memory.limits is None and memory.accesses == ()


def test_text_and_json() -> None:
    memory = tilelang.compile(gemm(), target="simt -arch=sm_80").memory
    data = json.loads(memory.to_json())
    assert data == json.loads(json.dumps(memory.as_dict()))
    (kernel,) = data["kernels"]
    assert kernel["allocations"][0]["name"] == "a"
    assert kernel["allocations"][0]["at"]["line"] == gemm.__code__.co_firstlineno + 4
    assert kernel["shared"] == 24576 and kernel["conflicts"] == 0
    assert {"buffer", "op", "requests", "passes", "conflicts", "bank", "lanes", "exact"} <= set(kernel["accesses"][0])
    text = str(memory)
    assert "shared memory: 24,576 of 166,912 bytes of a block on sm_80" in text
    assert "3 versions, " in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("target", ["cpu", "cuda -arch=sm_80"])
def test_a_kernel_from_the_disk_cache_has_it_with_its_own_lines(target: str, tmp_path: Any, monkeypatch: Any) -> None:
    def shifted() -> Any:
        @T.prim_func
        def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64):
                tile = T.alloc_shared((64,), "float32")
                T.copy(X, tile)
                for i in T.Parallel(64):
                    Y[i] = tile[63 - i]

        return main

    def again() -> Any:
        @T.prim_func
        def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64):
                tile = T.alloc_shared((64,), "float32")
                T.copy(X, tile)
                for i in T.Parallel(64):
                    Y[i] = tile[63 - i]

        return main

    with knobs.scoped(cache_dir=tmp_path, disable_cache=False):
        monkeypatch.setattr(cache, "_memory", {})
        one = tilelang.compile(shifted(), target=target)
        tilelang.runtime.api._kernels.clear()
        monkeypatch.setattr(cache, "_memory", {})
        monkeypatch.setattr(cache, "compile_program", lambda *a, **k: pytest.fail("compiled again"))
        two = tilelang.compile(again(), target=target)
        first, second = (rows_of(k)["tile"] for k in (one, two))
    assert (first.bytes, first.offset) == (second.bytes, second.offset) == (256, None if target == "cpu" else 0)
    assert second.line - first.line == again.__code__.co_firstlineno - shifted.__code__.co_firstlineno


@pytest.mark.skipif(not toolchain.available(), reason="no compiler for CUDA text")
def test_what_the_assembler_reports() -> None:
    kernel = tilelang.compile(gemm(), target="cuda -arch=sm_80")
    (memory,) = kernel.memory.kernels
    found = memory.resources
    assert found is not None
    assert (found.arch, found.static_shared, found.dynamic_shared) == ("sm_80", memory.static, memory.dynamic)
    assert 32 <= found.registers <= memory.limits.registers
    assert found.spill_stores == found.local == 0
    assert f"of the machine code for sm_80: {found.registers} of 255 a thread" in str(memory)


@pytest.mark.skipif(not toolchain.available(), reason="no compiler for CUDA text")
def test_arrays_of_a_reduction_over_threads_are_static_memory() -> None:
    @T.prim_func
    def main(X: T.Tensor((8, 32), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=(32, 8)):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            tile = T.alloc_shared((8, 32), "float32")
            total = T.alloc_local((1,), "float32")
            tile[ty, tx] = X[ty, tx]
            with T.attr(
                T.comm_reducer(lambda a, b: a + b, [T.Cast("float32", 0)]), "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")
            ):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), tile[ty, tx], True, total[0], ty, dtype="handle"))
            if ty == 0:
                Y[tx] = total[0]

    (memory,) = tilelang.compile(main, target="cuda -arch=sm_80").memory.kernels
    assert memory.resources is not None
    assert memory.static == memory.resources.static_shared == 1024 == memory.scratch
    assert (memory.dynamic, memory.shared) == (1024, 2048)


def test_copies_of_a_fragment_that_lives_on_one_group_of_threads() -> None:
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=256):
            part = T.alloc_fragment((32, 64), "float32")
            with T.ws(0):
                for i, j in T.Parallel(32, 64):
                    part[i, j] = X[i, j] * 2
                for i, j in T.Parallel(32, 64):
                    Y[i, j] = part[i, j]

    rows = rows_of(tilelang.compile(main, target="simt -arch=sm_80"))
    assert (rows["part"].registers, rows["part"].copies) == (32 * 64 // 128, 1)

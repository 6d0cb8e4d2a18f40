"""What is undefined on a GPU is reported: both lines, the memory's name, threads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import SimtError, TileAssertionError

from . import programs as p
from .test_programs import compiled


def refused(program: Any, *args: Any, text: str) -> SimtError:
    with pytest.raises(SimtError, match=text) as caught:
        compiled(program)(*args)
    return caught.value


def line_of(error: SimtError) -> str:
    assert error.at is not None
    with open(error.at.file, encoding="utf-8") as file:
        return file.read().splitlines()[error.at.line - 1].strip()


def test_missing_barrier_between_store_and_load() -> None:
    x = np.zeros(1000, np.float32)
    error = refused(p.reverse(barrier=False), x, x.copy(), 1000, text="race on s: thread 0 reads")
    assert "s[N - 1 - tx]" in line_of(error)
    assert "written here by thread 255" in str(error)


def test_missing_barrier_before_the_next_round() -> None:
    x = np.zeros((4, p.N), np.float32)
    x[:] = np.arange(4)[:, None]
    error = refused(p.rounds(second=False), x, np.zeros((4, p.N), np.float32), text="race on s: thread \\d+ writes .* has read")
    assert "s[tx] = X[k, tx]" in line_of(error)
    refused(p.rounds(first=False), x, np.zeros((4, p.N), np.float32), text="race|nobody has written")


def test_warp_barrier_orders_its_warp_only() -> None:
    x, y = np.arange(p.N, dtype=np.int32), np.zeros(p.N, np.int32)
    compiled(p.warp_rows())(x, y)
    np.testing.assert_array_equal(y, x ^ 1)
    refused(p.warp_rows(synchronised=False), x, y, text="race on s")


def test_read_of_shared_memory_nobody_wrote() -> None:
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 60:
                s[tx] = 1.0
            T.sync_threads()
            Y[tx] = s[tx]

    refused(main, np.zeros(64, np.float32), text="thread 60 reads s where nobody has written")


def test_read_of_a_register_the_thread_did_not_write() -> None:
    @T.prim_func
    def main(Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            r = T.alloc_local((4,), "float32")
            tx = T.get_thread_binding()
            if tx != 7:
                r[2] = 1.0
            Y[tx] = r[2]

    refused(main, np.zeros(64, np.float32), text=re.escape("thread 7 reads register r[2], which it has not written"))


def test_access_outside_shared_memory_and_outside_a_tensor() -> None:
    @T.prim_func
    def shared(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            s[X[tx]] = tx
            T.sync_threads()
            Y[tx] = s[tx]

    @T.prim_func
    def tensor(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            Y[X[tx]] = tx

    unguarded = {"tl.disable_safe_memory_legalize": True}
    for program, name in ((shared, "s"), (tensor, "Y")):
        for beyond in (64, -1):
            x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
            kernel = compiled(program, **unguarded)
            kernel(x, y)
            np.testing.assert_array_equal(y, x)
            x[9] = beyond
            with pytest.raises(SimtError, match=f"thread 9 of block 0 accesses element {beyond} of {name}"):
                kernel(x, y)


def test_lanes_that_write_different_values_in_one_statement() -> None:
    def program(value: Any) -> Any:
        @T.prim_func
        def main(Y: T.Tensor((64,), "int32")):
            with T.Kernel(1, threads=64):
                s = T.alloc_shared((1,), "int32")
                tx = T.get_thread_binding()
                s[0] = value(tx)
                T.sync_threads()
                Y[tx] = s[0]

        return main

    y = np.zeros(64, np.int32)
    compiled(program(lambda tx: 5))(y)
    assert (y == 5).all()
    refused(program(lambda tx: tx), y, text="write different values")


def test_barrier_that_a_part_of_the_block_reaches() -> None:
    @T.prim_func
    def main(Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx < 40:
                T.sync_threads()
            Y[tx] = tx

    refused(main, np.zeros(64, np.int32), text="40 of 64 are here, thread 40 is not")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"parity": 0}, "deadlock: 8 of 8 warps wait"),
        ({"arrive": p.GROUP + 1}, "deadlock"),
        ({"arrive": p.GROUP - 32}, "whose phase expects|race|nobody has written"),
        ({"waits_full": False}, "race|nobody has written"),
        ({"waits_free": False}, "race|whose phase expects|deadlock"),
        ({"signals": False}, "deadlock: 8 of 8 warps wait for ever"),
        ({"shift": 1}, "race|nobody has written"),
    ],
)
def test_faults_of_barriers_between_groups(fault: dict[str, Any], text: str) -> None:
    x = np.random.default_rng(0).standard_normal((p.ROUNDS, p.GROUP), np.float32)
    refused(p.ring(**fault), x, np.zeros_like(x), text=text)


def test_device_assert() -> None:
    @T.prim_func
    def main(X: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.device_assert(X[tx] < 60, "too large")

    kernel = tilelang.compile(main, target="simt")
    kernel(np.zeros(64, np.int32))
    with pytest.raises(TileAssertionError, match="too large"):
        kernel(np.arange(64, dtype=np.int32))


def test_argument_errors_are_those_of_the_cpu() -> None:
    kernel = compiled(p.rounds())
    x = np.zeros((4, p.N), np.float32)
    with pytest.raises(TypeError, match="X: expected dtype float32, got float64"):
        kernel(x.astype(np.float64), x)
    with pytest.raises(ValueError, match="Y: expected shape"):
        kernel(x, np.zeros((5, p.N), np.float32))

"""Programs of single threads at the level THREADS that use bulk copies, mbarriers and warpgroup products, with faults to choose.

Every statement gets the line of the test program that made it, as the front end does it for the user's lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.passes.programs import kernel
from tilelang.backend.gpu.wgmma import Matrix, Product
from tilelang.backend.simt.build import build
from tilelang.compiler.compile import context
from tilelang.errors import Location
from tilelang.ir.dialect import ANNOTATION_ALLOC, make_call
from tilelang.ir.tvm_api import (
    AllocBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Span,
    Stmt,
    Var,
    const,
    decl_buffer,
    load,
    make_span,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip
from tilelang.target.target import parse_target

TARGET = parse_target("simt")
_HELPERS = ("do", "put", "when", "loop", "tile", "barrier", "registers", "sync")


def run(func: PrimFunc, *arrays: np.ndarray, seed: int = 0) -> None:
    build(func, context(TARGET, {"tl.simt_seed": seed})).entry(*arrays)


def here() -> Span:
    """The line of the program that is being written."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_name in _HELPERS:
        frame = frame.f_back
    return make_span(Location(frame.f_code.co_filename, frame.f_lineno, 1))


def do(name: str, /, *args: Any, **attrs: Any) -> Stmt:
    return Evaluate(make_call(name, list(args), span=here(), **attrs), here())


def put(buffer: Var, value: Any, *indices: Any) -> Stmt:
    return store(buffer, value, list(indices), here())


def when(condition: Any, *stmts: Stmt | None) -> Stmt:
    return IfThenElse(condition, some(*stmts), None, here())


def some(*stmts: Stmt | None) -> Stmt:
    """Those that there are."""
    return seq([s for s in stmts if s is not None])


def loop(extent: int, make: Callable[[Any], Sequence[Stmt | None]], name: str = "k") -> Stmt:
    var = Var(name, "int32")
    return For(var, 0, extent, ForKind.SERIAL, some(*make(var)), span=here())


def tile(name: str, *shape: int, offset: int, dtype: str = "float16") -> tuple[Var, Stmt]:
    """A shared buffer at a byte offset."""
    buffer = decl_buffer(shape, dtype, name, "shared.dyn")
    return buffer, AllocBuffer(buffer, {ANNOTATION_ALLOC: {"offset": offset}}, here())


def barrier(name: str, *counts: int) -> tuple[Var, Stmt]:
    buffer = decl_buffer((len(counts),), "uint64", name, "shared.barrier")
    return buffer, AllocBuffer(buffer, {ANNOTATION_ALLOC: {"arrive_counts": list(counts)}}, here())


def registers(name: str, size: int, dtype: str = "float32") -> tuple[Var, Stmt]:
    buffer = decl_buffer((size,), dtype, name, "local")
    return buffer, AllocBuffer(buffer, {}, here())


def bar(buffer: Var, index: Any = 0) -> Any:
    return region(buffer, [index], [1])


def sync(*args: int) -> Stmt:
    return do("tl.sync_threads", *args)


def swizzled(row: Any, column: Any, swizzle: int = 128) -> Any:
    """Column of a 16-bit element in a line of 64 under a swizzle."""
    mask = (swizzle - 16) // 16
    return column if not swizzle else tirx.BitwiseXor(column, tirx.BitwiseAnd(row, const(mask, "int32")) * 8)


# ---------------------------------------------------------------- one tile
ROWS, COLUMNS = 64, 64
BYTES = ROWS * COLUMNS * 2


def one_tile(**fault: Any) -> PrimFunc:
    """A tile comes in by a bulk load; every thread reads rows of it and writes them out. row, column: where it begins in the tensor."""
    x = decl_buffer((96, 80), "float16", "X")
    y = decl_buffer((ROWS, COLUMNS), "float16", "Y")
    f = {"bytes": BYTES, "expects": True, "arrives": True, "waits": True, "swizzle": 128, "reads": 128, "parity": 0, "offset": 1024,
         "early": False, "row": 0, "column": 0, "box": (ROWS, COLUMNS), "twice": False, **fault}  # fmt: skip

    def body(_: Any, t: Any) -> list[Stmt | None]:
        s, alloc_s = tile("s", ROWS, COLUMNS, offset=f["offset"])
        full, alloc_full = barrier("full", 1)
        box = region(x, [f["row"], f["column"]], f["box"])
        expect = do("tl.mbarrier_expect_tx", bar(full), f["bytes"]) if f["expects"] else None
        arrive = do("tl.mbarrier_arrive", bar(full)) if f["arrives"] else None
        issue = do("tl.tma_load", region(s, [0, 0], [ROWS, COLUMNS]), box, bar(full), swizzle=f["swizzle"])
        wait = do("tl.mbarrier_wait", bar(full), f["parity"]) if f["waits"] else None
        row = t[0]
        return [
            alloc_s, alloc_full,
            when(t[0].equal(0), *([arrive, expect] if f["early"] else [expect, arrive]), issue, issue if f["twice"] else None),
            wait,
            loop(COLUMNS, lambda j: [put(y, load(s, [row, swizzled(row, j, f["reads"])], here()), row, j)], "j"),
        ]  # fmt: skip

    return kernel([x, y], lambda b, t: [s for s in body(b, t) if s is not None], threads=(ROWS,))


# ---------------------------------------------------------------- a ring of stages, and stores
STAGES, ROUNDS, WIDTH = 2, 5, 64


def ring(**fault: Any) -> PrimFunc:
    """Warp 2 loads rows of tiles into a ring, warps 0 and 1 double them in place of a second tile and store them."""
    x = decl_buffer((ROUNDS, 64, WIDTH), "float16", "X")
    y = decl_buffer((ROUNDS, 64, WIDTH), "float16", "Y")
    f = {"waits_free": True, "signals": True, "waits_full": True, "fence": True, "fence_by_reader": False, "barrier": True, "closes": True,
         "waits_store": True, "waits_last": True, "free": 2, "full": 1, "bytes": 64 * WIDTH * 2, "stage": 0, "parity": 0, "elected": True,
         "meets": True, **fault}  # fmt: skip

    def body(_: Any, t: Any) -> list[Stmt | None]:
        s, alloc_s = tile("s", STAGES, 64, WIDTH, offset=0)
        o, alloc_o = tile("o", 64, WIDTH, offset=STAGES * 64 * WIDTH * 2)
        full, alloc_full = barrier("full", *[f["full"]] * STAGES)
        free, alloc_free = barrier("free", *[f["free"]] * STAGES)
        lane0 = tirx.EQ(t[0] % 32, const(0, "int32"))

        def produce(k: Any) -> list[Stmt | None]:
            stage = k % STAGES
            return [
                do("tl.mbarrier_wait", bar(free, stage), (k // STAGES + 1 + f["parity"]) % 2) if f["waits_free"] else None,
                when(t[0].equal(64),
                     do("tl.mbarrier_expect_tx", bar(full, stage), f["bytes"], arrive=True),
                     do("tl.tma_load", region(s, [stage, 0, 0], [1, 64, WIDTH]), region(x, [k, 0, 0], [1, 64, WIDTH]), bar(full, stage))),
            ]  # fmt: skip

        def consume(k: Any) -> list[Stmt | None]:
            stage = (k + f["stage"]) % STAGES
            first = t[0].equal(0)
            return [
                do("tl.mbarrier_wait", bar(full, stage), k // STAGES % 2) if f["waits_full"] else None,
                when(first, do("tl.bulk_wait", 0, read=True)) if f["waits_store"] else None,
                sync(1, 64) if f["meets"] else None,
                loop(WIDTH, lambda j: [put(o, load(s, [stage, t[0], j], here()) * const(2, "float16"), t[0], j)], "j"),
                do("tl.sync_warp") if f["elected"] else None,
                when(lane0, do("tl.mbarrier_arrive", bar(free, stage))) if f["signals"] else None,
                do("tl.fence_proxy_async") if f["fence"] else None,
                sync(1, 64) if f["barrier"] else None,
                when(first,
                     do("tl.fence_proxy_async") if f["fence_by_reader"] else None,
                     do("tl.tma_store", region(o, [0, 0], [64, WIDTH]), region(y, [k, 0, 0], [1, 64, WIDTH])),
                     do("tl.bulk_commit") if f["closes"] else None),
            ]  # fmt: skip

        last = when(t[0].equal(0), do("tl.bulk_wait", 0)) if f["waits_last"] else None
        consumer = some(loop(ROUNDS, consume), last)
        return [
            alloc_s, alloc_o, alloc_full, alloc_free,
            IfThenElse(tirx.LT(t[0], const(64, "int32")), consumer, loop(ROUNDS, produce), here()),
        ]  # fmt: skip

    return kernel([x, y], lambda b, t: [s for s in body(b, t) if s is not None], threads=(96,))


# ---------------------------------------------------------------- warpgroup products
N = 64


def product_of(kind: str = "ss", **fault: Any) -> PrimFunc:
    """C = A B for A (64, 64), B (64, 64) float16: operands come by bulk loads; A from registers if kind is "rs"; B is (k, n) in memory
    if kind is "mn", else (n, k)."""
    a, b = (decl_buffer((64, 64), "float16", name) for name in "AB")
    c = decl_buffer((64, N), "float32", "C")
    f = {"fence": True, "commits": True, "waits": 0, "clears": False, "overwrites": False, "touches": False, "matrix": {}, "first": False,
         "generic": False, "proxy": True, "part": False, "left": 16, "again": False, "changes": False, "shift": 0, **fault}  # fmt: skip
    record = Product(N, ("f32", "f16", "f16"))

    def body(_: Any, t: Any) -> list[Stmt | None]:
        sa, alloc_a = tile("sa", 64, 64, offset=0)
        sb, alloc_b = tile("sb", 64, 64, offset=8192)
        acc, alloc_acc = registers("acc", N // 2)
        ra, alloc_ra = registers("ra", 32, "float16")
        full, alloc_full = barrier("full", 1)
        whole = [64, 64]
        loads = when(t[0].equal(0), do("tl.mbarrier_expect_tx", bar(full), 16384, arrive=True),
                     *(do("tl.tma_load", region(s, [0, 0], whole), region(g, [0, 0], whole), bar(full), swizzle=128)
                       for s, g in ((sa, a), (sb, b))))  # fmt: skip
        lane, warp = t[0] % 32, t[0] // 32
        k_major = Matrix("k", 128, 16, 1024)
        b_matrix = Matrix("mn", 128, 8192, 1024) if kind == "mn" else k_major
        b_matrix = Matrix(**{**vars(b_matrix), **f["matrix"]})

        def step(k: int) -> Stmt:
            left = region(ra, [8 * k], [8]) if kind == "rs" else region(sa, [0, 16 * k], [64, f["left"]])
            right = region(sb, [16 * k, 0], [16, 64]) if kind == "mn" else region(sb, [0, 16 * k + f["shift"]], [64, 16])
            attrs = {"b_matrix": b_matrix.text} if kind == "rs" else {"a_matrix": k_major.text, "b_matrix": b_matrix.text}
            keep = 1 if k or f["clears"] or f["first"] else 0
            return do("tl.wgmma", region(acc, [0], [N // 2]), left, right, keep, name=record.name, **attrs)

        def element(r: Any) -> tuple[Any, Any]:
            return warp * 16 + lane // 4 + r // 2 % 2 * 8, r // 4 * 8 + lane % 4 * 2 + r % 2

        def registers_of_a(k: int) -> Stmt:
            def one(r: Any) -> list[Stmt]:
                row, col = warp * 16 + lane // 4 + r // 2 % 2 * 8, 16 * k + r // 4 * 8 + lane % 4 * 2 + r % 2
                return [put(ra, load(sa, [row, swizzled(row, col)], here()), 8 * k + r)]

            return loop(8, one, "r")

        def overwrite() -> Stmt:
            return put(sb, const(0, "float16"), t[0] // 64, t[0] % 64)

        products = some(*(step(k) for k in range(4)))
        return [
            alloc_a, alloc_b, alloc_acc, alloc_full, alloc_ra if kind == "rs" else None, loads,
            do("tl.mbarrier_wait", bar(full), 0),
            loop(N // 2, lambda r: [put(acc, const(0, "float32"), r)], "r") if f["clears"] else None,
            *([registers_of_a(k) for k in range(4)] if kind == "rs" else []),
            loop(32, lambda r: [put(sb, load(sb, [r * 2 + t[0] // 64, t[0] % 64], here()), r * 2 + t[0] // 64, t[0] % 64)], "r")
            if f["generic"] else None,
            do("tl.fence_proxy_async") if f["generic"] and f["proxy"] else None,
            sync() if f["generic"] else None,
            do("tl.wgmma_fence") if f["fence"] else None,
            when(tirx.LT(t[0], const(96, "int32")), products) if f["part"] else products,
            do("tl.wgmma_commit") if f["commits"] else None,
            put(acc, const(1, "float32"), 0) if f["touches"] else None,
            put(ra, const(1, "float16"), 0) if f["changes"] else None,
            overwrite() if f["overwrites"] else None,
            do("tl.wgmma_wait", f["waits"]) if f["waits"] is not None else None,
            sync() if f["again"] else None,
            overwrite() if f["again"] else None,
            loop(N // 2, lambda r: [put(c, load(acc, [r], here()), *element(r))], "r"),
        ]  # fmt: skip

    return kernel([a, b, c], lambda b, t: [s for s in body(b, t) if s is not None], threads=(128,))

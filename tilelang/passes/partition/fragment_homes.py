"""Where a fragment lives while loops are divided: its registers, their formulas, the threads that have them.

In: plans of fragments. Out: `Home` records, and statements of single threads in which fragments that every thread holds
whole have become registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.context import FragmentPlan
from ...ir.dialect import LOCAL
from ...ir.rewrite import Descend, rewrite
from ...ir.tvm_api import (
    BufferStore,
    Expr,
    Stmt,
    TensorLoad,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    static_shape,
    store,
    tvm,
)  # fmt: skip
from ..analysis.nests import Nest
from ..analysis.thread_groups import Threads
from ..layouts.coalescing import coalesced, replicated
from ..layouts.loop_layouts import solve
from ..layouts.register_maps import RegisterMap, register_map

_BARRIER_COST = 32  # of a conversion, in elements of one thread


@dataclass(frozen=True)
class Home:
    """Where one fragment lives."""

    map: RegisterMap
    registers: Var
    threads: Threads
    member: tuple[Expr, ...]

    @property
    def cost(self) -> int:
        return _BARRIER_COST + 2 * self.map.registers


def default_plan(buffer: Var, threads: int) -> FragmentPlan:
    """A fragment made after layouts were chosen: one element on every thread, a tile spread over them."""
    shape, bits = static_shape(buffer), tvm.DataType(dtype_of(buffer)).bits
    layout = coalesced(shape, bits, threads) if math.prod(shape) > 1 else replicated(shape, threads)
    registers = decl_buffer((layout.get_register_size(),), dtype_of(buffer), str(buffer.name), LOCAL, alignment=16, span=buffer.span)
    return FragmentPlan(layout, registers)


def in_registers(node: Any, homes: Mapping[Var, Home]) -> Any:
    """A statement or expression of a thread, in which a fragment must be one that every thread holds whole."""

    def index(buffer: Var, indices: Sequence[Any]) -> list[Any]:
        home = homes[buffer]
        assert home.map.same_for_all, f"{buffer.name}: an element of a spread fragment is named by a thread"
        return [home.map.layout.forward(list(indices), 0)[1]]

    def on_load(inner: TensorLoad, descend: Descend) -> Expr:
        if inner.source not in homes:
            return descend.children(inner)
        return load(homes[inner.source].registers, index(inner.source, [descend(i) for i in inner.indices]), inner.span)

    def on_store(inner: BufferStore, descend: Descend) -> Stmt:
        if inner.buffer not in homes:
            return descend.children(inner)
        at = index(inner.buffer, [descend(i) for i in inner.indices])
        return store(homes[inner.buffer].registers, descend(inner.value), at, inner.span)

    def on_region(inner: TensorRegion, descend: Descend) -> Expr:
        if inner.source not in homes:
            return descend.children(inner)
        at = index(inner.source, [descend(r.min) for r in inner.region])
        return region(homes[inner.source].registers, at, [const(1, "int32")])

    return rewrite(node, {TensorLoad: on_load, BufferStore: on_store, TensorRegion: on_region})


def overwrites(nest: Nest, buffer: Var, shape: Sequence[int]) -> bool:
    """Does the nest write every element of the fragment, without reading any?"""
    mine = [a for a in nest.fragments if a.buffer.same_as(buffer)]
    if buffer in nest.whole or any(a.reads or a.conditional for a in mine) or nest.static_extents is None:
        return False
    identity = register_map(coalesced(shape, 128, 1), 1)
    for access in mine:
        layout = solve(nest, access, identity, set()) if identity is not None else None
        if layout is not None:
            active, dynamic = layout.active()
            if active.all() and not dynamic:
                return True
    return False

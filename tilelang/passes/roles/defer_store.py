"""The result of a tile leaves while the first products of the next tile run.

In: the loop of a block over its tiles (`persistent_grid`), which ends with a copy of a whole fragment to a tensor of 16-bit elements,
and the pipelined loop of products in it. Out: the consumers' form

    for turn:  the loop's first n iterations, each:  wait;  product;  if turn > 0: panel c of the tile before;  release of the slot
               its other iterations;  what follows them;  packed = the result
    at the end all of `packed`

`packed` is a fragment of the tensor's type, half the registers of the result. A panel is as wide as the shared tile through which it
leaves (128 bytes). It is right because nothing but the copy touches the tensor: when its elements are written no thread can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.access import accesses
from ...ir.dialect import FRAGMENT, GLOBAL, op_name, tile_call
from ...ir.dtypes import dtype
from ...ir.kernel import KernelRegion
from ...ir.rewrite import substitute, walk
from ...ir.tvm_api import (
    Bind,
    Call,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    SeqStmt,
    Stmt,
    TensorRegion,
    Var,
    call,
    const,
    decl_buffer,
    dtype_of,
    region,
    seq,
    shape_of,
    tirx,
)  # fmt: skip
from ..pipeline.tma_boxes import PANELS
from .rings import RingLoop

KEY_OFF = "tl.disable_deferred_store"
PANEL = 128  # bytes of a row of a panel
LONG_LOOP = 32  # iterations of a tile beside which its store is no more than some 2 % of the time
_OTHER_REGISTERS = 24  # of a thread, beside its fragments


class NotDeferred(Exception):
    """Why the result is stored at once."""


@dataclass(frozen=True)
class Deferral:
    """tiles: the loop over tiles; ours: the loop of products. store: the copy of `result`. packed: what is stored later."""

    tiles: For
    ours: RingLoop
    store: Stmt
    result: Var
    packed: Var
    panels: int

    @property
    def copied(self) -> Call:
        found = tile_call(self.store)
        assert found is not None
        return found

    def kept(self) -> For:
        """The loop over tiles, which keeps its result instead of storing it."""
        keep = self._copy(_whole(self.result), _whole(self.packed))
        body = seq([keep if s.same_as(self.store) else s for s in flat(self.tiles.body)])
        node = self.tiles
        return For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, node.annotations, node.step, node.span)

    def peeled(self, part: Callable[[For, Callable[[Expr], Stmt]], Stmt]) -> Stmt:
        """The loop of products in two parts: its first iterations, each with a panel of the tile before, and the others. part(loop, after):
        the loop with the products and, behind them, after(iteration)."""
        node, turn = self.ours.found.node, self.tiles.loop_var
        names, place = self._place(tirx.Max(turn - const(1, dtype_of(turn)), const(0, dtype_of(turn))))
        first = const(self.panels, dtype_of(node.extent))

        def panel_of(var: Expr) -> Stmt:
            chosen: Stmt | None = None
            for k in reversed(range(self.panels)):
                here = tirx.EQ(var - node.min, const(k, dtype_of(var)))
                chosen = IfThenElse(here, self._panel(k, place), chosen, self.store.span)
            assert chosen is not None
            return IfThenElse(turn > const(0, dtype_of(turn)), chosen, None, self.store.span)

        with_panels = part(self._iterations(node.min, first), panel_of)
        return seq([*names, with_panels, part(self._iterations(node.min + first, node.extent - first), lambda _: seq([]))])

    def _iterations(self, low: Expr, extent: Expr) -> For:
        node = self.ours.found.node
        var = Var(str(node.loop_var.name), dtype_of(node.loop_var))
        return For(var, low, extent, node.kind, node.body, node.thread_binding, None, node.step, node.span)

    def last(self) -> Stmt:
        """The last tile's result, behind the loop."""
        count = self.tiles.extent
        names, place = self._place(tirx.Max(count - const(1, dtype_of(count)), const(0, dtype_of(count))))
        stored = seq([*names, *(self._panel(k, place) for k in range(self.panels))])
        return IfThenElse(count > const(0, dtype_of(count)), stored, None, self.store.span)

    def _place(self, turn: Expr) -> tuple[list[Stmt], TensorRegion]:
        """Where the result of another turn belongs: names, and the block of the tensor."""
        target = self.copied.args[1]
        wanted: set[Var] = set()
        walk([r.min for r in target.region], {Var: wanted.add})
        binds: list[Bind] = []
        for stmt in reversed(flat(self.tiles.body)):
            if isinstance(stmt, Bind) and stmt.var in wanted:
                binds.insert(0, stmt)
                walk(stmt.value, {Var: wanted.add})
        table: dict[Var, Expr] = {self.tiles.loop_var: turn}
        names: list[Stmt] = []
        for bind in binds:
            table[bind.var] = Var(str(bind.var.name), dtype_of(bind.var))
            names.append(Bind(table[bind.var], substitute(bind.value, table), bind.span))
        return names, region(target.source, [substitute(r.min, table) for r in target.region], [r.extent for r in target.region])

    def _panel(self, k: int, place: TensorRegion) -> Stmt:
        rows, columns = shape_of(self.packed)
        width = columns // self.panels
        mins, extents = [r.min for r in place.region], [r.extent for r in place.region]
        mins[-1] = mins[-1] + const(k * width, dtype_of(mins[-1])) if k else mins[-1]
        extents[-1] = const(width, "int32")
        return self._copy(region(self.packed, [0, k * width], [rows, width]), region(place.source, mins, extents), {PANELS: True})

    def _copy(self, source: TensorRegion, target: TensorRegion, attrs: Mapping[str, Any] | None = None) -> Stmt:
        attrs = {**dict(self.copied.attrs or {}), **(attrs or {})}
        return Evaluate(call(self.copied.op, [source, target], "void", attrs), self.store.span)


def deferral_of(
    tiles: For, loops: Mapping[For, RingLoop], kernel: KernelRegion, roots: Mapping[Var, Var], threads: int, registers: int,
    wanted: bool = False,
) -> Deferral:  # fmt: skip
    """How the results of this loop over tiles are deferred. threads: those that share a fragment. registers: of each. wanted: the
    program asks for it, also where it gains little. Raises `NotDeferred`."""
    stmts = flat(tiles.body)
    ours = _products(stmts, loops)
    copied = tile_call(stmts[-1])
    if copied is None or op_name(copied) != "tl.tileop.copy" or len(copied.args) > 2:
        raise NotDeferred("a tile does not end with a copy of its result")
    source, target = copied.args
    if source.source.scope() != FRAGMENT or target.source.scope() != GLOBAL:
        raise NotDeferred("a tile does not end with a copy of a fragment to a tensor")
    element = dtype(dtype_of(target))
    if element.bytes != 2 or element.lanes != 1 or dtype(dtype_of(source)).bytes != 4:
        raise NotDeferred("it is not half as large in the tensor as in registers")
    shape = shape_of(source.source)
    if len(shape) != 2 or str(source) != str(_whole(source.source)) or shape[1] * element.bytes % PANEL or shape[0] % 8:
        raise NotDeferred(f"it is no whole fragment of panels of {PANEL} bytes")
    panels = shape[1] * element.bytes // PANEL
    extent = ours.found.node.extent
    if not isinstance(extent, IntImm) or int(extent) < panels:
        raise NotDeferred(f"a tile may have fewer than {panels} iterations")
    if int(extent) > LONG_LOOP and not wanted:  # the loop stands twice in the program, which doubles the time to compile it
        raise NotDeferred(f"beside the {extent} iterations of a tile its store is short ({KEY_OFF}: False does it all the same)")
    used = [a for a in accesses(kernel.body, roots) if a.root.same_as(roots.get(target.source, target.source))]
    if len(used) != 1 or target.source in roots:
        raise NotDeferred(f"the kernel uses {target.source.name} elsewhere")
    if any(accesses(r.min, roots) for r in target.region):
        raise NotDeferred("its place depends on memory")
    words = _words(kernel, roots, threads) + math.prod(shape) * element.bytes // 4 // threads
    if words + _OTHER_REGISTERS > registers:
        raise NotDeferred(f"{words} registers of fragments and {_OTHER_REGISTERS} others are more than {registers}")
    packed = decl_buffer(tuple(shape), str(element), f"{source.source.name}_packed", FRAGMENT, span=stmts[-1].span)
    return Deferral(tiles, ours, stmts[-1], source.source, packed, panels)


def _products(stmts: list[Stmt], loops: Mapping[For, RingLoop]) -> RingLoop:
    """The one pipelined loop of a tile, if it consists of one product."""
    if len(loops) != 1:
        raise NotDeferred("a tile has several pipelined loops")
    ((node, ours),) = loops.items()
    if not any(s.same_as(node) for s in stmts) or ours.found.guard is not None or not ours.counted or len(ours.rings) != 1:
        raise NotDeferred("there is a condition or a loop around the products")
    rest = ours.found.rest()
    if len(rest) != 1 or tile_call(rest[0]) is None or op_name(tile_call(rest[0])) != "tl.tileop.gemm":
        raise NotDeferred("its loop does more than one product")
    return ours


def _words(kernel: KernelRegion, roots: Mapping[Var, Var], threads: int) -> int:
    """Registers of a thread that the fragments of a kernel take."""
    found = {a.root for a in accesses(kernel.body, roots) if a.root.scope() == FRAGMENT}
    return sum(max(1, math.prod(shape_of(f)) * dtype(dtype_of(f)).bytes // 4 // threads) for f in found)


def flat(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, sequences in it opened."""
    return [s for child in stmt.seq for s in flat(child)] if isinstance(stmt, SeqStmt) else [stmt]


def _whole(buffer: Var) -> TensorRegion:
    return region(buffer, [0] * len(shape_of(buffer)), list(shape_of(buffer)))


__all__ = ["Deferral", "NotDeferred", "deferral_of"]

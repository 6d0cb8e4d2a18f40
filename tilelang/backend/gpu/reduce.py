"""T.reduce on registers: each thread combines what it holds, lanes exchange with shuffles, warps through shared memory.

In: a reduce call. Out: the program of a thread. What must be exchanged is found by enumerating the layout of the source
(`reduce_plan`): where the lanes that share a result form groups closed under flipping bits of the lane number, and
hold all of it, the results never leave registers. Otherwise one lane of each group stores a partial result, and a loop over the
output combines the partial results in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...ir.context import FragmentPlan
from ...ir.dialect import FRAGMENT, LOCAL, SHARED_DYN, attr, make_call
from ...ir.expr import convert
from ...ir.tvm_api import (
    AllocBuffer,
    Bind,
    Call,
    Expr,
    IfThenElse,
    IntImm,
    Stmt,
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    seq,
    shape_of,
    store,
    tirx,
    tvm,
)  # fmt: skip
from ...layout.algebra import ravel
from ...passes.layouts.coalescing import coalesced
from ...passes.layouts.register_maps import RegisterMap, register_map
from ...tileop.base import LowerContext, Lowering
from ...tileop.loops import extents_of, indices, may_overlap, mins_of, nest, serial, wide_dims
from ...tileop.reduce import Combine, combine_for
from .instr import WARP
from .reduce_plan import ReducePlan, Scratch, plan_reduction, plan_scratch
from .warps import Warps, at, bind_warps, loop, threads_of

FEW_SLOTS, LONG_CHAIN = 4, 16  # so few totals, of so many elements each, leave a thread waiting
MOST_REGISTERS = 256  # of one thread, for a tile that is read from shared memory


def _is_whole(block: TensorRegion) -> bool:
    starts = all(isinstance(m, int | IntImm) and int(m) == 0 for m in mins_of(block))
    return starts and list(shape_of(block.source)) == extents_of(block)


def _shape(block: TensorRegion) -> tuple[int, ...] | None:
    extents = extents_of(block)
    return tuple(extents) if all(isinstance(e, int) for e in extents) else None


def _combine(call: Call) -> Combine:
    src, out = call.args
    return combine_for(str(attr(call, "kind")), dtype_of(src), dtype_of(out), bool(attr(call, "nan_propagate")))


def _source(call: Call, ctx: LowerContext) -> tuple[FragmentPlan, bool] | str:
    """Where the source's elements are, or will be after a copy into a fragment (then True)."""
    src, shape = call.args[0], _shape(call.args[0])
    if shape is None:
        return "the tile's size is not constant"
    plan = ctx.passes.fragments.get(src.source)
    if plan is not None and _is_whole(src) and plan.groups == ctx.groups:
        return plan, False
    bits, count = tvm.DataType(dtype_of(src)).bits, threads_of(ctx).count
    layout = coalesced(shape, bits, count)
    if layout.get_register_size() > MOST_REGISTERS:
        return f"a thread cannot hold {layout.get_register_size()} elements"
    registers = decl_buffer((layout.get_register_size(),), dtype_of(src), f"{src.source.name}_part", LOCAL, alignment=16, span=ctx.span)
    return FragmentPlan(layout, registers, ctx.groups), True


@dataclass(frozen=True, eq=False)
class _Way:
    """How one call is done. source: where its elements are (copied: after a copy into a fragment), held: by formulas. Results go to
    output registers (their plan, what they hold, the slot of each) or through `scratch`."""

    source: FragmentPlan
    copied: bool
    held: RegisterMap
    reduction: ReducePlan
    output: FragmentPlan | None = None
    output_held: RegisterMap | None = None
    slots: tuple[int, ...] = ()
    scratch: Scratch | None = None


def _way(call: Call, ctx: LowerContext) -> _Way | str:
    if ctx.per_thread or ctx.kernel is None:
        return "an operand belongs to one thread"
    if may_overlap(call.args[0], call.args[1], ctx):
        return "the result overwrites the tile"
    found = _source(call, ctx)
    if isinstance(found, str):
        return found
    source, copied = found
    threads = threads_of(ctx).count
    held = register_map(source.layout, threads)
    if held is None:
        return "the layout of the tile has no formula"
    lanes = WARP if threads % WARP == 0 else 1
    reduction = plan_reduction(held, int(attr(call, "dim")), lanes, _combine(call).kind not in ("sum", "abssum", "bitxor"))
    if reduction is None:
        return "a thread holds an element of the tile twice"
    out = call.args[1]
    output = ctx.passes.fragments.get(out.source)
    if reduction.complete and output is not None and _is_whole(out) and output.groups == ctx.groups:
        wanted = register_map(output.layout, threads)
        slots = None if wanted is None else reduction.slots_for(wanted.held)
        if slots is not None:
            return _Way(source, copied, held, reduction, output, wanted, tuple(slots))
    scratch = plan_scratch(reduction)
    if scratch is None:
        return "the layout of the tile has no regular division of the reduced dimension"
    return _Way(source, copied, held, reduction, scratch=scratch)


def accepts(call: Call, ctx: LowerContext) -> str | None:
    """None where the threads can combine what they hold."""
    found = _way(call, ctx)
    return found if isinstance(found, str) else None


def lower(call: Call, ctx: LowerContext) -> Stmt:
    """The reduction over registers, lanes and warps."""
    found = _way(call, ctx)
    assert isinstance(found, _Way)
    return _Emitter(call, ctx, found).run()


class _Emitter:
    """Builds the statements of one reduction."""

    def __init__(self, call: Call, ctx: LowerContext, way: _Way) -> None:
        self.src, self.out = call.args
        self.dim, self.clear = int(attr(call, "dim")), bool(attr(call, "clear"))
        self.ctx, self.way = ctx, way
        self.plan, self.held, self.reduction = way.source, way.held, way.reduction
        self.combine = _combine(call)
        self.warps: Warps = bind_warps(ctx)
        self.chains = self._chains()
        self.total = decl_buffer((self.reduction.slots * self.chains,), self.combine.dtype, "partial", LOCAL, alignment=16, span=ctx.span)
        self.span = ctx.span

    def run(self) -> Stmt:
        before = [self.copy_in()] if self.way.copied else []
        stmts = [*before, *self.warps.declare, AllocBuffer(self.total, None, self.span), self.partial(), *self.exchange()]
        return seq([*stmts, *(self.through_shared() if self.way.output is None else self.into_registers())])

    def _chains(self) -> int:
        """Totals of one slot, each of a part of its elements: an operation waits for the one before it on the same total."""
        plan = self.reduction
        count = len(plan.registers[0])
        return 2 if plan.register_formula is not None and plan.slots <= FEW_SLOTS and count >= LONG_CHAIN and count % 2 == 0 else 1

    def copy_in(self) -> Stmt:
        """The source as a fragment of its own."""
        shape, src = _shape(self.src), self.src
        assert shape is not None
        tile = decl_buffer(shape, dtype_of(src), f"{src.source.name}_part", FRAGMENT, span=self.span)
        self.ctx.passes.fragments[tile] = self.plan
        self.ctx.temporaries.append(tile)
        wide = wide_dims(src)

        def body(v: list[Var]) -> list[Stmt]:
            position = dict(zip(wide, v, strict=True))
            where = [position.get(k, const(0, "int32")) for k in range(len(shape))]
            return [store(tile, load(src.source, indices(src, position)), where, self.span)]

        return nest([shape[k] for k in wide], body, self.ctx)

    def partial(self) -> Stmt:
        """total[slot] = the combination of this thread's elements of that slot."""
        identity = self.combine.identity(dtype_of(self.src))
        partly = not (self.held.held >= 0).all()

        def one(slot: Any, register: Any) -> Stmt:
            value = self.combine.value(load(self.plan.registers, [register]))
            if partly:
                value = tirx.if_then_else(_all(self.held.holds(self.warps.thread, register)), value, identity)
            return store(self.total, self.step(load(self.total, [slot]), value), [slot], self.span)

        formula = self.reduction.register_formula
        if formula is None:
            stmts = [store(self.total, identity, [const(s, "int32")], self.span) for s in range(self.reduction.slots)]
            pairs = [(const(s, "int32"), const(r, "int32")) for s, rs in enumerate(self.reduction.registers) for r in rs]
            return seq([*stmts, *[one(s, r) for s, r in pairs]])
        count, chains = len(self.reduction.registers[0]), self.chains

        def slot(s: Any) -> list[Stmt]:
            first = s * chains if chains > 1 else s
            clear = [store(self.total, identity, [at(0, 1, first, k)], self.span) for k in range(chains)]
            inner = loop(
                count // chains, lambda q: [one(at(0, 1, first, k), formula(s, at(0, chains, q, k))) for k in range(chains)], "q", self.span
            )
            return [*clear, inner]

        def joined(s: Any) -> list[Stmt]:
            parts = [load(self.total, [at(0, 1, s * chains, k)]) for k in range(chains)]
            return [store(self.total, self.step(*parts), [s], self.span)]

        whole = loop(self.reduction.slots, slot, "s", self.span)
        return whole if chains == 1 else seq([whole, loop(self.reduction.slots, joined, "s", self.span)])

    def exchange(self) -> list[Stmt]:
        """Lanes whose numbers differ in one bit exchange their totals, bit by bit."""
        stmts = []
        for bit in self.reduction.lane_bits:

            def slot(s: Any, bit: int = bit) -> list[Stmt]:
                other = Var("other", self.total.ty.dtype)
                mine = load(self.total, [s])
                operands = [mine, const(bit, "int32"), const(WARP, "int32"), const(0xFFFFFFFF, "uint32")]
                shuffled = make_call("tl.shfl", operands, self.combine.dtype, mode="xor")
                return [Bind(other, shuffled, self.span), store(self.total, self.step(mine, other), [s], self.span)]

            stmts.append(loop(self.reduction.slots, slot, "s", self.span))
        return stmts

    def step(self, total: Expr, new: Expr) -> Expr:
        """As `Combine.step`. The largest or smallest number is one instruction that passes over a NaN, since `total` is never one."""
        combine = self.combine
        if combine.kind in ("max", "absmax", "min") and combine.dtype in ("float32", "float64") and not combine.nan_propagate:
            return (tirx.Min if combine.kind == "min" else tirx.Max)(total, new)
        return combine.step(total, new)

    # ---------------------------------------------------------------- results
    def finished(self, total: Expr, old: Expr) -> Expr:
        if not self.clear:
            total = self.step(total, convert(old, self.combine.dtype))
        return convert(total, dtype_of(self.out))

    def into_registers(self) -> list[Stmt]:
        """Results for the registers of the output: every thread that holds an element of it has computed that element."""
        plan, held, slots = self.way.output, self.way.output_held, self.way.slots
        assert plan is not None and held is not None
        partly = not (held.held >= 0).all()

        def one(register: Any, slot: Any) -> Stmt:
            value = self.finished(load(self.total, [slot]), load(plan.registers, [register]))
            stmt = store(plan.registers, value, [register], self.span)
            return IfThenElse(_all(held.holds(self.warps.thread, register)), stmt, None, self.span) if partly else stmt

        if slots == tuple(range(len(slots))):
            return [loop(len(slots), lambda r: [one(r, r)], "r", self.span)]
        return [one(const(r, "int32"), const(s, "int32")) for r, s in enumerate(slots)]

    def through_shared(self) -> list[Stmt]:
        """Partial results to shared memory, combined in order by a loop over the output."""
        plan, ctx = self.way.scratch, self.ctx
        assert plan is not None
        positions, ranks = plan.positions, plan.ranks
        scratch = decl_buffer((ranks, positions), self.combine.dtype, "partials", SHARED_DYN, alignment=16, span=self.span)
        ctx.temporaries.append(scratch)
        writers = [test(self.warps.thread) for test in plan.writers]

        def put(s: Any) -> list[Stmt]:
            where = [plan.rank(self.warps.thread, s), plan.position(self.warps.thread, s)]
            stmt = store(scratch, load(self.total, [s]), [_expr(w) for w in where], self.span)
            conditions = [*writers, *([tirx.LT(_expr(where[1]), const(positions, "int32"))] if plan.bounded else [])]
            return [IfThenElse(_all(conditions), stmt, None, self.span) if conditions else stmt]

        rest = [k for k in wide_dims(self.src) if k != self.dim]
        extents = [extents_of(self.src)[k] for k in rest]
        target = wide_dims(self.out)

        def take(v: list[Var]) -> list[Stmt]:
            where = indices(self.out, dict(zip(target, v, strict=True)))
            position = ravel(v, extents) if v else const(0, "int32")
            result = decl_buffer((1,), self.combine.dtype, "acc", "local.var", span=self.span)

            def step(w: Any) -> list[Stmt]:
                return [store(result, self.step(load(result, [0]), load(scratch, [w, position])), [0], self.span)]

            more = [serial(ranks - 1, lambda w: step(w + 1), ctx, "w")] if ranks > 1 else []
            final = store(self.out.source, self.finished(load(result, [0]), load(self.out.source, where)), where, self.span)
            first = store(result, load(scratch, [const(0, "int32"), position]), [0], self.span)
            return [AllocBuffer(result, None, self.span), first, *more, final]

        assert math.prod(extents) == positions
        return [loop(self.reduction.slots, put, "s", self.span), nest(extents, take, ctx, scalar=True)]


def _expr(value: Any) -> Expr:
    return const(int(value), "int32") if isinstance(value, int) else value


def _all(conditions: list[Expr]) -> Expr:
    result = conditions[0]
    for condition in conditions[1:]:
        result = tirx.And(result, condition)
    return result


REDUCE = Lowering("registers and shuffles", "tl.tileop.reduce", accepts, lower)

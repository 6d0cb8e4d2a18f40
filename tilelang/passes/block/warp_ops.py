"""Warp and block operations evaluated over all threads: shuffles, votes, reductions.

In: a call and, for each of its operands, the array that holds the operand's value in every thread, and which threads take
part. Out: statements that compute the result for every thread, and the expression that reads it in one thread. A warp is
32 threads in linear order; a source lane that does not exist or does not take part gives the reader its own value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import InternalError
from ...ir.dialect import LOCAL, attr, op_name
from ...ir.rewrite import substitute
from ...ir.tvm_api import (
    Bind,
    Call,
    Cast,
    Expr,
    For,
    ForKind,
    IfThenElse,
    Span,
    Stmt,
    Var,
    const,
    decl_buffer,
    dtype_of,
    is_buffer,
    load,
    seq,
    store,
    tirx,
)  # fmt: skip
from ..analysis.thread_loops import ThreadSpace

WARP = 32
Operand = Any  # the array (a buffer) that holds it in every thread, or an expression that is the same in all
Evaluated = tuple[list[Var], list[Stmt], Expr]  # arrays to declare, statements, result in one thread
_NATIVE = {
    "tirx.tvm_warp_shuffle": "idx",
    "tirx.tvm_warp_shuffle_up": "up",
    "tirx.tvm_warp_shuffle_down": "down",
    "tirx.tvm_warp_shuffle_xor": "xor",
}


class WarpOps:
    """Evaluation for one kernel region."""

    def __init__(self, space: ThreadSpace) -> None:
        self.space = space

    def operands(self, call: Call) -> list[Expr]:
        """The operands whose value in every thread is needed, in the order in which `evaluate` expects their arrays."""
        name = op_name(call)
        if name in _NATIVE:
            return [call.args[1], call.args[2], call.args[3]]
        if name == "tl.shfl":
            return [call.args[0], call.args[1], call.args[2]]
        return list(call.args[:1])

    def evaluate(self, call: Call, operands: Sequence[Operand], active: Var, span: Span | None) -> Evaluated:
        name = op_name(call)
        if name in _NATIVE or name == "tl.shfl":
            return self._shuffle(_NATIVE.get(name) or str(attr(call, "mode")), operands, active, dtype_of(call), span)
        kind = str(attr(call, "kind"))
        if name == "tl.block_vote":
            return self._block_vote(kind, operands[0], active, dtype_of(call), span)
        if name == "tl.warp_reduce":
            return self._fold(_FOLDS[kind], None, operands[0], active, dtype_of(call), WARP, span)
        if name == "tl.vote":
            return self._vote(kind, operands, active, dtype_of(call), span)
        raise InternalError(f"no evaluation of {name} over a warp")

    # ---------------------------------------------------------------- shuffles
    def _shuffle(self, mode: str, operands: Sequence[Operand], active: Var, dtype: str, span: Span | None) -> Evaluated:
        value, lane_or_delta, width = operands
        me, (source, inside, size, by) = self.space.linear, (Var(n, "int32") for n in ("source", "inside", "size", "by"))
        lane, one = tirx.FloorMod(me, const(WARP, "int32")), const(1, "int32")
        first = lane - inside
        target, valid = {
            "idx": (first + tirx.BitwiseAnd(by, size - one), const(1, "bool")),
            "up": (lane - by, tirx.GE(inside - by, const(0, "int32"))),
            "down": (lane + by, tirx.LT(inside + by, size)),
            "xor": (tirx.BitwiseXor(lane, by), tirx.LT(tirx.BitwiseXor(lane, by), first + size)),
        }[mode]
        exists = tirx.And(tirx.GE(source, const(0, "int32")), tirx.LT(source, const(self.space.count, "int32")))
        taken = tirx.if_then_else(tirx.And(valid, exists), load(active, [source]), const(0, "bool"))
        result = decl_buffer((self.space.count,), dtype, "shuffled", LOCAL)
        body = seq([
            Bind(size, _int(value_at(width, me)), span), Bind(by, _int(value_at(lane_or_delta, me)), span),
            Bind(inside, tirx.BitwiseAnd(lane, size - one), span), Bind(source, me - lane + target, span),
            store(result, tirx.if_then_else(taken, value_at(value, source), value_at(value, me)), [me], span),
        ])  # fmt: skip
        return [result], [self.space.loops(body, span)], load(result, [me])

    # ---------------------------------------------------------------- votes and reductions
    def _vote(self, kind: str, operands: Sequence[Operand], active: Var, dtype: str, span: Span | None) -> Evaluated:
        if kind.startswith("match"):
            return self._match(kind, operands[0], active, dtype, span)
        bit = tirx.LShift(const(1, "uint32"), Cast("uint32", _LANE))

        if kind in ("ballot", "activemask"):
            each = (lambda v: tirx.Select(_holds(v), bit, const(0, "uint32"))) if kind == "ballot" else (lambda v: bit)
            fold = (tirx.BitwiseOr, lambda _: const(0, "uint32"))
        elif kind in ("any", "all"):
            each = lambda v: Cast("uint32", _holds(v))  # noqa: E731
            combine = tirx.BitwiseOr if kind == "any" else tirx.BitwiseAnd
            fold = (combine, lambda _: const(int(kind == "all"), "uint32"))
        else:
            raise InternalError(f"unknown vote {kind}")
        return self._fold(fold, each, operands[0] if operands else const(1, "bool"), active, "uint32", WARP, span, dtype)

    def _block_vote(self, kind: str, value: Operand, active: Var, dtype: str, span: Span | None) -> Evaluated:
        each = lambda v: Cast("int32", _holds(v))  # noqa: E731
        fold = {
            "count": (tirx.Add, lambda _: const(0, "int32")),
            "and": (tirx.BitwiseAnd, lambda _: const(1, "int32")),
            "or": (tirx.BitwiseOr, lambda _: const(0, "int32")),
        }[kind]
        return self._fold(fold, each, value, active, "int32", self.space.count, span, dtype)

    def _fold(
        self, fold: Any, each: Any, value: Operand, active: Var, acc: str, group: int, span: Span | None, dtype: str = ""
    ) -> Evaluated:  # fmt: skip
        """Combine over every group of `group` consecutive threads the values of those that take part."""
        combine, identity = fold
        groups = -(-self.space.count // group)
        total = decl_buffer((groups,), acc, "total", LOCAL)
        g, k = Var("group", "int32"), Var("lane", "int32")
        thread = g * group + k if groups > 1 else k
        element = value_at(value, thread)
        element = substitute(each(element), {_LANE: k}) if each is not None else element
        update = IfThenElse(load(active, [thread]), store(total, combine(load(total, [g]), element), [g], span), None, span)
        if self.space.count % group:
            update = IfThenElse(tirx.LT(thread, const(self.space.count, "int32")), update, None, span)
        loop = For(k, 0, group, ForKind.SERIAL, update, span=span)
        body = For(g, 0, groups, ForKind.SERIAL, seq([store(total, identity(acc), [g], span), loop]), span=span)
        mine = tirx.FloorDiv(self.space.linear, const(group, "int32")) if groups > 1 else const(0, "int32")
        result = load(total, [mine])
        return [total], [body], Cast(dtype, result) if dtype and dtype != acc else result

    def _match(self, kind: str, value: Operand, active: Var, dtype: str, span: Span | None) -> Evaluated:
        """match_any: the lanes that hold my value; match_all: all taking part if they agree, else none."""
        result = decl_buffer((self.space.count,), "uint32", "matched", LOCAL)
        all_lanes = decl_buffer((self.space.count,), "uint32", "members", LOCAL)
        me, k = self.space.linear, Var("lane", "int32")
        other = tirx.FloorDiv(me, const(WARP, "int32")) * WARP + k
        bit = tirx.LShift(const(1, "uint32"), Cast("uint32", k))
        same = IfThenElse(
            tirx.EQ(value_at(value, other), value_at(value, me)), store(result, tirx.BitwiseOr(load(result, [me]), bit), [me]), None, span
        )
        member = store(all_lanes, tirx.BitwiseOr(load(all_lanes, [me]), bit), [me], span)
        body: Stmt = IfThenElse(load(active, [other]), seq([same, member]), None, span)
        if self.space.count % WARP:
            body = IfThenElse(tirx.LT(other, const(self.space.count, "int32")), body, None, span)
        zero = const(0, "uint32")
        start = [store(result, zero, [me], span), store(all_lanes, zero, [me], span)]
        loops = self.space.loops(seq([*start, For(k, 0, WARP, ForKind.SERIAL, body, span=span)]), span)
        found = load(result, [me])
        if kind == "match_all":
            found = tirx.Select(tirx.EQ(found, load(all_lanes, [me])), found, zero)
        return [result, all_lanes], [loops], found if dtype == "uint32" else Cast(dtype, found)

    # ---------------------------------------------------------------- reduction over thread axes
    def allreduce(self, operand: Var, reducer: Any, axes: Sequence[Expr], span: Span | None) -> Evaluated:
        """Every thread receives the combination over the given thread axes, in the order of the thread index."""
        dtype = dtype_of(operand)
        total = decl_buffer((self.space.count,), dtype, "total", LOCAL)
        reduced = [any(isinstance(a, Var) and var.same_as(a) for a in axes) for var, _ in self.space.axes]
        inner = [Var(f"r{name}", "int32") for name in "xyz"]
        leader, member = [], []
        for (var, _), over, new in zip(self.space.axes, reduced, inner, strict=True):
            leader.append(const(0, "int32") if over else var)
            member.append(new if over else var)
        at, source = self._linear(leader), self._linear(member)
        combined = substitute(reducer.result[0], {reducer.lhs[0]: load(total, [at]), reducer.rhs[0]: load(operand, [source])})
        body: Stmt = store(total, combined, [at], span)
        for (_, extent), over, new in zip(self.space.axes, reduced, inner, strict=True):
            if over:
                body = For(new, 0, extent, ForKind.SERIAL, body, span=span)
        body = seq([store(total, reducer.identity_element[0], [at], span), body])
        for (var, _), over in zip(self.space.axes, reduced, strict=True):
            if over:
                body = IfThenElse(tirx.EQ(var, const(0, "int32")), body, None, span)
        return [total], [self.space.loops(body, span)], load(total, [at])

    def _linear(self, indices: Sequence[Expr]) -> Expr:
        x, y, z = indices
        (_, ex), (_, ey), _ = self.space.axes
        return x + (y + z * ey) * ex


_LANE = Var("lane", "int32")  # stands for the lane in the expressions of `_vote`


def _int(value: Expr) -> Expr:
    return value if dtype_of(value) == "int32" else Cast("int32", value)


def _holds(value: Expr) -> Expr:
    return value if dtype_of(value) == "bool" else tirx.NE(value, const(0, dtype_of(value)))


def value_at(operand: Operand, thread: Expr) -> Expr:
    return load(operand, [thread]) if is_buffer(operand) else operand


def _limit(low: bool) -> Callable[[str], Expr]:
    def identity(dtype: str) -> Expr:
        if dtype.startswith(("float", "bfloat")):
            return const(float("inf") if low else float("-inf"), dtype)
        bits = int(dtype.lstrip("uint"))
        if dtype.startswith("uint"):
            return const((1 << bits) - 1 if low else 0, dtype)
        return const((1 << (bits - 1)) - 1 if low else -(1 << (bits - 1)), dtype)

    return identity


_FOLDS = {
    "sum": (tirx.Add, lambda dtype: const(0, dtype)),
    "max": (tirx.Max, _limit(False)),
    "min": (tirx.Min, _limit(True)),
    "bitand": (tirx.BitwiseAnd, lambda dtype: const(-1, dtype)),
    "bitor": (tirx.BitwiseOr, lambda dtype: const(0, dtype)),
    "bitxor": (tirx.BitwiseXor, lambda dtype: const(0, dtype)),
}

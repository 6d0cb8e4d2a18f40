"""Faults as small changes of a lowered program. Each mutation lists its places; one of them is changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.ir.dialect import ANNOTATION_ALLOC, LOCAL, SHARED_SCOPES, make_call, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import Descend, rewrite
from tilelang.ir.tvm_api import (
    AllocBuffer,
    BufferStore,
    Call,
    Evaluate,
    For,
    IfThenElse,
    IntImm,
    PrimFunc,
    Stmt,
    TensorLoad,
    Var,
    const,
    dtype_of,
    load,
    region,
    seq,
    store,
    tirx,
)  # fmt: skip

Change = Callable[[Any, Descend], Any]


def change_nth(func: PrimFunc, types: Any, wanted: Callable[[Any], bool], n: int, change: Change) -> PrimFunc | None:
    """The program with the n-th wanted node changed, or None if there are fewer."""
    count = -1

    def rule(node: Any, descend: Descend) -> Any:
        nonlocal count
        if wanted(node):
            count += 1
            if count == n:
                return change(node, descend)
        return descend.children(node)

    body = rewrite(func.body, {types: rule})
    return func.with_body(body) if count >= n else None


def _calls(name: str) -> Callable[[Any], bool]:
    return lambda stmt: op_name(stmt.value) == name


def _drop(stmt: Any, descend: Descend) -> Stmt:
    return seq([])


def drop_call(name: str) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """Leave out one statement of this operator."""
    return lambda func, n: change_nth(func, Evaluate, _calls(name), n, _drop)


def first_half_only(name: str) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """Let only the first 32 threads execute it."""

    def mutate(func: PrimFunc, n: int) -> PrimFunc | None:
        thread = _thread_variable(func)
        condition = tirx.LT(thread, const(32, dtype_of(thread)))
        return change_nth(func, Evaluate, _calls(name), n, lambda stmt, descend: IfThenElse(condition, stmt, None, stmt.span))

    return mutate


def _thread_variable(func: PrimFunc) -> Var:
    found: list[Var] = []

    def see(kernel: Any) -> Stmt:
        found.append(kernel.threads[0][0])
        return kernel.to_stmt()

    map_kernels(func.body, see)
    return found[0]


def another_value(name: str, operand: int, change: Callable[[Any], Any]) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """Change one operand (a value) of a statement of this operator."""

    def swap(stmt: Any, descend: Descend) -> Stmt:
        call: Call = stmt.value
        args = list(call.args)
        args[operand] = change(args[operand])
        attrs = {str(k): v for k, v in (call.attrs or {}).items()}
        return Evaluate(make_call(name, args, span=call.span, **attrs), stmt.span)

    return lambda func, n: change_nth(func, Evaluate, _calls(name), n, swap)


def moved_operand(name: str, operand: int, by: int) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """Move a region operand along its last dimension."""

    def move(block: Any) -> Any:
        mins = [r.min for r in block.region]
        mins[-1] = mins[-1] + const(by, dtype_of(mins[-1]))
        return region(block.source, mins, [r.extent for r in block.region])

    return another_value(name, operand, move)


def _plus(index: Any, by: int) -> Any:
    return index + const(by, dtype_of(index))


def shifted_store(func: PrimFunc, n: int) -> PrimFunc | None:
    """A store to shared memory one element further."""
    return change_nth(
        func, BufferStore, lambda s: s.buffer.scope() in SHARED_SCOPES, n,
        lambda s, d: store(s.buffer, s.value, [*s.indices[:-1], _plus(s.indices[-1], 1)], s.span),
    )  # fmt: skip


def shifted_load(func: PrimFunc, n: int) -> PrimFunc | None:
    """A load from shared memory one element further."""
    return change_nth(
        func, TensorLoad, lambda x: x.source.scope() in SHARED_SCOPES, n,
        lambda x, d: load(x.source, [*x.indices[:-1], _plus(x.indices[-1], 1)], x.span),
    )  # fmt: skip


def other_swizzle(func: PrimFunc, n: int) -> PrimFunc | None:
    """Loads from shared memory with another swizzle than the stores."""
    return change_nth(
        func, TensorLoad, lambda x: x.source.scope() in SHARED_SCOPES, n,
        lambda x, d: load(x.source, [*x.indices[:-1], tirx.BitwiseXor(x.indices[-1], const(2, dtype_of(x.indices[-1])))], x.span),
    )  # fmt: skip


def dropped_store(*scopes: str) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """Leave out a store to memory of these scopes."""
    return lambda func, n: change_nth(func, BufferStore, lambda s: s.buffer.scope() in scopes, n, _drop)


def overlapped(func: PrimFunc, n: int) -> PrimFunc | None:
    """Put the (n + 1)-th shared buffer where the first one is."""
    offsets: list[int] = []

    def wanted(stmt: Any) -> bool:
        if stmt.buffer.scope() not in SHARED_SCOPES:
            return False
        offsets.append(int(_facts(stmt)["offset"]))
        return True

    def move(stmt: Any, descend: Descend) -> Stmt:
        facts = {**_facts(stmt), "offset": offsets[0]}
        return AllocBuffer(stmt.buffer, {ANNOTATION_ALLOC: facts}, stmt.span)

    return change_nth(func, AllocBuffer, wanted, n + 1, move)


def wrong_count(by: int) -> Callable[[PrimFunc, int], PrimFunc | None]:
    """An mbarrier that expects `by` more arrivals."""

    def move(stmt: Any, descend: Descend) -> Stmt:
        facts = _facts(stmt)
        facts["arrive_counts"] = [int(c) + by for c in facts["arrive_counts"]]
        return AllocBuffer(stmt.buffer, {ANNOTATION_ALLOC: facts}, stmt.span)

    return lambda func, n: change_nth(func, AllocBuffer, lambda s: s.buffer.scope() == "shared.barrier", n, move)


def _facts(stmt: Any) -> dict[str, Any]:
    return dict(stmt.annotations[ANNOTATION_ALLOC].items())


def without_guard(func: PrimFunc, n: int) -> PrimFunc | None:
    """Execute a guarded statement always."""
    return change_nth(func, IfThenElse, lambda s: s.else_case is None, n, lambda s, d: d(s.then_case))


def one_more_turn(func: PrimFunc, n: int) -> PrimFunc | None:
    """A loop that runs once more."""
    return change_nth(
        func, For, lambda s: isinstance(s.extent, IntImm), n,
        lambda s, d: For(s.loop_var, s.min, _plus(s.extent, 1), s.kind, d(s.body), None, s.annotations, s.step, s.span),
    )  # fmt: skip


def one_turn_less(func: PrimFunc, n: int) -> PrimFunc | None:
    """A loop that stops one turn early."""
    return change_nth(
        func, For, lambda s: isinstance(s.extent, IntImm) and int(s.extent) > 0, n,
        lambda s, d: For(s.loop_var, s.min, _plus(s.extent, -1), s.kind, d(s.body), None, s.annotations, s.step, s.span),
    )  # fmt: skip


MUTATIONS: dict[str, Callable[[PrimFunc, int], PrimFunc | None]] = {
    "barrier dropped": drop_call("tl.sync_threads"),
    "barrier reached by a part": first_half_only("tl.sync_threads"),
    "wait for copies dropped": drop_call("tl.cp_async_wait"),
    "wait for copies too weak": another_value("tl.cp_async_wait", 0, lambda v: _plus(v, 1)),
    "commit of copies dropped": drop_call("tl.cp_async_commit"),
    "copy dropped": drop_call("tl.cp_async"),
    "copy to the next place": moved_operand("tl.cp_async", 0, 8),
    "copy from the next place": moved_operand("tl.cp_async", 1, 8),
    "instruction dropped": drop_call("tl.instr"),
    "instruction with a wrong address": moved_operand("tl.instr", 1, 1),
    "store shifted": shifted_store,
    "load shifted": shifted_load,
    "swizzle on one side": other_swizzle,
    "store to shared memory dropped": dropped_store(*SHARED_SCOPES),
    "store to registers dropped": dropped_store(LOCAL),
    "buffers overlap": overlapped,
    "guard dropped": without_guard,
    "one turn more": one_more_turn,
    "one turn less": one_turn_less,
    "arrive dropped": drop_call("tl.mbarrier_arrive"),
    "wait dropped": drop_call("tl.mbarrier_wait"),
    "wrong parity": another_value("tl.mbarrier_wait", 1, lambda v: tirx.BitwiseXor(v, const(1, dtype_of(v)))),
    "too many arrivals expected": wrong_count(1),
    "too few arrivals expected": wrong_count(-32),
    "atomic update dropped": drop_call("tl.atomic"),
}

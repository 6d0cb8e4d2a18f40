"""Faults as small changes of a lowered program. Each mutation lists its places; one of them is changed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.backend.gpu.wgmma import Matrix
from tilelang.ir.dialect import ANNOTATION_ALLOC, BARRIER, CLUSTER_BARRIER, LOCAL, SHARED_SCOPES, make_call, op_name
from tilelang.ir.kernel import map_kernels
from tilelang.ir.rewrite import Descend, rewrite, walk
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
    TensorRegion,
    Var,
    const,
    decl_buffer,
    dtype_of,
    load,
    region,
    seq,
    shape_of,
    store,
    tirx,
)  # fmt: skip

Change = Callable[[Any, Descend], Any]
Mutation = Callable[[PrimFunc, int], PrimFunc | None]


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


def drop_call(name: str) -> Mutation:
    """Leave out one statement of this operator."""
    return lambda func, n: change_nth(func, Evaluate, _calls(name), n, _drop)


def first_half_only(name: str) -> Mutation:
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


def another_value(name: str, operand: int, change: Callable[[Any], Any]) -> Mutation:
    """Change one operand (a value) of a statement of this operator."""

    def swap(stmt: Any, descend: Descend) -> Stmt:
        call: Call = stmt.value
        args = list(call.args)
        args[operand] = change(args[operand])
        attrs = {str(k): v for k, v in (call.attrs or {}).items()}
        return Evaluate(make_call(name, args, span=call.span, **attrs), stmt.span)

    return lambda func, n: change_nth(func, Evaluate, lambda s: _calls(name)(s) and len(s.value.args) > operand, n, swap)


def moved_operand(name: str, operand: int, by: int) -> Mutation:
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


def dropped_store(*scopes: str) -> Mutation:
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


def wrong_count(by: int) -> Mutation:
    """An mbarrier that expects `by` more arrivals, at least one."""

    def move(stmt: Any, descend: Descend) -> Stmt:
        facts = _facts(stmt)
        facts["arrive_counts"] = [max(int(c) + by, 1) for c in facts["arrive_counts"]]
        return AllocBuffer(stmt.buffer, {ANNOTATION_ALLOC: facts}, stmt.span)

    def wanted(stmt: Any) -> bool:
        return stmt.buffer.scope() == "shared.barrier" and (by > 0 or all(int(c) > 1 for c in _facts(stmt)["arrive_counts"]))

    return lambda func, n: change_nth(func, AllocBuffer, wanted, n, move)


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


# ---------------------------------------------------------------- bulk copies and products
def doubled(name: str) -> Mutation:
    """Execute a statement of this operator twice."""
    return lambda func, n: change_nth(func, Evaluate, _calls(name), n, lambda stmt, d: seq([stmt, stmt]))


def only_when(name: str, condition: Callable[[Var], Any]) -> Mutation:
    """Execute a statement of this operator only in threads for which a condition on the thread's index holds."""

    def mutate(func: PrimFunc, n: int) -> PrimFunc | None:
        test = condition(_thread_variable(func))
        return change_nth(func, Evaluate, _calls(name), n, lambda stmt, d: IfThenElse(test, stmt, None, stmt.span))

    return mutate


def another_attr(name: str, key: str, change: Callable[[Any], Any]) -> Mutation:
    """Change an attribute of a statement of this operator."""

    def swap(stmt: Any, descend: Descend) -> Stmt:
        call: Call = stmt.value
        attrs = {str(k): v for k, v in (call.attrs or {}).items()}
        attrs[key] = change(attrs[key])
        return Evaluate(make_call(name, list(call.args), span=call.span, **attrs), stmt.span)

    def wanted(stmt: Any) -> bool:
        return _calls(name)(stmt) and key in (stmt.value.attrs or {})

    return lambda func, n: change_nth(func, Evaluate, wanted, n, swap)


def other_stage(name: str, operand: int) -> Mutation:
    """The next barrier of an array that has several."""

    def move(block: Any) -> Any:
        count = shape_of(block.source)[0]
        return region(block.source, [(block.region[0].min + 1) % const(count, "int32")], [1])

    def several(stmt: Any) -> bool:
        return _calls(name)(stmt) and shape_of(stmt.value.args[operand].source)[0] > 1

    def swap(stmt: Any, descend: Descend) -> Stmt:
        call: Call = stmt.value
        args = list(call.args)
        args[operand] = move(args[operand])
        return Evaluate(make_call(name, args, span=call.span, **{str(k): v for k, v in (call.attrs or {}).items()}), stmt.span)

    return lambda func, n: change_nth(func, Evaluate, several, n, swap)


def of_the_block(func: PrimFunc, n: int) -> PrimFunc | None:
    """Barriers of a cluster that only their block knows to be initialised."""
    found: list[AllocBuffer] = []
    walk(func.body, {AllocBuffer: lambda s: found.append(s) if s.buffer.scope() == CLUSTER_BARRIER else None})
    if n:  # all of them at once: one that is left would synchronise the cluster for the others
        return None
    table = {s.buffer: decl_buffer(tuple(shape_of(s.buffer)), dtype_of(s.buffer), s.buffer.name, BARRIER) for s in found}

    def declare(stmt: Any, descend: Descend) -> Stmt:
        return AllocBuffer(table[stmt.buffer], stmt.annotations, stmt.span) if stmt.buffer in table else stmt

    def refer(block: Any, descend: Descend) -> Any:
        mins = [descend(r.min) for r in block.region]
        return region(table.get(block.source, block.source), mins, [r.extent for r in block.region])

    return func.with_body(rewrite(func.body, {AllocBuffer: declare, TensorRegion: refer})) if found else None


def _other_matrix(text: Any) -> str:
    matrix = Matrix.parse(str(text))
    return Matrix(matrix.major, matrix.swizzle, matrix.leading, 2 * matrix.stride).text


def _flipped(value: Any) -> Any:
    return tirx.Not(value) if dtype_of(value) == "bool" else tirx.EQ(value, const(0, dtype_of(value)))


MUTATIONS: dict[str, Mutation] = {
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
    "barrier for more threads": another_value("tl.sync_threads", 1, lambda v: _plus(v, 32)),
    "copies swapped with their wait": another_value("tl.cp_async_wait", 0, lambda v: _plus(v, 2)),
    "arrive at another barrier": other_stage("tl.mbarrier_arrive", 0),
    "wait at another barrier": other_stage("tl.mbarrier_wait", 0),
    "arrive twice": doubled("tl.mbarrier_arrive"),
    "arrive by one lane less": only_when("tl.mbarrier_arrive", lambda t: tirx.NE(t % 32, const(0, "int32"))),
    "bulk load dropped": drop_call("tl.tma_load"),
    "bulk load twice": doubled("tl.tma_load"),
    "bulk load signals another barrier": other_stage("tl.tma_load", 2),
    "bulk load to the next place": moved_operand("tl.tma_load", 0, 64),
    "bulk load from the next place": moved_operand("tl.tma_load", 1, 8),
    "bulk load with another swizzle": another_attr("tl.tma_load", "swizzle", lambda s: 0 if int(s) else 128),
    "expected bytes dropped": drop_call("tl.mbarrier_expect_tx"),
    "too many bytes expected": another_value("tl.mbarrier_expect_tx", 1, lambda v: _plus(v, 16)),
    "too few bytes expected": another_value("tl.mbarrier_expect_tx", 1, lambda v: _plus(v, -16)),
    "bytes expected of another barrier": other_stage("tl.mbarrier_expect_tx", 0),
    "load for one block of the cluster": another_value("tl.tma_load", 3, lambda v: const(1, dtype_of(v))),
    "load for no block of the cluster": another_value("tl.tma_load", 3, lambda v: const(0, dtype_of(v))),
    "load for a block too many": another_value("tl.tma_load", 3, lambda v: const(7, dtype_of(v))),
    "arrive at one block of the cluster": another_value("tl.mbarrier_arrive", 1, lambda v: const(0, dtype_of(v))),
    "arrive at a block outside of the cluster": another_value("tl.mbarrier_arrive", 1, lambda v: _plus(v, 1)),
    "barrier of the block alone": of_the_block,
    "proxy fence dropped": drop_call("tl.fence_proxy_async"),
    "bulk store dropped": drop_call("tl.tma_store"),
    "bulk store to the next place": moved_operand("tl.tma_store", 1, 8),
    "bulk store with another swizzle": another_attr("tl.tma_store", "swizzle", lambda s: 0 if int(s) else 128),
    "bulk store that adds, or no more": another_attr("tl.tma_store", "add", lambda a: not a),
    "bulk group not closed": drop_call("tl.bulk_commit"),
    "bulk wait dropped": drop_call("tl.bulk_wait"),
    "bulk wait too weak": another_value("tl.bulk_wait", 0, lambda v: _plus(v, 1)),
    "product dropped": drop_call("tl.wgmma"),
    "product by three warps": only_when("tl.wgmma", lambda t: tirx.LT(t % 128, const(96, "int32"))),
    "product forgets or keeps": another_value("tl.wgmma", 3, _flipped),
    "product of another matrix": another_attr("tl.wgmma", "b_matrix", _other_matrix),
    "product of other rows": moved_operand("tl.wgmma", 1, 8),
    "product fence dropped": drop_call("tl.wgmma_fence"),
    "product group not closed": drop_call("tl.wgmma_commit"),
    "product wait dropped": drop_call("tl.wgmma_wait"),
    "product wait too weak": another_value("tl.wgmma_wait", 0, lambda v: _plus(v, 1)),
}

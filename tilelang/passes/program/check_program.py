"""What a user may have written that no later stage can give a meaning to, told at the user's line.

In: a TILE program. Out: the same program, or an error: something that only a GPU has on a target without one, memory of the
block allocated per iteration, `break` without a loop, an external function that does not exist, expressions too deep for
the machinery underneath, a division by the constant zero.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ...errors import TileError, TileIndexError, TileNameError, TileNotSupportedError, TileSyntaxError, TileValueError
from ...ir.context import PassContext
from ...ir.dialect import BARRIER, CLUSTER_BARRIER, DESCRIPTORS, LOCAL, THREAD_SCOPES, TMEM, attr, op_name
from ...ir.rewrite import uses
from ...ir.tvm_api import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Call,
    Cast,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    PrimFunc,
    Span,
    StringImm,
    TensorLoad,
    TensorRegion,
    While,
    ffi,
    location_of_span,
    tirx,
)  # fmt: skip
from ...target.limits import has_clusters

MAX_DEPTH = 1000  # TVM recurses over expressions and dies somewhere above 3000

_GPU_SCOPES = {BARRIER: "T.alloc_barrier", CLUSTER_BARRIER: "T.alloc_cluster_barrier", TMEM: "T.alloc_tmem"} | dict.fromkeys(
    DESCRIPTORS, "T.alloc_descriptor"
)
_GPU_OPS = {
    "tl.mbarrier_init": "T.mbarrier_init",
    "tl.mbarrier_wait": "T.mbarrier_wait_parity",
    "tl.mbarrier_arrive": "T.mbarrier_arrive",
    "tl.mbarrier_expect_tx": "T.mbarrier_expect_tx",
    "tl.sync_grid": "T.sync_grid",
    "tl.cluster_arrive": "T.cluster_arrive",
    "tl.cluster_wait": "T.cluster_wait",
}
_EXTERN = ("tirx.call_extern", "tirx.call_pure_extern")
_LEAVE = {"tirx.break_loop": "break", "tirx.continue_loop": "continue"}
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_STATEMENTS = (AllocBuffer, AssertStmt, AttrStmt, Bind, BufferStore, Evaluate, For, IfThenElse, While)


def check_program(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Raise the first error that the program holds; otherwise give it back unchanged."""
    checker = _Checker(ctx)
    rules = [(_STATEMENTS, checker.statement), (TensorLoad, checker.load), (Call, checker.call), (_DIVISIONS, checker.division)]
    try:
        ffi.structural_visit(func.body, rules)
    except Exception:
        if checker.error is not None:
            raise checker.error from None
        raise
    return func


class _Checker:
    """Callbacks of one traversal. The first error is kept, because TVM wraps what a callback raises."""

    def __init__(self, ctx: PassContext) -> None:
        self.on_gpu = ctx.target.is_gpu
        self.target = str(ctx.target)
        self.clusters = self.on_gpu and has_clusters(ctx.target)
        self.spans: list[Span] = []
        self.around: list[str] = []  # "loop" or "parallel", innermost last
        self.parallel: list[Any] = []  # indices of the open T.Parallel nests
        self.private: set[Any] = set()  # per-thread memory declared inside them
        self.error: TileError | None = None

    def fail(self, kind: type[TileError], message: str, remedy: str = "") -> None:
        self.error = kind(message, at=location_of_span(self.spans[-1] if self.spans else None), remedy=remedy)
        raise self.error

    # ---------------------------------------------------------------- statements
    def statement(self, node: Any, visitor: Any) -> None:
        if node.span is not None:
            self.spans.append(node.span)
        for expr in _expressions(node):
            if deeper_than(expr, MAX_DEPTH):
                self.fail(TileValueError, f"an expression is nested more than {MAX_DEPTH} deep", "store parts of it into variables")
        if isinstance(node, AllocBuffer):
            self.allocation(node)
        elif isinstance(node, BufferStore):
            self.rank(node.buffer, node.indices)
            self.thread_private(node.buffer, node.indices)
        elif isinstance(node, Evaluate) and op_name(node.value) in _LEAVE:
            self.leave(_LEAVE[op_name(node.value)])
        kind = _loop_kind(node)
        if kind:
            self.around.append(kind)
        if kind == "parallel":
            self.parallel.append(node.loop_var)
        visitor.default_visit(node)
        if kind == "parallel":
            self.parallel.pop()
        if kind:
            self.around.pop()
        if node.span is not None:
            self.spans.pop()

    def allocation(self, node: AllocBuffer) -> None:
        buffer, scope = node.buffer, node.buffer.scope()
        if scope in _GPU_SCOPES and not self.on_gpu:
            self.gpu_only(f"{buffer.name} = {_GPU_SCOPES[scope]}(...)")
        if self.parallel:
            self.private.add(buffer)
        if "parallel" in self.around and scope not in THREAD_SCOPES:
            self.fail(
                TileValueError,
                f"{buffer.name} ({scope}) is allocated inside T.Parallel, where each iteration has memory of its own",
                "allocate it before the loop; inside use T.alloc_local or T.alloc_var",
            )

    def thread_private(self, buffer: Any, indices: Any) -> None:
        """A thread's own array has no element for each iteration of a loop that is spread over all threads."""
        if not self.parallel or buffer.scope() != LOCAL or buffer in self.private:
            return
        for index in indices:
            if any(uses(index, var) for var in self.parallel):
                self.fail(
                    TileValueError,
                    f"{buffer.name} is an array of each thread's own (scope 'local'), indexed by an index of T.Parallel, "
                    "whose iterations are spread over the threads",
                    "use T.alloc_fragment or T.alloc_shared for a tile of the block, or allocate the array inside the loop",
                )

    def leave(self, word: str) -> None:
        if not self.around:
            self.fail(TileSyntaxError, f"{word} outside a loop")
        if self.around[-1] == "parallel":
            remedy = "use T.serial, or a condition around the statements"
            self.fail(TileSyntaxError, f"{word} in a T.Parallel loop: its iterations have no order", remedy)

    def rank(self, buffer: Any, indices: Any) -> None:
        shape = buffer.ty.shape
        if len(shape) != len(indices):
            extents = ", ".join(str(e) for e in shape)
            self.fail(TileIndexError, f"{buffer.name} has {len(shape)} dimensions [{extents}] and is indexed with {len(indices)}")

    def gpu_only(self, what: str) -> None:
        self.fail(TileNotSupportedError, f"{what} exists on GPUs only, and the target is {self.target}", 'compile with target="cuda"')

    # ---------------------------------------------------------------- expressions
    def load(self, node: TensorLoad, visitor: Any) -> None:
        self.rank(node.source, node.indices)
        self.thread_private(node.source, node.indices)
        visitor.default_visit(node)

    def division(self, node: Any, visitor: Any) -> None:
        if isinstance(node.b, IntImm) and int(node.b) == 0:
            self.fail(TileValueError, f"division by zero: {node.a} by the constant 0")
        visitor.default_visit(node)

    def call(self, node: Call, visitor: Any) -> None:
        name = op_name(node)
        if self.on_gpu and not self.clusters and name.startswith("tl.cluster"):
            self.fail(TileNotSupportedError, f"{_GPU_OPS[name]} needs clusters, which {self.target} does not have", "use sm_90 or later")
        if not self.on_gpu:
            if name == "tl.gpu_only":
                self.gpu_only(str(attr(node, "what", "this operation")))
            if name in _GPU_OPS:
                self.gpu_only(_GPU_OPS[name])
            if name in _EXTERN and isinstance(node.args[0], StringImm) and not symbol_exists(node.args[0].value):
                self.fail(
                    TileNameError,
                    f"no external function named {node.args[0].value!r} in this process",
                    "on the CPU T.call_extern reaches functions of the C library and of loaded libraries",
                )
        visitor.default_visit(node)


@functools.cache
def symbol_exists(name: str) -> bool:
    """Can the loader of this process find a C function of this name?"""
    try:
        return hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # a platform without one namespace for the process
        return True


def _loop_kind(node: Any) -> str:
    if isinstance(node, While):
        return "loop"
    if isinstance(node, For):
        return "parallel" if node.kind == ForKind.PARALLEL else "loop"
    return ""


def _expressions(node: Any) -> list[Any]:
    """The expressions that stand directly in a statement."""
    if isinstance(node, BufferStore):
        return [node.value, *node.indices]
    if isinstance(node, Evaluate | Bind):
        return [node.value]
    if isinstance(node, IfThenElse | While | AssertStmt):
        return [node.condition]
    return []


def deeper_than(expr: Any, limit: int) -> bool:
    """Does a path from the root of `expr` exceed `limit` nodes? Without recursion, so that any depth is safe."""
    level, depth = [expr], 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = list({hash(child): child for node in level for child in _operands(node)}.values())  # shared parts once
    return False


def _operands(node: Any) -> list[Any]:
    kind = type(node)
    if kind in _LEAVES:
        return []
    if kind is Call:
        return list(node.args)
    if kind is TensorLoad:
        return list(node.indices)
    if kind is TensorRegion:
        return [r.min for r in node.region]
    if kind is Cast:
        return [node.value]
    if kind is tirx.Select:
        return [node.condition, node.true_value, node.false_value]
    if kind in (tirx.Not, tirx.BitwiseNot):
        return [node.a]
    a = getattr(node, "a", None)
    return [a, node.b] if a is not None else []


_LEAVES = frozenset((IntImm, StringImm, tirx.FloatImm, tirx.Var))

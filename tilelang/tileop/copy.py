"""T.copy and its kin: a block of one buffer to a block of another, converted element by element.

In: buffers, slices or corners (element accesses). Out: a `tl.tileop.copy` statement, or for a single element a plain
store. This file holds the rules that give a corner its extents; atomics on tiles use the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TileNotSupportedError, TileValueError
from ..ir.builder import Builder, in_kernel
from ..ir.dialect import BARRIER, CLUSTER_BARRIER, KERNEL_CLUSTER, attr, make_call
from ..ir.expr import convert
from ..ir.tvm_api import Call, Stmt, TensorLoad, TensorRegion, Var, is_buffer, load, location_of_span, region, seq, shape_of
from .base import LowerContext, TileOperator
from .loops import extents_of, may_overlap, nest, read, same_block, staged, wide_dims, write
from .operands import Operand, is_one, less, operand, require_extent, same, scope_rank, shape_text

_EVICTION = ("evict_normal", "evict_first", "evict_last")
_INSTRUCTIONS = ("tma", "cp_async", "sync")


# ---------------------------------------------------------------- the language
def copy(
    src: Any, dst: Any, coalesced_width: int | None = None, *, disable_tma: bool = False, eviction_policy: str | None = None,
    prefer_instruction: str | None = None, annotations: Mapping[str, Any] | None = None, loop_layout: Any = None,
) -> None:  # fmt: skip
    """Copy a tile: `dst = src`, each element converted to the type of `dst`.

    src, dst: a buffer, a slice (`A[0:64, k]`) or a corner (`A[by * 64, 0]`: the tile that begins there, with the
    extents of the other operand). Elements of `src` outside its buffer read as 0 (or its safe value); elements of
    `dst` outside its buffer are not written. Two corners copy one element. The remaining arguments are hints without
    effect on the result; entries of `annotations` override them.

    Raises TileValueError when the shapes do not fit each other, TileTypeError for an operand that is no memory.
    """
    hints = {
        "coalesced_width": coalesced_width, "disable_tma": disable_tma or None, "eviction_policy": eviction_policy,
        "prefer_instruction": prefer_instruction, **_known(annotations),
    }  # fmt: skip
    _emit(src, dst, "T.copy", hints)


def async_copy(
    src: Any, dst: Any, *, coalesced_width: int | None = None, annotations: Mapping[str, Any] | None = None, loop_layout: Any = None
) -> None:
    """Copy a global tile to shared memory without waiting for it; `T.ptx_wait_group(n)` waits.

    Operands as in `T.copy`. On targets without asynchronous copies the data has arrived when the statement ends.
    """
    _emit(src, dst, "T.async_copy", {"coalesced_width": coalesced_width, "prefer_instruction": "async", **_known(annotations)})


def tma_copy(
    src: Any, dst: Any, *, barrier: Any = None, cluster_mask: int | None = None, leader_scope_threads: int | None = None,
    eviction_policy: str | None = None, annotations: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Copy a tile with the bulk-copy engine: a load (global to shared) adds its bytes to `barrier` and does not wait;
    a store (shared to global) is waited for by `T.tma_store_wait()`.

    barrier: a buffer made by `T.alloc_barrier`, or an element of one; required for loads. Operands as in `T.copy`.
    On targets without that engine the data has arrived when the statement ends. cluster_mask: a bit for each block of the cluster
    that gets the tile of a load, at this place of its shared memory; bytes count at this barrier of each, and each of the other blocks
    announces them itself (`T.mbarrier_expect_tx`). Needs the engine.
    """
    what = "T.tma_copy"
    hints = {
        "prefer_instruction": "bulk", "eviction_policy": eviction_policy, "cluster_mask": cluster_mask,
        "leader_scope_threads": leader_scope_threads, **_known(annotations),
    }  # fmt: skip
    if cluster_mask is not None:
        launch = in_kernel(what).kernel
        dims = launch.facts["launch"].annotations.get(KERNEL_CLUSTER, [1]) if launch is not None else [1]
        if not isinstance(cluster_mask, int) or not 0 < cluster_mask < 1 << math.prod(dims):
            raise TileValueError(f"{what}: cluster_mask={cluster_mask} names no blocks of a cluster of {math.prod(dims)}",
                                 remedy="set bits below the number of blocks of T.Kernel(..., cluster_dims=)")  # fmt: skip
    source, target = operand(src, "src", what), operand(dst, "dst", what)
    if barrier is None and scope_rank(source.scope) == 2 and scope_rank(target.scope) == 1:
        raise TileValueError(
            f"{what}: a load from {source} needs a barrier", remedy="pass barrier=, an element of a buffer made by T.alloc_barrier"
        )
    _emit(src, dst, what, hints, [] if barrier is None else [_barrier(barrier, what)])


def copy_cluster(src: Any, dst: Any, *, dst_block: Any = None, cluster_mask: int | None = None, barrier: Any = None) -> None:
    """Copy a tile to the shared memory of another block of the cluster, or to several of them: needs a cluster launch."""
    builder = in_kernel("T.copy_cluster")
    builder.evaluate(make_call("tl.gpu_only", [], what="T.copy_cluster"))


def _known(annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: v for k, v in (annotations or {}).items() if isinstance(v, bool | int | str)}


def _barrier(value: Any, what: str) -> TensorRegion:
    if isinstance(value, Var) and is_buffer(value):
        buffer, where = value, [0] * len(shape_of(value))
    elif isinstance(value, TensorLoad):
        buffer, where = value.source, list(value.indices)
    else:
        buffer, where = None, []
    if buffer is None or buffer.scope() not in (BARRIER, CLUSTER_BARRIER):
        raise TileValueError(f"{what}: barrier={value} is no barrier", remedy="make one with T.alloc_barrier(arrive_count)")
    return region(buffer, where, [1] * len(where))


def _check_hints(hints: Mapping[str, Any], what: str) -> None:
    policy, width = hints.get("eviction_policy"), hints.get("coalesced_width")
    if policy is not None and policy not in _EVICTION:
        raise TileValueError(f"{what}: eviction_policy={policy!r}; accepted: {', '.join(_EVICTION)}")
    instruction = hints.get("prefer_instruction")
    if what == "T.copy" and instruction is not None and instruction not in _INSTRUCTIONS:
        raise TileValueError(f"{what}: prefer_instruction={instruction!r}; accepted: {', '.join(_INSTRUCTIONS)}")
    if width is not None and (not isinstance(width, int) or isinstance(width, bool) or width < 1):
        raise TileValueError(f"{what}: coalesced_width={width!r} must be a positive number of elements")


def _emit(src: Any, dst: Any, what: str, hints: Mapping[str, Any], extra: Sequence[Any] = ()) -> None:
    builder = in_kernel(what)
    _check_hints(hints, what)
    source, target = operand(src, "src", what), operand(dst, "dst", what)
    if source.form == target.form == "corner":
        store_element(builder, source, target)
        return
    source, target = fit(source, target, what)
    builder.evaluate(make_call("tl.tileop.copy", [source.region, target.region, *extra], **hints))


def store_element(builder: Builder, source: Operand, target: Operand) -> None:
    """Two corners: an ordinary assignment of one element, executed by every thread."""
    value = load(source.buffer, source.mins, builder.span())
    builder.store(target.buffer, convert(value, target.dtype), list(target.mins))


# ---------------------------------------------------------------- extents
def fit(source: Operand, target: Operand, what: str) -> tuple[Operand, Operand]:
    """Both operands with the extents of one iteration space: as many wide (not 1) dimensions, equal in order."""
    if source.form == target.form == "buffer":
        if len(source.extents) != len(target.extents) or not all(map(same, source.extents, target.extents)):
            raise _mismatch(source, target, what, "two whole buffers must have the same shape")
    elif source.form == "corner":
        source = _from_other(source, target, what)
    elif target.form == "corner":
        target = _from_other(target, source, what)
    elif len(_wide(source)) != len(_wide(target)):
        source, target = _align(source, target)
    return _iteration_space(source, target, what)


def _wide(found: Operand) -> list[Any]:
    return [e for e in found.extents if not is_one(e)]


def _from_other(corner: Operand, other: Operand, what: str) -> Operand:
    """The extents of `other`, right-aligned. Leading unit extents that have no place are dropped, then any others."""
    rank, extents = len(corner.mins), list(other.extents)
    while len(extents) > rank and is_one(extents[0]):
        extents.pop(0)
    if len(extents) > rank:
        extents = _wide(other)
    if len(extents) > rank:
        raise _mismatch(corner, other, what, f"{corner.buffer.name} has {rank} dimension(s), the tile has {len(extents)}")
    return corner.with_extents([1] * (rank - len(extents)) + extents)


def _align(source: Operand, target: Operand) -> tuple[Operand, Operand]:
    """Different numbers of wide dimensions: right-aligned, a unit extent takes the other's, else both the larger."""
    a, b = list(source.extents), list(target.extents)
    for k in range(1, min(len(a), len(b)) + 1):
        x, y = a[-k], b[-k]
        if same(x, y):
            continue
        if is_one(x) or is_one(y):
            a[-k] = b[-k] = y if is_one(x) else x
        else:
            a[-k] = b[-k] = y if less(x, y) else x
    return source.with_extents(a), target.with_extents(b)


def _iteration_space(source: Operand, target: Operand, what: str) -> tuple[Operand, Operand]:
    """The extents of the operand in the inner scope (the source on a tie) hold for both."""
    for found in (source, target):
        for k, extent in enumerate(found.extents):
            require_extent(found, k, extent, what)
    inner = target if scope_rank(target.scope) < scope_rank(source.scope) else source
    chosen, from_source = _wide(inner), _wide(source)
    if len(from_source) != len(_wide(target)):
        raise _mismatch(source, target, what, "after unit extents are dropped the ranks differ")
    for extent, have in zip(chosen, from_source, strict=True):
        if less(extent, have):
            raise _mismatch(source, target, what, f"the destination takes {extent} of {have} elements")
    return _with_wide(source, chosen), _with_wide(target, chosen)


def _with_wide(found: Operand, chosen: Sequence[Any]) -> Operand:
    rest = iter(chosen)
    extents = [e if is_one(e) else next(rest) for e in found.extents]
    return found.with_extents(extents)


def _mismatch(a: Operand, b: Operand, what: str, why: str) -> TileValueError:
    if "corner" in (a.form, b.form):
        remedy = "index a buffer of at least as many dimensions as the tile has, or slice the tile"
    elif a.form == b.form == "buffer":
        remedy = f"slice the larger one, as in {b.buffer.name}[{', '.join(f'0:{e}' for e in a.extents)}]"
    else:
        remedy = f"give both the same extents; here {shape_text(a.extents)} and {shape_text(b.extents)}"
    return TileValueError(f"{what}: {a} does not fit {b}: {why}", remedy=remedy)


# ---------------------------------------------------------------- meaning
def lower(call: Call, ctx: LowerContext) -> Stmt:
    """dst[...] = src[...] for every element, as if all of src were read first."""
    if attr(call, "cluster_mask") not in (None, 1):
        raise TileNotSupportedError("a copy to other blocks of the cluster without bulk copies", at=location_of_span(ctx.span),
                                    remedy="use sm_90a, and a tile that bulk copies move (`explain` says why not)")  # fmt: skip
    src, dst = call.args[0], call.args[1]
    before: list[Stmt] = []
    if may_overlap(src, dst, ctx) and not same_block(src, dst):
        src, fill = staged(src, ctx)
        before.append(fill)
    extents = [extents_of(dst)[k] for k in wide_dims(dst)]
    return seq([*before, nest(extents, lambda v: [write(dst, v, read(src, v), ctx)], ctx)])


COPY = TileOperator("tl.tileop.copy", lower)

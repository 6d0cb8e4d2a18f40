"""The dialect on one screen: storage scopes, operators with their operand roles, attribute and annotation keys.

No other module spells a `"tl.…"` name. An operand that names memory is a `TensorRegion` (an element is a region
of extent 1); an operand that is a value is an expression. Roles: r read, w written, u updated (read and written), v value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .tvm_api import EFFECT_OPAQUE, EFFECT_PURE, EFFECT_READ, Call, Evaluate, Op, Span, Stmt, call, register_op

# ---------------------------------------------------------------- storage scopes
GLOBAL, SHARED, SHARED_DYN, FRAGMENT, LOCAL, VAR = "global", "shared", "shared.dyn", "local.fragment", "local", "local.var"
BARRIER, CLUSTER_BARRIER, TMEM, REDUCER = "shared.barrier", "shared.cluster_barrier", "shared.tmem", "local.reducer"
DESCRIPTORS = ("local.descriptor.wgmma", "local.descriptor.tcgen05_smem", "local.descriptor.tcgen05_instr")
SCOPES = (GLOBAL, SHARED, SHARED_DYN, FRAGMENT, LOCAL, VAR, BARRIER, CLUSTER_BARRIER, TMEM, REDUCER, *DESCRIPTORS)
SHARED_SCOPES = (SHARED, SHARED_DYN)  # visible to the whole block
BLOCK_SCOPES = (*SHARED_SCOPES, FRAGMENT, REDUCER)  # one logical tile for the block
THREAD_SCOPES = (LOCAL, VAR)  # one copy for each thread

# ---------------------------------------------------------------- attributes and annotations
ATTR_KERNEL = "tl.kernel"  # AttrStmt(node=Map of kernel annotations) around one launch; see ir/kernel.py
ATTR_WS = "tl.ws"  # AttrStmt(node=list of 128-thread group ids): the body runs in those groups only
ATTR_COLLECTIVE = "tl.collective"  # AttrStmt around a lowered tile operator: executed once by the block
ATTR_THREAD_EXTENT = "thread_extent"  # TVM's own
ATTR_REDUCE_SCOPE = "reduce_scope"  # TVM's own: AttrStmt(node=CommReducer) around a tvm_thread_allreduce
ANNOTATION_PARALLEL = "tl.parallel"  # on the outermost For of a T.Parallel nest: number of loops in the nest
ANNOTATION_PIPELINE = "tl.pipeline"  # on the For of T.Pipelined: Map num_stages, order, stage, ...
ANNOTATION_TILES = "tl.tiles"  # For: each iteration is a block of the program; what they do to global memory is in no order
UNROLL_FACTOR = "tl.unroll_factor"  # on a For: how many iterations the device compiler unrolls
ANNOTATION_ALLOC = "tl.alloc"  # on AllocBuffer: Map of facts (arrive_counts, op, replication, ...)
FACT_DEMOTED = "demoted"  # in "tl.alloc": a fragment that lives in shared memory, with the reason
FACT_SCRATCH = "scratch"  # in "tl.alloc": shared memory of the compiler's own; it gets barriers in every configuration
FACT_VERSIONS = "versions"  # in "tl.alloc": tiles of a pipeline that the first dimension counts one after the other
FACT_REPLICATED = "replicated"  # in "tl.alloc": registers that hold the same values in every thread
KERNEL_CLUSTER = "cluster_dims"  # kernel annotation: blocks of a cluster in x, y, z
KERNEL_MIN_BLOCKS = "min_blocks_per_sm"  # kernel annotation: blocks that share a multiprocessor at least
REGISTER_BUDGET = "register_budget"  # a "tl.hint" in a warp role: registers of a thread, and whether they become more (1) or fewer (0)
IF_THEN_ELSE, LIKELY = "prim.if_then_else", "prim.likely"  # names of two of TVM's own operators
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


# ---------------------------------------------------------------- operators
@dataclass(frozen=True)
class OpInfo:
    """One operator: its roles in operand order ("v*" = any number of values), what it returns, how it executes.

    tile: a tile operator, lowered before LOOPS. collective: all threads of the block take part (tile operators,
    barriers); warp: all threads of a warp take part (shuffles, votes).
    """

    name: str
    roles: tuple[str, ...]
    effect: int = EFFECT_OPAQUE
    tile: bool = False
    collective: bool = False
    warp: bool = False
    doc: str = ""


def _tile(name: str, *roles: str, doc: str) -> OpInfo:
    return OpInfo(f"tl.tileop.{name}", roles, tile=True, collective=True, doc=doc)


OPS = (
    _tile("copy", "r", "w", "v*", doc="dst = src, converted; optionally the barrier of a bulk load; attrs: hints"),
    _tile("fill", "w", "v", doc="every element = value"),
    _tile("gemm", "r", "r", "u", "v", doc="C = op(A) op(B) + (clear_accum ? 0 : C); attrs transpose_A, transpose_B, policy, ..."),
    _tile("reduce", "r", "u", doc="attrs kind sum|abssum|max|min|absmax|bitand|bitor|bitxor, dim, clear, nan_propagate"),
    _tile("scan", "r", "w", doc="inclusive prefix; attrs kind sum|max, dim, reverse"),
    _tile("atomic", "u", "r", doc="dst op= src element by element, atomically; attrs kind add|max|min|or, memory_order"),
    _tile("transpose", "r", "w", doc="dst[..., j, i] = src[..., i, j]"),
    _tile("im2col", "r", "w", "v", "v", doc="img, col, nhw_step, c_step; attrs kernel, stride, dilation, pad"),
    _tile("reducer_init", "w", "v", doc="start an epoch; attrs op"),
    _tile("reducer_finalize", "u", "w", doc="acc, dst: the total of the epoch; attrs op"),
    OpInfo("tl.reducer_update", ("u", "v"), doc="one contribution, inside T.Parallel; attrs op"),
    OpInfo("tl.any_of", ("r",), EFFECT_READ, collective=True, doc="bool: any element non-zero"),
    OpInfo("tl.all_of", ("r",), EFFECT_READ, collective=True, doc="bool: all elements non-zero"),
    # dst names 1, 2 or 4 elements, with as many values; returns the previous value
    OpInfo("tl.atomic", ("u", "v*"), doc="attrs kind add|max|min|or|and|xor|exch|load|store, memory_order"),
    OpInfo("tl.dp4a", ("r", "r", "u"), doc="C[0] += sum of four int8 products"),
    # operands are described by the record of `backend/gpu/instr.py` that attr "name" selects; roles: attr "roles"
    OpInfo("tl.instr", ("v*",), doc="one hardware instruction; attrs name, roles (one letter for each operand)"),
    # the third operand is a condition: where it is false the chunk is zeros and the source is not read
    OpInfo("tl.cp_async", ("w", "r", "v*"), doc="copy of 4, 8 or 16 contiguous bytes, global to shared; lands when waited for"),
    OpInfo("tl.cp_async_commit", (), doc="close a group of asynchronous copies"),
    OpInfo("tl.cp_async_wait", ("v",), doc="wait until at most so many groups are in flight; visible to this thread only"),
    # attrs narrow: how many warpgroups meet, each by itself with an id of its own; first: the id of the first of them
    OpInfo("tl.sync_threads", ("v*",), collective=True, doc="block barrier; optional barrier id and count"),
    OpInfo("tl.sync_warp", ("v*",), warp=True, doc="warp barrier"),
    OpInfo("tl.sync_grid", (), collective=True, doc="grid barrier (cooperative launch)"),
    OpInfo("tl.cluster_arrive", (), collective=True, doc="arrive at the barrier of the cluster; attrs relaxed: orders no memory"),
    OpInfo("tl.cluster_wait", (), collective=True, doc="wait until all threads of the cluster have arrived"),
    OpInfo("tl.shfl", ("v", "v", "v", "v"), warp=True, doc="value, lane or delta, width, mask; attrs mode idx|up|down|xor"),
    OpInfo("tl.vote", ("v*",), warp=True, doc="attrs kind any|all|ballot|activemask|match_any|match_all"),
    OpInfo("tl.block_vote", ("v",), collective=True, doc="attrs kind count|and|or: __syncthreads_count and kin"),
    OpInfo("tl.warp_reduce", ("v",), warp=True, doc="attrs kind sum|max|min|bitand|bitor|bitxor"),
    OpInfo("tl.print", ("v*",), doc="attrs message, dtype; an expression, or a region printed whole (an element: with the index to show)"),
    OpInfo("tl.device_assert", ("v",), doc="attrs message"),
    OpInfo("tl.mbarrier_init", ("u", "v"), doc="arrive count"),
    OpInfo("tl.mbarrier_wait", ("u", "v"), doc="wait until the phase of this parity has completed"),
    OpInfo("tl.mbarrier_arrive", ("u", "v*"), doc="arrive; optional rank: at this place of that block of the cluster"),
    # bytes count in kernels with bulk loads; where every copy is complete when it returns there are none to wait for
    OpInfo("tl.mbarrier_expect_tx", ("u", "v"), doc="the phase also waits for so many bytes of bulk loads; attrs arrive: then arrive"),
    # bulk copies: a dense block of shared memory (begins at the region's first element, row-major in the order of the tensor's region,
    # with the hardware's swizzle of attr swizzle = 0, 32, 64 or 128 bytes) and a box of a tensor; executed by one thread for each copy
    # mask: a bit for each block of the cluster that gets the box, at this place of its shared memory, and whose mbarrier counts it
    OpInfo("tl.tma_load", ("w", "r", "u", "v*"), doc="shared block, box of a tensor (zeros outside), its mbarrier, mask; attrs swizzle"),
    OpInfo("tl.tma_store", ("r", "w"), doc="shared block, box of a tensor (nothing outside is written); attrs swizzle, add"),
    OpInfo("tl.bulk_commit", (), doc="close a group of this thread's bulk stores"),
    OpInfo("tl.bulk_wait", ("v",), doc="wait until at most so many groups are open; attrs read: until they have read shared memory"),
    OpInfo("tl.fence_proxy_async", (), doc="what ordinary accesses wrote to shared memory becomes visible to bulk copies and wgmma"),
    # attrs name: a record of `backend/gpu/wgmma.py`; a_matrix, b_matrix: `Matrix.text` of operands in shared memory
    OpInfo("tl.wgmma", ("u", "r", "r", "v"), warp=True, doc="C, A, B, keep: C = A B + (keep ? C : 0) by a warpgroup, asynchronously"),
    OpInfo("tl.wgmma_fence", ("r*",), warp=True, doc="registers written so far may be operands of the products that follow; those of A"),
    OpInfo("tl.wgmma_commit", (), warp=True, doc="close a group of this warp's products"),
    OpInfo("tl.wgmma_wait", ("v", "u"), warp=True, doc="until at most so many groups are in flight; registers that are safe then"),
    # number: how many bodies of the loop were executed before; attrs again: is the ring looked at behind the loop? ranks: blocks of the
    # cluster that wait for it
    OpInfo("tl.slot_release", ("u", "v", "r"), doc="barriers, number, tiles (an element each): this warp has read slot number % slots"),
    OpInfo("tl.gpu_only", ("v*",), doc="a statement that exists on GPUs only; attrs what: its name in the language"),
    OpInfo("tl.hint", ("v*",), doc="no effect on results; attrs what"),
    OpInfo("tl.math", ("v*",), EFFECT_PURE, doc="elementwise function without an operator of TVM; attrs name"),
    OpInfo("tl.random", ("v*",), doc="attrs what init|uint32|uniform|normal"),
)
_TABLE = {info.name: info for info in OPS}


def info(name: str) -> OpInfo:
    return _TABLE[name]


@functools.cache
def op(name: str) -> Op:
    """TVM's operator for a name of the table, registered on first use."""
    return register_op(name, _TABLE[name].effect)


def op_name(value: Any) -> str:
    """Name of the operator that an expression calls, or "" if it is no call of an operator."""
    if type(value) is not Call:
        return ""
    operator = value.op
    return operator.name if type(operator) is Op else ""


def op_info(value: Any) -> OpInfo | None:
    """The table's entry of a call, or None for calls that are not ours."""
    return _TABLE.get(op_name(value))


def make_call(name: str, args: Sequence[Any], /, dtype: str = "void", span: Span | None = None, **attrs: Any) -> Call:
    """A call of an operator of the table, e.g. `make_call("tl.tileop.fill", [region, value])`."""
    return call(op(name), args, dtype, {k: v for k, v in attrs.items() if v is not None}, span)


def tile_call(stmt: Stmt) -> Call | None:
    """The call if this statement is a tile operator."""
    if isinstance(stmt, Evaluate):
        entry = op_info(stmt.value)
        if entry is not None and entry.tile:
            return stmt.value
    return None


def attr(value: Call, key: str, default: Any = None) -> Any:
    """An attribute of a call as a plain Python value."""
    attrs: Mapping[str, Any] = value.attrs or {}
    return attrs[key] if key in attrs else default

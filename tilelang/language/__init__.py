"""The tile language: `import tilelang.language as T`.

Every name of the language is listed here, by the module that defines it; each has a signature and a docstring.
"""
# ruff: noqa: I001, RUF022  (imports and names stand in filled lines)

from typing import Any

from ..errors import TileAttributeError, TileTypeError, similar
from ..frontend.eager import const, empty
from ..frontend.macro import Ref, macro
from ..frontend.prim_func import prim_func
from ..ir.dtypes import dtype
from ..ir.tvm_api import Var
from ..tileop.copy import async_copy, copy, copy_cluster, tma_copy
from ..tileop.dp4a import dp4a
from ..tileop.fill import clear, fill
from ..tileop.gemm import GemmWarpPolicy, gemm, gemm_sp, wgmma_gemm
from ..tileop.im2col import c2d_im2col, im2col
from ..tileop.logical import all_of, any_of
from ..tileop.reduce import (
    reduce, reduce_absmax, reduce_abssum, reduce_bitand, reduce_bitor, reduce_bitxor, reduce_max, reduce_min, reduce_sum,
)  # fmt: skip
from ..tileop.reducer import finalize_reducer, reducer_init, reducer_update
from ..tileop.scan import cummax, cumsum
from ..tileop.transpose import transpose
from .absent import absent
from .allocate import (
    alloc_barrier, alloc_buffer, alloc_cluster_barrier, alloc_descriptor, alloc_fragment, alloc_global, alloc_local, alloc_reducer,
    alloc_shared, alloc_tcgen05_instr_desc, alloc_tcgen05_instruction_desc, alloc_tcgen05_smem_desc, alloc_tmem, alloc_var,
    alloc_wgmma_desc, reshape, view,
)  # fmt: skip
from .atomic import atomic_add, atomic_addx2, atomic_addx4, atomic_load, atomic_max, atomic_min, atomic_or, atomic_store
from .barriers import (
    annotate_consumer_reg_alloc, annotate_producer_reg_dealloc, barrier_arrive, barrier_wait, create_list_of_mbarrier, dec_max_nreg,
    disable_warp_group_reg_alloc, fence_proxy_async, get_mbarrier, inc_max_nreg, mbarrier_arrive, mbarrier_arrive_expect_tx,
    mbarrier_expect_tx, mbarrier_wait_parity, no_set_max_nreg, pdl_sync, pdl_trigger, ptx_commit_group, ptx_wait_group,
    set_max_nreg, tma_store_arrive, tma_store_wait, wait_wgmma, warpgroup_arrive, warpgroup_commit_batch, warpgroup_fence_operand,
    warpgroup_wait,
)  # fmt: skip
from .builtins import (
    access_ptr, address_of, assume, call_extern, call_intrin, call_pure_extern, comm_reducer, evaluate, tvm_access_ptr,
    tvm_thread_allreduce, type_annotation,
)  # fmt: skip
from .casts import (
    Broadcast, Cast, Ramp, Shuffle, abs2, add2, cast, extract_lane, fma2, infinity, max2, max_value, min2, min_value, mul2,
    reinterpret, sub2,
)  # fmt: skip
from .debug import device_assert, print, rng_init, rng_rand, rng_rand_float
from .dtype_names import (
    bfloat16, bfloat16x16, bfloat16x2, bfloat16x32, bfloat16x4, bfloat16x64, bfloat16x8, bool, double, float, float16, float16x16,
    float16x2, float16x32, float16x4, float16x64, float16x8, float32, float32x16, float32x2, float32x32, float32x4, float32x64,
    float32x8, float4_e2m1_unpacked, float4_e2m1fn, float4_e2m1fnx16, float4_e2m1fnx2, float4_e2m1fnx32, float4_e2m1fnx4,
    float4_e2m1fnx64, float4_e2m1fnx8, float64, float64x16, float64x2, float64x32, float64x4, float64x64, float64x8, float6_e2m3fn,
    float6_e3m2fn, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e4m3fnx16, float8_e4m3fnx2,
    float8_e4m3fnx32, float8_e4m3fnx4, float8_e4m3fnx64, float8_e4m3fnx8, float8_e5m2, float8_e5m2fnuz, float8_e5m2x16,
    float8_e5m2x2, float8_e5m2x32, float8_e5m2x4, float8_e5m2x64, float8_e5m2x8, float8_e8m0fnu, half, int, int16, int16x16,
    int16x2, int16x32, int16x4, int16x64, int16x8, int32, int32x16, int32x2, int32x32, int32x4, int32x64, int32x8, int4, int64,
    int64x16, int64x2, int64x32, int64x4, int64x64, int64x8, int8, int8x16, int8x2, int8x32, int8x4, int8x64, int8x8, long, short,
    tfloat32, uint, uint16, uint16x16, uint16x2, uint16x32, uint16x4, uint16x64, uint16x8, uint32, uint32x16, uint32x2, uint32x32,
    uint32x4, uint32x64, uint32x8, uint4, uint64, uint64x16, uint64x2, uint64x32, uint64x4, uint64x64, uint64x8, uint8, uint8x16,
    uint8x2, uint8x32, uint8x4, uint8x64, uint8x8,
)  # fmt: skip
from .clusters import (
    block_rank_in_cluster, cluster_arrive, cluster_arrive_relaxed, cluster_sync, cluster_wait, ptx_arrive_cluster_barrier,
)  # fmt: skip
from .gpu import (
    __ldg, annotate_ws_schedule, clc_get_first_ctaid, clc_is_canceled, clc_try_cancel,
    cp_async_barrier_noinc, create_tma_descriptor, deallocate_tmem,
    increase_descriptor_offset, initialize_tcgen05_descriptor, initialize_wgmma_descriptor, ldg128, ldg256, ldg32, ldg64, lds128,
    lds32, lds64, mma_fill, mma_gemm_blockscaled, mma_store, named_barrier_arrive, ptx_cp_async,
    ptx_ldmatrix, ptx_mma, ptx_mma_block_scale, ptx_mma_sp, ptx_stmatrix, ptx_wgmma_rs, ptx_wgmma_ss, stg128, stg256, stg32, stg64,
    sts128, sts32, sts64, tcgen05_after_thread_sync, tcgen05_before_thread_sync, tcgen05_cp_warpx4, tcgen05_gemm,
    tcgen05_gemm_blockscaled, tcgen05_mma_arrive, tcgen05_sf_warp_transpose, tma_gather4, tma_load, tma_load_2sm, tma_scatter4,
    tma_store, tvm_mfma, tvm_mfma_store, tvm_rdna_wmma,
)  # fmt: skip
from .ieee import ieee_add, ieee_fdiv, ieee_fmaf, ieee_frcp, ieee_frsqrt, ieee_fsqrt, ieee_mul, ieee_sub
from .integers import (
    align_up, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, cdiv, ceildiv, clz, floordiv, floormod, popcount, q_multiply_shift,
    shift_left, shift_right, truncdiv, truncmod,
)  # fmt: skip
from .kernel import (
    ClusterKernel, Else, If, Kernel, KernelLaunchFrame, Then, WarpSpecialize, While, annotate_compile_flags, annotate_l2_hit_ratio,
    annotate_min_blocks_per_sm, annotate_padding, annotate_pass_configs, annotate_restrict_buffers, annotate_safe_value, attr,
    block, func_attr, get_block_binding, get_block_bindings, get_block_extent, get_block_extents, get_thread_binding,
    get_thread_bindings, get_thread_extent, get_thread_extents, import_source, reads, sblock, use_swizzle, writes, ws,
)  # fmt: skip
from .layout import Fragment, Layout, annotate_layout
from .loops import Parallel, Persistent, Pipelined, Serial, grid, loop_break, parallel, serial, thread_binding, unroll, vectorized
from .math import (
    Select, __cos, __exp, __exp10, __log, __log10, __log2, __sin, __tan, abs, acos, acosh, all, any, asin, asinh, atan, atan2,
    atanh, ceil, clamp, copysign, cos, cosh, erf, exp, exp10, exp2, fast_rcp, floor, fmod, hypot, if_then_else, isfinite, isinf,
    isnan, ldexp, likely, log, log10, log1p, log2, max, min, nearbyint, nextafter, pow, power, round, rsqrt, sigmoid, sin, sinh,
    sqrt, tan, tanh, trunc,
)  # fmt: skip
from .scheduler import PersistentTileScheduler
from .threads import (
    activemask, all_sync, any_sync, ballot, ballot_sync, get_lane_idx, get_warp_group_idx, get_warp_idx, get_warp_idx_sync,
    match_all_sync, match_any_sync, shfl_down, shfl_sync, shfl_up, shfl_xor, shuffle_elect, sync_global, sync_grid,
    sync_thread_partial, sync_threads, sync_warp, syncthreads_and, syncthreads_count, syncthreads_or, tvm_storage_sync,
    tvm_warp_activemask, tvm_warp_shuffle, tvm_warp_shuffle_down, tvm_warp_shuffle_up, warp_reduce_bitand, warp_reduce_bitor,
    warp_reduce_bitxor, warp_reduce_max, warp_reduce_min, warp_reduce_sum,
)  # fmt: skip
from .tir_names import EQ, GE, GT, LE, LT, NE, Add, And, Div, FloorDiv, FloorMod, Max, Min, Mod, Mul, Not, Or, Sub
from .types import (
    Buffer, FragmentBuffer, LocalBuffer, SharedBuffer, StridedTensor, Tensor, dyn, dynamic, handle, make_tensor,
    make_tensor_from_addr, ptr, symbolic,
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Element types that are not listed by name, such as `T.float8_e3m4x2`; names that are refused when they are called."""
    refused = absent(name)
    if refused is not None:
        return refused
    try:
        return dtype(name)
    except TileTypeError:
        raise TileAttributeError(f"the language has no name {name!r}{similar(name, __all__)}") from None


__all__ = [
    "abs", "abs2", "access_ptr", "acos", "acosh", "activemask", "Add", "add2", "address_of", "align_up", "all", "all_of",
    "all_sync", "alloc_barrier", "alloc_buffer", "alloc_cluster_barrier", "alloc_descriptor", "alloc_fragment", "alloc_global",
    "alloc_local", "alloc_reducer", "alloc_shared", "alloc_tcgen05_instr_desc", "alloc_tcgen05_instruction_desc",
    "alloc_tcgen05_smem_desc", "alloc_tmem", "alloc_var", "alloc_wgmma_desc", "And", "annotate_compile_flags",
    "annotate_consumer_reg_alloc", "annotate_l2_hit_ratio", "annotate_layout", "annotate_min_blocks_per_sm", "annotate_padding",
    "annotate_pass_configs", "annotate_producer_reg_dealloc", "annotate_restrict_buffers", "annotate_safe_value",
    "annotate_ws_schedule", "any", "any_of", "any_sync", "asin", "asinh", "assume", "async_copy", "atan", "atan2", "atanh",
    "atomic_add", "atomic_addx2", "atomic_addx4", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store", "attr",
    "ballot", "ballot_sync", "barrier_arrive", "barrier_wait", "bfloat16", "bfloat16x16", "bfloat16x2", "bfloat16x32", "bfloat16x4",
    "bfloat16x64", "bfloat16x8", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "block", "block_rank_in_cluster",
    "bool", "Broadcast", "Buffer", "c2d_im2col", "call_extern", "call_intrin", "call_pure_extern", "Cast", "cast", "cdiv", "ceil",
    "ceildiv", "clamp", "clc_get_first_ctaid", "clc_is_canceled", "clc_try_cancel", "clear", "cluster_arrive",
    "cluster_arrive_relaxed", "cluster_sync", "cluster_wait", "ClusterKernel", "clz", "comm_reducer", "const", "copy",
    "copy_cluster", "copysign", "__cos", "cos", "cosh", "cp_async_barrier_noinc", "create_list_of_mbarrier",
    "create_tma_descriptor", "cummax", "cumsum", "deallocate_tmem", "dec_max_nreg", "device_assert", "disable_warp_group_reg_alloc",
    "Div", "double", "dp4a", "dtype", "dyn", "dynamic", "Else", "empty", "EQ", "erf", "evaluate", "__exp", "exp", "__exp10", "exp10",
    "exp2", "extract_lane", "fast_rcp", "fence_proxy_async", "fill", "finalize_reducer", "float", "float16", "float16x16",
    "float16x2", "float16x32", "float16x4", "float16x64", "float16x8", "float32", "float32x16", "float32x2", "float32x32",
    "float32x4", "float32x64", "float32x8", "float4_e2m1_unpacked", "float4_e2m1fn", "float4_e2m1fnx16", "float4_e2m1fnx2",
    "float4_e2m1fnx32", "float4_e2m1fnx4", "float4_e2m1fnx64", "float4_e2m1fnx8", "float64", "float64x16", "float64x2",
    "float64x32", "float64x4", "float64x64", "float64x8", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3fnx16", "float8_e4m3fnx2", "float8_e4m3fnx32",
    "float8_e4m3fnx4", "float8_e4m3fnx64", "float8_e4m3fnx8", "float8_e5m2", "float8_e5m2fnuz", "float8_e5m2x16", "float8_e5m2x2",
    "float8_e5m2x32", "float8_e5m2x4", "float8_e5m2x64", "float8_e5m2x8", "float8_e8m0fnu", "floor", "FloorDiv", "floordiv",
    "FloorMod", "floormod", "fma2", "fmod", "Fragment", "FragmentBuffer", "func_attr", "GE", "gemm", "gemm_sp", "GemmWarpPolicy",
    "get_block_binding", "get_block_bindings", "get_block_extent", "get_block_extents", "get_lane_idx", "get_mbarrier",
    "get_thread_binding", "get_thread_bindings", "get_thread_extent", "get_thread_extents", "get_warp_group_idx", "get_warp_idx",
    "get_warp_idx_sync", "grid", "GT", "half", "handle", "hypot", "ieee_add", "ieee_fdiv", "ieee_fmaf", "ieee_frcp", "ieee_frsqrt",
    "ieee_fsqrt", "ieee_mul", "ieee_sub", "If", "if_then_else", "im2col", "import_source", "inc_max_nreg",
    "increase_descriptor_offset", "infinity", "initialize_tcgen05_descriptor", "initialize_wgmma_descriptor", "int", "int16",
    "int16x16", "int16x2", "int16x32", "int16x4", "int16x64", "int16x8", "int32", "int32x16", "int32x2", "int32x32", "int32x4",
    "int32x64", "int32x8", "int4", "int64", "int64x16", "int64x2", "int64x32", "int64x4", "int64x64", "int64x8", "int8", "int8x16",
    "int8x2", "int8x32", "int8x4", "int8x64", "int8x8", "isfinite", "isinf", "isnan", "Kernel", "KernelLaunchFrame", "Layout",
    "ldexp", "__ldg", "ldg128", "ldg256", "ldg32", "ldg64", "lds128", "lds32", "lds64", "LE", "likely", "LocalBuffer", "__log",
    "log", "__log10", "log10", "log1p", "__log2", "log2", "long", "loop_break", "LT", "macro", "make_tensor",
    "make_tensor_from_addr", "match_all_sync", "match_any_sync", "Max", "max", "max2", "max_value", "mbarrier_arrive",
    "mbarrier_arrive_expect_tx", "mbarrier_expect_tx", "mbarrier_wait_parity", "Min", "min", "min2", "min_value", "mma_fill",
    "mma_gemm_blockscaled", "mma_store", "Mod", "Mul", "mul2", "named_barrier_arrive", "NE", "nearbyint", "nextafter", "no_set_max_nreg",
    "Not", "Or", "Parallel", "parallel", "pdl_sync", "pdl_trigger", "Persistent", "PersistentTileScheduler", "Pipelined",
    "popcount", "pow", "power", "prim_func", "print", "ptr", "ptx_arrive_cluster_barrier", "ptx_commit_group", "ptx_cp_async",
    "ptx_ldmatrix", "ptx_mma", "ptx_mma_block_scale", "ptx_mma_sp", "ptx_stmatrix", "ptx_wait_group", "ptx_wgmma_rs",
    "ptx_wgmma_ss", "q_multiply_shift", "Ramp", "reads", "reduce", "reduce_absmax", "reduce_abssum", "reduce_bitand", "reduce_bitor",
    "reduce_bitxor", "reduce_max", "reduce_min", "reduce_sum", "reducer_init", "reducer_update", "Ref", "reinterpret", "reshape",
    "rng_init", "rng_rand", "rng_rand_float", "round", "rsqrt", "sblock", "Select", "Serial", "serial", "set_max_nreg",
    "SharedBuffer", "shfl_down", "shfl_sync", "shfl_up", "shfl_xor", "shift_left", "shift_right", "short", "Shuffle",
    "shuffle_elect", "sigmoid", "__sin", "sin", "sinh", "sqrt", "stg128", "stg256", "stg32", "stg64", "StridedTensor", "sts128",
    "sts32", "sts64", "Sub", "sub2", "symbolic", "sync_global", "sync_grid", "sync_thread_partial", "sync_threads", "sync_warp",
    "syncthreads_and", "syncthreads_count", "syncthreads_or", "__tan", "tan", "tanh", "tcgen05_after_thread_sync",
    "tcgen05_before_thread_sync", "tcgen05_cp_warpx4", "tcgen05_gemm", "tcgen05_gemm_blockscaled", "tcgen05_mma_arrive",
    "tcgen05_sf_warp_transpose", "Tensor", "tfloat32", "Then", "thread_binding", "tma_copy", "tma_gather4", "tma_load",
    "tma_load_2sm", "tma_scatter4", "tma_store", "tma_store_arrive", "tma_store_wait", "transpose", "trunc", "truncdiv", "truncmod",
    "tvm_access_ptr", "tvm_mfma", "tvm_mfma_store", "tvm_rdna_wmma", "tvm_storage_sync", "tvm_thread_allreduce",
    "tvm_warp_activemask", "tvm_warp_shuffle", "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "type_annotation", "uint", "uint16",
    "uint16x16", "uint16x2", "uint16x32", "uint16x4", "uint16x64", "uint16x8", "uint32", "uint32x16", "uint32x2", "uint32x32",
    "uint32x4", "uint32x64", "uint32x8", "uint4", "uint64", "uint64x16", "uint64x2", "uint64x32", "uint64x4", "uint64x64",
    "uint64x8", "uint8", "uint8x16", "uint8x2", "uint8x32", "uint8x4", "uint8x64", "uint8x8", "unroll", "use_swizzle", "Var",
    "vectorized", "view", "wait_wgmma", "warp_reduce_bitand", "warp_reduce_bitor", "warp_reduce_bitxor", "warp_reduce_max",
    "warp_reduce_min", "warp_reduce_sum", "warpgroup_arrive", "warpgroup_commit_batch", "warpgroup_fence_operand", "warpgroup_wait",
    "WarpSpecialize", "wgmma_gemm", "While", "writes", "ws",
]  # fmt: skip

"""The list of names: complete against the language's inventory, each with a signature and a docstring."""

import inspect

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileNotSupportedError

TEXT = """
Kernel Tensor prim_func copy alloc_shared alloc_fragment ceildiv float32 Parallel Pipelined gemm clear float16 int32 reduce_sum
if_then_else serial empty fill exp2 const reduce_max max GemmWarpPolicy infinity bfloat16 get_thread_binding alloc_var use_swizzle min
dynamic symbolic annotate_layout log2 dtype cast Cast alloc_local atomic_add macro Layout Fragment vectorized unroll FragmentBuffer
SharedBuffer exp floordiv reinterpret uint32 uint64 attr comm_reducer evaluate tvm_thread_allreduce create_list_of_mbarrier
mbarrier_wait_parity mbarrier_arrive ws dp4a c2d_im2col clamp address_of call_extern floormod grid reduce_absmax rsqrt If Then
alloc_barrier barrier_arrive barrier_wait float8_e4m3fn int8 uint8 uint16 int64 float bool tma_copy access_ptr Buffer alloc_buffer
assume ptx_cp_async sync_threads disable_warp_group_reg_alloc StridedTensor reduce_min wgmma_gemm set_max_nreg im2col ptx_wait_group
ptx_commit_group gemm_sp wait_wgmma ptr make_tensor atomic_addx4 atomic_addx2 atomic_load atomic_store atomic_max
async_copy log view reshape import_source device_assert cumsum alloc_reducer finalize_reducer alloc_global thread_binding print rng_init
rng_rand shift_left Persistent sync_grid any_of all_of warp_reduce_sum warp_reduce_max warp_reduce_min warp_reduce_bitand
warp_reduce_bitor annotate_safe_value annotate_padding handle Else While block sblock func_attr truncdiv truncmod cdiv align_up short int
uint long half double tfloat32 Select abs max_value min_value LocalBuffer make_tensor_from_addr get_mbarrier get_thread_bindings
get_block_binding get_block_bindings get_thread_extent get_thread_extents get_block_extent get_block_extents KernelLaunchFrame
ClusterKernel alloc_cluster_barrier alloc_tmem alloc_descriptor alloc_wgmma_desc Serial parallel loop_break transpose copy_cluster
tma_gather4 tma_scatter4 reduce reduce_abssum reduce_bitor reduce_bitxor reducer_init reducer_update cummax exp10 log10 log1p sqrt sin
cos tan sinh cosh tanh asin acos atan atan2 asinh acosh atanh erf sigmoid pow fmod floor ceil trunc round nearbyint hypot copysign
nextafter ldexp isnan isinf isfinite popcount clz bitwise_and bitwise_or bitwise_xor bitwise_not shift_right likely q_multiply_shift
__exp __exp10 __log __log2 __log10 __sin __cos __tan fast_rcp ieee_add ieee_sub ieee_mul ieee_fmaf ieee_frcp ieee_fsqrt ieee_frsqrt
ieee_fdiv add2 sub2 mul2 fma2 max2 min2 abs2 extract_lane Shuffle Ramp Broadcast call_pure_extern call_intrin tvm_access_ptr
type_annotation tvm_warp_shuffle tvm_storage_sync atomic_min atomic_or sync_thread_partial sync_warp sync_global named_barrier_arrive
shfl_xor shfl_down shfl_up shfl_sync any_sync all_sync ballot_sync ballot activemask match_any_sync match_all_sync syncthreads_count
syncthreads_and syncthreads_or get_lane_idx get_warp_idx get_warp_idx_sync get_warp_group_idx shuffle_elect mbarrier_expect_tx
mbarrier_arrive_expect_tx cp_async_barrier_noinc inc_max_nreg dec_max_nreg no_set_max_nreg annotate_producer_reg_dealloc
annotate_consumer_reg_alloc fence_proxy_async tma_store_arrive tma_store_wait warpgroup_arrive warpgroup_commit_batch warpgroup_wait
warpgroup_fence_operand create_tma_descriptor tma_load WarpSpecialize annotate_ws_schedule annotate_l2_hit_ratio
annotate_min_blocks_per_sm annotate_restrict_buffers annotate_pass_configs annotate_compile_flags Ref Var dyn
tcgen05_gemm tcgen05_mma_arrive deallocate_tmem tcgen05_gemm_blockscaled tcgen05_cp_warpx4 tcgen05_sf_warp_transpose
tcgen05_before_thread_sync tcgen05_after_thread_sync mma_gemm_blockscaled tma_load_2sm ptx_mma_block_scale block_rank_in_cluster
cluster_arrive cluster_arrive_relaxed cluster_wait cluster_sync ptx_arrive_cluster_barrier initialize_wgmma_descriptor
increase_descriptor_offset ptx_wgmma_ss ptx_wgmma_rs pdl_trigger pdl_sync ldg32 ldg64 ldg128 ldg256 stg32 stg128 lds32 lds128 sts32
sts128 __ldg rng_rand_float tvm_mfma tvm_mfma_store tvm_rdna_wmma ptx_mma ptx_ldmatrix mma_store Add Sub Mul FloorDiv FloorMod Min Max EQ LT
float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn
float4_e2m1fn float4_e2m1_unpacked int4 int32x4 float16x2 bfloat16x2 uint8x16 float32x64
"""
INVENTORY = TEXT.split()


@pytest.mark.parametrize("name", INVENTORY)
def test_inventory(name):
    assert name in T.__all__


def test_every_name_is_there_once():
    assert len(set(T.__all__)) == len(T.__all__)
    for name in T.__all__:
        assert getattr(T, name) is not None


@pytest.mark.parametrize("name", T.__all__)
def test_signature_and_docstring(name):
    found = getattr(T, name)
    assert (found.__doc__ or "").strip()
    if inspect.isfunction(found):
        inspect.signature(found)


def test_misspelt_names_suggest():
    with pytest.raises(AttributeError, match="alloc_shared"):
        _ = T.alloc_sharde
    assert T.float8_e3m4x2.lanes == 2


def test_names_of_the_wider_language_are_refused_when_called():
    with pytest.raises(TileNotSupportedError, match=r"(?s)T\.launch_thread.*T\.Kernel"):
        T.launch_thread("blockIdx.x", 4)
    with pytest.raises(AttributeError, match="did you mean alloc_shared"):
        T.alloc_sharde  # noqa: B018


def test_block_annotations_and_division_by_name():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8), T.block("body"):
            i = T.get_thread_binding()
            T.reads(A[i])
            T.writes(B[i])
            B[i] = T.Div(T.cast(A[i], "float32"), 2.0) + T.Div(A[i], 3) * 10 + T.Mod(A[i], 3) * 100

    a, b = np.arange(-4, 4, dtype=np.int32), np.zeros(8, np.float32)
    tilelang.compile(main, target="cpu")(a, b)
    quotient = np.trunc(a / 3)
    assert np.array_equal(b, a / 2 + quotient * 10 + (a - 3 * quotient) * 100)

// dequant_gemm (golden_programs.py:107)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>
#include <tilelang/tma.cuh>
#include <tilelang/wgmma.cuh>

__device__ __forceinline__ void wgmma_m64n64k16_f32_bf16_bf16_k_k(void* c, uint64_t a, uint64_t b, bool keep) {
  float* C = (float*)c;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0; }"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31])
      : "l"(a), "l"(b), "r"((int)keep));
}

extern "C" __global__ void __launch_bounds__(256, 1) dequant_gemm_kernel(const bfloat16_t* __restrict__ scales, const __grid_constant__ tl::tensor_map C_map, const __grid_constant__ tl::tensor_map A_map, const __grid_constant__ tl::tensor_map packed_map) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  tl::check_shared_start(smem);
  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
    tl::prefetch(C_map);
    tl::prefetch(A_map);
    tl::prefetch(packed_map);
  }
  // golden_programs.py:124
  float* const C_stage = reinterpret_cast<float*>(smem);
  float* const C_stage_1 = reinterpret_cast<float*>(smem);
  // golden_programs.py:112
  bfloat16_t* const A_shared = reinterpret_cast<bfloat16_t*>(smem + 8192);
  // golden_programs.py:113
  uint8_t* const packed_shared = reinterpret_cast<uint8_t*>(smem + 16384);
  // golden_programs.py:118
  uint64_t* const A_shared_packed_shared_full = reinterpret_cast<uint64_t*>(smem + 18432);
  uint64_t* const A_shared_packed_shared_empty = reinterpret_cast<uint64_t*>(smem + 18448);
  if (tx == 0) {
    tl::mbarrier_init(&A_shared_packed_shared_full[0], 1);
    tl::mbarrier_init(&A_shared_packed_shared_full[1], 1);
    tl::mbarrier_init(&A_shared_packed_shared_empty[0], 4);
    tl::mbarrier_init(&A_shared_packed_shared_empty[1], 4);
    tl::fence_barrier_init();
  }
  __syncthreads();
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:111
  if (tx / 128 == 0) {
    // golden_programs.py:114
    bfloat16_t* const B_shared_odd = reinterpret_cast<bfloat16_t*>(smem);
    // golden_programs.py:117
    int ko_count = 0;
    // golden_programs.py:114
    bfloat16_t* const B_shared = reinterpret_cast<bfloat16_t*>(smem);
    // golden_programs.py:115
    float C_local[32];
    // golden_programs.py:116
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        C_local[r * 2 + lane] = 0.0f;
      }
    }
    // golden_programs.py:117
    for (int ko = 0; ko < 8; ++ko) {
      const int slot = ko_count % 2;
      const int phase = ko_count / 2 % 2;
      tl::mbarrier_wait(&A_shared_packed_shared_full[slot], phase);
      // golden_programs.py:120
      tl::fence_proxy_async();
      tl::wgmma_wait<0>();
      tl::settle<32>(&C_local[0]);
      tl::named_barrier(2, 128);
      #pragma unroll
      for (int step = 0; step < 2; ++step) {
        // golden_programs.py:122
        tl::pack<bfloat16_t, 8> part;
        #pragma unroll
        for (int lane = 0; lane < 8; lane += 2) {
          tl::set_pair(part, lane, ((tl::halves((int)(uint8_t)(packed_shared[(slot * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + lane / 2] >> (uint8_t)(lane % 2 * 4)), (int)(uint8_t)(packed_shared[(slot * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + (lane + 1) / 2] >> (uint8_t)((lane + 1) % 2 * 4))) & 0x000f000fu) | 0x43004300u));
        }
        tl::store_pack(B_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + step * 1024, (part - bfloat16_t::from_bits(0x4308 /* 136.0 */)) * scales[(bx * 64 + step * 32 + tx / 4) * 16 + ko * 2]);
      }
      // golden_programs.py:123
      tl::fence_proxy_async();
      tl::named_barrier(1, 128);
      tl::wgmma_fence();
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        wgmma_m64n64k16_f32_bf16_bf16_k_k(&C_local[0], tl::matrix<16, 512, 2>(tl::SHARED_START + ((slot * 256 ^ s * 2) + 512)), tl::matrix<16, 512, 2>(tl::SHARED_START + s * 2), true);
      }
      tl::wgmma_commit();
      // golden_programs.py:117
      if (ko > 0) {
        __syncwarp();
        if (tx % 32 == 0) {
          tl::mbarrier_arrive(&A_shared_packed_shared_empty[tl::wrapping_sub<int>(ko_count, 1) % 2]);
        }
      }
      ko_count = tl::wrapping_add<int>(ko_count, 1);
      const int slot_1 = ko_count % 2;
      const int phase_1 = ko_count / 2 % 2;
      tl::mbarrier_wait(&A_shared_packed_shared_full[slot_1], phase_1);
      // golden_programs.py:120
      tl::fence_proxy_async();
      tl::wgmma_wait<0>();
      tl::settle<32>(&C_local[0]);
      tl::named_barrier(2, 128);
      #pragma unroll
      for (int step = 0; step < 2; ++step) {
        // golden_programs.py:122
        tl::pack<bfloat16_t, 8> part;
        #pragma unroll
        for (int lane = 0; lane < 8; lane += 2) {
          tl::set_pair(part, lane, ((tl::halves((int)(uint8_t)(packed_shared[(slot_1 * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + lane / 2] >> (uint8_t)(lane % 2 * 4)), (int)(uint8_t)(packed_shared[(slot_1 * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + (lane + 1) / 2] >> (uint8_t)((lane + 1) % 2 * 4))) & 0x000f000fu) | 0x43004300u));
        }
        tl::store_pack(B_shared_odd + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + step * 1024, (part - bfloat16_t::from_bits(0x4308 /* 136.0 */)) * scales[(bx * 64 + step * 32 + tx / 4) * 16 + ko * 2 + 1]);
      }
      // golden_programs.py:123
      tl::fence_proxy_async();
      tl::named_barrier(1, 128);
      tl::wgmma_fence();
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        wgmma_m64n64k16_f32_bf16_bf16_k_k(&C_local[0], tl::matrix<16, 512, 2>(tl::SHARED_START + ((slot_1 * 256 ^ s * 2) + 512)), tl::matrix<16, 512, 2>(tl::SHARED_START + s * 2), true);
      }
      tl::wgmma_commit();
      // golden_programs.py:117
      __syncwarp();
      if (tx % 32 == 0) {
        tl::mbarrier_arrive(&A_shared_packed_shared_empty[tl::wrapping_sub<int>(ko_count, 1) % 2]);
      }
      ko_count = tl::wrapping_add<int>(ko_count, 1);
    }
    tl::wgmma_wait<0>();
    tl::settle<32>(&C_local[0]);
    __syncwarp();
    if (tx % 32 == 0) {
      tl::mbarrier_arrive(&A_shared_packed_shared_empty[tl::wrapping_sub<int>(ko_count, 1) % 2]);
    }
    // golden_programs.py:124
    tl::fence_proxy_async();
    tl::named_barrier(2, 128);
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
      tl::pack<float, 2> C_stage_v;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        C_stage_v[lane] = C_local[r * 2 + lane];
      }
      tl::store_pack(C_stage + tx % 2 * 2 + (((tx / 32 * 16 + r % 2 * 8 + tx % 32 / 4) * 8 + (tx % 4 / 2 ^ tx % 32 / 4)) ^ r / 2 * 2) * 4, C_stage_v);
    }
    tl::fence_proxy_async();
    tl::named_barrier(1, 128);
    if (tx == 0) {
      tl::tma_store(&C_stage[0], C_map, bx * 64, by * 64);
      tl::bulk_commit();
    }
    if (tx == 0) {
      tl::bulk_wait_read<0>();
    }
    tl::named_barrier(2, 128);
    #pragma unroll
    for (int r = 8; r < 16; ++r) {
      tl::pack<float, 2> C_stage_v;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        C_stage_v[lane] = C_local[r * 2 + lane];
      }
      tl::store_pack(C_stage_1 + tx % 2 * 2 + (((tx / 32 * 16 + r % 2 * 8 + tx % 32 / 4) * 8 + (tx % 4 / 2 ^ tx % 32 / 4)) ^ r % 8 / 2 * 2) * 4, C_stage_v);
    }
    tl::fence_proxy_async();
    tl::named_barrier(1, 128);
    if (tx == 0) {
      tl::tma_store(&C_stage_1[0], C_map, bx * 64 + 32, by * 64);
      tl::bulk_commit();
    }
    if (tx == 0) {
      tl::bulk_wait_read<0>();
    }
  }
  // golden_programs.py:111
  if (tx / 128 == 1) {
    if (tx == 128) {
      // golden_programs.py:117
      for (int ko = 0; ko < 16; ++ko) {
        const int slot = ko % 2;
        const int phase = ko % 4 / 2;
        tl::mbarrier_wait(&A_shared_packed_shared_empty[slot], phase ^ 1);
        tl::mbarrier_arrive_expect_tx(&A_shared_packed_shared_full[slot], 5120);
        // golden_programs.py:118
        tl::tma_load(&A_shared[ko % 2 * 256 * 8], A_map, &A_shared_packed_shared_full[slot], ko * 32, by * 64);
        // golden_programs.py:119
        tl::tma_load(&packed_shared[ko % 2 * 1024], packed_map, &A_shared_packed_shared_full[slot], ko * 16, bx * 64);
      }
    }
  }
}

// attention (golden_programs.py:58)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>
#include <tilelang/tma.cuh>
#include <tilelang/warp.cuh>
#include <tilelang/wgmma.cuh>

__device__ __forceinline__ void wgmma_m64n64k16_f32_f16_f16_k_k(void* c, uint64_t a, uint64_t b, bool keep) {
  float* C = (float*)c;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0; }"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31])
      : "l"(a), "l"(b), "r"((int)keep));
}

__device__ __forceinline__ void wgmma_m64n64k16_f32_f16_f16_r_mn(void* c, const void* a, uint64_t b, bool keep) {
  float* C = (float*)c;
  const uint32_t* A = (const uint32_t*)a;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]), "+f"(C[7]), "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]), "+f"(C[14]), "+f"(C[15]), "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]), "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]), "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "l"(b), "r"((int)keep));
}

extern "C" __global__ void __launch_bounds__(256, 1) attention_kernel(const half_t* __restrict__ Q, const __grid_constant__ tl::tensor_map O_map, const __grid_constant__ tl::tensor_map K_map, const __grid_constant__ tl::tensor_map V_map) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  tl::check_shared_start(smem);
  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
    tl::prefetch(O_map);
    tl::prefetch(K_map);
    tl::prefetch(V_map);
  }
  // golden_programs.py:98
  half_t* const O_stage = reinterpret_cast<half_t*>(smem + 32768);
  // golden_programs.py:63
  half_t* const K_shared = reinterpret_cast<half_t*>(smem);
  // golden_programs.py:64
  half_t* const V_shared = reinterpret_cast<half_t*>(smem + 16384);
  // golden_programs.py:78
  uint64_t* const K_shared_full = reinterpret_cast<uint64_t*>(smem + 40960);
  uint64_t* const K_shared_empty = reinterpret_cast<uint64_t*>(smem + 40976);
  // golden_programs.py:82
  uint64_t* const V_shared_full = reinterpret_cast<uint64_t*>(smem + 40992);
  uint64_t* const V_shared_empty = reinterpret_cast<uint64_t*>(smem + 41008);
  if (tx == 0) {
    tl::mbarrier_init(&K_shared_full[0], 1);
    tl::mbarrier_init(&K_shared_full[1], 1);
    tl::mbarrier_init(&K_shared_empty[0], 4);
    tl::mbarrier_init(&K_shared_empty[1], 4);
    tl::mbarrier_init(&V_shared_full[0], 1);
    tl::mbarrier_init(&V_shared_full[1], 1);
    tl::mbarrier_init(&V_shared_empty[0], 4);
    tl::mbarrier_init(&V_shared_empty[1], 4);
    tl::fence_barrier_init();
  }
  __syncthreads();
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:61
  if (tx / 128 == 0) {
    // golden_programs.py:62
    half_t* const Q_shared = reinterpret_cast<half_t*>(smem + 32768);
    // golden_programs.py:65
    float scores[32];
    // golden_programs.py:66
    alignas(16) half_t weights[32];
    // golden_programs.py:67
    float output[32];
    // golden_programs.py:68
    float top[2];
    // golden_programs.py:69
    float before[2];
    // golden_programs.py:70
    float rescale[2];
    // golden_programs.py:71
    float row_sum[2];
    // golden_programs.py:72
    float total[2];
    // golden_programs.py:73
    #pragma unroll
    for (int step = 0; step < 4; ++step) {
      tl::store_pack(Q_shared + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + step * 1024, tl::load_pack<8>(Q + (by * 32768 + bx * 4096 + tx / 8 * 64 + tx % 8 * 8) + step * 1024));
    }
    // golden_programs.py:74
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        output[r * 2 + lane] = 0.0f;
      }
    }
    // golden_programs.py:75
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] = 0.0f;
    }
    // golden_programs.py:76
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = -tl::inf_f32();
    }
    // golden_programs.py:77
    const int slot = 0;
    const int phase = 0;
    // golden_programs.py:79
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:80
        scores[r * 2 + lane] = r / 2 * 8 + tx % 4 * 2 + lane <= bx * 64 + tx / 32 * 16 + r % 2 * 8 + tx % 32 / 4 ? 0.0f : -tl::inf_f32();
      }
    }
    // golden_programs.py:77
    tl::mbarrier_wait(&K_shared_full[slot], phase);
    // golden_programs.py:81
    tl::fence_proxy_async();
    tl::named_barrier(1, 128);
    tl::wgmma_fence();
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      wgmma_m64n64k16_f32_f16_f16_k_k(&scores[0], tl::matrix<16, 1024, 1>(tl::SHARED_START + (s * 2 + 2048)), tl::matrix<16, 1024, 1>(tl::SHARED_START + s * 2), true);
    }
    tl::wgmma_commit();
    // golden_programs.py:83
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      before[r] = top[r];
    }
    // golden_programs.py:77
    tl::wgmma_wait<0>();
    tl::settle<32>(&scores[0]);
    __syncwarp();
    if (tx % 32 == 0) {
      tl::mbarrier_arrive(&K_shared_empty[0]);
    }
    // golden_programs.py:84
    float partial[4];
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      partial[s * 2] = -tl::inf_f32();
      partial[s * 2 + 1] = -tl::inf_f32();
      #pragma unroll
      for (int q = 0; q < 8; ++q) {
        partial[s * 2] = fmaxf(partial[s * 2], scores[q * 4 + s * 2]);
        partial[s * 2 + 1] = fmaxf(partial[s * 2 + 1], scores[q * 4 + s * 2 + 1]);
      }
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      partial[s] = fmaxf(partial[s * 2], partial[s * 2 + 1]);
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float other = tl::shfl_xor(partial[s], 1);
      partial[s] = fmaxf(partial[s], other);
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float other = tl::shfl_xor(partial[s], 2);
      partial[s] = fmaxf(partial[s], other);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(partial[r], top[r]);
    }
    // golden_programs.py:85
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      // golden_programs.py:86
      rescale[r] = tl::exp2(before[r] * 0.18033688f - top[r] * 0.18033688f);
    }
    // golden_programs.py:87
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:88
        scores[r * 2 + lane] = tl::exp2(scores[r * 2 + lane] * 0.18033688f - top[r % 2] * 0.18033688f);
      }
    }
    // golden_programs.py:89
    float partial_1[4];
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      partial_1[s * 2] = 0.0f;
      partial_1[s * 2 + 1] = 0.0f;
      #pragma unroll
      for (int q = 0; q < 8; ++q) {
        partial_1[s * 2] += scores[q * 4 + s * 2];
        partial_1[s * 2 + 1] += scores[q * 4 + s * 2 + 1];
      }
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      partial_1[s] = partial_1[s * 2] + partial_1[s * 2 + 1];
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float other = tl::shfl_xor(partial_1[s], 1);
      partial_1[s] += other;
    }
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float other = tl::shfl_xor(partial_1[s], 2);
      partial_1[s] += other;
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_sum[r] = partial_1[r];
    }
    // golden_programs.py:90
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      // golden_programs.py:91
      total[r] = total[r] * rescale[r] + row_sum[r];
    }
    // golden_programs.py:92
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:93
        output[r * 2 + lane] *= rescale[r % 2];
      }
    }
    // golden_programs.py:94
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      tl::pack<float, 2> part;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        part[lane] = scores[r * 2 + lane];
      }
      tl::store_rounded(&weights[r * 2], part);
    }
    // golden_programs.py:77
    for (int k = 0; k < bx; ++k) {
      const int slot_1 = k % 2;
      const int phase_1 = k % 4 / 2;
      const int slot_2 = (k + 1) % 2;
      const int phase_2 = (k + 1) % 4 / 2;
      tl::mbarrier_wait(&V_shared_full[slot_1], phase_1);
      // golden_programs.py:79
      #pragma unroll
      for (int r = 0; r < 16; ++r) {
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          // golden_programs.py:80
          scores[r * 2 + lane] = k * 64 + r / 2 * 8 + tx % 4 * 2 + lane + 64 <= bx * 64 + tx / 32 * 16 + r % 2 * 8 + tx % 32 / 4 ? 0.0f : -tl::inf_f32();
        }
      }
      // golden_programs.py:77
      tl::mbarrier_wait(&K_shared_full[slot_2], phase_2);
      // golden_programs.py:81
      tl::wgmma_fence();
      #pragma unroll
      for (int s = 0; s < 4; ++s) {
        wgmma_m64n64k16_f32_f16_f16_k_k(&scores[0], tl::matrix<16, 1024, 1>(tl::SHARED_START + (s * 2 + 2048)), tl::matrix<16, 1024, 1>(tl::SHARED_START + ((k + 1) % 2 * 512 ^ s * 2)), true);
      }
      tl::wgmma_commit();
      // golden_programs.py:95
      tl::settle<16>((int32_t*)&weights[0]);
      tl::wgmma_fence();
      #pragma unroll
      for (int s = 0; s < 4; ++s) {
        wgmma_m64n64k16_f32_f16_f16_r_mn(&output[0], &weights[s * 8], tl::matrix<8192, 1024, 1>(tl::SHARED_START + (k % 2 * 512 + s * 128 + 1024)), true);
      }
      tl::wgmma_commit();
      // golden_programs.py:83
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        before[r] = top[r];
      }
      // golden_programs.py:77
      tl::wgmma_wait<1>();
      tl::settle<32>(&scores[0]);
      __syncwarp();
      if (tx % 32 == 0) {
        tl::mbarrier_arrive(&K_shared_empty[(k + 1) % 2]);
      }
      // golden_programs.py:84
      float partial_2[4];
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        partial_2[s * 2] = -tl::inf_f32();
        partial_2[s * 2 + 1] = -tl::inf_f32();
        #pragma unroll
        for (int q = 0; q < 8; ++q) {
          partial_2[s * 2] = fmaxf(partial_2[s * 2], scores[q * 4 + s * 2]);
          partial_2[s * 2 + 1] = fmaxf(partial_2[s * 2 + 1], scores[q * 4 + s * 2 + 1]);
        }
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        partial_2[s] = fmaxf(partial_2[s * 2], partial_2[s * 2 + 1]);
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const float other = tl::shfl_xor(partial_2[s], 1);
        partial_2[s] = fmaxf(partial_2[s], other);
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const float other = tl::shfl_xor(partial_2[s], 2);
        partial_2[s] = fmaxf(partial_2[s], other);
      }
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(partial_2[r], top[r]);
      }
      // golden_programs.py:85
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        // golden_programs.py:86
        rescale[r] = tl::exp2(before[r] * 0.18033688f - top[r] * 0.18033688f);
      }
      // golden_programs.py:87
      #pragma unroll
      for (int r = 0; r < 16; ++r) {
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          // golden_programs.py:88
          scores[r * 2 + lane] = tl::exp2(scores[r * 2 + lane] * 0.18033688f - top[r % 2] * 0.18033688f);
        }
      }
      // golden_programs.py:89
      float partial_3[4];
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        partial_3[s * 2] = 0.0f;
        partial_3[s * 2 + 1] = 0.0f;
        #pragma unroll
        for (int q = 0; q < 8; ++q) {
          partial_3[s * 2] += scores[q * 4 + s * 2];
          partial_3[s * 2 + 1] += scores[q * 4 + s * 2 + 1];
        }
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        partial_3[s] = partial_3[s * 2] + partial_3[s * 2 + 1];
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const float other = tl::shfl_xor(partial_3[s], 1);
        partial_3[s] += other;
      }
      #pragma unroll
      for (int s = 0; s < 2; ++s) {
        const float other = tl::shfl_xor(partial_3[s], 2);
        partial_3[s] += other;
      }
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        row_sum[r] = partial_3[r];
      }
      // golden_programs.py:90
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        // golden_programs.py:91
        total[r] = total[r] * rescale[r] + row_sum[r];
      }
      // golden_programs.py:77
      tl::wgmma_wait<0>();
      tl::settle<32>(&output[0]);
      __syncwarp();
      if (tx % 32 == 0) {
        tl::mbarrier_arrive(&V_shared_empty[k % 2]);
      }
      // golden_programs.py:92
      #pragma unroll
      for (int r = 0; r < 16; ++r) {
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          // golden_programs.py:93
          output[r * 2 + lane] *= rescale[r % 2];
        }
      }
      // golden_programs.py:94
      #pragma unroll
      for (int r = 0; r < 16; ++r) {
        tl::pack<float, 2> part;
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          part[lane] = scores[r * 2 + lane];
        }
        tl::store_rounded(&weights[r * 2], part);
      }
    }
    // golden_programs.py:77
    const int slot_1 = bx % 2;
    const int phase_1 = bx % 4 / 2;
    tl::mbarrier_wait(&V_shared_full[slot_1], phase_1);
    // golden_programs.py:95
    tl::settle<16>((int32_t*)&weights[0]);
    tl::wgmma_fence();
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      wgmma_m64n64k16_f32_f16_f16_r_mn(&output[0], &weights[s * 8], tl::matrix<8192, 1024, 1>(tl::SHARED_START + (bx % 2 * 512 + s * 128 + 1024)), true);
    }
    tl::wgmma_commit();
    // golden_programs.py:77
    tl::wgmma_wait<0>();
    tl::settle<32>(&output[0]);
    __syncwarp();
    if (tx % 32 == 0) {
      tl::mbarrier_arrive(&V_shared_empty[(bx + 1 - 1) % 2]);
    }
    // golden_programs.py:96
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:97
        output[r * 2 + lane] /= total[r % 2];
      }
    }
    // golden_programs.py:98
    tl::fence_proxy_async();
    tl::named_barrier(2, 128);
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      tl::pack<float, 2> part;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        part[lane] = output[r * 2 + lane];
      }
      tl::store_rounded(O_stage + tx % 4 * 2 + (((tx / 32 * 16 + r % 2 * 8 + tx % 32 / 4) * 8 + tx % 32 / 4) ^ r / 2) * 8, part);
    }
    tl::fence_proxy_async();
    tl::named_barrier(1, 128);
    if (tx == 0) {
      tl::tma_store(&O_stage[0], O_map, 0, bx * 64, by);
      tl::bulk_commit();
    }
    if (tx == 0) {
      tl::bulk_wait_read<0>();
    }
  }
  // golden_programs.py:61
  if (tx / 128 == 1) {
    if (tx == 128) {
      // golden_programs.py:77
      for (int k = 0; k < bx + 1; ++k) {
        const int slot = k % 2;
        const int phase = k % 4 / 2;
        tl::mbarrier_wait(&K_shared_empty[slot], phase ^ 1);
        tl::mbarrier_arrive_expect_tx(&K_shared_full[slot], 8192);
        // golden_programs.py:78
        tl::tma_load(&K_shared[k % 2 * 512 * 8], K_map, &K_shared_full[slot], 0, k * 64, by);
        // golden_programs.py:77
        tl::mbarrier_wait(&V_shared_empty[slot], phase ^ 1);
        tl::mbarrier_arrive_expect_tx(&V_shared_full[slot], 8192);
        // golden_programs.py:82
        tl::tma_load(&V_shared[k % 2 * 512 * 8], V_map, &V_shared_full[slot], 0, k * 64, by);
      }
    }
  }
}

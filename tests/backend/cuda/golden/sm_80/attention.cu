// attention (golden_programs.py:58)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>
#include <tilelang/warp.cuh>

__device__ __forceinline__ void ldmatrix_x4(void* d, const void* s) {
  uint32_t* D = (uint32_t*)d;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void mma_m16n8k16_f16_f16_f32(void* c, const void* a, const void* b) {
  float* C = (float*)c;
  const uint32_t* A = (const uint32_t*)a;
  const uint32_t* B = (const uint32_t*)b;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
}

__device__ __forceinline__ void ldmatrix_x4_trans(void* d, const void* s) {
  uint32_t* D = (uint32_t*)d;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3]) : "r"(at) : "memory");
}

extern "C" __global__ void __launch_bounds__(128) attention_kernel(const half_t* __restrict__ Q, const half_t* __restrict__ K, const half_t* __restrict__ V, half_t* __restrict__ O) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  // golden_programs.py:65
  float* const scores_scratch = reinterpret_cast<float*>(smem);
  // golden_programs.py:84
  float* const partials = reinterpret_cast<float*>(smem);
  // golden_programs.py:89
  float* const partials_1 = reinterpret_cast<float*>(smem);
  // golden_programs.py:62
  half_t* const Q_shared = reinterpret_cast<half_t*>(smem + 49152);
  // golden_programs.py:63
  half_t* const K_shared = reinterpret_cast<half_t*>(smem + 16384);
  // golden_programs.py:64
  half_t* const V_shared = reinterpret_cast<half_t*>(smem + 32768);
  // golden_programs.py:65
  float scores[32];
  // golden_programs.py:66
  alignas(16) half_t weights[64];
  // golden_programs.py:67
  float output[32];
  // golden_programs.py:68
  float top[4];
  // golden_programs.py:69
  float before[4];
  // golden_programs.py:70
  float rescale[4];
  // golden_programs.py:71
  float row_sum[4];
  // golden_programs.py:72
  float total[4];
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
  for (int r = 0; r < 4; ++r) {
    total[r] = 0.0f;
  }
  // golden_programs.py:76
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    top[r] = -tl::inf_f32();
  }
  // golden_programs.py:78
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(K_shared + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + step * 1024, K + (by * 32768 + tx / 8 * 64 + tx % 8 * 8) + step * 1024);
  }
  // golden_programs.py:82
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(V_shared + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + step * 1024, V + (by * 32768 + tx / 8 * 64 + tx % 8 * 8) + step * 1024);
  }
  // golden_programs.py:77
  tl::cp_async_commit();
  for (int k = 0; k < bx + 1; ++k) {
    tl::cp_async_wait<0>();
    __syncthreads();
    if (k < bx) {
      // golden_programs.py:78
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        tl::cp_async<16>(K_shared + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + (k + 1) % 2 * 4096 + step * 1024, K + (by * 32768 + tx / 8 * 64 + tx % 8 * 8) + k * 4096 + (step * 1024 + 4096), k < 7);
      }
      // golden_programs.py:82
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        tl::cp_async<16>(V_shared + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + (k + 1) % 2 * 4096 + step * 1024, V + (by * 32768 + tx / 8 * 64 + tx % 8 * 8) + k * 4096 + (step * 1024 + 4096), k < 7);
      }
    }
    // golden_programs.py:77
    tl::cp_async_commit();
    // golden_programs.py:79
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:80
        scores[r * 2 + lane] = k * 64 + tx % 64 / 32 * 32 + r % 8 / 2 * 8 + tx % 4 * 2 + lane <= bx * 64 + tx / 64 * 32 + r / 8 * 16 + r % 2 * 8 + tx % 32 / 4 ? 0.0f : -tl::inf_f32();
      }
    }
    // golden_programs.py:81
    alignas(16) half_t a_operand[16];
    alignas(16) half_t b_operand[8];
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(&a_operand[i * 8], Q_shared + ((tx / 64 * 256 + tx % 16 * 8 + (tx % 32 / 16 ^ tx % 8)) ^ s * 2) * 8 + i * 1024);
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        ldmatrix_x4(&b_operand[0], K_shared + ((k % 2 * 512 + tx % 64 / 32 * 256 + tx % 32 / 16 * 64 + tx % 8 * 8 + (tx % 16 / 8 ^ tx % 8)) ^ s * 2) * 8 + j * 1024);
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int i = 0; i < 2; ++i) {
            mma_m16n8k16_f16_f16_f32(&scores[i * 16 + j * 8 + h * 4], &a_operand[i * 8], &b_operand[h * 4]);
          }
        }
      }
    }
    // golden_programs.py:83
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      before[r] = top[r];
    }
    // golden_programs.py:84
    float partial[4];
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      partial[s] = -tl::inf_f32();
      #pragma unroll
      for (int q = 0; q < 8; ++q) {
        partial[s] = fmaxf(partial[s], scores[s / 2 * 16 + q / 2 * 4 + s % 2 * 2 + q % 2]);
      }
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float other = tl::shfl_xor(partial[s], 1);
      partial[s] = fmaxf(partial[s], other);
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float other = tl::shfl_xor(partial[s], 2);
      partial[s] = fmaxf(partial[s], other);
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (tx % 4 == 0) {
        partials[tx % 64 / 32 * 64 + tx / 64 * 32 + s * 8 + tx % 32 / 4] = partial[s];
      }
    }
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = tx / 64 * 32 + r * 8 + tx % 32 / 4;
      float acc = partials[i];
      acc = fmaxf(acc, partials[64 + i]);
      top[r] = fmaxf(acc, top[r]);
    }
    // golden_programs.py:85
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      // golden_programs.py:86
      rescale[r] = tl::exp2(before[r] * 0.18033688f - top[r] * 0.18033688f);
    }
    // golden_programs.py:87
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:88
        scores[r * 2 + lane] = tl::exp2(scores[r * 2 + lane] * 0.18033688f - top[r / 8 * 2 + r % 2] * 0.18033688f);
      }
    }
    // golden_programs.py:89
    float partial_1[4];
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      partial_1[s] = 0.0f;
      #pragma unroll
      for (int q = 0; q < 8; ++q) {
        partial_1[s] += scores[s / 2 * 16 + q / 2 * 4 + s % 2 * 2 + q % 2];
      }
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float other = tl::shfl_xor(partial_1[s], 1);
      partial_1[s] += other;
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float other = tl::shfl_xor(partial_1[s], 2);
      partial_1[s] += other;
    }
    __syncthreads();
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (tx % 4 == 0) {
        partials_1[tx % 64 / 32 * 64 + tx / 64 * 32 + s * 8 + tx % 32 / 4] = partial_1[s];
      }
    }
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = tx / 64 * 32 + r * 8 + tx % 32 / 4;
      float acc = partials_1[i];
      acc += partials_1[64 + i];
      row_sum[r] = acc;
    }
    // golden_programs.py:90
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      // golden_programs.py:91
      total[r] = total[r] * rescale[r] + row_sum[r];
    }
    // golden_programs.py:92
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        // golden_programs.py:93
        output[r * 2 + lane] *= rescale[r / 8 * 2 + r % 2];
      }
    }
    // golden_programs.py:94
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 16; ++r) {
      tl::pack<float, 2> scores_scratch_v;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        scores_scratch_v[lane] = scores[r * 2 + lane];
      }
      tl::store_pack(scores_scratch + (tx / 64 * 2048 + tx % 32 / 4 * 64 + tx % 64 / 32 * 32 + tx % 4 * 2) + (r / 8 * 1024 + r % 2 * 512 + r % 8 / 2 * 8), scores_scratch_v);
    }
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 32; ++r) {
      const auto scores_scratch_v = tl::load_pack<2>(scores_scratch + (tx / 64 * 2048 + tx % 32 / 4 * 64 + tx % 4 * 2) + (r / 16 * 1024 + r % 2 * 512 + r % 16 / 2 * 8));
      tl::pack<float, 2> part;
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        part[lane] = scores_scratch_v[lane];
      }
      tl::store_rounded(&weights[r * 2], part);
    }
    // golden_programs.py:95
    alignas(16) half_t b_operand_1[8];
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        ldmatrix_x4_trans(&b_operand_1[0], V_shared + ((k % 2 * 512 + tx % 16 * 8 + ((tx % 64 / 32 * 4 ^ tx % 32 / 16) ^ tx % 8)) ^ j * 2) * 8 + s * 1024);
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int i = 0; i < 2; ++i) {
            mma_m16n8k16_f16_f16_f32(&output[i * 16 + j * 8 + h * 4], &weights[i * 32 + s * 8], &b_operand_1[h * 4]);
          }
        }
      }
    }
  }
  // golden_programs.py:77
  tl::cp_async_wait<0>();
  // golden_programs.py:96
  #pragma unroll
  for (int r = 0; r < 16; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      // golden_programs.py:97
      output[r * 2 + lane] /= total[r / 8 * 2 + r % 2];
    }
  }
  // golden_programs.py:98
  half_t* const output_rows = reinterpret_cast<half_t*>(smem);
  __syncthreads();
  #pragma unroll
  for (int r = 0; r < 16; ++r) {
    tl::pack<float, 2> part;
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      part[lane] = output[r * 2 + lane];
    }
    tl::store_rounded(output_rows + tx % 4 * 2 + (((tx / 64 * 32 + r / 8 * 16 + r % 2 * 8 + tx % 32 / 4) * 8 + (tx % 64 / 32 * 4 ^ tx % 32 / 4)) ^ r % 8 / 2) * 8, part);
  }
  __syncthreads();
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::store_pack(O + (by * 32768 + bx * 4096 + tx / 8 * 64 + tx % 8 * 8) + step * 1024, tl::load_pack<8>(output_rows + (tx / 8 * 64 + (tx % 8 ^ tx % 64 / 8) * 8) + step * 1024));
  }
}

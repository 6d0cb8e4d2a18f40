// dequant_gemm (golden_programs.py:107)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>

__device__ __forceinline__ void ldmatrix_x4(void* d, const void* s) {
  uint32_t* D = (uint32_t*)d;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void mma_m16n8k16_bf16_bf16_f32(void* c, const void* a, const void* b) {
  float* C = (float*)c;
  const uint32_t* A = (const uint32_t*)a;
  const uint32_t* B = (const uint32_t*)b;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
}

extern "C" __global__ void __launch_bounds__(128) dequant_gemm_kernel(const bfloat16_t* __restrict__ A, const uint8_t* __restrict__ packed, const bfloat16_t* __restrict__ scales, float* __restrict__ C) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  // golden_programs.py:112
  bfloat16_t* const A_shared = reinterpret_cast<bfloat16_t*>(smem);
  // golden_programs.py:113
  uint8_t* const packed_shared = reinterpret_cast<uint8_t*>(smem + 12288);
  // golden_programs.py:114
  bfloat16_t* const B_shared = reinterpret_cast<bfloat16_t*>(smem + 8192);
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
  // golden_programs.py:118
  #pragma unroll
  for (int step = 0; step < 2; ++step) {
    tl::cp_async<16>(A_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + step * 1024, A + (by * 32768 + tx / 4 * 512 + tx % 4 * 8) + step * 16384);
  }
  // golden_programs.py:119
  if (tx < 64) {
    tl::cp_async<16>(&packed_shared[tx * 16], &packed[(bx * 64 + tx) * 256]);
  }
  // golden_programs.py:117
  tl::cp_async_commit();
  for (int ko = 0; ko < 16; ++ko) {
    tl::cp_async_wait<0>();
    __syncthreads();
    if (ko < 15) {
      // golden_programs.py:118
      #pragma unroll
      for (int step = 0; step < 2; ++step) {
        tl::cp_async<16>(A_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + (ko + 1) % 2 * 2048 + step * 1024, A + (by * 32768 + tx / 4 * 512 + tx % 4 * 8) + ko * 32 + (step * 16384 + 32));
      }
      // golden_programs.py:119
      if (tx < 64) {
        tl::cp_async<16>(packed_shared + tx * 16 + (ko + 1) % 2 * 1024, packed + (bx * 16384 + tx * 256) + ko * 16 + 16);
      }
    }
    // golden_programs.py:117
    tl::cp_async_commit();
    // golden_programs.py:120
    #pragma unroll
    for (int step = 0; step < 2; ++step) {
      // golden_programs.py:122
      tl::pack<bfloat16_t, 8> part;
      #pragma unroll
      for (int lane = 0; lane < 8; lane += 2) {
        tl::set_pair(part, lane, ((tl::halves((int)(uint8_t)(packed_shared[(ko % 2 * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + lane / 2] >> (uint8_t)(lane % 2 * 4)), (int)(uint8_t)(packed_shared[(ko % 2 * 64 + step * 32 + tx / 4) * 16 + tx % 4 * 4 + (lane + 1) / 2] >> (uint8_t)((lane + 1) % 2 * 4))) & 0x000f000fu) | 0x43004300u));
      }
      tl::store_pack(B_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + step * 1024, (part - bfloat16_t::from_bits(0x4308 /* 136.0 */)) * scales[(bx * 64 + step * 32 + tx / 4) * 16 + ko]);
    }
    // golden_programs.py:123
    alignas(16) bfloat16_t a_operand[16];
    alignas(16) bfloat16_t b_operand[8];
    __syncthreads();
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(&a_operand[i * 8], A_shared + ((ko % 2 * 256 + tx / 64 * 128 + tx % 16 * 4 + (tx % 32 / 16 ^ tx % 8 / 2)) ^ s * 2) * 8 + i * 512);
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        ldmatrix_x4(&b_operand[0], B_shared + ((tx % 64 / 32 * 128 + tx % 32 / 16 * 32 + tx % 8 * 4 + (tx % 16 / 8 ^ tx % 8 / 2)) ^ s * 2) * 8 + j * 512);
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int i = 0; i < 2; ++i) {
            mma_m16n8k16_bf16_bf16_f32(&C_local[i * 16 + j * 8 + h * 4], &a_operand[i * 8], &b_operand[h * 4]);
          }
        }
      }
    }
  }
  // golden_programs.py:117
  tl::cp_async_wait<0>();
  // golden_programs.py:124
  #pragma unroll
  for (int r = 0; r < 16; ++r) {
    tl::pack<float, 2> C_v;
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      C_v[lane] = C_local[r * 2 + lane];
    }
    tl::store_pack(C + (by * 8192 + tx / 64 * 4096 + tx % 32 / 4 * 128 + bx * 64 + tx % 64 / 32 * 32 + tx % 4 * 2) + (r / 8 * 2048 + r % 2 * 1024 + r % 8 / 2 * 8), C_v);
  }
}

// gemm (golden_programs.py:37)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>

__device__ __forceinline__ void ldmatrix_x4(void* d, const void* s) {
  uint32_t* D = (uint32_t*)d;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(void* d, const void* s) {
  uint32_t* D = (uint32_t*)d;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(s);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void mma_m16n8k16_f16_f16_f32(void* c, const void* a, const void* b) {
  float* C = (float*)c;
  const uint32_t* A = (const uint32_t*)a;
  const uint32_t* B = (const uint32_t*)b;
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
}

extern "C" __global__ void __launch_bounds__(128) gemm_kernel(const half_t* __restrict__ A, const half_t* __restrict__ B, half_t* __restrict__ C) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  // golden_programs.py:39
  half_t* const A_shared = reinterpret_cast<half_t*>(smem);
  // golden_programs.py:40
  half_t* const B_shared = reinterpret_cast<half_t*>(smem + 24576);
  // golden_programs.py:41
  float C_local[128];
  // golden_programs.py:42
  #pragma unroll
  for (int r = 0; r < 64; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      C_local[r * 2 + lane] = 0.0f;
    }
  }
  // golden_programs.py:44
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(A_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + step * 1024, A + (by * 65536 + tx / 4 * 512 + tx % 4 * 8) + step * 16384);
  }
  // golden_programs.py:45
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(B_shared + (tx % 16 / 8 * 2048 + tx / 16 * 64 + (tx % 8 ^ tx / 16) * 8) + step * 512, B + (tx / 16 * 512 + bx * 128 + tx % 16 * 8) + step * 4096);
  }
  // golden_programs.py:43
  tl::cp_async_commit();
  // golden_programs.py:44
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(A_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + (step * 1024 + 4096), A + (by * 65536 + tx / 4 * 512 + tx % 4 * 8) + (step * 16384 + 32));
  }
  // golden_programs.py:45
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    tl::cp_async<16>(B_shared + (tx % 16 / 8 * 2048 + tx / 16 * 64 + (tx % 8 ^ tx / 16) * 8) + (step * 512 + 4096), B + (tx / 16 * 512 + bx * 128 + tx % 16 * 8) + (step * 4096 + 16384));
  }
  // golden_programs.py:43
  tl::cp_async_commit();
  for (int ko = 0; ko < 16; ++ko) {
    tl::cp_async_wait<1>();
    __syncthreads();
    if (ko < 14) {
      // golden_programs.py:44
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        tl::cp_async<16>(A_shared + (tx / 4 * 32 + (tx % 4 ^ tx % 32 / 8) * 8) + (ko + 2) % 3 * 4096 + step * 1024, A + (by * 65536 + tx / 4 * 512 + tx % 4 * 8) + ko * 32 + (step * 16384 + 64));
      }
      // golden_programs.py:45
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        tl::cp_async<16>(B_shared + (tx % 16 / 8 * 2048 + tx / 16 * 64 + (tx % 8 ^ tx / 16) * 8) + (ko + 2) % 3 * 4096 + step * 512, B + (tx / 16 * 512 + bx * 128 + tx % 16 * 8) + ko * 16384 + (step * 4096 + 32768));
      }
    }
    // golden_programs.py:43
    tl::cp_async_commit();
    // golden_programs.py:46
    alignas(16) half_t a_operand[32];
    alignas(16) half_t b_operand[8];
    #pragma unroll
    for (int s = 0; s < 2; ++s) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        ldmatrix_x4(&a_operand[i * 8], A_shared + ((ko % 3 * 512 + tx / 64 * 256 + tx % 16 * 4 + (tx % 32 / 16 ^ tx % 8 / 2)) ^ s * 2) * 8 + i * 512);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        ldmatrix_x4_trans(&b_operand[0], B_shared + ((ko % 3 * 512 + tx % 64 / 32 * 256 + tx % 16 * 8 + (tx % 32 / 16 ^ tx % 8)) ^ j * 2) * 8 + s * 1024);
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int i = 0; i < 4; ++i) {
            mma_m16n8k16_f16_f16_f32(&C_local[i * 32 + j * 8 + h * 4], &a_operand[i * 8], &b_operand[h * 4]);
          }
        }
      }
    }
  }
  // golden_programs.py:43
  tl::cp_async_wait<0>();
  // golden_programs.py:47
  half_t* const C_local_rows = reinterpret_cast<half_t*>(smem);
  __syncthreads();
  #pragma unroll
  for (int r = 0; r < 64; ++r) {
    tl::pack<float, 2> part;
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      part[lane] = C_local[r * 2 + lane];
    }
    tl::store_rounded(C_local_rows + tx % 4 * 2 + ((tx % 64 / 32 * 1024 + tx / 64 * 512 + tx % 32 / 4 * 8 + tx % 32 / 4) ^ r % 16 / 2) * 8 + (r / 16 * 1024 + r % 2 * 512), part);
  }
  __syncthreads();
  for (int step = 0; step < 16; ++step) {
    tl::store_pack(C + (by * 65536 + tx / 16 * 512 + bx * 128 + tx % 16 * 8) + step * 4096, tl::load_pack<8>(C_local_rows + (tx % 16 / 8 * 8192 + tx / 16 * 64 + (tx % 8 ^ tx / 16) * 8) + step * 512));
  }
}

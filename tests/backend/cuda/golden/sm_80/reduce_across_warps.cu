// row_norms (golden_programs.py:131)

#include <tilelang/math.cuh>
#include <tilelang/warp.cuh>

extern "C" __global__ void __launch_bounds__(256) row_norms_kernel(const float* __restrict__ X, float* __restrict__ norms) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int row = blockIdx.x;
  const int tx = threadIdx.x;
  // golden_programs.py:138
  float* const partials = reinterpret_cast<float*>(smem);
  // golden_programs.py:133
  float x[16];
  // golden_programs.py:134
  float total;
  // golden_programs.py:135
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    const auto X_v = tl::load_pack<4>(X + (row * 4096 + tx * 4) + r * 1024);
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      x[r * 4 + lane] = X_v[lane];
    }
  }
  // golden_programs.py:136
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      // golden_programs.py:137
      x[r * 4 + lane] *= x[r * 4 + lane];
    }
  }
  // golden_programs.py:138
  float partial[2];
  partial[0] = 0.0f;
  partial[1] = 0.0f;
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    partial[0] += x[q * 2];
    partial[1] += x[q * 2 + 1];
  }
  partial[0] += partial[1];
  const float other = tl::shfl_xor(partial[0], 1);
  partial[0] += other;
  const float other_1 = tl::shfl_xor(partial[0], 2);
  partial[0] += other_1;
  const float other_2 = tl::shfl_xor(partial[0], 4);
  partial[0] += other_2;
  const float other_3 = tl::shfl_xor(partial[0], 8);
  partial[0] += other_3;
  const float other_4 = tl::shfl_xor(partial[0], 16);
  partial[0] += other_4;
  if (tx % 32 == 0) {
    partials[tx / 32] = partial[0];
  }
  __syncthreads();
  float acc = partials[0];
  for (int w = 0; w < 7; ++w) {
    acc += partials[w + 1];
  }
  total = acc;
  // golden_programs.py:139
  norms[row] = sqrtf(total);
}

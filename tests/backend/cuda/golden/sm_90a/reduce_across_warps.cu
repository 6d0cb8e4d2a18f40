// row_norms (golden_programs.py:131)

#include <tilelang/async.cuh>
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
  tl::launch_dependents();
  tl::wait_for_kernels_before();
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
  float partial = 0.0f;
  #pragma unroll
  for (int q = 0; q < 16; ++q) {
    partial += x[q];
  }
  const float other = tl::shfl_xor(partial, 1);
  partial += other;
  const float other_1 = tl::shfl_xor(partial, 2);
  partial += other_1;
  const float other_2 = tl::shfl_xor(partial, 4);
  partial += other_2;
  const float other_3 = tl::shfl_xor(partial, 8);
  partial += other_3;
  const float other_4 = tl::shfl_xor(partial, 16);
  partial += other_4;
  if (tx % 32 == 0) {
    partials[tx / 32] = partial;
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

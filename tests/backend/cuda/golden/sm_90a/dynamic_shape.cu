// rmsnorm (golden_programs.py:162)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>
#include <tilelang/warp.cuh>

extern "C" __global__ void __launch_bounds__(128) rmsnorm_kernel(const bfloat16_t* __restrict__ X, const bfloat16_t* __restrict__ weight, bfloat16_t* __restrict__ Y, float eps, int rows) {
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  // golden_programs.py:166
  float x[16];
  // golden_programs.py:167
  float squares[16];
  // golden_programs.py:168
  float total[2];
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:169
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    tl::pack<bfloat16_t, 8> X_v;
    if (bx * 8 + r * 4 + tx / 32 < rows) X_v = tl::load_pack<8>(X + (int64_t)(tx % 32 * 8) + (int64_t)(bx * 8 + r * 4 + tx / 32) * 256);
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      x[r * 8 + lane] = (float)(bx * 8 + r * 4 + tx / 32 < rows ? X_v[lane] : bfloat16_t::from_bits(0x0 /* 0.0 */));
    }
  }
  // golden_programs.py:170
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      // golden_programs.py:171
      squares[r * 8 + lane] = x[r * 8 + lane] * x[r * 8 + lane];
    }
  }
  // golden_programs.py:172
  float partial[2];
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    partial[s] = 0.0f;
    #pragma unroll
    for (int q = 0; q < 8; ++q) {
      partial[s] += squares[s * 8 + q];
    }
  }
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float other = tl::shfl_xor(partial[s], 1);
    partial[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float other = tl::shfl_xor(partial[s], 2);
    partial[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float other = tl::shfl_xor(partial[s], 4);
    partial[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float other = tl::shfl_xor(partial[s], 8);
    partial[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float other = tl::shfl_xor(partial[s], 16);
    partial[s] += other;
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] = partial[r];
  }
  // golden_programs.py:173
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    // golden_programs.py:174
    const auto weight_v = tl::load_pack<8>(&weight[tx % 32 * 8]);
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      x[r * 8 + lane] = x[r * 8 + lane] * rsqrtf(total[r] / 256.0f + eps) * (float)weight_v[lane];
    }
  }
  // golden_programs.py:175
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (bx * 8 + r * 4 + tx / 32 < rows) {
      tl::pack<float, 8> part;
      #pragma unroll
      for (int lane = 0; lane < 8; ++lane) {
        part[lane] = x[r * 8 + lane];
      }
      tl::store_rounded(Y + (int64_t)(tx % 32 * 8) + (int64_t)(bx * 8 + r * 4 + tx / 32) * 256, part);
    }
  }
}

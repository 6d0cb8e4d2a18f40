// softmax (golden_programs.py:18)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>
#include <tilelang/warp.cuh>

extern "C" __global__ void __launch_bounds__(128) softmax_kernel(const bfloat16_t* __restrict__ X, bfloat16_t* __restrict__ Y) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  // golden_programs.py:24
  float* const partials = reinterpret_cast<float*>(smem);
  // golden_programs.py:27
  float* const partials_1 = reinterpret_cast<float*>(smem + 64);
  // golden_programs.py:20
  float x[32];
  // golden_programs.py:21
  float top[4];
  // golden_programs.py:22
  float total[4];
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:23
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    const auto X_v = tl::load_pack<8>(X + (bx * 4096 + tx * 8) + r * 1024);
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      x[r * 8 + lane] = (float)X_v[lane];
    }
  }
  // golden_programs.py:24
  float partial[4];
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    partial[s] = -tl::inf_f32();
    #pragma unroll
    for (int q = 0; q < 8; ++q) {
      partial[s] = fmaxf(partial[s], x[s * 8 + q]);
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
    const float other = tl::shfl_xor(partial[s], 4);
    partial[s] = fmaxf(partial[s], other);
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float other = tl::shfl_xor(partial[s], 8);
    partial[s] = fmaxf(partial[s], other);
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float other = tl::shfl_xor(partial[s], 16);
    partial[s] = fmaxf(partial[s], other);
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (tx % 32 == 0) {
      partials[tx / 32 * 4 + s] = partial[s];
    }
  }
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    float acc = partials[i];
    for (int w = 0; w < 3; ++w) {
      acc = fmaxf(acc, partials[(w + 1) * 4 + i]);
    }
    top[i] = acc;
  }
  // golden_programs.py:25
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      // golden_programs.py:26
      x[r * 8 + lane] = expf(x[r * 8 + lane] - top[r]);
    }
  }
  // golden_programs.py:27
  float partial_1[4];
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    partial_1[s] = 0.0f;
    #pragma unroll
    for (int q = 0; q < 8; ++q) {
      partial_1[s] += x[s * 8 + q];
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
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float other = tl::shfl_xor(partial_1[s], 4);
    partial_1[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float other = tl::shfl_xor(partial_1[s], 8);
    partial_1[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float other = tl::shfl_xor(partial_1[s], 16);
    partial_1[s] += other;
  }
  #pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (tx % 32 == 0) {
      partials_1[tx / 32 * 4 + s] = partial_1[s];
    }
  }
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    float acc = partials_1[i];
    for (int w = 0; w < 3; ++w) {
      acc += partials_1[(w + 1) * 4 + i];
    }
    total[i] = acc;
  }
  // golden_programs.py:28
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      // golden_programs.py:29
      x[r * 8 + lane] /= total[r];
    }
  }
  // golden_programs.py:30
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    tl::pack<float, 8> part;
    #pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      part[lane] = x[r * 8 + lane];
    }
    tl::store_rounded(Y + (bx * 4096 + tx * 8) + r * 1024, part);
  }
}

// histogram (golden_programs.py:146)

#include <tilelang/async.cuh>
#include <tilelang/atomics.cuh>
#include <tilelang/math.cuh>

extern "C" __global__ void __launch_bounds__(256) histogram_kernel(const uint8_t* __restrict__ values, int* __restrict__ counts) {
  extern __shared__ __align__(1024) uint8_t smem[];
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  // golden_programs.py:148
  int* const own = reinterpret_cast<int*>(smem);
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:149
  const int i = tx;
  own[i] = 0;
  // golden_programs.py:150
  __syncthreads();
  for (int step = 0; step < 16; ++step) {
    // golden_programs.py:151
    tl::atomic_add<int>(&own[(int)values[bx * 4096 + step * 256 + tx]], 1);
  }
  // golden_programs.py:152
  const int i_1 = tx;
  // golden_programs.py:153
  __syncthreads();
  tl::atomic_add<int>(&counts[i_1], own[i_1]);
}

// add (golden_programs.py:8)

#include <tilelang/async.cuh>
#include <tilelang/math.cuh>

extern "C" __global__ void __launch_bounds__(128) add_kernel(const half_t* __restrict__ A, const half_t* __restrict__ B, half_t* __restrict__ C) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  tl::launch_dependents();
  tl::wait_for_kernels_before();
  // golden_programs.py:10
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    // golden_programs.py:11
    const auto A_v = tl::load_pack<8>(A + (by * 16384 + tx / 32 * 1024 + bx * 256 + tx % 32 * 8) + step * 4096);
    const auto B_v = tl::load_pack<8>(B + (by * 16384 + tx / 32 * 1024 + bx * 256 + tx % 32 * 8) + step * 4096);
    tl::store_pack(C + (by * 16384 + tx / 32 * 1024 + bx * 256 + tx % 32 * 8) + step * 4096, A_v * half_t::from_bits(0x4000 /* 2.0 */) + B_v);
  }
}

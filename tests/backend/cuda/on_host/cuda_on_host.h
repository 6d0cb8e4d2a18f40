// What CUDA C++ has and C++ has not, for a compiler of the host: keywords, built-in variables, intrinsics. Threads of a block are
// coroutines of `scheduler.cpp`; they run one at a time, so that atomics are plain updates.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) ((void)0)

struct three { unsigned x, y, z; };
extern "C" {
extern three threadIdx, blockIdx, blockDim, gridDim;
extern uint8_t smem[];
void host_block_barrier(int id, int threads);  // threads 0: all of the block
void host_warp_barrier(uint32_t mask);
void host_stop();
int host_lane();
// Slot of a lane of this warp, for exchanges between two barriers.
uint64_t* host_slot(int lane);
bool host_is_running(int lane);
// An instruction of the whole warp: operands of every lane by address.
void host_instruction(const char* name, int count, const void* const* operands);
}

template <class To, class From> static To host_bits(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
#define __float_as_uint host_bits<uint32_t, float>
#define __uint_as_float host_bits<float, uint32_t>
#define __float_as_int host_bits<int32_t, float>
#define __int_as_float host_bits<float, int32_t>
#define __longlong_as_double(x) host_bits<double>((int64_t)(x))
#define __double_as_longlong host_bits<int64_t, double>
static float __double2float_rn(double x) { return (float)x; }
template <class I> static float host_truncated(I x) {
  long double v = x;
  float f = (float)v;
  return fabsl(f) > fabsl(v) ? nextafterf(f, 0) : f;
}
#define __int2float_rz host_truncated<int32_t>
#define __uint2float_rz host_truncated<uint32_t>
#define __ll2float_rz host_truncated<int64_t>
#define __ull2float_rz host_truncated<uint64_t>
static int64_t __double2ll_rz(double x) {
  return x >= 9223372036854775808.0 ? INT64_MAX : x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}
static uint64_t __double2ull_rz(double x) { return x >= 18446744073709551616.0 ? UINT64_MAX : x < 0 ? 0 : (uint64_t)x; }
static int32_t __double2int_rz(double x) { return x >= 2147483648.0 ? INT32_MAX : x < -2147483648.0 ? INT32_MIN : (int32_t)x; }
static uint32_t __double2uint_rz(double x) { return x >= 4294967296.0 ? UINT32_MAX : x < 0 ? 0 : (uint32_t)x; }
static int32_t __float2int_rz(float x) { return __double2int_rz(x); }
static uint32_t __float2uint_rz(float x) { return __double2uint_rz(x); }
static int64_t __float2ll_rz(float x) { return __double2ll_rz(x); }
static uint64_t __float2ull_rz(float x) { return __double2ull_rz(x); }
static int __clz(int32_t x) { return x ? __builtin_clz((uint32_t)x) : 32; }
static int __clzll(int64_t x) { return x ? __builtin_clzll((uint64_t)x) : 64; }
static int __popc(uint32_t x) { return __builtin_popcount(x); }
static int __popcll(uint64_t x) { return __builtin_popcountll(x); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }

// ---- block and warp
static void __syncthreads() { host_block_barrier(0, 0); }
static void __syncwarp(uint32_t mask = 0xffffffffu) { host_warp_barrier(mask); }
static void __threadfence() {}
static void __trap() { host_stop(); }

// f(lane) of every lane's value once all lanes of the mask have given theirs.
template <class T, class F> static T host_exchange(uint32_t mask, T value, F pick) {
  *host_slot(host_lane()) = 0;
  memcpy(host_slot(host_lane()), &value, sizeof value);
  host_warp_barrier(mask);
  int lane = pick(host_lane());
  T result;
  memcpy(&result, host_slot(lane), sizeof result);
  host_warp_barrier(mask);
  return result;
}
template <class T> static T __shfl_sync(uint32_t mask, T v, int from, int width = 32) {
  return host_exchange(mask, v, [=](int me) { return (me & ~(width - 1)) | (from & (width - 1)); });
}
template <class T> static T __shfl_up_sync(uint32_t mask, T v, unsigned delta, int width = 32) {
  return host_exchange(mask, v, [=](int me) { return (me & (width - 1)) < (int)delta ? me : me - (int)delta; });
}
template <class T> static T __shfl_down_sync(uint32_t mask, T v, unsigned delta, int width = 32) {
  return host_exchange(mask, v, [=](int me) { return (me & (width - 1)) + (int)delta >= width ? me : me + (int)delta; });
}
template <class T> static T __shfl_xor_sync(uint32_t mask, T v, int bits, int width = 32) {
  return host_exchange(mask, v, [=](int me) { return ((me ^ bits) & ~(width - 1)) > (me & ~(width - 1)) ? me : me ^ bits; });
}
static uint32_t __ballot_sync(uint32_t mask, bool vote) {
  *host_slot(host_lane()) = vote;
  host_warp_barrier(mask);
  uint32_t all = 0;
  for (int k = 0; k < 32; ++k)
    if ((mask >> k & 1u) && host_is_running(k) && *host_slot(k)) all |= 1u << k;
  host_warp_barrier(mask);
  return all;
}
static int __any_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
static int __all_sync(uint32_t mask, bool vote) { return __ballot_sync(mask, !vote) == 0; }

// ---- atomics
template <class T> static T host_replace(T* p, T v) { T before = *p; *p = v; return before; }
template <class T> static T atomicAdd(T* p, T v) { return host_replace(p, (T)(*p + v)); }
template <class T> static T atomicMax(T* p, T v) { return host_replace(p, *p < v ? v : *p); }
template <class T> static T atomicMin(T* p, T v) { return host_replace(p, v < *p ? v : *p); }
template <class T> static T atomicOr(T* p, T v) { return host_replace(p, (T)(*p | v)); }
template <class T> static T atomicAnd(T* p, T v) { return host_replace(p, (T)(*p & v)); }
template <class T> static T atomicXor(T* p, T v) { return host_replace(p, (T)(*p ^ v)); }
template <class T> static T atomicExch(T* p, T v) { return host_replace(p, v); }
template <class T> static T atomicCAS(T* p, T expected, T v) { return host_replace(p, *p == expected ? v : *p); }

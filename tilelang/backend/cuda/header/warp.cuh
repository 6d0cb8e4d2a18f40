// Operations of a warp: shuffles of any element type, votes, reductions.
#pragma once
#include <tilelang/math.cuh>

namespace tl {

template <int Bytes> struct shuffle_word { typedef uint32_t type; };
template <> struct shuffle_word<8> { typedef unsigned long long type; };
template <class T, class W> struct through_word {
  static __device__ __forceinline__ W to(T v) { return bit_cast<W>(v); }
  static __device__ __forceinline__ T from(W w) { return bit_cast<T>(w); }
};
template <class T, int Bytes> struct narrow_word {
  static __device__ __forceinline__ uint32_t to(T v) { return (uint32_t)bit_cast<uint16_t>(v); }
  static __device__ __forceinline__ T from(uint32_t w) { return bit_cast<T>((uint16_t)w); }
};
template <class T> struct narrow_word<T, 1> {
  static __device__ __forceinline__ uint32_t to(T v) { return (uint32_t)bit_cast<uint8_t>(v); }
  static __device__ __forceinline__ T from(uint32_t w) { return bit_cast<T>((uint8_t)w); }
};
template <class T, int Bytes> struct words : through_word<T, typename shuffle_word<Bytes>::type> {};
template <class T> struct words<T, 1> : narrow_word<T, 1> {};
template <class T> struct words<T, 2> : narrow_word<T, 2> {};

#define TL_SHUFFLE(name, native)                                                          \
  template <class T> TL_DEVICE T name(T v, int lane, int width = 32, uint32_t mask = 0xffffffffu) { \
    typedef words<T, sizeof(T)> W;                                                        \
    return W::from(native(mask, W::to(v), lane, width));                                  \
  }
TL_SHUFFLE(shfl_idx, __shfl_sync)
TL_SHUFFLE(shfl_up, __shfl_up_sync)
TL_SHUFFLE(shfl_down, __shfl_down_sync)
TL_SHUFFLE(shfl_xor, __shfl_xor_sync)

template <class T> TL_DEVICE uint32_t match_all(uint32_t mask, T v) {
  int same;
  return __match_all_sync(mask, v, &same);
}

// The combination over the warp, in every lane.
template <class T, class F> TL_DEVICE T warp_reduce(T v, F f) {
#pragma unroll
  for (int delta = 16; delta > 0; delta >>= 1) v = f(v, shfl_xor(v, delta));
  return v;
}
template <class T> TL_DEVICE T warp_reduce_sum(T v) { return warp_reduce(v, [](T a, T b) { return T(a + b); }); }
template <class T> TL_DEVICE T warp_reduce_max(T v) { return warp_reduce(v, [](T a, T b) { return tl::max<T>(a, b); }); }
template <class T> TL_DEVICE T warp_reduce_min(T v) { return warp_reduce(v, [](T a, T b) { return tl::min<T>(a, b); }); }
template <class T> TL_DEVICE T warp_reduce_bitand(T v) { return warp_reduce(v, [](T a, T b) { return T(a & b); }); }
template <class T> TL_DEVICE T warp_reduce_bitor(T v) { return warp_reduce(v, [](T a, T b) { return T(a | b); }); }
template <class T> TL_DEVICE T warp_reduce_bitxor(T v) { return warp_reduce(v, [](T a, T b) { return T(a ^ b); }); }

}  // namespace tl

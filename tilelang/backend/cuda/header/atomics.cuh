// Indivisible updates of an element of global or shared memory. Each returns the element before the update.
#pragma once
#include <tilelang/math.cuh>

namespace tl {

// ---- compare and swap of 1, 2, 4 and 8 bytes
template <int Bytes> struct word;
template <> struct word<4> { typedef uint32_t type; };
template <> struct word<8> { typedef unsigned long long type; };
template <> struct word<2> { typedef uint16_t type; };
template <> struct word<1> { typedef uint8_t type; };

TL_DEVICE uint32_t swap_if(uint32_t* p, uint32_t expected, uint32_t desired) { return atomicCAS(p, expected, desired); }
TL_DEVICE unsigned long long swap_if(unsigned long long* p, unsigned long long expected, unsigned long long desired) {
  return atomicCAS(p, expected, desired);
}
// Narrow elements: through the aligned word of 4 bytes around them.
template <class U> TL_DEVICE U swap_narrow(U* p, U expected, U desired) {
  constexpr uint32_t mask = (1u << (8 * sizeof(U))) - 1u;
  uint32_t* base = reinterpret_cast<uint32_t*>(reinterpret_cast<uint64_t>(p) & ~uint64_t(3));
  int shift = 8 * (int)(reinterpret_cast<uint64_t>(p) & 3);
  uint32_t seen = *reinterpret_cast<volatile uint32_t*>(base);
  while (true) {
    U now = (U)((seen >> shift) & mask);
    if (now != expected) return now;
    uint32_t before = atomicCAS(base, seen, (seen & ~(mask << shift)) | ((uint32_t)desired << shift));
    if (before == seen) return expected;
    seen = before;
  }
}
TL_DEVICE uint16_t swap_if(uint16_t* p, uint16_t expected, uint16_t desired) { return swap_narrow(p, expected, desired); }
TL_DEVICE uint8_t swap_if(uint8_t* p, uint8_t expected, uint8_t desired) { return swap_narrow(p, expected, desired); }

// Replace *p by f(*p); any element type.
template <class T, class F> TL_DEVICE T atomic_update(T* p, F f) {
  typedef typename word<sizeof(T)>::type U;
  U* place = reinterpret_cast<U*>(p);
  U seen = *reinterpret_cast<volatile U*>(place);
  while (true) {
    T before = bit_cast<T>(seen);
    U wanted = bit_cast<U>(f(before));
    U found = swap_if(place, seen, wanted);
    if (found == seen) return before;
    seen = found;
  }
}

// ---- the operations
template <class T> TL_DEVICE T atomic_add(T* p, T v) { return atomic_update(p, [v](T x) { return T(x + v); }); }
template <class T> TL_DEVICE T atomic_max(T* p, T v) { return atomic_update(p, [v](T x) { return tl::max<T>(x, v); }); }
template <class T> TL_DEVICE T atomic_min(T* p, T v) { return atomic_update(p, [v](T x) { return tl::min<T>(x, v); }); }
template <class T> TL_DEVICE T atomic_or(T* p, T v) { return atomic_update(p, [v](T x) { return T(x | v); }); }
template <class T> TL_DEVICE T atomic_and(T* p, T v) { return atomic_update(p, [v](T x) { return T(x & v); }); }
template <class T> TL_DEVICE T atomic_xor(T* p, T v) { return atomic_update(p, [v](T x) { return T(x ^ v); }); }
template <class T> TL_DEVICE T atomic_exch(T* p, T v) { return atomic_update(p, [v](T) { return v; }); }

#define TL_NATIVE(name, T, W, native)                                           \
  template <> __device__ __forceinline__ T name<T>(T* p, T v) {                 \
    return (T)native(reinterpret_cast<W*>(p), (W)v);                            \
  }
#define TL_NATIVE_BITS(T, W)                  \
  TL_NATIVE(atomic_or, T, W, atomicOr)        \
  TL_NATIVE(atomic_and, T, W, atomicAnd)      \
  TL_NATIVE(atomic_xor, T, W, atomicXor)      \
  TL_NATIVE(atomic_exch, T, W, atomicExch)
TL_NATIVE(atomic_add, int32_t, int, atomicAdd)
TL_NATIVE(atomic_add, uint32_t, unsigned int, atomicAdd)
TL_NATIVE(atomic_add, int64_t, unsigned long long, atomicAdd)
TL_NATIVE(atomic_add, uint64_t, unsigned long long, atomicAdd)
TL_NATIVE(atomic_add, float, float, atomicAdd)
TL_NATIVE(atomic_add, double, double, atomicAdd)
TL_NATIVE(atomic_max, int32_t, int, atomicMax)
TL_NATIVE(atomic_max, uint32_t, unsigned int, atomicMax)
TL_NATIVE(atomic_max, int64_t, long long, atomicMax)
TL_NATIVE(atomic_max, uint64_t, unsigned long long, atomicMax)
TL_NATIVE(atomic_min, int32_t, int, atomicMin)
TL_NATIVE(atomic_min, uint32_t, unsigned int, atomicMin)
TL_NATIVE(atomic_min, int64_t, long long, atomicMin)
TL_NATIVE(atomic_min, uint64_t, unsigned long long, atomicMin)
TL_NATIVE_BITS(int32_t, int)
TL_NATIVE_BITS(uint32_t, unsigned int)
TL_NATIVE_BITS(int64_t, unsigned long long)
TL_NATIVE_BITS(uint64_t, unsigned long long)

template <> __device__ __forceinline__ half_t atomic_add<half_t>(half_t* p, half_t v) {
  half_t before;
  asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(before.bits) : "l"(p), "h"(v.bits) : "memory");
  return before;
}
#if __CUDA_ARCH__ >= 900
template <> __device__ __forceinline__ bfloat16_t atomic_add<bfloat16_t>(bfloat16_t* p, bfloat16_t v) {
  bfloat16_t before;
  asm volatile("atom.add.noftz.bf16 %0, [%1], %2;" : "=h"(before.bits) : "l"(p), "h"(v.bits) : "memory");
  return before;
}
#endif

// Two or four neighbours, each updated indivisibly.
template <class T, class... V> TL_DEVICE pack<T, sizeof...(V)> atomic_add_pack(T* p, V... values) {
  constexpr int n = sizeof...(V);
  pack<T, n> v = {{values...}}, before;
#pragma unroll
  for (int k = 0; k < n; ++k) before[k] = atomic_add<T>(p + k, v[k]);
  return before;
}
TL_DEVICE pack<half_t, 2> atomic_add_pack(half_t* p, half_t a, half_t b) {
  pack<half_t, 2> before;
  if (reinterpret_cast<uint64_t>(p) & 3) {
    before[0] = atomic_add<half_t>(p, a);
    before[1] = atomic_add<half_t>(p + 1, b);
    return before;
  }
  uint32_t v = (uint32_t)a.bits | ((uint32_t)b.bits << 16), r;
  asm volatile("atom.add.noftz.f16x2 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory");
  before[0].bits = (uint16_t)r;
  before[1].bits = (uint16_t)(r >> 16);
  return before;
}

// The same in global memory, where nobody wants the elements before the update: one request, if the first of them is aligned (PTX ISA, red).
template <class T, class... V> TL_DEVICE void add_pack(T* p, V... values) { atomic_add_pack(p, values...); }
#if __CUDA_ARCH__ >= 900
TL_DEVICE void add_pack(float* p, float a, float b) {
  if (reinterpret_cast<uint64_t>(p) & 7) {
    atomic_add_pack(p, a, b);
  } else {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" : : "l"(p), "f"(a), "f"(b) : "memory");
  }
}
TL_DEVICE void add_pack(float* p, float a, float b, float c, float d) {
  if (reinterpret_cast<uint64_t>(p) & 15) {
    atomic_add_pack(p, a, b, c, d);
  } else {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" : : "l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
  }
}
#endif

template <class T> TL_DEVICE T atomic_load(const T* p) {
  typedef typename word<sizeof(T)>::type U;
  return bit_cast<T>((U) * reinterpret_cast<const volatile U*>(p));
}
template <class T> TL_DEVICE T atomic_store(T* p, T v) {
  typedef typename word<sizeof(T)>::type U;
  *reinterpret_cast<volatile U*>(p) = bit_cast<U>(v);
  return v;
}

}  // namespace tl

// Element types of tile programs: integers by width, 16-bit floats, floats of 8 bits and less, packs of several lanes.
// Conversions round once, to nearest even, from every wider type; arithmetic of a 16-bit type rounds after
// each operation; smaller floats only store.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#include <tilelang/ptx.cuh>

#define TL_DEVICE static __device__ __forceinline__

namespace tl {

TL_DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }
TL_DEVICE float float_of(uint32_t x) { return __uint_as_float(x); }
TL_DEVICE float inf_f32() { return __uint_as_float(0x7f800000u); }
TL_DEVICE float nan_f32() { return __uint_as_float(0x7fc00000u); }
TL_DEVICE double inf_f64() { return __longlong_as_double(0x7ff0000000000000ll); }
TL_DEVICE double nan_f64() { return __longlong_as_double(0x7ff8000000000000ll); }

// float64 -> float32 rounded to odd: a later rounding to fewer bits is then the only one that counts.
TL_DEVICE float round_to_odd(double x) {
  float y = __double2float_rn(x);
  uint32_t bits = bits_of(y);
  double back = y;
  if ((bits & 1u) || back == x || x != x) return y;
  return float_of(fabs(back) > fabs(x) ? bits - 1u : bits + 1u);
}

// Integers -> float32 rounded to odd.
TL_DEVICE float make_odd(float truncated, bool exact) { return exact ? truncated : float_of(bits_of(truncated) | 1u); }
TL_DEVICE float round_to_odd(int32_t x) { float y = __int2float_rz(x); return make_odd(y, __float2int_rz(y) == x); }
TL_DEVICE float round_to_odd(uint32_t x) { float y = __uint2float_rz(x); return make_odd(y, __float2uint_rz(y) == x); }
TL_DEVICE float round_to_odd(int64_t x) { float y = __ll2float_rz(x); return make_odd(y, __float2ll_rz(y) == x); }
TL_DEVICE float round_to_odd(uint64_t x) { float y = __ull2float_rz(x); return make_odd(y, __float2ull_rz(y) == x); }

}  // namespace tl

// Integers are exact in float32, or too large for a half_t.
struct alignas(2) half_t {
  uint16_t bits;
  half_t() = default;
  template <class T> __device__ __forceinline__ explicit half_t(T x) { bits = round((float)x); }
  __device__ __forceinline__ explicit half_t(double x) { bits = round(tl::round_to_odd(x)); }
  static __device__ __forceinline__ half_t from_bits(uint16_t b) { half_t h; h.bits = b; return h; }
  static __device__ __forceinline__ uint16_t round(float x) { return tl::ptx::cvt_rn_f16_f32(x); }
  __device__ __forceinline__ operator float() const { return tl::ptx::cvt_f32_f16(bits); }
};

struct alignas(2) bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  template <class T> __device__ __forceinline__ explicit bfloat16_t(T x) { bits = round((float)x); }
  __device__ __forceinline__ explicit bfloat16_t(double x) { bits = round(tl::round_to_odd(x)); }
  __device__ __forceinline__ explicit bfloat16_t(int32_t x) { bits = round(tl::round_to_odd(x)); }
  __device__ __forceinline__ explicit bfloat16_t(uint32_t x) { bits = round(tl::round_to_odd(x)); }
  __device__ __forceinline__ explicit bfloat16_t(int64_t x) { bits = round(tl::round_to_odd(x)); }
  __device__ __forceinline__ explicit bfloat16_t(uint64_t x) { bits = round(tl::round_to_odd(x)); }
  static __device__ __forceinline__ bfloat16_t from_bits(uint16_t b) { bfloat16_t h; h.bits = b; return h; }
  static __device__ __forceinline__ uint16_t round(float x) { return tl::ptx::cvt_rn_bf16_f32(x); }
  __device__ __forceinline__ operator float() const { return __uint_as_float((uint32_t)bits << 16); }
};

// A 16-bit float plus, minus, times, divided by another: two roundings (float32, then 16 bits) equal one.
#define TL_HALF_OPERATOR(T, op) \
  TL_DEVICE T operator op(T a, T b) { return T((float)a op (float)b); }
#define TL_HALF_COMPARE(T, op) \
  TL_DEVICE bool operator op(T a, T b) { return (float)a op (float)b; }
#define TL_HALF_TYPE(T)                                                                                \
  TL_HALF_OPERATOR(T, +) TL_HALF_OPERATOR(T, -) TL_HALF_OPERATOR(T, *) TL_HALF_OPERATOR(T, /)          \
  TL_HALF_COMPARE(T, ==) TL_HALF_COMPARE(T, !=) TL_HALF_COMPARE(T, <) TL_HALF_COMPARE(T, <=)           \
  TL_HALF_COMPARE(T, >) TL_HALF_COMPARE(T, >=)                                                         \
  TL_DEVICE T operator-(T a) { return T::from_bits(a.bits ^ 0x8000u); }
TL_HALF_TYPE(half_t)
TL_HALF_TYPE(bfloat16_t)

// A float of B bits with E exponent and M mantissa bits. Largest: pattern of the largest finite value; Overflow: what values beyond
// it become; NaN, Inf: their patterns (Inf -1: none), all without sign; Unsigned: 0x80 is the only NaN and there is no -0.
template <int B, int E, int M, int Bias, int Largest, int Overflow, int NaN, int Inf, bool Unsigned> struct small_float {
  uint8_t bits;
  small_float() = default;
  template <class T> __device__ __forceinline__ explicit small_float(T x) { bits = encode((float)x); }
  __device__ __forceinline__ explicit small_float(double x) { bits = encode(tl::round_to_odd(x)); }
  static __device__ __forceinline__ small_float from_bits(uint8_t b) { small_float h; h.bits = b; return h; }
  static constexpr uint32_t sign_bit = 1u << (B - 1);

  __device__ __forceinline__ operator float() const {
#if __CUDA_ARCH__ >= 890
    if constexpr (B == 8 && E == 4 && NaN == 0x7f) return tl::ptx::cvt_f32_f16((uint16_t)tl::ptx::cvt_rn_f16x2_e4m3x2(bits));  // e4m3fn
    if constexpr (B == 8 && E == 5 && NaN == 0x7e) return tl::ptx::cvt_f32_f16((uint16_t)tl::ptx::cvt_rn_f16x2_e5m2x2(bits));  // e5m2
#endif
    uint32_t magnitude = bits & (sign_bit - 1u);
    // The pattern moved to float32's place is the value times a power of two, subnormals included.
    uint32_t value = tl::bits_of(tl::float_of(magnitude << (23 - M)) * tl::float_of((uint32_t)(254 - Bias) << 23));
    if (Inf >= 0) {
      if (magnitude >= (uint32_t)Inf) value = magnitude == (uint32_t)Inf ? 0x7f800000u : 0x7fc00000u;
    } else if (!Unsigned && B == 8) {
      if (magnitude == (uint32_t)NaN) value = 0x7fc00000u;
    }
    value |= (bits & sign_bit) << (32 - B);
    if (Unsigned && bits == 0x80u) value = 0x7fc00000u;
    return tl::float_of(value);
  }

  static __device__ __forceinline__ uint8_t encode(float x) {
    constexpr int shift = 23 - M;
    uint32_t word = tl::bits_of(x), magnitude = word & 0x7fffffffu;
    uint32_t result;
    if (magnitude < ((uint32_t)(128 - Bias) << 23)) {
      // Subnormal: adding a float whose last bit weighs one unit of the format rounds to nearest even.
      constexpr uint32_t magic = (uint32_t)(151 - Bias - M) << 23;
      result = tl::bits_of(tl::float_of(magnitude) + tl::float_of(magic)) - magic;
    } else {
      result = (magnitude + ((magnitude >> shift) & 1u) + ((1u << (shift - 1)) - 1u) - ((uint32_t)(127 - Bias) << 23)) >> shift;
    }
    if (result > (uint32_t)Largest) result = Overflow;
    constexpr uint32_t limit = (uint32_t)(127 - Bias + (1 << E)) << 23;
    if (magnitude >= (limit < 0x7f800000u ? limit : 0x7f800000u)) result = Overflow;
    bool is_nan = magnitude > 0x7f800000u;
    if (is_nan) result = NaN;
    uint32_t sign = (word >> 31) << (B - 1);
    if (Unsigned) return (uint8_t)(result == 0u || result == 0x80u ? result : result | sign);
    if (B < 8) return (uint8_t)(is_nan ? sign ^ sign_bit : result | sign);  // no NaN: zero with the other sign
    return (uint8_t)(result | sign);
  }
};

typedef small_float<8, 4, 3, 7, 0x7e, 0x7f, 0x7f, -1, false> float8_e4m3fn_t;
typedef small_float<8, 5, 2, 15, 0x7b, 0x7c, 0x7e, 0x7c, false> float8_e5m2_t;
typedef small_float<8, 4, 3, 7, 0x77, 0x78, 0x7c, 0x78, false> float8_e4m3_t;
typedef small_float<8, 3, 4, 3, 0x6f, 0x70, 0x78, 0x70, false> float8_e3m4_t;
typedef small_float<8, 4, 3, 8, 0x7f, 0x80, 0x80, -1, true> float8_e4m3fnuz_t;
typedef small_float<8, 5, 2, 16, 0x7f, 0x80, 0x80, -1, true> float8_e5m2fnuz_t;
typedef small_float<8, 4, 3, 11, 0x7f, 0x80, 0x80, -1, true> float8_e4m3b11fnuz_t;
typedef small_float<6, 2, 3, 1, 0x1f, 0x1f, 0x00, -1, false> float6_e2m3fn_t;
typedef small_float<6, 3, 2, 3, 0x1f, 0x1f, 0x00, -1, false> float6_e3m2fn_t;
typedef small_float<4, 2, 1, 1, 0x07, 0x07, 0x00, -1, false> float4_e2m1fn_t;

// An exponent only: powers of two from 2^-127; 0xff is NaN.
struct float8_e8m0fnu_t {
  uint8_t bits;
  float8_e8m0fnu_t() = default;
  template <class T> __device__ __forceinline__ explicit float8_e8m0fnu_t(T x) { bits = encode((float)x); }
  __device__ __forceinline__ explicit float8_e8m0fnu_t(double x) { bits = encode(tl::round_to_odd(x)); }
  static __device__ __forceinline__ float8_e8m0fnu_t from_bits(uint8_t b) { float8_e8m0fnu_t h; h.bits = b; return h; }
  __device__ __forceinline__ operator float() const {
    return tl::float_of(bits == 0xffu ? 0x7fc00000u : bits == 0u ? 0x00400000u : (uint32_t)bits << 23);
  }
  static __device__ __forceinline__ uint8_t encode(float x) {
    uint32_t word = tl::bits_of(x);
    if (word == 0u || word >= 0x7f400000u) return 0xffu;  // zero, negative, inf, NaN
    if (word < 0x800000u) return word >= 0x600000u ? 1u : 0u;
    return (uint8_t)((word + 0x400000u) >> 23);
  }
};

namespace tl {

// N lanes of T in consecutive memory; loads and stores of one move up to 16 bytes at once.
template <class T, int N> struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) pack {
  T lane[N];
  __device__ __forceinline__ T& operator[](int k) { return lane[k]; }
  __device__ __forceinline__ const T& operator[](int k) const { return lane[k]; }
};

template <int N, class T> TL_DEVICE pack<T, N> load_pack(const T* p) { return *reinterpret_cast<const pack<T, N>*>(p); }

template <class T, class... Lanes> TL_DEVICE pack<T, sizeof...(Lanes)> make_pack(Lanes... lanes) { return {{lanes...}}; }
template <int N, class T> TL_DEVICE pack<T, N> broadcast(T x) {
  pack<T, N> r;
#pragma unroll
  for (int k = 0; k < N; ++k) r[k] = x;
  return r;
}
template <int N, class T> TL_DEVICE pack<T, N> ramp(T base, T stride) {
  pack<T, N> r;
#pragma unroll
  for (int k = 0; k < N; ++k) r[k] = base + (T)k * stride;
  return r;
}

// The same bits as another type of the same size.
template <class To, class From> TL_DEVICE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast between types of different sizes");
  union U { From from; To to; __device__ __forceinline__ U() {} } u;
  u.from = from;
  return u.to;
}

// 16-bit elements go in words: as halves the compiler would carry each alone from where they are computed to where they are used.
template <int N, class T> TL_DEVICE void store_pack(T* p, const pack<T, N>& v) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    pack<uint32_t, N / 2> words;
#pragma unroll
    for (int k = 0; k < N; k += 2) words[k / 2] = (uint32_t)bit_cast<uint16_t>(v[k]) | (uint32_t)bit_cast<uint16_t>(v[k + 1]) << 16;
    *reinterpret_cast<pack<uint32_t, N / 2>*>(p) = words;
  } else {
    *reinterpret_cast<pack<T, N>*>(p) = v;
  }
}

}  // namespace tl

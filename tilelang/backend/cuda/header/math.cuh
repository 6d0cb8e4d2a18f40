// Arithmetic that C++ leaves undefined or spells differently: divisions, shifts, casts of floats to integers, functions of 16-bit floats.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

// ---- integers: sums and products wrap around; x / 0 and x % 0 are 0; the most negative number / -1 wraps
template <class T> struct is_signed { static constexpr bool value = (T)-1 < (T)0; };
template <class T> struct unsigned_of { typedef T type; };
template <> struct unsigned_of<int8_t> { typedef uint8_t type; };
template <> struct unsigned_of<int16_t> { typedef uint16_t type; };
template <> struct unsigned_of<int32_t> { typedef uint32_t type; };
template <> struct unsigned_of<int64_t> { typedef uint64_t type; };

#define TL_WRAPPING(name, op)                              \
  template <class T> TL_DEVICE T wrapping_##name(T a, T b) { \
    typedef typename unsigned_of<T>::type U;               \
    return (T)((U)a op (U)b);                              \
  }
TL_WRAPPING(add, +)
TL_WRAPPING(sub, -)
TL_WRAPPING(mul, *)
template <class T> TL_DEVICE T trunc_div(T a, T b) {
  if (b == (T)0) return (T)0;
  if (is_signed<T>::value && b == (T)-1) return (T)((typename unsigned_of<T>::type)0 - (typename unsigned_of<T>::type)a);
  return (T)(a / b);
}
template <class T> TL_DEVICE T trunc_mod(T a, T b) {
  if (b == (T)0 || (is_signed<T>::value && b == (T)-1)) return (T)0;
  return (T)(a % b);
}
template <class T> TL_DEVICE T floor_div(T a, T b) {
  if (!is_signed<T>::value) return trunc_div(a, b);
  if (b == (T)0) return (T)0;
  if (b == (T)-1) return trunc_div(a, b);
  T q = (T)(a / b), r = (T)(a % b);
  return (T)(r != (T)0 && ((r < (T)0) != (b < (T)0)) ? q - 1 : q);
}
template <class T> TL_DEVICE T floor_mod(T a, T b) {
  T r = trunc_mod(a, b);
  return (T)(is_signed<T>::value && r != (T)0 && ((r < (T)0) != (b < (T)0)) ? r + b : r);
}
// Shifts by the width or more, or by a negative amount, move every bit out.
template <class T> TL_DEVICE T shift_left(T a, T b) {
  constexpr int width = 8 * sizeof(T);
  typedef typename unsigned_of<T>::type U;
  return (U)b < (U)width ? (T)((U)a << (int)b) : (T)0;
}
template <class T> TL_DEVICE T shift_right(T a, T b) {
  constexpr int width = 8 * sizeof(T);
  typedef typename unsigned_of<T>::type U;
  if ((U)b < (U)width) return (T)(a >> (int)b);
  return is_signed<T>::value ? (T)(a >> (width - 1)) : (T)0;
}
template <class T> TL_DEVICE T abs(T x) { return x < (T)0 ? (T)((typename unsigned_of<T>::type)0 - (typename unsigned_of<T>::type)x) : x; }
template <class T> TL_DEVICE T min(T a, T b) { return b < a ? b : a; }
template <class T> TL_DEVICE T max(T a, T b) { return a < b ? b : a; }
TL_DEVICE int8_t to_int4(int x) { return (int8_t)((int32_t)((uint32_t)x << 28) >> 28); }
TL_DEVICE uint8_t to_uint4(uint32_t x) { return (uint8_t)(x & 15u); }

// ---- floats to integers: truncated and saturated, NaN is 0; narrow types take the low bits of an int32
TL_DEVICE int32_t to_int32(float x) { return x != x ? 0 : __float2int_rz(x); }
TL_DEVICE int32_t to_int32(double x) { return x != x ? 0 : __double2int_rz(x); }
TL_DEVICE uint32_t to_uint32(float x) { return x != x ? 0u : __float2uint_rz(x); }
TL_DEVICE uint32_t to_uint32(double x) { return x != x ? 0u : __double2uint_rz(x); }
TL_DEVICE int64_t to_int64(float x) { return x != x ? 0 : (int64_t)__float2ll_rz(x); }
TL_DEVICE int64_t to_int64(double x) { return x != x ? 0 : (int64_t)__double2ll_rz(x); }
TL_DEVICE uint64_t to_uint64(float x) { return x != x ? 0 : (uint64_t)__float2ull_rz(x); }
TL_DEVICE uint64_t to_uint64(double x) { return x != x ? 0 : (uint64_t)__double2ull_rz(x); }

// ---- floats
#define TL_FLOAT_MINMAX(T)                                                        \
  template <> TL_SPECIAL T min<T>(T a, T b) { return T(fminf((float)a, (float)b)); } \
  template <> TL_SPECIAL T max<T>(T a, T b) { return T(fmaxf((float)a, (float)b)); } \
  template <> TL_SPECIAL T abs<T>(T a) { return T(fabsf((float)a)); }
#define TL_SPECIAL __device__ __forceinline__
TL_FLOAT_MINMAX(half_t)
TL_FLOAT_MINMAX(bfloat16_t)
TL_FLOAT_MINMAX(float)
template <> TL_SPECIAL double min<double>(double a, double b) { return fmin(a, b); }
template <> TL_SPECIAL double max<double>(double a, double b) { return fmax(a, b); }
template <> TL_SPECIAL double abs<double>(double a) { return fabs(a); }
TL_DEVICE bool isnan(float x) { return x != x; }
TL_DEVICE bool isnan(double x) { return x != x; }
TL_DEVICE bool isinf(float x) { return fabsf(x) == inf_f32(); }
TL_DEVICE bool isinf(double x) { return fabs(x) == inf_f64(); }
TL_DEVICE bool isfinite(float x) { return fabsf(x) < inf_f32(); }
TL_DEVICE bool isfinite(double x) { return fabs(x) < inf_f64(); }
TL_DEVICE float exp2(float x) { return ptx::ex2_approx_ftz_f32(x); }
TL_DEVICE float sigmoid(float x) {
  float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
TL_DEVICE double sigmoid(double x) {
  double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
TL_DEVICE int32_t dp4a(const int8_t* a, const int8_t* b, int32_t c) {
#pragma unroll
  for (int k = 0; k < 4; ++k) c += (int32_t)a[k] * (int32_t)b[k];
  return c;
}

// ---- packs: lane by lane
#define TL_PACK_OPERATOR(op)                                                             \
  template <class T, int N> TL_DEVICE pack<T, N> operator op(const pack<T, N>& a, const pack<T, N>& b) { \
    pack<T, N> r;                                                                        \
    _Pragma("unroll") for (int k = 0; k < N; ++k) r[k] = (T)(a[k] op b[k]);              \
    return r;                                                                            \
  }
TL_PACK_OPERATOR(+)
TL_PACK_OPERATOR(-)
TL_PACK_OPERATOR(*)
TL_PACK_OPERATOR(/)
TL_PACK_OPERATOR(&)
TL_PACK_OPERATOR(|)
TL_PACK_OPERATOR(^)
// One operand the same in all lanes.
#define TL_PACK_SCALAR(op)                                                                                            \
  template <class T, int N> TL_DEVICE pack<T, N> operator op(const pack<T, N>& a, T b) { return a op broadcast<N>(b); } \
  template <class T, int N> TL_DEVICE pack<T, N> operator op(T a, const pack<T, N>& b) { return broadcast<N>(a) op b; }
// 16-bit floats: two lanes in one instruction, each rounded as one lane alone is.
template <class T, int N> TL_DEVICE uint32_t pair(const pack<T, N>& p, int k) { return (uint32_t)p[k].bits | (uint32_t)p[k + 1].bits << 16; }
TL_DEVICE uint32_t halves(uint16_t low, uint16_t high) { return (uint32_t)low | (uint32_t)high << 16; }
template <class T, int N> TL_DEVICE void set_pair(pack<T, N>& p, int k, uint32_t both) {
  p[k].bits = (uint16_t)both;
  p[k + 1].bits = (uint16_t)(both >> 16);
}
#define TL_PAIRS(T, name, instruction, single)                                             \
  template <int N> TL_DEVICE pack<T, N> name(const pack<T, N>& a, const pack<T, N>& b) {   \
    pack<T, N> r;                                                                          \
    _Pragma("unroll") for (int k = 0; k + 1 < N; k += 2) {                                 \
      uint32_t both = ptx::instruction(pair(a, k), pair(b, k));                            \
      r[k].bits = (uint16_t)both;                                                          \
      r[k + 1].bits = (uint16_t)(both >> 16);                                              \
    }                                                                                      \
    if (N % 2) r[N - 1] = single(a[N - 1], b[N - 1]);                                      \
    return r;                                                                              \
  }
// float32 rounded to 16 bits, two lanes in one instruction, and kept in words: as halves the compiler would carry each alone around loops.
TL_DEVICE uint32_t round_two(half_t*, float a, float b) { return ptx::cvt_rn_f16x2_f32(b, a); }
TL_DEVICE uint32_t round_two(bfloat16_t*, float a, float b) { return ptx::cvt_rn_bf16x2_f32(b, a); }
template <class T, int N> TL_DEVICE void store_rounded(T* p, const pack<float, N>& v) {
  pack<uint32_t, N / 2> words;
#pragma unroll
  for (int k = 0; k < N; k += 2) words[k / 2] = round_two(p, v[k], v[k + 1]);
  *reinterpret_cast<pack<uint32_t, N / 2>*>(p) = words;
}
TL_PAIRS(half_t, operator+, add_rn_f16x2, ::operator+)
TL_PAIRS(half_t, operator-, sub_rn_f16x2, ::operator-)
TL_PAIRS(half_t, operator*, mul_rn_f16x2, ::operator*)
TL_PAIRS(half_t, min, min_f16x2, min<half_t>)
TL_PAIRS(half_t, max, max_f16x2, max<half_t>)
TL_PAIRS(bfloat16_t, operator+, add_rn_bf16x2, ::operator+)
TL_PAIRS(bfloat16_t, operator-, sub_rn_bf16x2, ::operator-)
TL_PAIRS(bfloat16_t, operator*, mul_rn_bf16x2, ::operator*)
TL_PAIRS(bfloat16_t, min, min_bf16x2, min<bfloat16_t>)
TL_PAIRS(bfloat16_t, max, max_bf16x2, max<bfloat16_t>)
TL_PACK_SCALAR(+)
TL_PACK_SCALAR(-)
TL_PACK_SCALAR(*)
#define TL_PACK_COMPARE(op)                                                              \
  template <class T, int N> TL_DEVICE pack<bool, N> operator op(const pack<T, N>& a, const pack<T, N>& b) { \
    pack<bool, N> r;                                                                     \
    _Pragma("unroll") for (int k = 0; k < N; ++k) r[k] = a[k] op b[k];                   \
    return r;                                                                            \
  }
TL_PACK_COMPARE(==)
TL_PACK_COMPARE(!=)
TL_PACK_COMPARE(<)
TL_PACK_COMPARE(<=)
TL_PACK_COMPARE(>)
TL_PACK_COMPARE(>=)
TL_PACK_COMPARE(&&)
TL_PACK_COMPARE(||)
template <class R, int N, class A, class F> TL_DEVICE pack<R, N> map(const pack<A, N>& a, F f) {
  pack<R, N> r;
#pragma unroll
  for (int k = 0; k < N; ++k) r[k] = f(a[k]);
  return r;
}
template <class R, int N, class A, class B, class F> TL_DEVICE pack<R, N> map(const pack<A, N>& a, const pack<B, N>& b, F f) {
  pack<R, N> r;
#pragma unroll
  for (int k = 0; k < N; ++k) r[k] = f(a[k], b[k]);
  return r;
}
template <class T, int N> TL_DEVICE pack<T, N> select(const pack<bool, N>& c, const pack<T, N>& a, const pack<T, N>& b) {
  pack<T, N> r;
#pragma unroll
  for (int k = 0; k < N; ++k) r[k] = c[k] ? a[k] : b[k];
  return r;
}
template <class T, int N> TL_DEVICE pack<T, N> select(bool c, const pack<T, N>& a, const pack<T, N>& b) { return c ? a : b; }

}  // namespace tl

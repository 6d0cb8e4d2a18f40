// The host's words for the instructions of the device header of the same name.
#pragma once
#include <stdint.h>

namespace tl {
namespace ptx {

static inline uint16_t cvt_rn_f16_f32(float x) {
  uint32_t word = host_bits<uint32_t>(x), magnitude = word & 0x7fffffffu, result;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 rounds to multiples of 2^-24
    result = host_bits<uint32_t>(host_bits<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    result = (magnitude + ((magnitude >> 13) & 1u) + 0xfffu - (112u << 23)) >> 13;
  }
  return (uint16_t)(result | (word >> 16 & 0x8000u));
}
static inline float cvt_f32_f16(uint16_t h) {
  uint32_t magnitude = h & 0x7fffu;
  float value = host_bits<float>(magnitude << 13) * host_bits<float>(239u << 23);
  if (magnitude >= 0x7c00u) value = host_bits<float>(magnitude == 0x7c00u ? 0x7f800000u : 0x7fffffffu);
  return host_bits<float>(host_bits<uint32_t>(value) | (uint32_t)(h & 0x8000u) << 16);
}
static inline uint16_t cvt_rn_bf16_f32(float x) {
  uint32_t word = host_bits<uint32_t>(x);
  if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (uint16_t)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

static inline float ex2_approx_ftz_f32(float x) {
  float r = exp2f(x);
  return r < 0x1p-126f ? 0.0f : r;
}

// Two 16-bit floats in one register: rounded to float32 and again, which equals rounding once.
static inline float cvt_f32_bf16(uint16_t x) { return host_bits<float>((uint32_t)x << 16); }
#define HOST_PAIR(name, widen, narrow, expression)                                                              \
  static inline uint32_t name(uint32_t x, uint32_t y) {                                                         \
    uint32_t r = 0;                                                                                             \
    for (int shift = 0; shift < 32; shift += 16) {                                                              \
      float a = widen((uint16_t)(x >> shift)), b = widen((uint16_t)(y >> shift));                               \
      r |= (uint32_t)narrow(expression) << shift;                                                               \
    }                                                                                                           \
    return r;                                                                                                   \
  }
#define HOST_PAIRS(type, widen, narrow)             \
  HOST_PAIR(add_rn_##type, widen, narrow, a + b)    \
  HOST_PAIR(sub_rn_##type, widen, narrow, a - b)    \
  HOST_PAIR(mul_rn_##type, widen, narrow, a * b)    \
  HOST_PAIR(min_##type, widen, narrow, fminf(a, b)) \
  HOST_PAIR(max_##type, widen, narrow, fmaxf(a, b))
static inline uint32_t cvt_rn_f16x2_f32(float high, float low) { return (uint32_t)cvt_rn_f16_f32(high) << 16 | cvt_rn_f16_f32(low); }
static inline uint32_t cvt_rn_bf16x2_f32(float high, float low) { return (uint32_t)cvt_rn_bf16_f32(high) << 16 | cvt_rn_bf16_f32(low); }
// 8-bit floats with 1 sign, `exponents` and `mantissa` bits: the value from its parts.
static inline uint16_t f16_of_small(uint8_t x, int exponents, int mantissa, bool is_nan, bool is_inf) {
  int exponent = (x & 0x7f) >> mantissa, part = x & ((1 << mantissa) - 1), bias = (1 << (exponents - 1)) - 1;
  float value = exponent ? ldexpf((float)(part | 1 << mantissa), exponent - bias - mantissa) : ldexpf((float)part, 1 - bias - mantissa);
  if (is_inf) value = host_bits<float>(0x7f800000u);
  return is_nan ? (uint16_t)0x7fffu : (uint16_t)(cvt_rn_f16_f32(value) | (uint32_t)(x & 0x80) << 8);
}
static inline uint16_t f16_of_e4m3(uint8_t x) { return f16_of_small(x, 4, 3, (x & 0x7f) == 0x7f, false); }
static inline uint16_t f16_of_e5m2(uint8_t x) { return f16_of_small(x, 5, 2, (x & 0x7f) > 0x7c, (x & 0x7f) == 0x7c); }
static inline uint32_t cvt_rn_f16x2_e4m3x2(uint16_t x) { return (uint32_t)f16_of_e4m3((uint8_t)(x >> 8)) << 16 | f16_of_e4m3((uint8_t)x); }
static inline uint32_t cvt_rn_f16x2_e5m2x2(uint16_t x) { return (uint32_t)f16_of_e5m2((uint8_t)(x >> 8)) << 16 | f16_of_e5m2((uint8_t)x); }
HOST_PAIRS(f16x2, cvt_f32_f16, cvt_rn_f16_f32)
HOST_PAIRS(bf16x2, cvt_f32_bf16, cvt_rn_bf16_f32)

}  // namespace ptx
}  // namespace tl

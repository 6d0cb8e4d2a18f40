// Instructions that C++ has no words for, one function each, named as in the PTX ISA.
#pragma once

namespace tl {
namespace ptx {

static __device__ __forceinline__ uint16_t cvt_rn_f16_f32(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
static __device__ __forceinline__ float cvt_f32_f16(uint16_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
static __device__ __forceinline__ uint16_t cvt_rn_bf16_f32(float x) {
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}

// 2^x within 2^-22 of the result; results below 2^-126 are 0 (PTX ISA, "ex2.approx.ftz").
static __device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// Two rounded at once: `low` in the lower half.
static __device__ __forceinline__ uint32_t cvt_rn_f16x2_f32(float high, float low) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
static __device__ __forceinline__ uint32_t cvt_rn_bf16x2_f32(float high, float low) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

#if __CUDA_ARCH__ >= 890
// Two 8-bit floats as two float16, exactly; NaN stays NaN.
static __device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2(uint16_t x) {
  uint32_t r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(x));
  return r;
}
static __device__ __forceinline__ uint32_t cvt_rn_f16x2_e5m2x2(uint16_t x) {
  uint32_t r;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(x));
  return r;
}
#endif

// Two 16-bit floats in one register. `rn`: rounded after each operation, never fused with another.
#define TL_PTX_PAIR(name, instruction)                                            \
  static __device__ __forceinline__ uint32_t name(uint32_t a, uint32_t b) {       \
    uint32_t r;                                                                   \
    asm(instruction " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));                   \
    return r;                                                                     \
  }
TL_PTX_PAIR(add_rn_f16x2, "add.rn.f16x2")
TL_PTX_PAIR(sub_rn_f16x2, "sub.rn.f16x2")
TL_PTX_PAIR(mul_rn_f16x2, "mul.rn.f16x2")
TL_PTX_PAIR(min_f16x2, "min.f16x2")
TL_PTX_PAIR(max_f16x2, "max.f16x2")
TL_PTX_PAIR(min_bf16x2, "min.bf16x2")
TL_PTX_PAIR(max_bf16x2, "max.bf16x2")
#if __CUDA_ARCH__ >= 900
TL_PTX_PAIR(add_rn_bf16x2, "add.rn.bf16x2")
TL_PTX_PAIR(sub_rn_bf16x2, "sub.rn.bf16x2")
TL_PTX_PAIR(mul_rn_bf16x2, "mul.rn.bf16x2")
#else  // before sm_90 there is only a * b + c, which is exact for these constants: 1, -1, and -0 as the sum's neutral element
static __device__ __forceinline__ uint32_t fma_rn_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
static __device__ __forceinline__ uint32_t add_rn_bf16x2(uint32_t a, uint32_t b) { return fma_rn_bf16x2(a, 0x3f803f80u, b); }
static __device__ __forceinline__ uint32_t sub_rn_bf16x2(uint32_t a, uint32_t b) { return fma_rn_bf16x2(b, 0xbf80bf80u, a); }
static __device__ __forceinline__ uint32_t mul_rn_bf16x2(uint32_t a, uint32_t b) { return fma_rn_bf16x2(a, b, 0x80008000u); }
#endif

}  // namespace ptx
}  // namespace tl
